//! The nameservices that a command reads or writes through the library, without the routes.

use std::{path::PathBuf, sync::Arc};

use nameservice::{Nameservice, Place};
use nameservice_embedded::Options as EmbeddedOptions;
#[cfg(feature = "files")]
use nameservice_files::Options as FilesOptions;
use nameservice_model::Backend;
use serde_json::Value;

use crate::{
    client::{self, Credentials, Request},
    failure::Failure,
    options::Missing,
    target::Local,
};

/// A nameservice that is read or written, and must be closed.
pub(crate) struct Connected {
    pub(crate) names: Nameservice,
}

impl Connected {
    pub(crate) async fn open(place: &Place, missing: Missing, credentials: Credentials) -> Result<Self, Failure> {
        if let Place::Embedded(directory) = place {
            let local = Local::open(PathBuf::from(directory), missing, EmbeddedOptions::default()).await?;
            return Ok(Self { names: Nameservice::over(local.names) });
        }
        #[cfg(feature = "files")]
        if matches!(place, Place::Directory { .. } | Place::Bucket { .. }) {
            let files = nameservice::files(place, missing == Missing::Create, FilesOptions::default()).await?;
            return Ok(Self { names: Nameservice::over(files) });
        }
        if let Place::Service(url) = place {
            // Asked once, without retries, so that an unreachable service is reported immediately; later requests are retried.
            client::remote(url, &credentials)?.send::<Value>(&Request::get("health")).await?;
        }
        let mut options = nameservice::Options::default();
        if let Place::Service(url) = place
            && let Some(pem) = credentials.certificate_for(url)
        {
            options = options.client_certificate(pem);
        }
        if let Some(token) = credentials.token {
            options = options.token(token);
        }
        let names = nameservice::connect_with(place, options).await?;
        Ok(Self { names })
    }

    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        self.names.backend()
    }

    /// Closing the embedded backend waits for its writer, so it must not run on an async worker thread.
    pub(crate) async fn close(self) {
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}
