//! Runs the tests that reach a mutant, with the mutant switched on.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    io::{BufRead as _, BufReader},
    num::NonZero,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use crate::{Result, build::Program};

/// How long a test may take alone; one that takes longer is not run with mutants.
const ALONE: Duration = Duration::from_secs(120);

/// How many of the fastest tests are run first, in one process.
const FIRST: usize = 12;

/// How many seconds of further tests are run in one process.
const AT_ONCE: f64 = 8.0;

/// A test, and what it reaches.
#[derive(Clone, Debug)]
struct Test {
    program: usize,
    name: String,
    seconds: f64,
}

/// What the tests say of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// One of them failed.
    Caught,
    /// They did not end in time.
    Hung,
    /// All tests that were run passed.
    Survived {
        /// How many were run.
        ran: usize,
        /// How many reach it.
        all: usize,
    },
    /// No test reaches it.
    Unreached,
}

impl Verdict {
    /// The word under which it is counted.
    pub fn word(self) -> &'static str {
        match self {
            Self::Caught => "caught",
            Self::Hung => "caught by tests that did not end",
            Self::Survived { .. } => "survived",
            Self::Unreached => "reached by no test",
        }
    }
}

/// The tests by the mutants that they reach.
pub struct Judge {
    programs: Vec<Program>,
    by_mutant: BTreeMap<usize, Vec<Test>>,
    folder: PathBuf,
    built: PathBuf,
    seconds: f64,
}

enum Ended {
    Passed,
    Failed,
    Late,
}

impl Judge {
    /// Runs every test alone, to note what it reaches. `copy` is the tree that they were built from.
    pub fn new(programs: Vec<Program>, copy: &Path, seconds: f64) -> Result<Self> {
        let (folder, built) = (copy.with_file_name("work"), copy.with_file_name("target").join("debug"));
        let mut judge = Self { programs, by_mutant: BTreeMap::new(), folder, built, seconds };
        let mut queue = Vec::new();
        for program in 0..judge.programs.len() {
            let ignored = judge.names(program, &["--ignored"])?;
            let names = judge.names(program, &[])?.into_iter().filter(|name| !ignored.contains(name));
            queue.extend(names.map(|name| Test { program, name, seconds: 0.0 }));
        }
        println!("{} tests", queue.len());
        let mut broken = Vec::new();
        let mut reached: BTreeMap<usize, Vec<Test>> = BTreeMap::new();
        judge.in_parallel(
            queue,
            |worker, test| {
                let notes = judge.folder.join(format!("{worker}.reached"));
                let _ = fs::remove_file(&notes);
                let begun = Instant::now();
                let ended =
                    judge.run(worker, test.program, &[&test.name], ALONE, &[("MUTANT_REACHED", notes.as_os_str())]);
                let seconds = begun.elapsed().as_secs_f64();
                let numbers: BTreeSet<usize> = fs::read_to_string(&notes)
                    .unwrap_or_default()
                    .lines()
                    .filter_map(|number| number.parse().ok())
                    .collect();
                (Test { seconds, ..test }, ended, numbers)
            },
            |(test, ended, numbers)| match ended {
                Ok(Ended::Passed) => {
                    for number in numbers {
                        reached.entry(number).or_default().push(test.clone());
                    }
                }
                _ => broken.push(test.name),
            },
        );
        if !broken.is_empty() {
            println!("not used, since they fail or take too long alone: {}", broken.join(", "));
        }
        for tests in reached.values_mut() {
            tests.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        }
        judge.by_mutant = reached;
        Ok(judge)
    }

    /// Judges mutants, and hands each verdict over as it comes.
    pub fn each(&self, mutants: &[usize], mut with: impl FnMut(usize, Verdict)) -> Result<()> {
        let mut failed = None;
        self.in_parallel(
            mutants.to_vec(),
            |worker, number| (number, self.judge(worker, number)),
            |(number, verdict)| match verdict {
                Ok(verdict) => with(number, verdict),
                Err(error) => failed = Some(error),
            },
        );
        failed.map_or(Ok(()), Err)
    }

    fn judge(&self, worker: usize, number: usize) -> Result<Verdict> {
        let Some(tests) = self.by_mutant.get(&number) else { return Ok(Verdict::Unreached) };
        let mut ran = 0;
        for group in groups(tests, number, self.seconds) {
            let programs: BTreeSet<usize> = group.iter().map(|test| test.program).collect();
            for program in programs {
                let of_program: Vec<&Test> = group.iter().copied().filter(|test| test.program == program).collect();
                let seconds: f64 = of_program.iter().map(|test| test.seconds).sum();
                let names: Vec<&str> = of_program.iter().map(|test| test.name.as_str()).collect();
                let limit = Duration::from_secs_f64((seconds * 4.0).max(15.0));
                let variable = number.to_string();
                ran += names.len();
                match self.run(worker, program, &names, limit, &[("MUTANT", variable.as_ref())])? {
                    Ended::Passed => {}
                    Ended::Failed => return Ok(Verdict::Caught),
                    Ended::Late => return Ok(Verdict::Hung),
                }
            }
        }
        Ok(Verdict::Survived { ran, all: tests.len() })
    }

