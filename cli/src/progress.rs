//! Progress of long operations, for people: on stderr, and only if that is a terminal.

use std::{
    fmt::Write,
    io::{IsTerminal as _, stderr},
    time::Duration,
};

use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use nameservice_model::Progress;

use crate::output::Output;

const TICK: Duration = Duration::from_millis(250);
/// The width of the bar itself, in characters.
const WIDTH: usize = 20;

/// Returns whether progress should be shown.
pub(crate) fn is_wanted(output: Output) -> bool {
    !output.is_json() && stderr().is_terminal()
}

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    /// Records of a nameservice.
    Records,
    /// Rows of a log: changes and records.
    Rows,
    /// Changes of a feed.
    #[cfg(feature = "archive")]
    Changes,
    Bytes,
}

/// A line with the current operation, its progress, its rate and the remaining time. Dropping it removes the line.
#[derive(Debug)]
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn begin(output: Output, unit: Unit, what: impl Into<String>) -> Self {
        if !is_wanted(output) {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::no_length();
        let counted = move |state: &ProgressState, text: &mut dyn Write| {
            let counts = Counts {
                progress: Progress { done: state.pos(), total: state.len() },
                per_second: state.per_sec(),
                elapsed: state.elapsed(),
                left: state.eta(),
            };
            // Writing to a string cannot fail.
            let _ = text.write_str(&counts.words(unit));
        };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix}{counted}{msg}") {
            bar.set_style(style.with_key("counted", counted));
        }
        bar.set_prefix(what.into());
        bar.enable_steady_tick(TICK);
        Self(bar)
    }

    /// Shows the progress.
    pub(crate) fn show(&self, progress: Progress) {
        self.show_with(progress, "");
    }

    /// Shows the progress, and further text.
    pub(crate) fn show_with(&self, Progress { done, total }: Progress, more: impl Into<String>) {
        if self.0.is_finished() {
            return;
        }
        if let Some(total) = total.filter(|total| self.0.length() != Some(*total)) {
            self.0.set_length(total);
        }
        self.0.set_position(done);
        // Draws the line, as often as a terminal can show it.
        self.0.set_message(more.into());
    }

    /// Removes the line before something else is printed.
    pub(crate) fn end(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a line shows.
struct Counts {
    progress: Progress,
    per_second: f64,
    elapsed: Duration,
    left: Duration,
}

impl Counts {
    fn words(&self, unit: Unit) -> String {
        let Progress { done, total } = self.progress;
        let amount = |amount: u64| match unit {
            Unit::Bytes => HumanBytes(amount).to_string(),
            _ => HumanCount(amount).to_string(),
        };
        let of_unit = match unit {
            Unit::Records => " records",
            Unit::Rows => " rows",
            #[cfg(feature = "archive")]
            Unit::Changes => " changes",
            Unit::Bytes => "",
        };
        let rate = amount(self.per_second as u64);
        let time = |duration: Duration| format!("{:#}", HumanDuration(duration));
        match total {
            None if done == 0 => format!(", {}", time(self.elapsed)),
            None => format!(": {}{of_unit}, {rate}/s, {}", amount(done), time(self.elapsed)),
            Some(total) => {
                let fraction = if total == 0 { 1.0 } else { (done as f64 / total as f64).min(1.0) };
                let filled = (fraction * WIDTH as f64) as usize;
                let bar = "█".repeat(filled) + &"░".repeat(WIDTH - filled);
                format!(
                    ": {bar} {} of {}{of_unit}, {:.0} %, {rate}/s, {} left",
                    amount(done),
                    amount(total),
                    (fraction * 100.0).floor(),
                    time(self.left),
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(unit: Unit, done: u64, total: Option<u64>) -> String {
        let progress = Progress { done, total };
        Counts { progress, per_second: 480.7, elapsed: Duration::from_secs(3), left: Duration::from_secs(9) }
            .words(unit)
    }

    #[test]
    fn a_line_shows_count_and_rate_and_with_a_total_percentage_and_what_is_left() {
        for (unit, done, total, expected) in [
            (Unit::Records, 0, None, ", 3s"),
            (Unit::Records, 1_500, None, ": 1,500 records, 480/s, 3s"),
            (Unit::Records, 1_500, Some(6_000), ": █████░░░░░░░░░░░░░░░ 1,500 of 6,000 records, 25 %, 480/s, 9s left"),
            (Unit::Rows, 5_999, Some(6_000), ": ███████████████████░ 5,999 of 6,000 rows, 99 %, 480/s, 9s left"),
            (
                Unit::Bytes,
                3 << 20,
                Some(4 << 20),
                ": ███████████████░░░░░ 3.00 MiB of 4.00 MiB, 75 %, 480 B/s, 9s left",
            ),
            // More than the total: records that were created during the copy.
            (Unit::Records, 7, Some(6), ": ████████████████████ 7 of 6 records, 100 %, 480/s, 9s left"),
            (Unit::Changes, 40, None, ": 40 changes, 480/s, 3s"),
            (Unit::Records, 0, Some(0), ": ████████████████████ 0 of 0 records, 100 %, 480/s, 9s left"),
        ] {
            assert_eq!(words(unit, done, total), expected);
        }
    }
}
