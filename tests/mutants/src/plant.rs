//! Writes mutants into source files, all together, each behind a switch of its own:
//! `a == b` becomes `(if __mutant(7) { a != b } else { a == b })`, and a function that could return a constant begins with
//! `if __mutant(8) { return …; }`.

use std::{collections::BTreeMap, fmt::Write as _, ops::Range};

use proc_macro2::Span;
use serde::Deserialize;
use syn::{
    spanned::Spanned as _,
    visit::{self, Visit},
};

/// A mutant, as `cargo mutants --list --json` describes it.
#[derive(Clone, Debug, Deserialize)]
pub struct Mutant {
    /// The file, relative to the root of the tree.
    pub file: String,
    /// The place and the change, for people.
    pub name: String,
    genre: Genre,
    replacement: String,
    span: Lines,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    StructField,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Lines {
    start: LineColumn,
    end: LineColumn,
}

/// Both from 1; columns count characters.
#[derive(Clone, Copy, Debug, Deserialize)]
struct LineColumn {
    line: usize,
    column: usize,
}

impl Mutant {
    /// Whether it returns an iterator, of another type than the function does.
    pub fn is_iterator(&self) -> bool {
        self.replacement.starts_with("::std::iter::")
    }
}

impl LineColumn {
    fn offset(self, source: &str) -> usize {
        let line: usize = source.split_inclusive('\n').take(self.line - 1).map(str::len).sum();
        line + source[line..].chars().take(self.column - 1).map(char::len_utf8).sum::<usize>()
    }
}

/// The expressions and functions of a file that mutants can be about.
#[derive(Default)]
struct Places {
    /// Operators, and their expressions.
    operators: Vec<(Range<usize>, Range<usize>)>,
    matches: Vec<Range<usize>>,
    structs: Vec<Range<usize>>,
    lets: Vec<Range<usize>>,
    bodies: Vec<Range<usize>>,
    /// Expressions that are statements: they take no parentheses.
    statements: Vec<Range<usize>>,
    /// Code that is evaluated at compile time, if no switch can be asked.
    constants: Vec<Range<usize>>,
}

fn bytes(span: Span) -> Range<usize> {
    span.byte_range()
}

fn is_in(inner: &Range<usize>, outer: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn smallest(around: &Range<usize>, among: &[Range<usize>]) -> Option<Range<usize>> {
    among.iter().filter(|range| is_in(around, range)).min_by_key(|range| range.len()).cloned()
}

impl Places {
    fn function(&mut self, signature: &syn::Signature, body: &syn::Block) {
        self.bodies.push(bytes(body.span()));
        if signature.constness.is_some() {
            self.constants.push(bytes(body.span()));
        }
    }

    /// The expression that has to be written twice for a mutant of this place.
    fn expression(&self, genre: Genre, span: &Range<usize>) -> Option<Range<usize>> {
        match genre {
            Genre::BinaryOperator | Genre::UnaryOperator => {
                let found = self.operators.iter().find(|(operator, _)| operator.start == span.start);
                found.map(|(_, whole)| whole.clone())
            }
            Genre::MatchArm | Genre::MatchArmGuard => smallest(span, &self.matches),
            Genre::StructField => smallest(span, &self.structs),
            Genre::FnValue => None,
        }
    }

    /// Whether an expression is a chain with a `let`, which does not compile in parentheses.
    fn is_let_chain(&self, whole: &Range<usize>) -> bool {
        let of_chain = |found: &&Range<usize>| {
            is_in(found, whole) && smallest(found, &self.bodies) == smallest(whole, &self.bodies)
        };
        self.lets.iter().any(|found| of_chain(&found))
    }
}

impl<'a> Visit<'a> for Places {
    fn visit_expr_binary(&mut self, expression: &'a syn::ExprBinary) {
        self.operators.push((bytes(expression.op.span()), bytes(expression.span())));
        visit::visit_expr_binary(self, expression);
    }

    fn visit_expr_unary(&mut self, expression: &'a syn::ExprUnary) {
        self.operators.push((bytes(expression.op.span()), bytes(expression.span())));
        visit::visit_expr_unary(self, expression);
    }

    fn visit_expr_match(&mut self, expression: &'a syn::ExprMatch) {
        self.matches.push(bytes(expression.span()));
        visit::visit_expr_match(self, expression);
    }

    fn visit_expr_struct(&mut self, expression: &'a syn::ExprStruct) {
        self.structs.push(bytes(expression.span()));
        visit::visit_expr_struct(self, expression);
    }

    fn visit_expr_let(&mut self, expression: &'a syn::ExprLet) {
        self.lets.push(bytes(expression.span()));
        visit::visit_expr_let(self, expression);
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        self.constants.push(bytes(item.span()));
    }

    fn visit_impl_item_const(&mut self, item: &'a syn::ImplItemConst) {
        self.constants.push(bytes(item.span()));
    }

    fn visit_item_static(&mut self, item: &'a syn::ItemStatic) {
        self.constants.push(bytes(item.span()));
    }

    fn visit_stmt(&mut self, statement: &'a syn::Stmt) {
        if let syn::Stmt::Expr(expression, None) = statement {
            self.statements.push(bytes(expression.span()));
        }
        visit::visit_stmt(self, statement);
    }
}

/// A file with its mutants.
pub struct Planted {
    /// The text.
    pub text: String,
    /// The mutants that are in it.
    pub numbers: Vec<usize>,
}

/// An expression, and what mutants make of it.
struct Site {
    range: Range<usize>,
    variants: Vec<(usize, String)>,
}

struct File<'a> {
    source: &'a str,
    places: Places,
    sites: Vec<Site>,
    /// Values to return, by the beginning of the function's body.
    returns: BTreeMap<usize, Vec<(usize, &'a str)>>,
}

/// Plants numbered mutants of one file.
pub fn plant(source: &str, mutants: &[(usize, &Mutant)]) -> Result<Planted, syn::Error> {
    let mut places = Places::default();
    places.visit_file(&syn::parse_file(source)?);
    let mut numbers = Vec::new();
    let mut sites: BTreeMap<(usize, usize), Vec<(usize, String)>> = BTreeMap::new();
    let mut returns: BTreeMap<usize, Vec<(usize, &str)>> = BTreeMap::new();
    for &(number, mutant) in mutants {
        let span = mutant.span.start.offset(source)..mutant.span.end.offset(source);
        if places.constants.iter().any(|constant| is_in(&span, constant)) {
            continue;
        }
        if mutant.genre == Genre::FnValue {
            let Some(body) = smallest(&span, &places.bodies) else { continue };
            returns.entry(body.start + 1).or_default().push((number, &mutant.replacement));
        } else {
            let Some(whole) = places.expression(mutant.genre, &span) else { continue };
            if ["&&", "||"].contains(&&source[span.clone()]) && places.is_let_chain(&whole) {
                continue;
            }
            let (before, after) = (&source[whole.start..span.start], &source[span.end..whole.end]);
            let variant = format!("{before}{}{after}", mutant.replacement);
            sites.entry((whole.start, whole.end)).or_default().push((number, variant));
        }
        numbers.push(number);
    }
    let sites = sites.into_iter().map(|((start, end), variants)| Site { range: start..end, variants }).collect();
    let file = File { source, places, sites, returns };
    Ok(Planted { text: file.text(0..source.len(), None), numbers })
}

impl File<'_> {
    /// A part of the source with its mutants, except those of one site.
    fn text(&self, part: Range<usize>, without: Option<usize>) -> String {
        let mut text = String::new();
        let mut position = part.start;
        let mut inside: Vec<usize> =
            (0..self.sites.len()).filter(|&at| Some(at) != without && is_in(&self.sites[at].range, &part)).collect();
        // The outermost first: its text includes the sites inside it.
        inside.sort_by_key(|&at| (self.sites[at].range.start, usize::MAX - self.sites[at].range.end));
        for at in inside {
            let Site { range, variants } = &self.sites[at];
            if range.start < position {
                continue;
            }
            self.unchanged(&mut text, position..range.start);
            let ids = variants.iter().map(|(number, _)| number.to_string()).collect::<Vec<_>>().join(",");
            let (open, close) = if self.places.statements.contains(range) { ("", "") } else { ("(", ")") };
            let _ = write!(text, "/*{{{ids}*/{open}");
            for (number, variant) in variants {
                let _ = write!(text, "if crate::__mutant({number}) {{ /*<{number}*/ {variant} /*{number}>*/ }} else ");
            }
            let _ = write!(text, "{{ {} }}{close}/*}}{ids}*/", self.text(range.clone(), Some(at)));
            position = range.end;
        }
        self.unchanged(&mut text, position..part.end);
        text
    }

    /// A part without sites; the functions that begin in it may return something else.
    fn unchanged(&self, text: &mut String, part: Range<usize>) {
        let mut position = part.start;
        for (&at, values) in self.returns.range(part.clone()) {
            text.push_str(&self.source[position..at]);
            for (number, value) in values {
                let _ =
                    write!(text, " if crate::__mutant({number}) {{ /*<{number}*/ return {value}; /*{number}>*/ }} ");
            }
            position = at;
        }
        text.push_str(&self.source[position..part.end]);
    }
}

/// The mutants that an error of the compiler at this place of a planted file is about: the one whose text it is in, or those of
/// the smallest expression around it.
pub fn blamed(text: &str, offset: usize) -> Vec<usize> {
    let around = |open: &str, close: &dyn Fn(&str) -> String| {
        let begun = text.get(..offset)?.rmatch_indices(open);
        begun.into_iter().find_map(|(start, _)| {
            let ids = text[start + open.len()..].split_once("*/")?.0;
            let ends = text[start..].find(&close(ids))? + start;
            let numbers = ids.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>().ok()?;
            (ends >= offset).then_some(numbers)
        })
    };
    around("/*<", &|ids| format!("/*{ids}>*/"))
        .or_else(|| around("/*{", &|ids| format!("/*}}{ids}*/")))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(source: &str, genre: Genre, of: &str, replacement: &str) -> Mutant {
        let start = source.find(of).unwrap();
        let at = |offset: usize| LineColumn { line: 1, column: source[..offset].chars().count() + 1 };
        let span = Lines { start: at(start), end: at(start + of.len()) };
        Mutant { file: String::new(), name: String::new(), genre, replacement: replacement.into(), span }
    }

    #[test]
    fn nested_expressions_and_bodies_have_their_switches() {
        let source = "fn f(a: u8) -> bool { /* ü */ !(a == 1) }";
        let mutants = [
            mutant(source, Genre::FnValue, "!(a == 1)", "true"),
            mutant(source, Genre::UnaryOperator, "!", ""),
            mutant(source, Genre::BinaryOperator, "==", "!="),
        ];
        let numbered: Vec<_> = (1..).zip(&mutants).collect();
        let planted = plant(source, &numbered).unwrap();
        assert_eq!(planted.numbers, [1, 2, 3]);
        let expected = "fn f(a: u8) -> bool { if crate::__mutant(1) { /*<1*/ return true; /*1>*/ }  /* ü */ \
            /*{2*/if crate::__mutant(2) { /*<2*/ (a == 1) /*2>*/ } else { !(/*{3*/(if crate::__mutant(3) { \
            /*<3*/ a != 1 /*3>*/ } else { a == 1 })/*}3*/) }/*}2*/ }";
        assert_eq!(planted.text, expected);
        syn::parse_file(&planted.text).unwrap();
        let blamed_at = |text: &str| blamed(&planted.text, planted.text.find(text).unwrap());
        assert_eq!(blamed_at("return true"), [1]);
        assert_eq!(blamed_at("a != 1"), [3]);
        assert_eq!(blamed_at("a == 1 })"), [3]);
        assert_eq!(blamed_at("fn f"), [] as [usize; 0]);
    }

    #[test]
    fn constants_and_chains_with_let_are_left_alone() {
        let source = "const fn f(a: u8) -> bool { a == 1 } fn g(a: Option<u8>) -> bool { if let Some(b) = a && b > 1 { true } else { false } }";
        let mutants =
            [mutant(source, Genre::BinaryOperator, "==", "!="), mutant(source, Genre::BinaryOperator, "&&", "||")];
        let numbered: Vec<_> = (1..).zip(&mutants).collect();
        let planted = plant(source, &numbered).unwrap();
        assert_eq!((planted.text.as_str(), planted.numbers.len()), (source, 0));
    }
}