    /// Runs tests of a program until one fails.
    fn run(
        &self,
        worker: usize,
        program: usize,
        names: &[&str],
        limit: Duration,
        variables: &[(&str, &std::ffi::OsStr)],
    ) -> Result<Ended> {
        if names.is_empty() {
            return Ok(Ended::Passed);
        }
        let folder = self.folder.join(worker.to_string());
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let mut tests = self
            .command(program)
            .arg("--exact")
            .args(names)
            .env("TMPDIR", &folder)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let output = tests.stdout.take().ok_or("no output")?;
        // A process that a test has started and left behind may hold the output open, so nothing waits for its end.
        let (send, lines) = mpsc::channel();
        thread::spawn(move || {
            BufReader::new(output).lines().map_while(std::result::Result::ok).all(|line| send.send(line).is_ok())
        });
        let deadline = Instant::now() + limit;
        let ended = loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.starts_with("test ") && line.ends_with(" ... FAILED") => break Ended::Failed,
                Ok(line) if line.starts_with("test result: ok") => break Ended::Passed,
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => break Ended::Late,
                // Tests that end without a result were aborted.
                Err(mpsc::RecvTimeoutError::Disconnected) => break Ended::Failed,
            }
        };
        end(&mut tests);
        Ok(ended)
    }

    fn names(&self, program: usize, more: &[&str]) -> Result<Vec<String>> {
        let output = self.command(program).args(["--list", "--format", "terse"]).args(more).output()?;
        let lines = String::from_utf8(output.stdout)?;
        Ok(lines.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    fn command(&self, program: usize) -> Command {
        let Program { path, folder } = &self.programs[program];
        let mut command = Command::new(path);
        command
            .current_dir(folder)
            .env("NAMESERVICE_PROGRAMS", &self.built)
            .env("PROPTEST_CASES", "6")
            .env("RUST_BACKTRACE", "0")
            .env("RUST_LOG", "off");
        command
    }

    /// Works through a queue, with one worker more than there are processors: tests wait, too.
    fn in_parallel<J: Send, D: Send>(
        &self,
        queue: Vec<J>,
        work: impl Fn(usize, J) -> D + Sync,
        mut done: impl FnMut(D),
    ) {
        let queue = Mutex::new(VecDeque::from(queue));
        let (send, receive) = mpsc::channel();
        let workers = thread::available_parallelism().map_or(2, NonZero::get) + 1;
        thread::scope(|scope| {
            for worker in 0..workers {
                let (send, queue, work) = (send.clone(), &queue, &work);
                scope.spawn(move || {
                    loop {
                        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                        let Some(job) = next else { break };
                        if send.send(work(worker, job)).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(send);
            receive.into_iter().for_each(&mut done);
        });
    }
}

/// Returns the fastest tests, and then others, evenly from fast to slow, as far as the seconds allow.
fn groups(tests: &[Test], number: usize, seconds: f64) -> Vec<Vec<&Test>> {
    let (first, rest) = tests.split_at(tests.len().min(FIRST));
    let mut spent: f64 = first.iter().map(|test| test.seconds).sum();
    let mut groups = vec![first.iter().collect::<Vec<_>>()];
    let mut group = (Vec::new(), 0.0);
    // A step that is coprime to the number of tests visits each once, in a different order for each mutant.
    let count = rest.len().max(1);
    let step = (1..=count).map(|more| number + more).find(|step| gcd(*step, count) == 1).unwrap_or(1);
    for at in 0..rest.len() {
        let test = &rest[at * step % count];
        if spent + test.seconds > seconds {
            continue;
        }
        spent += test.seconds;
        group.0.push(test);
        group.1 += test.seconds;
        if group.1 > AT_ONCE {
            groups.push(std::mem::take(&mut group).0);
        }
    }
    groups.push(group.0);
    groups
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Ends the tests and the programs that they have started.
fn end(tests: &mut Child) {
    kill(tests.id());
    let _ = tests.wait();
}

fn kill(group: u32) {
    let _ = Command::new("kill").args(["-KILL", "--", &format!("-{group}")]).stderr(Stdio::null()).status();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_is_run_once_however_many_there_are() {
        for count in [0, 1, FIRST, FIRST + 1, FIRST + 2, FIRST + 30, 300] {
            let tests: Vec<Test> = (0..count).map(|n| Test { program: 0, name: n.to_string(), seconds: 0.5 }).collect();
            for number in [0, 1, 2, 29, 30, 287, 4_805] {
                let groups = groups(&tests, number, f64::INFINITY);
                let mut names: Vec<usize> = groups.iter().flatten().map(|test| test.name.parse().unwrap()).collect();
                assert!(names.iter().take(FIRST).copied().eq(0..count.min(FIRST)), "the fastest come first");
                names.sort_unstable();
                assert!(names.into_iter().eq(0..count), "{count} tests of mutant {number}");
            }
        }
    }

    #[test]
    fn beyond_the_fastest_only_tests_that_fit_into_the_time_are_run() {
        let tests: Vec<Test> =
            (0..50).map(|n| Test { program: 0, name: n.to_string(), seconds: 1.0 + f64::from(n) }).collect();
        let seconds = |limit: f64| -> f64 { groups(&tests, 7, limit).iter().flatten().map(|test| test.seconds).sum() };
        let fastest: f64 = tests[..FIRST].iter().map(|test| test.seconds).sum();
        assert_eq!(seconds(5.0), fastest);
        assert!(seconds(200.0) > fastest && seconds(200.0) <= 200.0);
    }
}
