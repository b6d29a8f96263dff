//! Measures the service beside its peers: the same load, from the same tool, on the same machine, in one run.
//!
//! ```text
//! cargo bench-peers                          # everything, about ten minutes
//! cargo bench-peers --only pushes --seconds 2
//! ```
//!
//! etcd (Debian's `etcd-server`) is measured where it is installed, through its HTTP/JSON gateway. `--dynamodb-url` adds the
//! service over another engine that speaks DynamoDB. All sync every commit. Servers and load share the processors.

#![allow(clippy::print_stdout, reason = "it is a report")]

mod backups;
mod clients;
mod http1;
mod load;
mod metrics;
#[path = "../../support/preload.rs"]
#[allow(unreachable_pub, reason = "it is a part of the tests' library, too")]
mod preload;
mod process;
mod readers;
mod replica;
mod table;

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use clap::{Parser, ValueEnum};
use tokio::process::Command;

use crate::{
    clients::{Create, Peer, Push, Read},
    load::{Figures, Load, measure},
    process::{Server, free_port},
};

/// Records that are read, and, from the first on, pushed.
const RECORDS: usize = 1_000;
/// How often a ratio is measured.
const ROUNDS: usize = 5;
/// Connections where a measurement does not vary them.
const MANY: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Pushes,
    Reads,
    Hot,
    Beside,
    Events,
    Slow,
    Million,
    Replica,
    Idle,
    /// Writers beside event streams
    Streams,
    /// Health beside 1,000 writes/s and 100 readers with 100 patterns each
    Patterns,
    /// Pushes over --dynamodb-url with the stream consumer in the process
    Consumer,
    /// The same without it (over a fresh engine: one that emulates DynamoDB slows down as its stream grows)
    NoConsumer,
    /// What measuring itself costs
    Metrics,
    /// Pushes beside a backup and its check
    Backups,
}

/// Measures the service beside its peers.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long each measurement takes
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Numbers of connections, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "2,32,128")]
    connections: Vec<usize>,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// How many records the part `million` creates; `replica` and `backups` at most 100,000
    #[arg(long, default_value_t = 1_000_000)]
    records: usize,
    /// The program to measure [default: the one of this profile]
    #[arg(long)]
    program: Option<PathBuf>,
    /// Also measure the service over the DynamoDB at this URL
    #[arg(long)]
    dynamodb_url: Option<String>,
    /// Where the data goes while it is measured [default: a temporary directory]
    #[arg(long)]
    data: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let measured = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .and_then(|runtime| runtime.block_on(run(&arguments)));
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What is measured, and how it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject<'a> {
    /// The service over its embedded backend.
    Embedded,
    /// The same without metrics of itself.
    Unmeasured,
    /// The same with a scrub that begins again every second.
    Scrubbed,
    /// The service over a DynamoDB at this URL.
    DynamoDb(&'a str),
    /// The same, if another process consumes the table's stream.
    WithoutConsumer(&'a str),
    Etcd,
}

impl Subject<'_> {
    fn name(self) -> &'static str {
        match self {
            Self::Embedded => "nameservice",
            Self::Unmeasured => "nameservice without metrics",
            Self::Scrubbed => "nameservice that is scrubbed",
            Self::DynamoDb(_) | Self::WithoutConsumer(_) => "nameservice over DynamoDB",
            Self::Etcd => "etcd",
        }
    }

    fn peer(self) -> Peer {
        if self == Self::Etcd { Peer::Etcd } else { Peer::Nameservice }
    }
}

struct Bench<'a> {
    arguments: &'a Arguments,
    program: PathBuf,
    scratch: &'a Path,
}

