//! What measuring itself costs the service: the same load with metrics and without, in turns, with the standard error of the mean.

use std::io;

use crate::{Bench, MANY, Subject, heading, load::measure, pushers, readers_of, row};

/// How many services of each kind are measured. They take turns, so that what else happens on the machine meets both, and each
/// is a process of its own: two processes of the same kind differ by more than measuring costs.
const ROUNDS: usize = 10;

impl Bench<'_> {
    pub(crate) async fn metrics(&self) -> io::Result<()> {
        heading(
            "metrics: 32 connections, in turns",
            &["load", "requests/s with", "without", "cost", "CPU µs a request with", "without", "cost"],
        );
        for pushes in [true, false] {
            let title = if pushes { "pushes" } else { "reads" };
            let (mut rates, mut cpu, mut costs) = ([0.0; 2], [0.0; 2], Vec::new());
            for round in 0..ROUNDS {
                let mut rate = [0.0; 2];
                for turn in 0..2 {
                    // Neither is always the first.
                    let kind = (turn + round) % 2;
                    let subject = [Subject::Embedded, Subject::Unmeasured][kind];
                    let server = self.with_records(subject, &format!("{title}-{round}-{kind}"), None).await?;
                    let peer = Subject::Embedded.peer();
                    let before = server.cpu();
                    let figures = match pushes {
                        true => measure(server.port, pushers(peer, MANY), self.time()).await?,
                        false => measure(server.port, readers_of(peer, MANY), self.time()).await?,
                    };
                    let answered = figures.rate() * self.time().as_secs_f64();
                    rate[kind] = figures.rate();
                    rates[kind] += figures.rate() / ROUNDS as f64;
                    cpu[kind] += (server.cpu() - before) * 1e6 / answered.max(1.0) / ROUNDS as f64;
                    server.kill().await?;
                }
                costs.push((1.0 - rate[0] / rate[1]) * 100.0);
            }
            let mean = costs.iter().sum::<f64>() / ROUNDS as f64;
            let variance = costs.iter().map(|cost| (cost - mean).powi(2)).sum::<f64>() / (ROUNDS - 1) as f64;
            let error = (variance / ROUNDS as f64).sqrt();
            row(&[
                title.into(),
                format!("{:.0}", rates[0]),
                format!("{:.0}", rates[1]),
                format!("{mean:.1} ± {error:.1} %"),
                format!("{:.1}", cpu[0]),
                format!("{:.1}", cpu[1]),
                format!("{:.1} %", (cpu[0] / cpu[1] - 1.0) * 100.0),
            ]);
        }
        println!();
        Ok(())
    }
}
