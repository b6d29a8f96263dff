use std::{
    collections::BTreeMap,
    io::Write as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{Result, SyncError};

const FILE: &str = "remotes.toml";
const MAX_NAME_BYTES: usize = 64;

/// Another nameservice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remote {
    /// Where it is: a place that can be connected to.
    pub url: String,
    /// Only records whose addresses begin with this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The environment variable that holds the token for it. Tokens are not written to files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    remotes: BTreeMap<String, Remote>,
}

/// The list of remotes of a directory.
#[derive(Debug)]
pub struct Remotes {
    path: PathBuf,
    document: Document,
}

impl Remotes {
    /// Reads the list of a directory. Without a list, there are no remotes.
    pub fn of(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let document = match std::fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|error| {
                let reason = std::io::Error::new(std::io::ErrorKind::InvalidData, error.to_string());
                SyncError::File { path: path.clone(), source: reason }
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Document::default(),
            Err(source) => return Err(SyncError::File { path, source }),
        };
        Ok(Self { path, document })
    }

    /// Returns the remotes by their names.
    pub fn all(&self) -> &BTreeMap<String, Remote> {
        &self.document.remotes
    }

    /// Returns the remote with this name.
    pub fn get(&self, name: &str) -> Result<&Remote> {
        self.document.remotes.get(name).ok_or_else(|| {
            let known: Vec<_> = self.document.remotes.keys().map(String::as_str).collect();
            let known =
                if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
            SyncError::Unsupported(format!("there is no remote `{name}`; {known}"))
        })
    }

    /// Adds a remote, and writes the list.
    pub fn add(&mut self, name: &str, remote: Remote) -> Result<()> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_name) {
            return Err(SyncError::Unsupported(format!(
                "`{name}` cannot be the name of a remote: it has 1 to {MAX_NAME_BYTES} letters, digits, `-`, `_` and `.`"
            )));
        }
        if self.document.remotes.contains_key(name) {
            return Err(SyncError::Unsupported(format!("there is a remote `{name}`: remove it first")));
        }
        self.document.remotes.insert(name.to_owned(), remote);
        self.save()
    }

    /// Removes a remote, and writes the list.
    pub fn remove(&mut self, name: &str) -> Result<Remote> {
        self.get(name)?;
        let removed = self.document.remotes.remove(name);
        self.save()?;
        removed.ok_or_else(|| SyncError::Unsupported(format!("there is no remote `{name}`")))
    }

    /// Replaces the file atomically.
    fn save(&self) -> Result<()> {
        let failed = |source| SyncError::File { path: self.path.clone(), source };
        let text = toml::to_string_pretty(&self.document).map_err(|error| SyncError::Other(error.into()))?;
        if let Some(directory) = self.path.parent() {
            std::fs::create_dir_all(directory).map_err(failed)?;
        }
        let new = self.path.with_extension("toml.new");
        let write = || {
            // URLs may hold passwords. One that an interrupted run left behind may be readable by others.
            let _ = std::fs::remove_file(&new);
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create_new(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            let mut file = options.open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&new, &self.path)
        };
        write().map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let remote = Remote { url: "https://a".into(), prefix: Some("t/".into()), token_env: Some("T".into()) };
        let mut remotes = Remotes::of(directory.path()).unwrap();
        remotes.add("origin", remote.clone()).unwrap();
        assert!(remotes.add("origin", remote.clone()).is_err() && remotes.add("a b", remote.clone()).is_err());
        let mut remotes = Remotes::of(directory.path()).unwrap();
        assert_eq!(remotes.get("origin").unwrap(), &remote);
        assert!(remotes.get("other").unwrap_err().to_string().contains("there are origin"));
        #[cfg(unix)]
        {
            let file = std::fs::metadata(directory.path().join(FILE)).unwrap();
            assert_eq!(std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o777, 0o600);
        }
        remotes.remove("origin").unwrap();
        assert!(Remotes::of(directory.path()).unwrap().all().is_empty());
        std::fs::write(directory.path().join(FILE), "[remotes.a]\nurl = 1").unwrap();
        assert!(Remotes::of(directory.path()).is_err());
    }
}
