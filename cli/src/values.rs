//! Parsers for values of the command line.

use std::{
    fmt, fs,
    io::Read as _,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use jiff::{Span, SpanRelativeTo};
use nameservice_api::requests::HeadValue;
use nameservice_http::freshness::MAX_WAIT_SECONDS;
use nameservice_model::{Address, AddressGlob, ContentId, LeaseName, MAX_TTL_SECONDS, MIN_TTL_SECONDS, Object};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, map::Entry};

use crate::failure::Failure;

/// A head or an index: `ID@T`, or `unborn` for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefValue(Option<(ContentId, i64)>);

impl RefValue {
    /// No data.
    pub const UNBORN: Self = Self(None);

    /// A commit or an index root at its `t`.
    pub fn new(id: ContentId, t: i64) -> Self {
        Self(Some((id, t)))
    }

    /// Reads `ID@T` or `unborn`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "unborn" { Ok(Self::UNBORN) } else { Self::parse_born(text) }
    }

    /// Reads `ID@T`.
    pub fn parse_born(text: &str) -> Result<Self, String> {
        let (id, t) = text.rsplit_once('@').ok_or("it has the form ID@T, such as bafy…@5")?;
        let id = ContentId::parse(id).map_err(|error| error.to_string())?;
        match t.parse() {
            Ok(t) if t >= 1 => Ok(Self(Some((id, t)))),
            _ => Err(format!("`{t}` is not a t: a number from 1 on")),
        }
    }
}

impl From<RefValue> for HeadValue {
    fn from(RefValue(value): RefValue) -> Self {
        match value {
            Some((id, t)) => Self { id: Some(id.as_str().to_owned()), t },
            None => Self { id: None, t: 0 },
        }
    }
}

/// Where in the feed to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// With the changes from now on.
    Now,
    /// With the oldest change that the feed holds.
    Start,
    /// With the change that follows this position.
    After(u64),
}

impl Beginning {
    /// Reads `now`, `start` or a position.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "now" => Ok(Self::Now),
            "start" => Ok(Self::Start),
            _ => text.parse().map(Self::After).map_err(|_| "it is a position, `start` or `now`".to_owned()),
        }
    }
}

/// A time to keep something: `7d`, `36h`, `90 minutes`, or a number of hours.
pub fn retention(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 3600);
    let duration = match text.parse::<u32>() {
        Ok(hours) => Duration::from_secs(u64::from(hours) * 3600),
        Err(_) => duration(text).ok_or_else(|| wrong(text, "a number of hours"))?,
    };
    match duration.as_secs() {
        0 => Err("it must be at least 1s".to_owned()),
        _ if duration > LONGEST => Err("it must be at most a hundred years".to_owned()),
        _ => Ok(duration),
    }
}

/// How often something is done: `15m`, `1h`, `1d`, or a number of seconds; a second or longer.
pub fn period(text: &str) -> Result<Duration, String> {
    let period = match text.parse::<u32>() {
        Ok(seconds) => Some(Duration::from_secs(u64::from(seconds))),
        Err(_) => duration(text),
    };
    let period = period.ok_or_else(|| wrong(text, "a number of seconds"))?;
    if period.as_secs() == 0 { Err("it must be at least 1s".to_owned()) } else { Ok(period) }
}

/// An address to listen on: `127.0.0.1:8080`, `localhost:8080`, `:8080` or `8080`. Without a host it is the loopback
/// address, which other machines cannot reach.
pub fn listen(text: &str) -> Result<SocketAddr, String> {
    let (host, port) = match text.rsplit_once(':') {
        Some(("", port)) => ("127.0.0.1", port),
        Some((host, port)) => (host, port),
        None => ("127.0.0.1", text),
    };
    let wrong = || format!("`{text}` is not ADDRESS:PORT, localhost:PORT, :PORT or PORT");
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let host = if host.eq_ignore_ascii_case("localhost") { "127.0.0.1" } else { host };
    let host: IpAddr = host.trim_matches(['[', ']']).parse().map_err(|_| wrong())?;
    Ok((host, port).into())
}

/// The mode of a socket: `0660`, `666`.
pub fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("`{text}` is not a mode such as 0660 or 0666"))
}

