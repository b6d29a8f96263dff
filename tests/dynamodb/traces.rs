//! What the code does, written down for the checker of docs/tla: whether a specification has a behaviour that explains it.

mod lease;
mod ring;

use std::{
    fmt::{Display, Write as _},
    path::PathBuf,
    sync::Mutex,
};

/// How many traces of each kind.
pub(super) const TRACES: u64 = 10;

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

/// Writes a trace for a specification, as its constants; `.ci/proofs` checks it. The name begins with `true` where the
/// specification must explain it, and with `false` where it must not.
pub(super) fn write(specification: &str, name: &str, constants: &[(&str, String)]) {
    /// Where traces are written to.
    const FOLDER: &str = "NAMESERVICE_TRACES";
    let folder = std::env::var(FOLDER).unwrap_or_else(|_| panic!("{FOLDER} names the folder of the traces"));
    let mut text = "SPECIFICATION TraceSpec\nCONSTANTS\n".to_owned();
    for (constant, value) in constants {
        writeln!(text, "    {constant} = {value}").unwrap();
    }
    text.push_str("CONSTRAINT Fits\nINVARIANTS Unexplained\nCHECK_DEADLOCK FALSE\n");
    std::fs::write(PathBuf::from(folder).join(format!("{specification}-{name}.cfg")), text).unwrap();
}