async fn run(arguments: &Arguments) -> io::Result<()> {
    let scratch = match &arguments.data {
        Some(directory) => tempfile::tempdir_in(directory)?,
        None => tempfile::tempdir()?,
    };
    let bench = Bench { arguments, program: program(arguments)?, scratch: scratch.path() };
    let profile = if cfg!(debug_assertions) { "dev" } else { "optimised" };
    let processors = std::thread::available_parallelism()?;
    println!(
        "{} s a measurement, {processors} processors shared with the load, profile {profile}\n",
        arguments.seconds
    );
    let mut subjects = vec![Subject::Embedded];
    match std::process::Command::new("etcd").arg("--version").output() {
        Ok(_) => subjects.push(Subject::Etcd),
        Err(_) => println!("etcd is not installed: measured without it\n"),
    }
    subjects.extend(arguments.dynamodb_url.as_deref().map(Subject::DynamoDb));
    if bench.does(Part::Pushes) || bench.does(Part::Reads) {
        bench.throughput(&subjects).await?;
    }
    if bench.does(Part::Hot) {
        bench.hot(&subjects).await?;
    }
    if bench.does(Part::Beside) {
        bench.beside(&subjects).await?;
    }
    if bench.does(Part::Events) {
        bench.events().await?;
    }
    if bench.does(Part::Slow) {
        bench.slow().await?;
    }
    if bench.does(Part::Million) {
        bench.million().await?;
    }
    if bench.does(Part::Replica) {
        bench.replica().await?;
    }
    if bench.does(Part::Idle) {
        bench.idle().await?;
    }
    if bench.does(Part::Streams) {
        bench.streams(&subjects).await?;
    }
    if bench.does(Part::Patterns) {
        bench.patterns().await?;
    }
    if let Some(url) = arguments.dynamodb_url.as_deref() {
        let subjects = [(Part::Consumer, Subject::DynamoDb(url)), (Part::NoConsumer, Subject::WithoutConsumer(url))];
        for (_, subject) in subjects.into_iter().filter(|(part, _)| bench.does(*part)) {
            bench.over_a_table(subject).await?;
        }
    }
    if bench.does(Part::Metrics) {
        bench.metrics().await?;
    }
    if bench.does(Part::Backups) {
        bench.backups().await?;
    }
    Ok(())
}

/// The program of the profile in which this one was built; built now if it is not there.
fn program(arguments: &Arguments) -> io::Result<PathBuf> {
    if let Some(program) = &arguments.program {
        return Ok(program.clone());
    }
    let directory = std::env::current_exe()?.parent().map(Path::to_owned).unwrap_or_default();
    let profile = directory.file_name().and_then(|name| name.to_str()).map_or("dev", |name| match name {
        "debug" => "dev",
        other => other,
    });
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = std::process::Command::new(cargo)
        .args(["build", "--quiet", "--locked", "--package", "nameservice-cli"])
        .args(["--profile", profile])
        .status()?;
    match built.success() {
        true => Ok(directory.join("nameservice")),
        false => Err(io::Error::other("the program could not be built")),
    }
}

