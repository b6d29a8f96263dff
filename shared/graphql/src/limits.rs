//! The limits on a document. They are checked before the document is validated, since validation takes time in proportion
//! to the expanded fragments.

use std::{collections::HashMap, sync::Arc};

use async_graphql::{
    Data, Executor, Name, Request, Response, ServerError,
    parser::types::{ExecutableDocument, Selection, SelectionSet},
};
use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};

use nameservice_api::strict;

use crate::{NameserviceSchema, budget::Budget};

/// How deep brackets of any kind may be nested: the parser descends into each.
const MAX_BRACKETS: usize = 64;
/// How deep fields and fragments may be nested.
const MAX_NESTING: usize = 64;
/// How many fields and fragments a document may hold once its fragments are expanded.
const MAX_SELECTIONS: usize = 2_000;
/// How many fields an introspection of the schema counts as: the whole schema has more than 100 KiB.
const SCHEMA_SELECTIONS: usize = 500;

/// The schema, executed only for documents within the limits.
#[derive(Clone)]
pub(crate) struct Limited(pub(crate) NameserviceSchema);

impl Executor for Limited {
    async fn execute(&self, mut request: Request) -> Response {
        match check(&mut request) {
            Ok(()) => self.0.execute(request.data(Budget::default())).await,
            Err(error) => Response::from_errors(vec![error]),
        }
    }

    fn execute_stream(&self, mut request: Request, session: Option<Arc<Data>>) -> BoxStream<'static, Response> {
        match check(&mut request) {
            Ok(()) => Executor::execute_stream(&self.0, request.data(Budget::default()), session),
            Err(error) => stream::iter([Response::from_errors(vec![error])]).boxed(),
        }
    }
}

/// Rejects a document that is beyond the limits.
fn check(request: &mut Request) -> Result<(), ServerError> {
    let too_much = |reason: String| ServerError::new(reason, None);
    if bracket_depth(&request.query) > MAX_BRACKETS {
        return Err(too_much(format!("the document has brackets that are nested more than {MAX_BRACKETS} deep")));
    }
    if let Some(number) = changed_number(&request.query) {
        let shown: String = number.chars().take(40).collect();
        return Err(too_much(format!("{shown} would not be kept exactly: send it as a string")));
    }
    let document = request.parsed_query()?;
    match Expansion::of(document) {
        Ok(count) if count <= MAX_SELECTIONS => Ok(()),
        Ok(_) => Err(too_much(format!("the document has more than {MAX_SELECTIONS} fields, its fragments expanded"))),
        Err(reason) => Err(too_much(reason)),
    }
}

/// Returns how deep brackets are nested, outside of strings and comments. In a text that is not a valid document, only the
/// part before the parser stops matters.
fn bracket_depth(document: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut rest = document.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = match byte {
            b'{' | b'(' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
                after
            }
            b'}' | b')' | b']' => {
                depth = depth.saturating_sub(1);
                after
            }
            b'#' => after_line(after),
            b'"' => match after.strip_prefix(b"\"\"") {
                Some(block) => after_block(block),
                None => after_string(after),
            },
            _ => after,
        };
    }
    deepest
}

/// Returns the first number of a document, outside of strings and comments, that would change when it is read.
fn changed_number(document: &str) -> Option<&str> {
    let mut rest = document.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'+' | b'-');
        rest = match byte {
            b'#' => after_line(after),
            b'"' => match after.strip_prefix(b"\"\"") {
                Some(block) => after_block(block),
                None => after_string(after),
            },
            byte if is_of_word(&byte) => {
                let length = rest.iter().take_while(|byte| is_of_word(byte)).count();
                let (word, after) = rest.split_at(length);
                let is_number = byte == b'-' || byte.is_ascii_digit();
                if let Ok(word) = std::str::from_utf8(word)
                    && is_number
                    && !strict::is_kept(word)
                {
                    let begin = document.len() - rest.len();
                    return document.get(begin..begin + length);
                }
                after
            }
            _ => after,
        };
    }
    None
}

fn after_line(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(text.len());
    &text[end..]
}

fn after_string(mut text: &[u8]) -> &[u8] {
    loop {
        text = match text {
            [b'\\', _, rest @ ..] => rest,
            // The parser stops at a line that ends within a string.
            [b'"' | b'\n' | b'\r', rest @ ..] => return rest,
            [_, rest @ ..] => rest,
            [] => return text,
        };
    }
}

fn after_block(mut text: &[u8]) -> &[u8] {
    loop {
        text = match text {
            [b'\\', b'"', b'"', b'"', rest @ ..] => rest,
            [b'"', b'"', b'"', rest @ ..] => return rest,
            [_, rest @ ..] => rest,
            [] => return text,
        };
    }
}

/// Counts the fields and fragments of a document as if each fragment were written where it is used. Each is counted once.
struct Expansion<'a> {
    document: &'a ExecutableDocument,
    /// How many selections each fragment has; `None` while it is being counted.
    counted: HashMap<&'a Name, Option<usize>>,
}

