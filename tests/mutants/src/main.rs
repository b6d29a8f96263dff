//! Tries mutants of the libraries: plants all of them together in a copy of the tree, each behind a switch, builds that once, notes
//! which tests reach which mutant, and runs these tests with one mutant switched on after the other. `.ci/mutants` runs it.
//!
//! `nameservice-mutants ROOT COPY LIST K/N SECONDS`: ROOT is the tree, COPY a copy of its files that is written to, LIST what
//! `cargo mutants --list --json` prints, K the part of N parts of the mutants, from 0, and SECONDS how long the tests of one
//! mutant may take together, by what each takes alone.

mod build;
mod judge;
mod plant;

use std::{collections::BTreeMap, env, error::Error, fs, path::PathBuf, process::ExitCode};

use crate::{
    build::Tree,
    judge::{Judge, Verdict},
    plant::Mutant,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let [root, copy, list, part, seconds] = arguments else {
        return Err("usage: nameservice-mutants ROOT COPY LIST K/N SECONDS".into());
    };
    let (wanted, parts) = part.split_once('/').ok_or("the part is K/N")?;
    let (wanted, parts): (usize, usize) = (wanted.parse()?, parts.parse()?);
    let seconds: f64 = seconds.parse()?;
    let mutants: Vec<Mutant> = serde_json::from_str(&fs::read_to_string(list)?)?;
    let mutants: BTreeMap<usize, Mutant> = (1..).zip(mutants).collect();

    let mut tree = Tree::new(PathBuf::from(root), PathBuf::from(copy));
    let planted = tree.plant(&mutants)?;
    println!("{} mutants, {} of them compile and are not part of a constant", mutants.len(), planted.len());
    let tests = tree.tests()?;
    let judge = Judge::new(tests, tree.copy(), seconds)?;

    let mine: Vec<usize> =
        planted.into_iter().enumerate().filter(|(at, _)| at % parts == wanted).map(|(_, n)| n).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    judge.each(&mine, |number, verdict| {
        let name = &mutants[&number].name;
        match &verdict {
            Verdict::Caught | Verdict::Hung => {}
            Verdict::Unreached => println!("no test reaches  {name}"),
            Verdict::Survived { ran, all } => println!("survived {ran} of {all} tests  {name}"),
        }
        *counts.entry(verdict.word()).or_default() += 1;
    })?;
    let counts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    println!("of {} mutants: {}", mine.len(), counts.join(", "));
    Ok(())
}
