//! Lists in four formats: a table for people; one JSON document, one JSON value per line, or CSV for programs.

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::{
    failure::Failure,
    output::{self, Output},
};

/// How a list is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A line for each entry, for people
    Table,
    /// The service's answer, as one JSON document; --json is the same
    Json,
    /// One JSON value per line for each entry
    Ndjson,
    /// Comma-separated values, with a line of titles
    Csv,
}

/// The format of a list.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct FormatArgs {
    /// How to print the list [default: table]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub format: Option<Format>,
}

impl FormatArgs {
    /// Returns the format, which may also be set by --json.
    pub fn wanted(self, output: Output) -> Result<Format, Failure> {
        match (self.format, output.is_json()) {
            (None, false) => Ok(Format::Table),
            (None | Some(Format::Json), true) => Ok(Format::Json),
            (Some(format), false) => Ok(format),
            (Some(_), true) => Err(Failure::Usage("give --json or --format, but not both".into())),
        }
    }
}

/// A column of CSV: its title, and the JSON pointer of its value.
pub type Column = (&'static str, &'static str);

/// The columns of records.
pub const RECORDS: &[Column] = &[
    ("address", "/address"),
    ("kind", "/kind"),
    ("source_type", "/source_type"),
    ("retracted", "/retracted"),
    ("protected", "/protected"),
    ("dependencies", "/dependencies"),
    ("state", "/status/payload/state"),
    ("head_id", "/head/id"),
    ("head_t", "/head/t"),
    ("index_id", "/index/id"),
    ("index_t", "/index/t"),
    ("status_v", "/status/v"),
    ("config_v", "/config/v"),
    ("updated_at", "/updated_at"),
];

/// The columns of summaries of records.
pub const SUMMARIES: &[Column] = &[
    ("address", "/address"),
    ("kind", "/kind"),
    ("source_type", "/source_type"),
    ("retracted", "/retracted"),
    ("dependencies", "/dependencies"),
];

/// The columns of changes.
pub const CHANGES: &[Column] = &[
    ("position", "/position"),
    ("occurred_at", "/occurred_at"),
    ("address", "/address"),
    ("concern", "/concern"),
    ("change", "/change"),
    ("watermark", "/watermark"),
    ("previous", "/previous"),
    ("payload", "/payload"),
];

/// Prints entries as they are read: lines of JSON, or CSV under one line of titles.
#[derive(Debug)]
pub struct Entries {
    format: Format,
    columns: &'static [Column],
    has_begun: bool,
}

impl Entries {
    /// Returns a printer that has printed nothing yet.
    pub fn new(format: Format, columns: &'static [Column]) -> Self {
        Self { format, columns, has_begun: false }
    }

    /// Prints entries if the format is one of lines for programs; returns whether it is.
    pub fn print(&mut self, entries: &[Value]) -> Result<bool, Failure> {
        let text = match self.format {
            Format::Table | Format::Json => return Ok(false),
            Format::Ndjson => entries.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"),
            Format::Csv => csv(if self.has_begun { &[] } else { self.columns }, self.columns, entries)?,
        };
        self.has_begun = true;
        if !text.is_empty() && self.format == Format::Csv {
            output::print_values(&text)?;
        } else if !text.is_empty() {
            output::print(&text)?;
        }
        Ok(true)
    }
}

/// Prints a complete list.
pub fn print(
    format: Format,
    columns: &'static [Column],
    entries: &[Value],
    document: impl FnOnce() -> Value,
    words: impl FnOnce() -> String,
) -> Result<(), Failure> {
    match format {
        Format::Table => output::print(&words()),
        Format::Json => output::print(&format!("{:#}", document())),
        Format::Ndjson | Format::Csv => Entries::new(format, columns).print(entries).map(drop),
    }
}

fn csv(titles: &[Column], columns: &[Column], entries: &[Value]) -> Result<String, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let failed = |error: csv::Error| Failure::Output(error.into());
    if !titles.is_empty() {
        writer.write_record(titles.iter().map(|(title, _)| title)).map_err(failed)?;
    }
    for entry in entries {
        let cells = columns.iter().map(|(_, pointer)| cell(entry.pointer(pointer)));
        writer.write_record(cells).map_err(failed)?;
    }
    let bytes = writer.into_inner().map_err(|error| Failure::Output(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A value as a cell: strings without quotes, nothing for an absent value or null, JSON for arrays and objects.
fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn csv_quotes_what_needs_it_and_leaves_out_what_is_absent() {
        const COLUMNS: &[Column] = &[("address", "/address"), ("t", "/head/t"), ("payload", "/payload")];
        let entries = [
            json!({"address": "a,b \"c\":main", "head": {"t": 5}, "payload": {"x": [1, "y"]}}),
            json!({"address": "two\nlines:main", "head": null}),
        ];
        let text = csv(COLUMNS, COLUMNS, &entries).unwrap();
        let expected =
            "address,t,payload\n\"a,b \"\"c\"\":main\",5,\"{\"\"x\"\":[1,\"\"y\"\"]}\"\n\"two\nlines:main\",,\n";
        assert_eq!(text, expected);
        assert_eq!(csv(&[], COLUMNS, &entries[..0]).unwrap(), "");
    }

    #[test]
    fn json_and_another_format_contradict_each_other() {
        let wanted = |format, json| FormatArgs { format }.wanted(Output::new(json));
        assert_eq!(wanted(None, false).unwrap(), Format::Table);
        assert_eq!(wanted(None, true).unwrap(), Format::Json);
        assert_eq!(wanted(Some(Format::Json), true).unwrap(), Format::Json);
        assert_eq!(wanted(Some(Format::Csv), false).unwrap(), Format::Csv);
        assert!(matches!(wanted(Some(Format::Csv), true), Err(Failure::Usage(_))));
    }
}
