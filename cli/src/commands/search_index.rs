//! `aws search-index`: the OpenSearch index of a deployment.

use clap::{Args, Subcommand};
use nameservice_opensearch::{Created, DEFAULT_INDEX, OpenSearch, Rebuilt, SERVICE, Signer, rebuild};
use serde_json::{Value, json};

use crate::{
    connected::Connected,
    failure::Failure,
    options::{Missing, TargetArgs},
    output::{self, Output},
    progress::{Bar, Unit},
    table::aws_config,
};

/// How many rejected records are printed for a person.
const SHOWN: usize = 20;

/// `aws search-index`
#[derive(Debug, Subcommand)]
pub enum SearchIndexCommand {
    /// Create an index with its mapping, and the alias that names it, unless they exist
    ///
    /// Fails if what exists differs, and says how.
    Init(SearchIndexArgs),
    /// Write the document of every record, and remove those of records that are gone, even while records change
    ///
    /// Run it once after `init`, for the records that already exist, and whenever the index may be incomplete.
    Rebuild(SearchIndexArgs),
}

/// The index.
#[derive(Debug, Args)]
pub struct SearchIndexArgs {
    /// The OpenSearch, https://HOST or https://USER:PASSWORD@HOST
    #[arg(value_name = "OPENSEARCH")]
    pub opensearch: String,
    /// The name of the index: an alias
    #[arg(long, value_name = "NAME", default_value = DEFAULT_INDEX)]
    pub index: String,
    /// Sign requests with the usual AWS credentials and region, as a domain of Amazon OpenSearch Service requires
    #[arg(long)]
    pub sign: bool,
}

impl SearchIndexArgs {
    async fn open(&self) -> Result<OpenSearch, Failure> {
        let signer = match self.sign {
            false => None,
            true => {
                let config = aws_config(None).await?;
                let signer = Signer::from_config(&config, SERVICE);
                Some(signer.ok_or_else(|| {
                    Failure::Usage("--sign needs AWS credentials and a region: set AWS_REGION".into())
                })?)
            }
        };
        OpenSearch::new(&self.opensearch, &self.index, signer).map_err(|error| Failure::Usage(error.to_string()))
    }
}

pub(crate) async fn run(command: SearchIndexCommand, target: &TargetArgs, output: Output) -> Result<(), Failure> {
    match command {
        SearchIndexCommand::Init(args) => {
            let created = args.open().await?.create().await;
            let created =
                created.map_err(|error| nameservice::Error::from(error.into_model("create the search index")))?;
            if output.is_json() {
                return output::print(&json!({ "created": created == Created::Created }).to_string());
            }
            let index = &args.index;
            output::print(&match created {
                Created::Created => {
                    format!("created the index {index}: `nameservice aws search-index rebuild` fills it")
                }
                Created::Exists => format!("the index {index} exists, with the mapping that it has to have"),
            })
        }
        SearchIndexCommand::Rebuild(args) => {
            let index = args.open().await?;
            let from = Connected::open(&target.place_or_service()?, Missing::Reject, target.credentials()?).await?;
            let names = from.backend().clone();
            let bar = Bar::begin(output, Unit::Records, "indexing");
            let rebuilt = rebuild(&index, &*names, &*names, &|progress| bar.show(progress)).await;
            drop(bar);
            drop(names);
            from.close().await;
            print(&rebuilt.map_err(nameservice::Error::from)?, output)
        }
    }
}

fn print(rebuilt: &Rebuilt, output: Output) -> Result<(), Failure> {
    let Rebuilt { position, records, removed, rejected } = rebuilt;
    if output.is_json() {
        let rejected: Vec<Value> =
            rejected.iter().map(|(address, reason)| json!({ "address": address.as_str(), "reason": reason })).collect();
        let document = json!({ "position": position, "records": records, "removed": removed, "rejected": rejected });
        return output::print(&document.to_string());
    }
    let mut words = format!("{records} records indexed up to position {position}, {removed} removed");
    if !rejected.is_empty() {
        words.push_str(&format!("\n{} rejected by the index:", rejected.len()));
        for (address, reason) in rejected.iter().take(SHOWN) {
            words.push_str(&format!("\n  {}: {}", output::clean(address.as_str()), output::clean(reason)));
        }
    }
    output::print(&words)
}
