//! `aws`: what a deployment on AWS has beside its table.

use clap::Subcommand;

use super::deadletters::DeadLettersCommand;
#[cfg(feature = "opensearch")]
use super::search_index::SearchIndexCommand;

/// `aws`
#[derive(Debug, Subcommand)]
pub enum AwsCommand {
    /// Create and fill the OpenSearch index that answers searches
    #[command(subcommand)]
    #[cfg(feature = "opensearch")]
    SearchIndex(SearchIndexCommand),
    /// Show the messages that a sink could not process, send them again, or remove them
    #[command(subcommand, name = "deadletters")]
    DeadLetters(DeadLettersCommand),
}
