//! What a backup with its check and a scrub cost the pushes beside them: the same load beside both and alone, in turns, with the standard
//! error of the mean.

use std::{
    fs, io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{process::Command, task::JoinHandle};

use crate::{Bench, MANY, Subject, heading, load::measure, metrics::with_error, names, pushers, row};

/// How often pushes are measured beside the work and alone.
const ROUNDS: usize = 10;
/// The most records of the data: a backup of them takes a part of a measurement.
const RECORDS: usize = 100_000;
/// The data, and where backups of it are made.
const DATA: &str = "backed-up";
const COPIES: &str = "backups";

impl Bench<'_> {
    pub(crate) async fn backups(&self) -> io::Result<()> {
        let (count, peer) = (self.arguments.records.min(RECORDS), Subject::Embedded.peer());
        heading(
            &format!("pushes at {MANY} connections beside other work, with {count} records, in turns"),
            &["beside", "pushes/s", "alone", "kept", "backups"],
        );
        let server = self.start(Subject::Embedded, DATA, None).await?;
        self.create(&server, peer, &names(count)).await?;
        server.kill().await?;
        let (mut rates, mut kept, mut done) = ([0.0; 2], Vec::new(), 0);
        for round in 0..ROUNDS {
            let mut measured = [0.0; 2];
            for turn in 0..2 {
                // Neither is always the first.
                let alone = (turn + round) % 2;
                let subject = if alone == 0 { Subject::Scrubbed } else { Subject::Embedded };
                let server = self.start(subject, DATA, None).await?;
                let work = (alone == 0).then(|| self.backing_up());
                measured[alone] = measure(server.port, pushers(peer, MANY), self.time()).await?.rate();
                if let Some(work) = work {
                    done += work.stop().await?;
                }
                server.kill().await?;
            }
            kept.push(measured[0] / measured[1] * 100.0);
            rates = [0, 1].map(|kind: usize| rates[kind] + measured[kind] / ROUNDS as f64);
        }
        row(&[
            "a backup, its check and a scrub".into(),
            format!("{:.0}", rates[0]),
            format!("{:.0}", rates[1]),
            with_error(&kept),
            done.to_string(),
        ]);
        println!();
        Ok(())
    }

    /// Makes backups of the data, one after another, as the service does every hour: by the same function, in a process of its own so
    /// that it begins and ends with a measurement.
    fn backing_up(&self) -> Work {
        let (program, data, copies) = (self.program.clone(), self.scratch.join(DATA), self.scratch.join(COPIES));
        let done = Arc::new(AtomicUsize::new(0));
        let count = done.clone();
        let task = tokio::spawn(async move {
            loop {
                // What the last one has left, which may have been killed.
                if copies.exists() {
                    fs::remove_dir_all(&copies)?;
                }
                let mut backup = Command::new(&program);
                backup.arg("backup").arg(&copies).arg("--data").arg(&data).kill_on_drop(true);
                let made = backup.output().await?;
                if !made.status.success() {
                    return Err(io::Error::other(String::from_utf8_lossy(&made.stderr).into_owned()));
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Work { task, done }
    }
}

/// Work that is repeated beside the pushes.
struct Work {
    task: JoinHandle<io::Result<()>>,
    done: Arc<AtomicUsize>,
}

impl Work {
    /// Ends it. Returns how often it was done, or why it failed.
    async fn stop(self) -> io::Result<usize> {
        if self.task.is_finished() {
            self.task.await.map_err(io::Error::other)??;
        } else {
            self.task.abort();
            // Its process has been killed once this returns.
            let _ = self.task.await;
        }
        Ok(self.done.load(Ordering::Relaxed))
    }
}