impl Bench<'_> {
    fn does(&self, part: Part) -> bool {
        self.arguments.only.is_empty() || self.arguments.only.contains(&part)
    }

    fn time(&self) -> Duration {
        Duration::from_secs(self.arguments.seconds)
    }

    /// Starts a server with its data in a directory of this name.
    async fn start(&self, subject: Subject<'_>, directory: &str, slow: Option<(&Path, u64)>) -> io::Result<Server> {
        let (port, data) = (free_port()?, self.scratch.join(directory));
        let mut command = match subject {
            Subject::Etcd => {
                let peers = format!("http://127.0.0.1:{}", free_port()?);
                let clients = format!("http://127.0.0.1:{port}");
                let mut command = Command::new("etcd");
                command.arg("--data-dir").arg(&data).args(["--log-level", "error"]);
                command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
                command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
                command.args(["--initial-cluster", &format!("default={peers}")]);
                command
            }
            Subject::Embedded
            | Subject::Unmeasured
            | Subject::Scrubbed
            | Subject::DynamoDb(_)
            | Subject::WithoutConsumer(_) => {
                let mut command = Command::new(&self.program);
                command.arg("serve").args(["--listen", &format!("127.0.0.1:{port}")]).env("RUST_LOG", "error");
                // Each server has a table of its own, as it has a directory of its own.
                let table: String =
                    directory.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
                match subject {
                    Subject::DynamoDb(url) => command.args(["--endpoint-url", url, "--table", &table]),
                    Subject::WithoutConsumer(url) => {
                        command.args(["--endpoint-url", url, "--table", &table, "--no-consumer"])
                    }
                    _ => command.arg("--data").arg(&data),
                };
                match subject {
                    Subject::Unmeasured => command.arg("--no-metrics"),
                    Subject::Scrubbed => command.args(["--scrub-every", "1s"]),
                    _ => &mut command,
                };
                command
            }
        };
        if let Some((library, us)) = slow {
            command.env("LD_PRELOAD", library).env("SLOW_SYNC_US", us.to_string());
        }
        Server::start(command, port).await
    }

    /// Creates records of these names, over a few connections.
    async fn create(&self, server: &Server, peer: Peer, names: &[String]) -> io::Result<()> {
        let chunks = names.chunks(names.len().div_ceil(MANY)).map(<[String]>::to_vec);
        let clients = chunks.map(|names| (names.len(), Create { peer, names: names.into_iter() }));
        let mut tasks = tokio::task::JoinSet::new();
        for (count, mut client) in clients {
            let mut connection = http1::Connection::open(server.port).await?;
            tasks.spawn(async move {
                let mut text = Vec::new();
                for _ in 0..count {
                    load::Client::request(&mut client, &mut text);
                    let answer = connection.exchange(&text).await?;
                    if answer.status >= 300 {
                        let body = String::from_utf8_lossy(answer.body).into_owned();
                        return Err(io::Error::other(format!("creating a record: {} {body}", answer.status)));
                    }
                }
                Ok(())
            });
        }
        while let Some(created) = tasks.join_next().await {
            created.map_err(io::Error::other)??;
        }
        Ok(())
    }

    async fn with_records(
        &self,
        subject: Subject<'_>,
        directory: &str,
        slow: Option<(&Path, u64)>,
    ) -> io::Result<Server> {
        let server = self.start(subject, directory, slow).await?;
        self.create(&server, subject.peer(), &names(RECORDS)).await?;
        Ok(server)
    }

    async fn throughput(&self, subjects: &[Subject<'_>]) -> io::Result<()> {
        for (part, title) in [(Part::Pushes, "pushes (compare-and-set)"), (Part::Reads, "reads")] {
            if !self.does(part) {
                continue;
            }
            heading(
                &format!("{title}, the median of {ROUNDS}"),
                &["connections", "server", "requests/s", "p50 ms", "p99 ms", "CPU of the server", "RSS MiB"],
            );
            let mut servers = Vec::new();
            for subject in subjects {
                let directory = format!("{}-{title}", subject.name());
                servers.push((*subject, self.with_records(*subject, &directory, None).await?));
            }
            for &connections in &self.arguments.connections {
                let mut rounds: Vec<Vec<(Figures, f64)>> = vec![Vec::new(); servers.len()];
                // Other work on the machine comes and goes: the servers take turns.
                for _ in 0..ROUNDS {
                    for ((subject, server), rounds) in servers.iter().zip(&mut rounds) {
                        let (cpu, peer) = (server.cpu(), subject.peer());
                        let figures = match part {
                            Part::Pushes => measure(server.port, pushers(peer, connections), self.time()).await?,
                            _ => measure(server.port, readers_of(peer, connections), self.time()).await?,
                        };
                        rounds.push((figures, (server.cpu() - cpu) / self.arguments.seconds as f64));
                    }
                }
                for ((subject, server), rounds) in servers.iter().zip(&rounds) {
                    let (figures, cpu) = median(rounds, |(figures, _)| figures.rate());
                    row(&[
                        connections.to_string(),
                        subject.name().into(),
                        format!("{:.0}", figures.rate()),
                        format!("{:.2}", figures.percentile(0.5)),
                        format!("{:.2}", figures.percentile(0.99)),
                        format!("{:.0} %", cpu * 100.0),
                        format!("{:.0}", server.rss()),
                    ]);
                }
                if let Some(etcd) = servers.iter().position(|(subject, _)| *subject == Subject::Etcd) {
                    let pairs = rounds[0].iter().zip(&rounds[etcd]);
                    let ratios: Vec<_> = pairs.map(|((ours, _), (theirs, _))| ours.rate() / theirs.rate()).collect();
                    let ratio = median(&ratios, |ratio| *ratio);
                    row(&[connections.to_string(), "× etcd".into(), format!("{ratio:.1}")]);
                }
            }
            println!();
            for (_, server) in servers {
                server.kill().await?;
            }
        }
        Ok(())
    }

    async fn hot(&self, subjects: &[Subject<'_>]) -> io::Result<()> {
        heading(
            &format!("one record, 32 compare-and-set writers, the median of {ROUNDS}"),
            &["server", "useful pushes/s", "answers/s", "least and most pushes/s"],
        );
        for subject in subjects {
            let server = self.with_records(*subject, &format!("{}-hot", subject.name()), None).await?;
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                let clients = (0..MANY).map(|writer| Push::new(subject.peer(), name(0)).by(writer));
                let figures = measure(server.port, clients, self.time()).await?;
                rounds.push((figures.rate(), figures.answers as f64 / self.arguments.seconds as f64));
            }
            let (rate, answers) = *median(&rounds, |(rate, _)| *rate);
            let rates = || rounds.iter().map(|(rate, _)| *rate);
            let (least, most) = (rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max));
            row(&[
                subject.name().into(),
                format!("{rate:.0}"),
                format!("{answers:.0}"),
                format!("{least:.0} and {most:.0}"),
            ]);
            server.kill().await?;
        }
        println!();
        Ok(())
    }

    async fn beside(&self, subjects: &[Subject<'_>]) -> io::Result<()> {
        heading("32 readers beside 32 writers", &["server", "reads/s alone", "beside writers", "kept", "pushes/s"]);
        for subject in subjects {
            let server = self.with_records(*subject, &format!("{}-beside", subject.name()), None).await?;
            self.reads_beside_writers(*subject, &server).await?;
            server.kill().await?;
        }
        println!();
        Ok(())
    }

    async fn reads_beside_writers(&self, subject: Subject<'_>, server: &Server) -> io::Result<()> {
        let peer = subject.peer();
        let alone = measure(server.port, readers_of(peer, MANY), self.time()).await?;
        let writing = Load::start(server.port, pushers(peer, MANY)).await?;
        let beside = measure(server.port, readers_of(peer, MANY), self.time()).await?;
        let written = writing.stop().await?;
        row(&[
            subject.name().into(),
            format!("{:.0}", alone.rate()),
            format!("{:.0}", beside.rate()),
            format!("{:.0} %", beside.rate() / alone.rate() * 100.0),
            format!("{:.0}", written.rate()),
        ]);
        Ok(())
    }

    async fn events(&self) -> io::Result<()> {
        let server = self.with_records(Subject::Embedded, "events", None).await?;
        heading("from a push to a reader of /v1/events", &["", "p50 ms", "p99 ms"]);
        let show = |what: &str, figures: &Figures| {
            row(&[what.into(), format!("{:.2}", figures.percentile(0.5)), format!("{:.2}", figures.percentile(0.99))]);
        };
        show("quiet", &readers::latencies(server.port, &name(RECORDS - 1), self.time()).await?);
        let writing = Load::start(server.port, pushers(Peer::Nameservice, MANY)).await?;
        show("beside 32 writers", &readers::latencies(server.port, &name(RECORDS - 2), self.time()).await?);
        writing.stop().await?;
        println!();
        server.kill().await?;

        heading(
            &format!("pushes of 32 writers beside readers, the median of {ROUNDS}"),
            &["readers", "pushes/s alone", "beside them", "kept", "events/s", "RSS MiB"],
        );
        let server = self.with_records(Subject::Embedded, "fan-out", None).await?;
        for (what, count, filter) in [
            ("10,000 whose filters match nothing", 10_000, readers::Filter::Nothing),
            ("100 that follow a record each", 100, readers::Filter::One),
            ("100 that follow everything", 100, readers::Filter::All),
        ] {
            // Other work on the machine comes and goes: each rate stands beside one of its own time.
            let mut pairs = Vec::new();
            for _ in 0..ROUNDS {
                let alone = measure(server.port, pushers(Peer::Nameservice, MANY), self.time()).await?.rate();
                let reading = readers::Readers::start(server.port, count, filter).await?;
                let beside = measure(server.port, pushers(Peer::Nameservice, MANY), self.time()).await?.rate();
                let rss = server.rss();
                let events = reading.stop().await as f64 / self.arguments.seconds as f64;
                pairs.push((beside / alone, alone, beside, events, rss));
            }
            let (kept, alone, beside, events, rss) = *median(&pairs, |(kept, ..)| *kept);
            row(&[
                what.into(),
                format!("{alone:.0}"),
                format!("{beside:.0}"),
                format!("{:.0} %", kept * 100.0),
                format!("{events:.0}"),
                format!("{rss:.0}"),
            ]);
        }
        println!();
        server.kill().await
    }

    /// The same with a disk whose sync takes longer. (etcd is not slowed: it does not sync through the C library.)
    async fn slow(&self) -> io::Result<()> {
        let Some(library) = preload::compile(self.scratch)? else {
            println!("no C compiler `cc` found: a slow disk cannot be measured\n");
            return Ok(());
        };
        for ms in [2, 10] {
            let slow = Some((library.as_path(), ms * 1000));
            heading(&format!("pushes with {ms} ms more a sync"), &["connections", "pushes/s", "p50 ms", "p99 ms"]);
            let server = self.with_records(Subject::Embedded, &format!("slow-{ms}"), slow).await?;
            for &connections in &self.arguments.connections {
                let figures = measure(server.port, pushers(Peer::Nameservice, connections), self.time()).await?;
                row(&[
                    connections.to_string(),
                    format!("{:.0}", figures.rate()),
                    format!("{:.2}", figures.percentile(0.5)),
                    format!("{:.2}", figures.percentile(0.99)),
                ]);
            }
            println!();
            heading(
                &format!("32 readers beside 32 writers with {ms} ms more a sync"),
                &["server", "reads/s alone", "beside writers", "kept", "pushes/s"],
            );
            self.reads_beside_writers(Subject::Embedded, &server).await?;
            println!();
            server.kill().await?;
        }
        Ok(())
    }

    async fn million(&self) -> io::Result<()> {
        let count = self.arguments.records;
        heading(&format!("{count} records"), &["", ""]);
        let server = self.start(Subject::Embedded, "million", None).await?;
        let begun = Instant::now();
        self.create(&server, Peer::Nameservice, &names(count)).await?;
        row(&["created".into(), format!("{:.0}/s", count as f64 / begun.elapsed().as_secs_f64())]);
        row(&["RSS once created".into(), format!("{:.0} MiB", server.rss())]);
        server.kill().await?;
        let begun = Instant::now();
        let server = self.start(Subject::Embedded, "million", None).await?;
        // It listens before it has read its log, and answers then.
        let (mut connection, mut text) = (http1::Connection::open(server.port).await?, Vec::new());
        http1::request("GET", &format!("/v1/records/{}", name(count - 1)), "", &mut text);
        let status = connection.exchange(&text).await?.status;
        row(&["first answer after kill -9".into(), format!("{status} in {:.1} s", begun.elapsed().as_secs_f64())]);
        row(&["RSS once started".into(), format!("{:.0} MiB", server.rss())]);
        let figures = measure(server.port, pushers(Peer::Nameservice, MANY), self.time()).await?;
        row(&["pushes at 32 connections".into(), format!("{:.0}/s", figures.rate())]);
        let (mut connection, mut text, begun) =
            (http1::Connection::open(server.port).await?, Vec::new(), Instant::now());
        http1::request("GET", "/fluree/nameservice/snapshot", "", &mut text);
        let mib = connection.exchange(&text).await?.body.len() as f64 / 1024.0 / 1024.0;
        row(&["Fluree's snapshot".into(), format!("{mib:.0} MiB in {:.1} s", begun.elapsed().as_secs_f64())]);
        row(&["RSS after that".into(), format!("{:.0} MiB", server.rss())]);
        server.kill().await?;
        let begun = Instant::now();
        let mut doctor = Command::new(&self.program);
        let examined = doctor.args(["doctor", "--data"]).arg(self.scratch.join("million")).output().await?;
        row(&["doctor".into(), format!("{} in {:.1} s", examined.status, begun.elapsed().as_secs_f64())]);
        println!();
        Ok(())
    }

    async fn patterns(&self) -> io::Result<()> {
        heading(
            "beside 100 readers with 100 patterns each",
            &[
                "writes/s",
                "health p50 ms",
                "health p99 ms",
                "CPU of the server",
                "RSS MiB before them",
                "with them",
                "when they have left",
            ],
        );
        let server = self.with_records(Subject::Embedded, "patterns", None).await?;
        let before = server.rss();
        let readers = readers::Readers::start(server.port, 100, readers::Filter::Patterns).await?;
        let (stop, mut writers) = (Arc::new(AtomicBool::new(false)), tokio::task::JoinSet::new());
        for n in 0..4 {
            let (mut connection, mut client) =
                (http1::Connection::open(server.port).await?, Push::new(Peer::Nameservice, name(n)));
            let stop = stop.clone();
            writers.spawn(async move {
                let (mut every, mut text, mut written) =
                    (tokio::time::interval(Duration::from_millis(4)), Vec::new(), 0_usize);
                while !stop.load(Ordering::Relaxed) {
                    every.tick().await;
                    load::Client::request(&mut client, &mut text);
                    let answer = connection.exchange(&text).await?;
                    written += usize::from(load::Client::answer(&mut client, answer.status, answer.body));
                }
                Ok::<_, io::Error>(written)
            });
        }
        let (begun, cpu, mut micros) = (Instant::now(), server.cpu(), Vec::new());
        let (mut connection, mut text) = (http1::Connection::open(server.port).await?, Vec::new());
        while begun.elapsed() < self.time() {
            text.clear();
            http1::request("GET", "/v1/health", "", &mut text);
            let sent = Instant::now();
            connection.exchange(&text).await?;
            micros.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (health, cpu, rss) = (Figures::of(micros, begun.elapsed()), server.cpu() - cpu, server.rss());
        stop.store(true, Ordering::Relaxed);
        let (mut written, elapsed) = (0, begun.elapsed().as_secs_f64());
        while let Some(writer) = writers.join_next().await {
            written += writer.map_err(io::Error::other)??;
        }
        readers.stop().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        row(&[
            format!("{:.0}", written as f64 / elapsed),
            format!("{:.1}", health.percentile(0.5)),
            format!("{:.1}", health.percentile(0.99)),
            format!("{:.0} %", cpu / elapsed * 100.0),
            format!("{before:.0}"),
            format!("{rss:.0}"),
            format!("{:.0}", server.rss()),
        ]);
        println!();
        server.kill().await
    }

    async fn idle(&self) -> io::Result<()> {
        heading("with nothing to do", &["server", "CPU", "RSS MiB"]);
        for subject in [Subject::Embedded] {
            let server = self.with_records(subject, "idle", None).await?;
            tokio::time::sleep(Duration::from_secs(2)).await;
            let cpu = server.cpu();
            tokio::time::sleep(self.time()).await;
            let cpu = (server.cpu() - cpu) / self.arguments.seconds as f64;
            row(&[subject.name().into(), format!("{:.1} %", cpu * 100.0), format!("{:.0}", server.rss())]);
            server.kill().await?;
        }
        println!();
        Ok(())
    }
}

/// The middle one of several rounds.
fn median<T>(rounds: &[T], by: impl Fn(&T) -> f64) -> &T {
    let mut order: Vec<&T> = rounds.iter().collect();
    order.sort_by(|one, other| by(one).total_cmp(&by(other)));
    order[order.len() / 2]
}

fn name(n: usize) -> String {
    format!("ledger-{n}:main")
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(name).collect()
}

fn pushers(peer: Peer, connections: usize) -> impl Iterator<Item = Push> {
    // A client that does not know what is stored learns it from its first conflict.
    (0..connections).map(move |n| Push::new(peer, name(n)))
}

fn readers_of(peer: Peer, connections: usize) -> impl Iterator<Item = Read> {
    (0..connections).map(move |n| Read { peer, names: names(RECORDS), at: n * 7 })
}

fn heading(title: &str, columns: &[&str]) {
    println!("### {title}\n");
    row(&columns.iter().map(|&column| column.to_owned()).collect::<Vec<_>>());
    row(&vec!["---".to_owned(); columns.len()]);
}

fn row(cells: &[String]) {
    println!("| {} |", cells.join(" | "));
}
