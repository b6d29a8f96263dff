//! A copy of the tree with all mutants that compile.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::Deserialize;

use crate::{
    Result,
    plant::{self, Mutant},
};

const SWITCH: &str = include_str!("switch.rs.txt");

/// How many rounds of leaving out what does not compile: an error can hide others.
const ROUNDS: usize = 30;

/// The copy.
pub struct Tree {
    root: PathBuf,
    copy: PathBuf,
}

/// A program with tests.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// The folder that its tests run in: that of its package.
    pub folder: PathBuf,
}

/// A message of `cargo --message-format json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Message {
    message: Option<Diagnostic>,
    executable: Option<PathBuf>,
    manifest_path: PathBuf,
    profile: Profile,
}

#[derive(Debug, Default, Deserialize)]
struct Profile {
    #[serde(default)]
    test: bool,
}

#[derive(Debug, Deserialize)]
struct Diagnostic {
    message: String,
    level: String,
    spans: Vec<Place>,
}

#[derive(Debug, Deserialize)]
struct Place {
    file_name: PathBuf,
    byte_start: usize,
    is_primary: bool,
    expansion: Option<Expansion>,
}

#[derive(Debug, Deserialize)]
struct Expansion {
    span: Box<Place>,
}

impl Tree {
    /// The copy of a tree.
    pub fn new(root: PathBuf, copy: PathBuf) -> Self {
        Self { root, copy }
    }

    /// Its path.
    pub fn copy(&self) -> &Path {
        &self.copy
    }

    /// Plants all mutants but those that do not compile; returns the numbers of those that are there.
    pub fn plant(&mut self, mutants: &BTreeMap<usize, Mutant>) -> Result<Vec<usize>> {
        // A mutant that returns an iterator of its own type may compile alone, but never beside the function's own body.
        let mut left: BTreeMap<usize, &Mutant> = mutants
            .iter()
            .filter(|(_, mutant)| !mutant.is_iterator())
            .map(|(number, mutant)| (*number, mutant))
            .collect();
        for _ in 0..ROUNDS {
            let planted = self.write(&left, mutants)?;
            let (_, messages) = self.cargo(&["check", "--tests", "--keep-going"])?;
            let errors: Vec<&Diagnostic> = messages
                .iter()
                .filter_map(|message| message.message.as_ref())
                .filter(|error| error.level == "error")
                .collect();
            if errors.is_empty() {
                return Ok(planted);
            }
            let mut blamed = BTreeSet::new();
            for error in &errors {
                blamed.extend(self.blamed(error)?);
            }
            if blamed.is_empty() {
                let text = errors.iter().map(|error| error.message.as_str()).collect::<Vec<_>>().join("\n");
                return Err(format!("the tree does not compile, whatever is left out:\n{text}").into());
            }
            left.retain(|number, _| !blamed.contains(number));
        }
        Err("the tree does not compile after many rounds".into())
    }

    fn write(&self, left: &BTreeMap<usize, &Mutant>, all: &BTreeMap<usize, Mutant>) -> Result<Vec<usize>> {
        // Includes the files whose mutants are all left out, and those that get the switch.
        let files = all.values().flat_map(|mutant| [Some(mutant.file.clone()), library_of(&mutant.file)]).flatten();
        let mut by_file: BTreeMap<String, Vec<(usize, &Mutant)>> = files.map(|file| (file, Vec::new())).collect();
        for (number, mutant) in left {
            by_file.entry(mutant.file.clone()).or_default().push((*number, mutant));
        }
        let mut numbers = Vec::new();
        for (file, mutants) in by_file {
            let planted = plant::plant(&fs::read_to_string(self.root.join(&file))?, &mutants)?;
            let switch = if file.ends_with("/src/lib.rs") { SWITCH } else { "" };
            let (path, text) = (self.copy.join(file), format!("{}{switch}", planted.text));
            // An unchanged file keeps its time, and is not built again.
            if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
                fs::write(path, text)?;
            }
            numbers.extend(planted.numbers);
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn blamed(&self, error: &Diagnostic) -> Result<Vec<usize>> {
        let places = error.spans.iter().filter(|place| place.is_primary).chain(&error.spans);
        for place in places {
            let mut place = Some(place);
            while let Some(Place { file_name, byte_start, expansion, .. }) = place {
                if let Ok(text) = fs::read_to_string(self.copy.join(file_name)) {
                    let blamed = plant::blamed(&text, *byte_start);
                    if !blamed.is_empty() {
                        return Ok(blamed);
                    }
                }
                place = expansion.as_ref().map(|expansion| &*expansion.span);
            }
        }
        Ok(Vec::new())
    }

    /// Builds the tests of all packages, and the programs that they start.
    pub fn tests(&self) -> Result<Vec<Program>> {
        let (built, messages) = self.cargo(&["test", "--no-run"])?;
        if !built {
            return Err("the tests do not build".into());
        }
        let programs = messages.into_iter().filter(|message| message.profile.test).filter_map(|message| {
            Some(Program { path: message.executable?, folder: message.manifest_path.parent()?.to_owned() })
        });
        Ok(programs.collect())
    }

    /// Whether a command succeeds, and its messages.
    fn cargo(&self, arguments: &[&str]) -> Result<(bool, Vec<Message>)> {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(arguments)
            .args(["--workspace", "--locked", "--quiet", "--message-format", "json"])
            .current_dir(&self.copy)
            .env("CARGO_TARGET_DIR", self.target())
            .stderr(Stdio::null())
            .output()?;
        let lines = String::from_utf8(output.stdout)?;
        Ok((output.status.success(), lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()))
    }

    fn target(&self) -> PathBuf {
        self.copy.with_file_name("target")
    }
}

/// The file with the root of the library that a file belongs to.
fn library_of(file: &str) -> Option<String> {
    let (package, _) = file.split_once("/src/")?;
    Some(format!("{package}/src/lib.rs"))
}
