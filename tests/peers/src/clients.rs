//! The same work in each server's protocol: push a pointer by compare-and-set, read it.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use cid::{Cid, multihash::Multihash};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    http1::{find, request},
    load::Client,
};

/// Returns a content id that is valid and distinct.
fn content_id(name: &str, t: u64) -> String {
    let digest = Sha256::digest(format!("{name} {t}"));
    // A digest of 32 bytes fits 64.
    Multihash::<64>::wrap(0x12, &digest).map(|hash| Cid::new_v1(0x55, hash).to_string()).unwrap_or_default()
}

/// The server under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Nameservice,
    Etcd,
}

/// A pointer: which commit, and its `t`.
#[derive(Clone, Debug, Default)]
struct Pointer {
    id: String,
    t: u64,
}

impl Pointer {
    fn first(name: &str) -> Self {
        Self { id: content_id(name, 1), t: 1 }
    }

    /// The next pointer of this writer: no two writers push the same one.
    fn next(&self, name: &str, writer: usize) -> Self {
        Self { id: content_id(&format!("{name} {writer}"), self.t + 1), t: self.t + 1 }
    }

    /// Returns the value as etcd stores it.
    fn value(&self) -> String {
        BASE64.encode(json!({ "id": self.id, "t": self.t }).to_string())
    }

    fn of(value: &Value) -> Option<Self> {
        Some(Self { id: value["id"].as_str()?.to_owned(), t: value["t"].as_u64()? })
    }
}

/// Creates the record of a name with its first pointer.
pub(crate) struct Create {
    pub(crate) peer: Peer,
    pub(crate) names: std::vec::IntoIter<String>,
}

impl Client for Create {
    fn request(&mut self, into: &mut Vec<u8>) {
        // Requests beyond the last name create a record that exists.
        let name = self.names.next().unwrap_or_else(|| "spare".to_owned());
        let first = Pointer::first(&name);
        match self.peer {
            Peer::Nameservice => {
                let body = format!(r#"{{"address":"{name}","head":{{"id":"{}","t":1}}}}"#, first.id);
                request("POST", "/v1/ledgers", &body, into);
            }
            Peer::Etcd => {
                let body = json!({ "key": BASE64.encode(name), "value": first.value() }).to_string();
                request("POST", "/v3/kv/put", &body, into);
            }
        }
    }

    fn answer(&mut self, status: u16, _body: &[u8]) -> bool {
        status < 300
    }
}

/// Moves one pointer, each time from the last value that it received.
pub(crate) struct Push {
    peer: Peer,
    name: String,
    writer: usize,
    known: Pointer,
    /// The pointer that the current request pushes.
    new: Pointer,
}

impl Push {
    pub(crate) fn new(peer: Peer, name: impl Into<String>) -> Self {
        let name = name.into();
        Self { peer, known: Pointer::first(&name), name, writer: 0, new: Pointer::default() }
    }

    /// One of several writers of the pointer.
    pub(crate) fn by(self, writer: usize) -> Self {
        Self { writer, ..self }
    }
}

impl Client for Push {
    fn request(&mut self, into: &mut Vec<u8>) {
        self.new = self.known.next(&self.name, self.writer);
        let (Pointer { id, t }, next) = (&self.known, &self.new);
        match self.peer {
            Peer::Nameservice => {
                let body =
                    format!(r#"{{"expected":{{"id":"{id}","t":{t}}},"new":{{"id":"{}","t":{}}}}}"#, next.id, next.t);
                request("PUT", &format!("/v1/heads/{}", self.name), &body, into);
            }
            Peer::Etcd => {
                let key = BASE64.encode(&self.name);
                let body = format!(
                    r#"{{"compare":[{{"key":"{key}","target":"VALUE","value":"{}"}}],"success":[{{"requestPut":{{"key":"{key}","value":"{}"}}}}],"failure":[{{"requestRange":{{"key":"{key}"}}}}]}}"#,
                    self.known.value(),
                    next.value()
                );
                request("POST", "/v3/kv/txn", &body, into);
            }
        }
    }

    fn answer(&mut self, status: u16, body: &[u8]) -> bool {
        // Only rejections are parsed: the processors are for the server.
        let written = match self.peer {
            Peer::Nameservice => status == 200,
            Peer::Etcd => status == 200 && find(body, br#""succeeded":true"#).is_some(),
        };
        if written {
            self.known = std::mem::take(&mut self.new);
        } else if let Some(actual) = actual(self.peer, body) {
            self.known = actual;
        }
        written
    }
}

/// Returns the stored pointer that a rejection shows.
fn actual(peer: Peer, body: &[u8]) -> Option<Pointer> {
    let body: Value = serde_json::from_slice(body).ok()?;
    match peer {
        Peer::Nameservice => Pointer::of(&body["actual"]),
        Peer::Etcd => {
            let stored = body["responses"][0]["response_range"]["kvs"][0]["value"].as_str()?;
            Pointer::of(&serde_json::from_slice(&BASE64.decode(stored).ok()?).ok()?)
        }
    }
}

/// Reads records, one after the other.
pub(crate) struct Read {
    pub(crate) peer: Peer,
    pub(crate) names: Vec<String>,
    pub(crate) at: usize,
}

impl Client for Read {
    fn request(&mut self, into: &mut Vec<u8>) {
        self.at = (self.at + 1) % self.names.len();
        let name = &self.names[self.at];
        match self.peer {
            Peer::Nameservice => request("GET", &format!("/v1/records/{name}"), "", into),
            Peer::Etcd => {
                request("POST", "/v3/kv/range", &format!(r#"{{"key":"{}"}}"#, BASE64.encode(name)), into);
            }
        }
    }

    fn answer(&mut self, status: u16, _body: &[u8]) -> bool {
        status == 200
    }
}
