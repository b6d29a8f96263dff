//! A replica in this process: reads are local, and writes go to the upstream.

use std::{path::PathBuf, time::Duration};

use nameservice_model::ShownUrl;
use nameservice_sync::{ReplicaBackend, ReplicaState};

use crate::{Error, Nameservice, Options, Result};

/// Begins to build a replica of the service at this URL.
///
/// Reads are answered from memory. Writes go to the service, and can be read here as soon as they are answered. The
/// replica follows the service's changes until it is dropped.
///
/// ```no_run
/// # async fn example() -> Result<(), nameservice::Error> {
/// let replica = nameservice::replica("https://ns.example.com").token("…").directory("./replica").start().await?;
/// replica.ready().await;
/// let head = replica.names().head("mydb")?.get().await?; // from memory
/// let mut changes = replica.names().changes().address("mydb:*").follow();
/// # Ok(()) }
/// ```
pub fn replica(url: impl Into<String>) -> StartReplica {
    StartReplica { url: url.into(), options: Options::default(), directory: None }
}

/// A replica that is not started yet.
#[derive(Clone, Debug)]
#[must_use = "nothing is started before `start`"]
pub struct StartReplica {
    url: String,
    options: Options,
    directory: Option<PathBuf>,
}

impl StartReplica {
    /// Connects to the service with these options. Set them first: they replace a token, a retention and a deadline.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Sends this bearer token to the service.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.options = self.options.token(token);
        self
    }

    /// Keeps the replica in this directory, from which it can start even while the service is unreachable. Without a
    /// directory it is kept in memory.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets how long changes can be read from the replica.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.options = self.options.retention(retention);
        self
    }

    /// Sets how long a request to the service, such as a write, may take with all its attempts: 20 seconds by default.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.options = self.options.deadline(deadline);
        self
    }

    /// Starts it. The first snapshot is read afterwards: [`Replica::ready`] waits for it.
    pub async fn start(self) -> Result<Replica> {
        let failed =
            |source: nameservice_model::BoxError| Error::Connect { place: ShownUrl(&self.url).to_string(), source };
        let client = self.options.client(&self.url).map_err(|error| failed(error.into()))?;
        let options = self.options.embedded();
        let replica = match &self.directory {
            Some(directory) => nameservice_sync::Replica::open(directory, &self.url, client.clone(), options).await,
            None => nameservice_sync::Replica::in_memory(client.clone(), options),
        };
        let replica = replica.map_err(|error| failed(error.into()))?;
        let names = Nameservice::over(ReplicaBackend::new(replica.clone(), client));
        Ok(Replica { replica, names })
    }
}

/// A running replica. It stops following when its last clone, and the last clone of its nameservice, are dropped.
#[derive(Clone, Debug)]
pub struct Replica {
    replica: nameservice_sync::Replica,
    names: Nameservice,
}

impl Replica {
    /// Returns the nameservice that reads from the replica and writes at the service.
    pub fn names(&self) -> &Nameservice {
        &self.names
    }

    /// Waits until there are records to read: from the directory, or from the first snapshot.
    pub async fn ready(&self) {
        self.replica.ready().await;
    }

    /// Returns the position of the service's feed that the replica has reached.
    pub fn position(&self) -> u64 {
        self.replica.names().view().position()
    }

    /// Returns how long ago the service was last heard from while everything known of it was applied. Reads are at most
    /// this old, apart from changes in transit. `None` if that was not so since the start.
    pub fn age(&self) -> Option<Duration> {
        self.replica.age()
    }

    /// Returns the state of the replica in relation to the service.
    pub fn state(&self) -> ReplicaState {
        self.replica.state()
    }

    /// Waits until the replica has reached a position, or for the given time; returns whether it has.
    pub async fn reached(&self, position: u64, at_most: Duration) -> bool {
        self.replica.reached(position, at_most).await
    }
}
