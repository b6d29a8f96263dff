//! What measuring itself costs the service: the same load with metrics and without, in turns.

use std::io;

use crate::{Bench, MANY, Subject, heading, load::measure, pushers, readers_of, row};

/// How often each of the two is measured. They take turns, so that what else happens on the machine meets both.
const ROUNDS: usize = 5;

impl Bench<'_> {
    pub(crate) async fn metrics(&self) -> io::Result<()> {
        heading(
            "metrics: 32 connections, in turns",
            &["load", "requests/s with", "without", "cost", "CPU µs a request with", "without", "cost"],
        );
        for pushes in [true, false] {
            let title = if pushes { "pushes" } else { "reads" };
            let with = self.with_records(Subject::Embedded, &format!("measured-{title}"), None).await?;
            let without = self.with_records(Subject::Unmeasured, &format!("unmeasured-{title}"), None).await?;
            let (mut rates, mut cpu) = ([0.0; 2], [0.0; 2]);
            for _ in 0..ROUNDS {
                for (i, server) in [&with, &without].into_iter().enumerate() {
                    let peer = Subject::Embedded.peer();
                    let before = server.cpu();
                    let figures = match pushes {
                        true => measure(server.port, pushers(peer, MANY), self.time()).await?,
                        false => measure(server.port, readers_of(peer, MANY), self.time()).await?,
                    };
                    let answered = figures.rate() * self.time().as_secs_f64();
                    rates[i] += figures.rate() / ROUNDS as f64;
                    cpu[i] += (server.cpu() - before) * 1e6 / answered.max(1.0) / ROUNDS as f64;
                }
            }
            row(&[
                title.into(),
                format!("{:.0}", rates[0]),
                format!("{:.0}", rates[1]),
                format!("{:.1} %", (1.0 - rates[0] / rates[1]) * 100.0),
                format!("{:.1}", cpu[0]),
                format!("{:.1}", cpu[1]),
                format!("{:.1} %", (cpu[0] / cpu[1] - 1.0) * 100.0),
            ]);
            with.kill().await?;
            without.kill().await?;
        }
        println!();
        Ok(())
    }
}
