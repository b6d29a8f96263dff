//! What follows the name of a secret in a text: connection strings, parameters, YAML, headers.

use super::{REDACTED, is_secret};

/// Removes what follows the name of a secret: `password=…`, `Password: …`, `?token=…`, `#access_token=…`.
pub(super) fn without_named(text: &str) -> Option<String> {
    let (mut out, mut from, mut found) = (String::new(), 0, false);
    let delimiters = |c: char| {
        matches!(c, ';' | '&' | '?' | '#' | ',' | '\n' | '\r' | '"' | '\'' | '{' | '}' | '[' | ']' | '(' | ')')
    };
    let mut breaks = Breaks { text, letters: &[';', '\n', '\r'], next: 0 };
    let mut newlines = Breaks { text, letters: &['\n'], next: 0 };
    let mut line = 0;
    // Whether the last word of what was appended up to here is a URL.
    let (mut seen, mut is_in_url) = (0, false);
    while let Some(at) = text[from..].find(['=', ':']).map(|i| from + i) {
        let before = &text[from..at];
        line = before.rfind('\n').map_or(line, |i| from + i + 1);
        let is_colon = text[at..].starts_with(':');
        let value = &text[at + 1..];
        let name = before.trim_end().trim_end_matches(['"', '\'', '\\']);
        let name = name.rsplit(delimiters).next().unwrap_or_default().trim();
        let last = name.rsplit(char::is_whitespace).next().unwrap_or_default();
        out.push_str(before);
        out.push_str(&text[at..=at]);
        from = at + 1;
        // Of `host=db password=x`, the last word; of `Shared Access Key=x`, all of them.
        let is_named = name.len() <= 128 && (is_secret(last) || is_secret(name)) && !value.starts_with("//");
        if !is_named {
            continue;
        }
        // `password => x` of Ruby, too.
        let trimmed = value.strip_prefix('>').filter(|_| !is_colon).unwrap_or(value).trim_start();
        let space = value.len() - trimmed.len();
        let begin = from + space;
        let is_in_json = before.trim_end().ends_with(['"', '\'']);
        let word = out[seen..].rsplit(char::is_whitespace).next().unwrap_or_default();
        let is_same_word = word.len() == out.len() - seen;
        is_in_url = is_in_url && is_same_word || word.contains("://") || word.contains('?');
        seen = out.len();
        let end = match trimmed.chars().next() {
            None => 0,
            Some(quote @ ('"' | '\'')) => quoted_end(trimmed, quote),
            Some('{') if !is_colon => braced_end(trimmed),
            Some('{' | '[') => bracketed_end(trimmed),
            Some('\\') if let Some(end) = escaped_end(trimmed) => end,
            Some(_) => {
                let newline = if is_colon && !is_in_url { newlines.after(from) } else { None };
                let lines = newline.and_then(|end| lines_end(&text[line..], (from - line, end - line), is_in_json));
                match (lines, breaks.after(begin)) {
                    (Some(end), _) if line + end > begin => line + end - begin,
                    (_, Some(end)) => end - begin,
                    _ if is_colon && !is_in_json && !is_in_url => trimmed.len(),
                    _ if is_colon => trimmed.find([',', '}', '"']).unwrap_or(trimmed.len()),
                    _ => word_end(trimmed, is_in_url),
                }
            }
        };
        let is_redacted = trimmed[..end].trim_matches(['"', '\'', '\\']) == REDACTED;
        if end > 0 && !is_redacted {
            found = true;
            out.push_str(&value[..space]);
            out.push_str(REDACTED);
            let passed = &text[from..begin + end];
            line = passed.rfind('\n').map_or(line, |i| from + i + 1);
            from = begin + end;
        }
    }
    out.push_str(&text[from..]);
    found.then_some(out)
}

/// The places of some letters in a text. Each part of it is searched once, however often the next place is asked for.
struct Breaks<'a> {
    text: &'a str,
    letters: &'static [char],
    /// The next one that was found, or the end of the text.
    next: usize,
}