/// A name without a branch.
pub fn name(text: &str) -> Result<String, String> {
    match text.split_once(':') {
        Some((name, _)) => Err(format!("it is a name without a branch: `{name}`")),
        None => Address::parse(text).map(|address| address.name().to_owned()).map_err(|error| error.to_string()),
    }
}

/// An address that names its branch.
pub fn branch_address(text: &str) -> Result<Address, String> {
    if !text.contains(':') {
        return Err(format!("it names the new branch: `{text}:BRANCH`"));
    }
    Address::parse(text).map_err(|error| error.to_string())
}

/// The name of a lease.
pub fn lease_name(text: &str) -> Result<LeaseName, String> {
    LeaseName::parse(text).map_err(|error| error.to_string())
}

/// A pattern of addresses.
pub fn glob(text: &str) -> Result<AddressGlob, String> {
    AddressGlob::parse(text).map_err(|error| error.to_string())
}

/// How long a lease may last, in seconds.
pub fn ttl(text: &str) -> Result<u32, String> {
    let seconds = match text.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => duration(text).ok_or_else(|| wrong(text, "a number of seconds"))?.as_secs(),
    };
    let seconds = u32::try_from(seconds).ok();
    let seconds = seconds.filter(|seconds| (MIN_TTL_SECONDS..=MAX_TTL_SECONDS).contains(seconds));
    seconds.ok_or_else(|| format!("it must be {MIN_TTL_SECONDS}s to {MAX_TTL_SECONDS}s"))
}

/// How long a read may wait, in seconds.
pub fn wait(text: &str) -> Result<u64, String> {
    let seconds = match text.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => duration(text).ok_or_else(|| wrong(text, "a number of seconds"))?.as_secs(),
    };
    Some(seconds)
        .filter(|seconds| *seconds <= MAX_WAIT_SECONDS)
        .ok_or_else(|| format!("it must be 0s to {MAX_WAIT_SECONDS}s"))
}

/// A duration such as `5m`; `None` for a text that is not one.
fn duration(text: &str) -> Option<Duration> {
    let span: Span = text.parse().ok()?;
    Duration::try_from(span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?).ok()
}

fn wrong(text: &str, number: &str) -> String {
    format!("`{text}` is not a duration such as 7d, 36h or 90m, nor {number}")
}

/// Reads a JSON object from a file, or from stdin for `-`.
pub fn object_in(file: &str) -> Result<Object, Failure> {
    if file == "-" { object(file) } else { object(&format!("@{file}")) }
}

/// Reads a JSON object from the text itself, from the file after an `@`, or from stdin for `-`.
pub fn object(text: &str) -> Result<Object, Failure> {
    let (source, json) = if text == "-" {
        let mut json = String::new();
        let read = std::io::stdin().read_to_string(&mut json);
        read.map_err(|error| Failure::Usage(format!("stdin cannot be read: {error}")))?;
        ("stdin", json)
    } else if let Some(path) = text.strip_prefix('@') {
        let json = fs::read_to_string(path);
        (path, json.map_err(|error| Failure::Usage(format!("{path} cannot be read: {error}")))?)
    } else {
        ("it", text.to_owned())
    };
    match serde_json::from_str(&json) {
        Ok(Unambiguous(Value::Object(object))) => Ok(object),
        Ok(_) => Err(Failure::Usage(format!("expected a JSON object, but {source} is another JSON value"))),
        Err(error) => Err(Failure::Usage(format!("expected a JSON object, but {source} is not JSON: {error}"))),
    }
}

/// A JSON value in which no object has a member twice. The service rejects such members where it knows them, and a map
/// would keep only the last one.
struct Unambiguous(Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UnambiguousVisitor).map(Self)
    }
}

struct UnambiguousVisitor;

