//! How much event streams and the stream consumer slow pushes down.

use std::{io, time::Duration};

use crate::{
    Bench, MANY, Subject, heading,
    http1::{Connection, request},
    load::measure,
    process::Server,
    pushers, readers, row,
};

/// Writers beside readers, as many as in the issue that this measures.
const WRITERS: usize = 8;
/// How long a service that has nothing to do is watched.
const IDLE: Duration = Duration::from_secs(20);

impl Bench<'_> {
    /// Pushes beside event streams whose filters match nothing, embedded and over a DynamoDB.
    pub(crate) async fn streams(&self, subjects: &[Subject<'_>]) -> io::Result<()> {
        heading(
            &format!("{WRITERS} writers beside event streams whose filters match nothing"),
            &["server", "streams", "pushes/s", "kept", "p99 ms", "requests to DynamoDB a push"],
        );
        for subject in subjects.iter().copied().filter(|subject| *subject != Subject::Etcd) {
            let server = self.with_records(subject, &format!("{}-streams", subject.name()), None).await?;
            let mut alone = None;
            for count in [0, 10, 50, 100] {
                let reading = readers::Readers::start(server.port, count, readers::Filter::Nothing).await?;
                let before = store_requests(&server).await?;
                let figures = measure(server.port, pushers(subject.peer(), WRITERS), self.time()).await?;
                let sent = store_requests(&server).await? - before;
                reading.stop().await;
                let alone = *alone.get_or_insert(figures.rate());
                row(&[
                    subject.name().into(),
                    count.to_string(),
                    format!("{:.0}", figures.rate()),
                    format!("{:.0} %", figures.rate() / alone * 100.0),
                    format!("{:.1}", figures.percentile(0.99)),
                    format!("{:.2}", sent / figures.useful as f64),
                ]);
            }
            server.kill().await?;
        }
        println!();
        Ok(())
    }

    /// Pushes over a DynamoDB, and what is sent to it when there is nothing to do.
    pub(crate) async fn over_a_table(&self, subject: Subject<'_>) -> io::Result<()> {
        let consumer = if matches!(subject, Subject::WithoutConsumer(_)) { "without" } else { "with" };
        heading(
            &format!("{MANY} writers over DynamoDB, {consumer} the stream consumer in the process"),
            &["pushes/s", "p50 ms", "p99 ms", "DynamoDB requests per push", "requests/s when idle"],
        );
        let server = self.with_records(subject, consumer, None).await?;
        let before = store_requests(&server).await?;
        let figures = measure(server.port, pushers(subject.peer(), MANY), self.time()).await?;
        let sent = store_requests(&server).await? - before;
        // Lets the consumer read the rest of the load first.
        tokio::time::sleep(IDLE).await;
        let before = store_requests(&server).await?;
        tokio::time::sleep(IDLE).await;
        let idle = store_requests(&server).await? - before;
        row(&[
            format!("{:.0}", figures.rate()),
            format!("{:.1}", figures.percentile(0.5)),
            format!("{:.1}", figures.percentile(0.99)),
            format!("{:.2}", sent / figures.useful as f64),
            // Each reading of the metrics asks the table for the feed's position.
            format!("{:.2}", (idle - 1.0).max(0.0) / IDLE.as_secs_f64()),
        ]);
        println!();
        server.kill().await
    }
}

/// Returns how many requests the server has sent to DynamoDB.
async fn store_requests(server: &Server) -> io::Result<f64> {
    let mut connection = Connection::open(server.port).await?;
    let mut text = Vec::new();
    request("GET", "/metrics", "", &mut text);
    let answer = connection.exchange(&text).await?;
    let body = String::from_utf8_lossy(answer.body);
    let counted = body.lines().filter(|line| line.starts_with("nameservice_store_requests_total"));
    Ok(counted.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}
