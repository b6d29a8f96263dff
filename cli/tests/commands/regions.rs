//! Three regions on this machine: a home with the service, and two replicas behind links that delay, lose and disconnect.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use super::{
    replica::{ask, eventually, is_ready, spawn_replica, wait_if_not_shown},
    spawn_serve,
};

/// A link to a service: traffic is delayed, and stopped while the link is cut.
#[derive(Clone)]
struct Link {
    url: String,
    state: Arc<State>,
}

struct State {
    to: SocketAddr,
    delay: Duration,
    is_cut: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Link {
    fn to(url: &str, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url_here = format!("http://{}", listener.local_addr().unwrap());
        let to = url.strip_prefix("http://").unwrap().parse().unwrap();
        let state = Arc::new(State { to, delay, is_cut: false.into(), open: Mutex::default() });
        let link = Self { url: url_here, state: state.clone() };
        thread::spawn(move || {
            for here in listener.incoming().flatten() {
                if state.is_cut.load(SeqCst) {
                    continue;
                }
                let Ok(there) = TcpStream::connect(state.to) else { continue };
                state.open.lock().unwrap().extend([here.try_clone().unwrap(), there.try_clone().unwrap()]);
                for (from, to) in [(here.try_clone(), there.try_clone()), (there.try_clone(), here.try_clone())] {
                    let (from, to, state) = (from.unwrap(), to.unwrap(), state.clone());
                    thread::spawn(move || state.carry(from, to));
                }
            }
        });
        link
    }

    /// Cuts the link: what is in transit is lost.
    fn cut(&self) {
        self.state.is_cut.store(true, SeqCst);
        for stream in self.state.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn mend(&self) {
        self.state.is_cut.store(false, SeqCst);
    }
}

impl State {
    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = [0; 16 * 1024];
        while let Ok(count) = from.read(&mut bytes) {
            thread::sleep(self.delay);
            if count == 0 || to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    }
}

fn head(url: &str) -> Option<i64> {
    let (status, _, record) = ask(url, "GET", "/v1/records/mydb", "");
    (status == 200).then(|| record["head"]["t"].as_i64().unwrap())
}

/// What a region's writer has done.
#[derive(Default)]
struct Written {
    /// The `t` of each push that was answered as updated.
    updated: Vec<i64>,
    /// Pushes with an unknown outcome, which may have been applied.
    unknown: Vec<i64>,
}

/// Moves the head on by compare-and-set on what it reads in its own region, and checks what it reads.
fn write(url: &str, rounds: usize, best: &AtomicU64) -> Written {
    let mut written = Written::default();
    let mut last = 0;
    for _ in 0..rounds {
        let Some(t) = head(url) else { continue };
        assert!(t >= last, "reads at one place went back from {last} to {t}");
        last = t;
        let id = super::ID;
        let expected = if t == 0 { r#"{"id":null,"t":0}"#.to_owned() } else { format!(r#"{{"id":"{id}","t":{t}}}"#) };
        let body = format!(r#"{{"expected":{expected},"new":{{"id":"{id}","t":{}}}}}"#, t + 1);
        let (status, answered, answer) = ask(url, "PUT", "/v1/heads/mydb", &body);
        match (status, answer["replayed"] == true) {
            // Another writer has pushed the very same value.
            (200, true) => {}
            (200, false) => {
                written.updated.push(t + 1);
                best.fetch_max(u64::try_from(t + 1).unwrap(), SeqCst);
                wait_if_not_shown(url, &answered, t + 1);
                let read = head(url).unwrap();
                assert!(read > t, "what was written at {} is not read there: {read}", t + 1);
                last = read;
            }
            (503, _) if answer["type"].as_str().is_some_and(|kind| kind.ends_with("outcome-unknown")) => {
                written.unknown.push(t + 1);
            }
            (409 | 503, _) => {}
            other => panic!("{other:?} {answer}"),
        }
    }
    written
}

#[test]
fn writers_in_three_regions_lose_nothing_over_links_that_delay_and_part() {
    let parent = tempfile::tempdir().unwrap();
    let home = spawn_serve(&parent.path().join("home"));
    assert_eq!(ask(&home.url, "POST", "/v1/ledgers", r#"{"address":"mydb"}"#).0, 201);
    let links = [Link::to(&home.url, Duration::from_millis(3)), Link::to(&home.url, Duration::from_millis(8))];
    let regions: Vec<_> = links
        .iter()
        .enumerate()
        .map(|(n, link)| spawn_replica(&parent.path().join(format!("region{n}")), &link.url))
        .collect();
    for region in &regions {
        eventually("the first snapshot", || is_ready(&region.url));
    }
    let best = Arc::new(AtomicU64::new(0));
    let mut urls: Vec<String> = regions.iter().map(|region| region.url.clone()).collect();
    urls.push(home.url.clone());
    let writers: Vec<_> = urls
        .iter()
        .cloned()
        .map(|url| {
            let best = best.clone();
            thread::spawn(move || write(&url, 60, &best))
        })
        .collect();
    for round in 0..6 {
        thread::sleep(Duration::from_millis(150));
        links[round % 2].cut();
        thread::sleep(Duration::from_millis(100));
        links[round % 2].mend();
    }
    let written: Vec<Written> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let mut updated: Vec<i64> = written.iter().flat_map(|written| written.updated.iter().copied()).collect();
    updated.sort_unstable();
    let count = updated.len();
    updated.dedup();
    assert_eq!(updated.len(), count, "of two writers that expect the same head, one wins");
    // Every step of the head was written by a push that was answered, or by one whose answer was lost.
    let end = head(&home.url).unwrap();
    let unknown: Vec<i64> = written.iter().flat_map(|written| written.unknown.iter().copied()).collect();
    for t in 1..=end {
        assert!(updated.binary_search(&t).is_ok() || unknown.contains(&t), "nobody has written {t}");
    }
    assert_eq!(updated.last().copied().max(unknown.iter().copied().filter(|t| *t <= end).max()), Some(end));
    assert!(u64::try_from(end).unwrap() >= best.load(SeqCst), "what was answered is not lost");
    for url in &urls {
        eventually("the same head everywhere", || head(url) == Some(end));
    }
}