impl Breaks<'_> {
    fn after(&mut self, begin: usize) -> Option<usize> {
        if self.next < begin {
            self.next = begin;
        }
        if !self.text[self.next..].starts_with(self.letters) && self.next < self.text.len() {
            let found = self.text[self.next..].find(self.letters);
            self.next = found.map_or(self.text.len(), |i| self.next + i);
        }
        Some(self.next).filter(|next| *next < self.text.len())
    }
}

/// Where a value in a word ends. In a URL it ends before the next parameter, and with a quote that no letter or digit follows.
fn word_end(text: &str, is_in_url: bool) -> usize {
    let mut letters = text.char_indices();
    let end = letters.find(|(at, letter)| match letter {
        '&' | '#' => is_in_url,
        '"' | '\'' => is_in_url && !text[at + 1..].starts_with(char::is_alphanumeric),
        letter => letter.is_whitespace(),
    });
    end.map_or(text.len(), |(at, _)| at)
}

/// Where a value of YAML ends that has more lines than one: a block after `|` or `>`, or lines that are indented more than that
/// of its name. The value begins at `value`, and its first line ends at `newline`. `None` if there are no such lines.
fn lines_end(text: &str, (value, newline): (usize, usize), is_in_json: bool) -> Option<usize> {
    let (name, first) = (&text[..value], text[value..newline].trim());
    let is_block = first.strip_prefix(['|', '>']).is_some_and(|header| {
        let rest = header.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-')).trim_start();
        rest.is_empty() || rest.starts_with('#')
    });
    if !is_block && (is_in_json || first.contains(';')) {
        return None;
    }
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let of_name = name.len() - name.trim_start_matches([' ', '\t', '-']).len();
    let mut end = None;
    let mut at = newline + 1;
    for line in text[at..].split_inclusive('\n') {
        let is_blank = line.trim().is_empty();
        let is_entry = first.is_empty() && indent(line) == of_name && line.trim_start().starts_with("- ");
        if !(is_blank || indent(line) > of_name || is_entry) {
            break;
        }
        if !is_blank {
            end = Some(at + line.trim_end().len());
        }
        at += line.len();
    }
    // A block whose lines are not indented: where it ends is not known.
    end.or(is_block.then_some(text.len()))
}

/// Where a text ends that begins with an escaped quote, as in JSON inside of a text: with the next quote that is escaped as
/// often. `None` if it begins with another escape.
fn escaped_end(text: &str) -> Option<usize> {
    let escapes = text.len() - text.trim_start_matches('\\').len();
    let quote = text[escapes..].chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let mut run = 0;
    for (at, letter) in text.char_indices().skip(escapes + 1) {
        // A quote within the text, and a backslash before the last one, have more.
        if letter == quote && (run < escapes || run % (2 * (escapes + 1)) == escapes) {
            return Some(at + 1);
        }
        run = if letter == '\\' { run + 1 } else { 0 };
    }
    Some(text.len())
}

/// Where what begins with a bracket ends: with the bracket that closes it.
fn bracketed_end(text: &str) -> usize {
    let (mut depth, mut quote) = (0_usize, None);
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => {
                letters.next();
            }
            letter if quote.is_some() => quote = quote.filter(|quote| *quote != letter),
            '"' | '\'' => quote = Some(letter),
            '{' | '[' => depth += 1,
            '}' | ']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// Where a quoted text ends, with the escapes `\\"` and `""`.
fn quoted_end(text: &str, quote: char) -> usize {
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        let is_next_quote = letters.peek().is_some_and(|(_, next)| *next == quote);
        if letter == '\\' || (letter == quote && is_next_quote) {
            letters.next();
        } else if letter == quote {
            return at + 1;
        }
    }
    text.len()
}

/// Where a text in braces ends: ODBC writes `}` in it as `}}`.
fn braced_end(text: &str) -> usize {
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        if letter == '}' && letters.next_if(|(_, next)| *next == '}').is_none() {
            return at + 1;
        }
    }
    text.len()
}
