//! Colours, if the output is a terminal that wants them: `NO_COLOR` and `CLICOLOR` are respected.

use std::io;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

/// Whether text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Palette(bool);

impl Palette {
    /// No colours.
    pub const PLAIN: Self = Self(false);

    /// For what is printed to stdout.
    pub fn stdout() -> Self {
        Self(AutoStream::choice(&io::stdout()) != ColorChoice::Never)
    }

    /// For what is printed to stderr.
    pub fn stderr() -> Self {
        Self(AutoStream::choice(&io::stderr()) != ColorChoice::Never)
    }

    /// A line of titles.
    pub fn title(self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    /// What has failed, or is gone.
    pub fn bad(self, text: &str) -> String {
        self.paint(AnsiColor::Red.on_default().bold(), text)
    }

    /// What is new.
    pub fn good(self, text: &str) -> String {
        self.paint(AnsiColor::Green.on_default(), text)
    }

    /// What needs attention.
    pub fn notable(self, text: &str) -> String {
        self.paint(AnsiColor::Yellow.on_default(), text)
    }

    fn paint(self, style: Style, text: &str) -> String {
        match self.0 {
            true => format!("{style}{text}{style:#}"),
            false => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_as_it_is_and_coloured_text_ends_its_colour() {
        assert_eq!(Palette::PLAIN.bad("error:"), "error:");
        let coloured = Palette(true).bad("error:");
        assert!(coloured.starts_with('\u{1b}') && coloured.contains("error:") && coloured.ends_with("\u{1b}[0m"));
    }
}
