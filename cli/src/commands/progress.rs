//! Progress of what takes long, for a person: on stderr, and only where that is a terminal.

use std::{
    io::{IsTerminal as _, stderr},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::Output;

const TICK: Duration = Duration::from_millis(250);

/// Returns whether somebody looks.
pub(super) fn is_wanted(output: Output) -> bool {
    !output.is_json() && stderr().is_terminal()
}

/// A line with what is done now and how long it has taken. It goes with the value.
pub(super) struct Spinner(ProgressBar);

impl Spinner {
    pub(super) fn begin(output: Output, what: impl Into<String>) -> Self {
        if !is_wanted(output) {
            return Self(ProgressBar::hidden());
        }
        let spinner = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}, {elapsed}") {
            spinner.set_style(style);
        }
        spinner.set_message(what.into());
        spinner.enable_steady_tick(TICK);
        Self(spinner)
    }

    /// Says what is done from now on.
    pub(super) fn show(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