impl<'a> Expansion<'a> {
    fn of(document: &'a ExecutableDocument) -> Result<usize, String> {
        let mut expansion = Self { document, counted: HashMap::new() };
        let mut count = 0_usize;
        for (_, operation) in document.operations.iter() {
            count = count.saturating_add(expansion.count(&operation.node.selection_set.node, 0)?);
        }
        // Including unused fragments, since they are validated too.
        for name in document.fragments.keys() {
            expansion.fragment(name, 0)?;
        }
        Ok(count.max(document.fragments.len()))
    }

    fn count(&mut self, set: &'a SelectionSet, depth: usize) -> Result<usize, String> {
        if depth > MAX_NESTING {
            return Err(format!("the document nests fields and fragments more than {MAX_NESTING} deep"));
        }
        let mut count = 0_usize;
        for selection in &set.items {
            let inner = match &selection.node {
                Selection::Field(field) if field.node.name.node == "__schema" => SCHEMA_SELECTIONS,
                Selection::Field(field) => self.count(&field.node.selection_set.node, depth + 1)?,
                Selection::InlineFragment(fragment) => self.count(&fragment.node.selection_set.node, depth + 1)?,
                Selection::FragmentSpread(spread) => self.fragment(&spread.node.fragment_name.node, depth + 1)?,
            };
            count = count.saturating_add(inner).saturating_add(1);
        }
        Ok(count)
    }

    fn fragment(&mut self, name: &'a Name, depth: usize) -> Result<usize, String> {
        match self.counted.get(name) {
            Some(Some(count)) => return Ok(*count),
            Some(None) => return Err(format!("the fragment `{name}` contains itself")),
            None => {}
        }
        // Validation reports a fragment that does not exist.
        let Some(fragment) = self.document.fragments.get(name) else { return Ok(0) };
        self.counted.insert(name, None);
        let count = self.count(&fragment.node.selection_set.node, depth)?;
        self.counted.insert(name, Some(count));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use async_graphql::parser::parse_query;

    use super::*;

    fn expanded(document: &str) -> Result<usize, String> {
        Expansion::of(&parse_query(document).unwrap())
    }

    #[test]
    fn brackets_count_where_the_parser_descends() {
        for (document, depth) in [
            ("{ a }", 1),
            ("{ a(x: [[1]]) { b } c { d { e } } }", 4),
            ("{ a(x: \"[[[[\\\"[[\") }", 2),
            ("{ a(x: \"\"\"[[[[\\\"\"\"[[ \"\"\") }", 2),
            ("{ # [[[[\n a }", 1),
            ("{ a(x: \"[[\n [[[ ", 5),
            ("{ a(x: \"[[\\", 2),
            ("", 0),
        ] {
            assert_eq!(bracket_depth(document), depth, "{document}");
        }
        assert_eq!(bracket_depth(&"[".repeat(100_000)), 100_000);
    }

    #[test]
    fn a_number_that_would_change_is_found_outside_of_texts() {
        assert_eq!(changed_number("{ a(x: {b: [1, 18446744073709551616]}) }"), Some("18446744073709551616"));
        assert_eq!(changed_number("{ a(x: -1e-400) }"), Some("-1e-400"));
        let fine = "{ a1(x: \"1e-400\", y: 1.5) { b2 } # 1e-400\n }";
        assert_eq!(changed_number(fine), None);
    }

    #[test]
    fn a_fragment_counts_wherever_it_is_used_and_none_may_contain_itself() {
        assert_eq!(expanded("{ a { b c } }"), Ok(3));
        assert_eq!(expanded("{ a { ...F } b { ...F ... { c } } } fragment F on X { d e }"), Ok(10));
        assert_eq!(expanded("{ ...Missing }"), Ok(1));
        assert_eq!(expanded("{ a: __schema { types { name } } }"), Ok(SCHEMA_SELECTIONS + 1));
        for document in ["{ ...F } fragment F on X { ...F }", "{ a } fragment F on X { ...G } fragment G on X { ...F }"]
        {
            assert!(expanded(document).unwrap_err().contains("contains itself"), "{document}");
        }
        // 10 to the power of 30 fields in 7 KiB.
        let bomb: String =
            (0..30).map(|n| format!("fragment F{n} on X {{ {} }} ", format!("...F{} ", n + 1).repeat(10))).collect();
        assert_eq!(expanded(&format!("{{ ...F0 }} {bomb} fragment F30 on X {{ a }}")), Ok(usize::MAX));
        let chain: String = (0..9_000).map(|n| format!("fragment F{n} on X {{ ...F{} }} ", n + 1)).collect();
        assert!(expanded(&format!("{{ ...F0 }} {chain} fragment F9000 on X {{ a }}")).is_err());
    }
}