impl<'de> Visitor<'de> for UnambiguousVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unambiguous(value)) = access.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Object::new();
        while let Some((name, Unambiguous(value))) = access.next_entry::<String, _>()? {
            match members.entry(name) {
                Entry::Vacant(entry) => drop(entry.insert(value)),
                Entry::Occupied(entry) => {
                    return Err(A::Error::custom(format_args!("duplicate member `{}`", entry.key())));
                }
            }
        }
        Ok(members.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

    #[test]
    fn retentions_are_durations_or_hours() {
        for (text, hours) in
            [("7d", 168), ("36h", 36), ("90 minutes", 1), ("1w", 168), ("12", 12), ("2 days 1 hour", 49)]
        {
            assert_eq!(retention(text).unwrap().as_secs() / 3600, hours, "{text}");
        }
        for text in ["", "0", "0s", "-1h", "1.5", "soon", "1month", "9999999999h", "2000000d"] {
            assert!(retention(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_port_alone_listens_on_this_machine_alone() {
        for text in ["9000", ":9000", "localhost:9000", "127.0.0.1:9000"] {
            assert_eq!(listen(text).unwrap().to_string(), "127.0.0.1:9000", "{text}");
        }
        assert_eq!(listen("[::1]:9000").unwrap().to_string(), "[::1]:9000");
        assert_eq!(listen("0.0.0.0:80").unwrap().to_string(), "0.0.0.0:80");
        for text in ["", ":", "x", "example.com:80", "1.2.3.4", "127.0.0.1:99999"] {
            assert!(listen(text).is_err(), "{text}");
        }
    }

    #[test]
    fn leases_last_seconds_or_a_duration() {
        for (text, seconds) in [("300", 300), ("5m", 300), ("90s", 90), ("1h", 3600)] {
            assert_eq!(ttl(text), Ok(seconds), "{text}");
        }
        for text in ["0", "2h", "soon", "-1"] {
            assert!(ttl(text).is_err(), "{text}");
        }
    }

    #[test]
    fn refs_are_an_id_at_a_t_or_unborn() {
        let read = |text: &str| serde_json::to_value(HeadValue::from(RefValue::parse(text).unwrap())).unwrap();
        assert_eq!(read(&format!("{ID}@12")), serde_json::json!({"id": ID, "t": 12}));
        assert_eq!(read("unborn"), serde_json::json!({"id": null, "t": 0}));
        for (text, reason) in [
            (ID.to_owned(), "ID@T"),
            (format!("{ID}@"), "is not a t"),
            (format!("{ID}@0"), "is not a t"),
            (format!("{ID}@-1"), "is not a t"),
            (format!("{ID}@x"), "is not a t"),
            ("Qm@1".to_owned(), "content id"),
            ("@1".to_owned(), "content id"),
        ] {
            let rejected = RefValue::parse(&text).unwrap_err();
            assert!(rejected.contains(reason), "{text}: {rejected}");
        }
        assert!(RefValue::parse_born("unborn").is_err());
    }

    #[test]
    fn names_have_no_branch_and_new_branches_name_it() {
        assert_eq!(name("tenant/a").unwrap(), "tenant/a");
        assert!(name("a:main").is_err() && name("a%").is_err());
        assert_eq!(branch_address("a:b").unwrap().as_str(), "a:b");
        assert!(branch_address("a").is_err());
    }

    #[test]
    fn leases_have_any_plain_name() {
        assert_eq!(lease_name("reindex_lock"), Ok(LeaseName::REINDEX));
        assert!(lease_name("backup").is_ok());
        assert!(lease_name("back-up").unwrap_err().contains("a-z, 0-9 and `_`"));
    }

    #[test]
    fn objects_come_from_the_line_or_a_file_and_are_objects() {
        assert_eq!(object(r#"{"a": 1}"#).unwrap()["a"], 1);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), r#"{"a": 2}"#).unwrap();
        assert_eq!(object(&format!("@{}", file.path().display())).unwrap()["a"], 2);
        assert_eq!(object_in(&file.path().display().to_string()).unwrap()["a"], 2);
        let all = r#"{"a": [null, true, -1, 18446744073709551615, 1.5, "ü", {"b": {}}], "c": {"a": 1}}"#;
        assert_eq!(Value::Object(object(all).unwrap()), serde_json::from_str::<Value>(all).unwrap());
        for text in [r#"{"a": 1, "a": 1}"#, r#"{"operations": [{"op": "x", "a": {"b": 1, "b": 2}}]}"#] {
            let rejected = object(text).unwrap_err().to_string();
            assert!(rejected.contains("duplicate member"), "{rejected}");
        }
        for text in ["[]", "1", "{", "@/nowhere"] {
            assert!(matches!(object(text), Err(Failure::Usage(_))), "{text}");
        }
    }
}
