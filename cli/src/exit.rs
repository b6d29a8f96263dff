//! The exit codes: the one table that failures, `--help` and the book share.

use std::fmt::Write as _;

macro_rules! exits {
    ($($name:ident $code:literal $meaning:literal)*) => {
        /// What the exit code of the program says. The names below 123 are of every command, the others of `lease run` alone.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Exit {
            $(#[doc = $meaning] $name = $code,)*
        }

        impl Exit {
            /// Every one, in ascending order.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns what it means.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)*
                }
            }
        }
    };
}

exits! {
    Done 0 "done"
    Failed 1 "failed unexpectedly, or not supported by the backend; doctor: findings are left"
    Usage 2 "bad usage or bad input: another command line would help"
    Conflict 3 "conflict, nothing written: another value is stored, exists already, has dependents, protected, lease held or lost; \
                restore-backup: data would be lost; copy, compare, remote: the places do not hold the same"
    Unknown 4 "unknown record, source or route"
    NotAllowed 5 "not allowed; login: the provider gives no token"
    Retracted 6 "the record is retracted; the changes after --after have expired"
    Unavailable 7 "unavailable for now, nothing written: the same command may succeed later; serve: the address or the data is in use, \
                   or the disk is full or read-only"
    BeyondEnd 8 "a position is beyond the end of the feed"
    Stale 9 "stale, nothing written: what is stored is as new or newer"
    OutcomeUnknown 10 "the outcome of a write is unknown: look at the record, or repeat the command with its --idempotency-key"
    LeaseHeld 123 "lease run: another holder has the lease; the command was not started"
    LeaseLost 124 "lease run: the lease was lost, and the command was stopped"
    LeaseRun 125 "lease run: it has failed itself, as the message says"
    NotExecutable 126 "lease run: the command cannot be executed"
    NotFound 127 "lease run: the command was not found"
}

impl Exit {
    /// Returns the number.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// What `lease run` exits with otherwise.
const OF_COMMAND: &str =
    "lease run exits with the code of its command, and with 128 plus its number if a signal has ended that.";

/// Returns the table as `--help` shows it.
pub(crate) fn help() -> String {
    let mut text = "Exit codes:\n".to_owned();
    for exit in Exit::ALL {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {:<3}  {}", exit.code(), exit.meaning().replace("; ", ";\n       "));
    }
    text + "\n" + OF_COMMAND
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_book_has_the_same_table() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md");
        let page = fs::read_to_string(page).unwrap();
        let rows: Vec<&str> = page
            .lines()
            .skip_while(|line| *line != "## Exit codes")
            .skip(4)
            .take_while(|line| !line.is_empty())
            .collect();
        let expected: Vec<String> =
            Exit::ALL.iter().map(|exit| format!("| {} | {} |", exit.code(), exit.meaning())).collect();
        assert_eq!(rows, expected, "docs/operations.md");
        assert!(page.contains(OF_COMMAND), "docs/operations.md");
    }

    #[test]
    fn each_code_has_one_meaning() {
        let codes: Vec<u8> = Exit::ALL.iter().map(|exit| exit.code()).collect();
        assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
    }
}
