//! The attribute of the contract suite.

use proc_macro::{TokenStream, TokenTree};

/// Runs a test on every backend: `head::a_newer_head_is_updated::dynamodb`, `…::embedded` and so on.
///
/// The function takes a `&Contract`. Arguments name the capabilities that the test needs
/// (`#[every_backend(Transactions)]`); a backend without one of them skips the test. The backends are listed by
/// `on_every_backend!` in `contract/mod.rs`.
#[proc_macro_attribute]
pub fn every_backend(needs: TokenStream, function: TokenStream) -> TokenStream {
    let mut tokens = function.clone().into_iter().skip_while(|token| token.to_string() != "fn").skip(1);
    let Some(TokenTree::Ident(name)) = tokens.next() else {
        return "compile_error!(\"`every_backend` belongs on a function\");".parse().unwrap_or_default();
    };
    let tests = format!("crate::contract::on_every_backend! {{ {name} [{needs}] }}");
    let mut output = function;
    output.extend(tests.parse::<TokenStream>().unwrap_or_default());
    output
}
