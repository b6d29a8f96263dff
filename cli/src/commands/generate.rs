//! `generate`: files that are made from the program itself.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use clap_complete::Shell;

use crate::{failure::Failure, output, routes};

/// `generate`
#[derive(Debug, Subcommand)]
pub enum GenerateCommand {
    /// Print the OpenAPI document
    Openapi,
    /// Print the schema of /graphql
    #[cfg(feature = "graphql")]
    GraphqlSchema,
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Print the manual page, or write one for each command
    Man {
        /// Write the pages into this directory: `man -l DIR/nameservice-push-head.1` shows one
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// Runs the command; `program` is the whole command line.
pub(crate) fn run(command: GenerateCommand, program: clap::Command) -> Result<(), Failure> {
    match command {
        GenerateCommand::Openapi => openapi(),
        #[cfg(feature = "graphql")]
        GenerateCommand::GraphqlSchema => graphql_schema(),
        GenerateCommand::Completions { shell } => completions(shell, program),
        GenerateCommand::Man { out } => man(out.as_deref(), program),
    }
}

fn openapi() -> Result<(), Failure> {
    let document = serde_json::to_string_pretty(&routes::document());
    output::print(&document.map_err(|error| Failure::BadAnswer(error.into()))?)
}

#[cfg(feature = "graphql")]
fn graphql_schema() -> Result<(), Failure> {
    output::print(nameservice_graphql::sdl().trim_end())
}

fn completions(shell: Shell, mut program: clap::Command) -> Result<(), Failure> {
    // Generated into memory, since the generator panics on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, "nameservice", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

fn man(out: Option<&Path>, program: clap::Command) -> Result<(), Failure> {
    // Subcommands are only complete once the command is built.
    let mut command = program.disable_help_subcommand(true);
    command.build();
    match out {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).map_err(Failure::Output)?;
            output::print(&String::from_utf8_lossy(&page))
        }
        Some(directory) => {
            std::fs::create_dir_all(directory).map_err(Failure::Output)?;
            clap_mangen::generate_to(command, directory).map_err(Failure::Output)
        }
    }
}
