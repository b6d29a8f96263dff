//! What measuring itself costs the service: the same load with metrics and without, in turns, with the standard error of the mean.

use std::io;

use crate::{Bench, MANY, Subject, heading, load::measure, pushers, readers_of, row};

/// How many services of each kind are measured: two processes of the same kind differ by more than measuring costs.
const ROUNDS: usize = 10;
/// How many parts the time of a measurement has. The two services of a round take turns, so that other work on the machine
/// affects both.
const TURNS: u32 = 8;

impl Bench<'_> {
    pub(crate) async fn metrics(&self) -> io::Result<()> {
        heading(
            "metrics: 32 connections, in turns",
            &["load", "requests/s with", "without", "cost", "CPU µs a request with", "without", "cost"],
        );
        let part = self.time() / TURNS;
        for pushes in [true, false] {
            let title = if pushes { "pushes" } else { "reads" };
            let (mut rates, mut cpu, mut costs) = ([0.0; 2], [0.0; 2], [Vec::new(), Vec::new()]);
            for round in 0..ROUNDS {
                let measured = self.with_records(Subject::Embedded, &format!("{title}-{round}-with"), None).await?;
                let unmeasured =
                    self.with_records(Subject::Unmeasured, &format!("{title}-{round}-without"), None).await?;
                let servers = [measured, unmeasured];
                let (mut answered, mut used) = ([0.0; 2], [0.0; 2]);
                for turn in 0..2 * TURNS as usize {
                    // Neither is always the first.
                    let kind = (turn / 2 + turn + round) % 2;
                    let (server, peer) = (&servers[kind], Subject::Embedded.peer());
                    let before = server.cpu();
                    let figures = match pushes {
                        true => measure(server.port, pushers(peer, MANY), part).await?,
                        false => measure(server.port, readers_of(peer, MANY), part).await?,
                    };
                    answered[kind] += figures.rate() * part.as_secs_f64();
                    used[kind] += server.cpu() - before;
                }
                let cpu_each = [0, 1].map(|kind: usize| used[kind] * 1e6 / f64::max(answered[kind], 1.0));
                for kind in 0..2 {
                    rates[kind] += answered[kind] / self.time().as_secs_f64() / ROUNDS as f64;
                    cpu[kind] += cpu_each[kind] / ROUNDS as f64;
                }
                costs[0].push((1.0 - answered[0] / answered[1]) * 100.0);
                costs[1].push((cpu_each[0] / cpu_each[1] - 1.0) * 100.0);
                for server in servers {
                    server.kill().await?;
                }
            }
            row(&[
                title.into(),
                format!("{:.0}", rates[0]),
                format!("{:.0}", rates[1]),
                with_error(&costs[0]),
                format!("{:.1}", cpu[0]),
                format!("{:.1}", cpu[1]),
                with_error(&costs[1]),
            ]);
        }
        println!();
        Ok(())
    }
}

/// Returns the mean of some percentages, and its standard error.
pub(crate) fn with_error(costs: &[f64]) -> String {
    let count = costs.len() as f64;
    let mean = costs.iter().sum::<f64>() / count;
    let variance = costs.iter().map(|cost| (cost - mean).powi(2)).sum::<f64>() / (count - 1.0);
    format!("{mean:.1} ± {:.1} %", (variance / count).sqrt())
}
