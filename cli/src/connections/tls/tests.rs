//! Files that change, and files that cannot be used, on the clock of the test.

use std::{
    fs::{self, FileTimes},
    sync::Arc,
    time::SystemTime,
};

use tokio::time::advance;

use super::{super::tests::Logged, *};

/// A directory with a certificate and its key.
struct Made {
    directory: tempfile::TempDir,
    files: TlsArgs,
}

impl Made {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let [cert, key] = ["cert", "key"].map(|name| Some(directory.path().join(name)));
        let made = Self { directory, files: TlsArgs { tls_cert: cert, tls_key: key, client_ca: None } };
        made.renew();
        made
    }

    /// Writes another certificate, in place, with the times that all files of some volumes have.
    fn renew(&self) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        self.write("cert", &made.cert.pem());
        self.write("key", &made.signing_key.serialize_pem());
    }

    /// Writes one that ends with a year.
    fn renew_until(&self, year: i32) {
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year + 1, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        self.write("cert", &params.self_signed(&key).unwrap().pem());
        self.write("key", &key.serialize_pem());
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.directory.path().join(name);
        fs::write(&path, content).unwrap();
        let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
        File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Returns the configuration that the next connection gets, once the files may be checked again.
async fn next(tls: &Tls) -> Arc<ServerConfig> {
    advance(CHECK_EVERY).await;
    tls.acceptor().0.config().clone()
}

#[tokio::test(start_paused = true)]
async fn files_are_compared_by_their_content_and_not_by_their_times() {
    let made = Made::new();
    let tls = made.files.open().unwrap().unwrap();
    let first = next(&tls).await;
    assert!(Arc::ptr_eq(&first, &next(&tls).await));
    // The same content in other files is no change.
    for name in ["cert", "key"] {
        let content = fs::read_to_string(made.path(name)).unwrap();
        fs::remove_file(made.path(name)).unwrap();
        fs::write(made.path(name), content).unwrap();
    }
    assert!(Arc::ptr_eq(&first, &next(&tls).await));
    made.renew();
    // At most once a second, unless it is asked for.
    assert!(Arc::ptr_eq(&first, tls.acceptor().0.config()));
    let second = next(&tls).await;
    assert!(!Arc::ptr_eq(&first, &second));
    made.renew();
    tls.reload();
    assert!(!Arc::ptr_eq(&second, tls.acceptor().0.config()));
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_could_not_be_read_or_used_is_tried_again_until_it_can_be() {
    let made = Made::new();
    let tls = made.files.open().unwrap().unwrap();
    let first = next(&tls).await;
    let former = fs::read_to_string(made.path("key")).unwrap();
    made.renew();
    // Not readable, as to a service that is not root.
    let hidden = made.path("hidden");
    fs::rename(made.path("key"), &hidden).unwrap();
    assert!(Arc::ptr_eq(&first, &next(&tls).await));
    fs::rename(&hidden, made.path("key")).unwrap();
    let second = next(&tls).await;
    assert!(!Arc::ptr_eq(&first, &second));
    // A pair of which one half is still the former, no PEM, and a file without an end.
    let renewed = fs::read_to_string(made.path("key")).unwrap();
    for unusable in [former, "none".to_owned(), String::new(), " ".repeat(2 * 1024 * 1024)] {
        made.write("key", &unusable);
        for _ in 0..3 {
            assert!(Arc::ptr_eq(&second, &next(&tls).await));
        }
    }
    made.write("key", &renewed);
    assert!(Arc::ptr_eq(&second, &next(&tls).await));
    made.renew();
    assert!(!Arc::ptr_eq(&second, &next(&tls).await));
}

#[tokio::test(start_paused = true)]
async fn the_end_that_is_measured_is_that_of_the_certificate_in_use() {
    let made = Made::new();
    made.renew_until(2029);
    let tls = made.files.open().unwrap().unwrap();
    let ends_at = async || {
        next(&tls).await;
        tls.current().ends_at
    };
    assert_eq!(ends_at().await, Some(1_893_456_000));
    made.renew_until(2019);
    assert_eq!(ends_at().await, Some(1_577_836_800), "an end that has passed");
    // What cannot be used is not in use.
    made.renew_until(2039);
    made.write("key", "none");
    assert_eq!(ends_at().await, Some(1_577_836_800));
}

#[tokio::test(start_paused = true)]
async fn an_error_is_logged_once_until_it_is_another_one_or_somebody_asks() {
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let made = Made::new();
    let tls = made.files.open().unwrap().unwrap();
    let key = fs::read_to_string(made.path("key")).unwrap();
    let three_times = async || {
        for _ in 0..3 {
            next(&tls).await;
        }
        logged.count("ERROR")
    };
    made.write("key", "none");
    assert_eq!(three_times().await, 1);
    fs::remove_file(made.path("key")).unwrap();
    assert_eq!(three_times().await, 2);
    made.write("key", "none");
    assert_eq!(three_times().await, 3);
    tls.reload();
    assert_eq!(three_times().await, 4);
    made.write("key", &key);
    assert_eq!(three_times().await, 4);
    made.write("key", "none");
    assert_eq!(three_times().await, 5);
}
