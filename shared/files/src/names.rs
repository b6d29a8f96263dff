//! Which file holds which record, and which names cannot be files.

use nameservice_model::Address;

/// The directory of the format.
pub(crate) const ROOT: &str = "ns@v2";
const JSON: &str = ".json";
const INDEX_JSON: &str = ".index.json";
const COMMITS_JSONL: &str = ".commits.jsonl";
/// The longest segment of a new path: with the ending of a staging file it stays below the 255 bytes of common file systems.
/// Fluree makes longer ones.
const MAX_SEGMENT_BYTES: usize = 200;
/// What a path never contains. On Windows, a backslash is a separator.
pub(crate) const NEVER: &[char] = if cfg!(windows) { &['\0', '\\'] } else { &['\0'] };
/// Endings that make Fluree take a file for something else, or a directory for a file.
const TAKEN_ENDINGS: [&str; 6] = [".index", ".snapshots", ".json", ".jsonl", ".lock", ".tmp"];

/// The file that holds kind, head, status and config of a record.
pub(crate) fn main_key(address: &Address) -> String {
    format!("{ROOT}/{}/{}{JSON}", address.name(), address.branch())
}

/// What the files of all branches of its name begin with.
pub(crate) fn branches_prefix(address: &Address) -> String {
    format!("{ROOT}/{}/", address.name())
}

/// The file that holds its index.
pub(crate) fn index_key(address: &Address) -> String {
    format!("{ROOT}/{}/{}{INDEX_JSON}", address.name(), address.branch())
}

/// The log of commits that Fluree keeps beside a ledger.
pub(crate) fn commits_key(address: &Address) -> String {
    format!("{ROOT}/{}/{}{COMMITS_JSONL}", address.name(), address.branch())
}

/// Whether it is a log of commits.
pub(crate) fn is_commits(key: &str) -> bool {
    key.ends_with(COMMITS_JSONL)
}

/// The lock file of a file: the last extension is replaced.
pub(crate) fn lock_key(key: &str) -> String {
    format!("{}.lock", key.strip_suffix(JSON).unwrap_or(key))
}

/// Whether a listing takes this for the main file of a record.
pub(crate) fn is_main(key: &str) -> bool {
    is_json(key) && !key.ends_with(INDEX_JSON) && !key.ends_with(".snapshots.json")
}

/// Whether it is an index file.
pub(crate) fn is_index(key: &str) -> bool {
    is_json(key) && key.ends_with(INDEX_JSON)
}

fn is_json(key: &str) -> bool {
    // A file directly under the root belongs to no name.
    key.ends_with(JSON) && key.strip_prefix(ROOT).is_some_and(|rest| rest.trim_start_matches('/').contains('/'))
}

/// The index file beside a main file.
pub(crate) fn index_of_main(key: &str) -> String {
    format!("{}{INDEX_JSON}", key.strip_suffix(JSON).unwrap_or(key))
}

/// The main file beside an index file.
pub(crate) fn main_of_index(key: &str) -> String {
    format!("{}{JSON}", key.strip_suffix(INDEX_JSON).unwrap_or(key))
}

/// Whether there can be a file for this address. An address whose file Fluree takes for something else has no record.
pub(crate) fn is_readable(address: &Address) -> bool {
    let text = address.as_str();
    let stays_inside =
        |part: &str| !part.contains(NEVER) && part.split('/').all(|segment| !matches!(segment, "" | "." | ".."));
    let (name, branch) = (address.name(), address.branch());
    text.matches(':').count() == 1
        && stays_inside(name)
        && stays_inside(branch)
        && !TAKEN_ENDINGS[..2].iter().any(|ending| branch.ends_with(ending))
}

/// Returns why a record of this address cannot be stored as a file; `None` if it can.
pub(crate) fn objection(address: &Address) -> Option<String> {
    let (name, branch) = (address.name(), address.branch());
    if branch.contains('/') {
        return Some(format!(
            "the branch `{branch}` contains `/`: as a file, the record would be listed by Fluree under another name"
        ));
    }
    for segment in name.split('/').chain([branch]) {
        if let Some(ending) = TAKEN_ENDINGS.iter().find(|ending| segment.ends_with(*ending)) {
            return Some(format!(
                "`{segment}` ends in `{ending}`, which names another file of a nameservice directory"
            ));
        }
        if segment.len() > MAX_SEGMENT_BYTES {
            return Some(format!("a part of a file's path has at most {MAX_SEGMENT_BYTES} bytes"));
        }
    }
    (!is_readable(address) || address.as_str().contains('\\')).then(|| "it cannot be the path of a file".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Address {
        Address::stored(text)
    }

    #[test]
    fn a_record_has_a_main_file_an_index_file_and_locks() {
        let mydb = at("tenant/mydb:dev");
        assert_eq!(main_key(&mydb), "ns@v2/tenant/mydb/dev.json");
        assert_eq!(index_key(&mydb), "ns@v2/tenant/mydb/dev.index.json");
        assert_eq!(lock_key(&main_key(&mydb)), "ns@v2/tenant/mydb/dev.lock");
        assert_eq!(lock_key(&index_key(&mydb)), "ns@v2/tenant/mydb/dev.index.lock");
        assert_eq!(index_of_main(&main_key(&mydb)), index_key(&mydb));
        assert_eq!(main_of_index(&index_key(&mydb)), main_key(&mydb));
        assert!(is_main("ns@v2/a/b.json") && is_main("ns@v2/a/b/c.json"));
        for key in ["ns@v2/a.json", "ns@v2/a/b.index.json", "ns@v2/a/b.snapshots.json", "ns@v2/a/b.lock", "a/b.json"] {
            assert!(!is_main(key), "{key}");
        }
    }

    #[test]
    fn names_that_would_leave_the_directory_or_share_a_file_are_rejected() {
        for name in ["../a:main", "a/../b:main", "a:..", "/a:main", "a\0:main", "a//b:main", "a:b:c"] {
            assert!(!is_readable(&at(name)) && objection(&at(name)).is_some(), "{name:?}");
        }
        for name in ["a:x.index", "a:x.snapshots"] {
            assert!(!is_readable(&at(name)) && objection(&at(name)).is_some(), "{name}");
        }
        for name in ["a:release/v1", "a:x.json", "a.json/b:main", "a:x.lock", "a.tmp:main"] {
            assert!(is_readable(&at(name)) && objection(&at(name)).is_some(), "{name}");
        }
        for name in ["a:main", "tenant/a/b:main", "größe:v1.2", "a:indexes"] {
            assert!(is_readable(&at(name)) && objection(&at(name)).is_none(), "{name}");
        }
        let long = at(&format!("{}:main", "n".repeat(201)));
        assert!(is_readable(&long) && objection(&long).is_some());
        assert!(objection(&at("a\\b:main")).is_some());
    }
}
