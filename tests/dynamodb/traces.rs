//! Records what the code does, for the checker of docs/tla: does a specification have a behaviour that explains it?

mod lease;
mod ring;

use std::{
    fmt::{Display, Write as _},
    path::PathBuf,
    sync::Mutex,
};

use nameservice_tests::seeds::seeds;

/// How many traces of each kind.
const TRACES: u64 = 10;

/// Events of concurrent processes, in order of time.
#[derive(Debug)]
struct Log<E>(Mutex<Vec<E>>);

impl<E> Log<E> {
    fn new() -> Self {
        Self(Mutex::default())
    }

    fn add(&self, event: E) {
        self.0.lock().unwrap().push(event);
    }

    fn take(&self) -> Vec<E> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A sequence, as TLA+ writes it.
pub(super) fn sequence<T: Display>(members: &[T]) -> String {
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    format!("<<{}>>", members.join(", "))
}

/// What the code did, for the constants of a specification.
pub(super) trait Trace: Sized {
    /// The specification, in docs/tla.
    const SPECIFICATION: &'static str;

    /// Returns the values of its constants.
    fn constants(&self) -> Vec<(&'static str, String)>;

    /// Returns, by name, what the specification must not explain: the same trace with one change, `None` if there is nothing to change.
    fn changed(&self) -> Vec<(&'static str, Option<Self>)>;
}

/// Writes traces for the checker: `.ci/proofs` expects that those named `true` are explained, and those named `false` are not.
pub(super) async fn write_all<T: Trace>(of_seed: impl AsyncFn(u64) -> T) {
    for seed in seeds(TRACES) {
        let trace = of_seed(seed).await;
        write(&trace, &format!("true-{seed}"));
        for (name, changed) in trace.changed() {
            if let Some(changed) = changed {
                write(&changed, &format!("false-{name}-{seed}"));
            }
        }
    }
}

fn write<T: Trace>(trace: &T, name: &str) {
    /// Where traces are written to.
    const FOLDER: &str = "NAMESERVICE_TRACES";
    let folder = std::env::var(FOLDER).unwrap_or_else(|_| panic!("{FOLDER} names the folder of the traces"));
    let mut text = "SPECIFICATION TraceSpec\nCONSTANTS\n".to_owned();
    for (constant, value) in trace.constants() {
        writeln!(text, "    {constant} = {value}").unwrap();
    }
    text.push_str("CONSTRAINT Fits\nINVARIANTS Unexplained\nCHECK_DEADLOCK FALSE\n");
    std::fs::write(PathBuf::from(folder).join(format!("{}-{name}.cfg", T::SPECIFICATION)), text).unwrap();
}
