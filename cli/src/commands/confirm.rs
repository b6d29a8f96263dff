//! Confirmation of operations that cannot be undone: a question on a terminal, `--yes` elsewhere.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use nameservice_model::Address;

use crate::{failure::Failure, output};

/// Shows what is about to be done, and asks for the address on a terminal.
pub(super) fn ask(address: &Address, what: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        output::note(&format!("this would {what}"));
        return Err(Failure::Usage(format!("nothing was done to {address}: confirm with --yes")));
    }
    let mut stderr = io::stderr().lock();
    let asked = write!(stderr, "This will {what}\nType {address} to confirm: ");
    asked.and_then(|()| stderr.flush()).map_err(Failure::Output)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(Failure::Output)?;
    // A name may begin or end with a space.
    let line = answer.trim_end_matches(['\n', '\r']);
    match [line, line.trim()].map(Address::parse) {
        [Ok(confirmed), _] | [_, Ok(confirmed)] if confirmed == *address => Ok(()),
        _ => Err(Failure::Usage("nothing was done: that is not the address".into())),
    }
}
