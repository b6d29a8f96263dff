//! What holds for the files of every page.

use std::{fs, path::Path};

use super::*;

/// Returns the names of a function's files, as they are under `assets/`.
pub(super) fn assets(function: &str) -> Vec<String> {
    fn walk(folder: &Path, root: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => walk(&path, root, found),
                false => found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned()),
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../functions").join(function).join("assets");
    let mut found = Vec::new();
    walk(&root, &root, &mut found);
    found
}

/// Asserts that each file is served under its type and a strict policy.
pub(super) async fn are_served(service: &Service, files: &[String], page: &str) {
    for name in files {
        let path = if name == "index.html" { page.to_owned() } else { format!("{page}/{name}") };
        let answer = service.get(&path).await;
        let expected = match name.rsplit_once('.').unwrap().1 {
            "html" => "text/html; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        };
        assert_eq!(answer.header("content-type"), Some(expected), "{name}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{name}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        answer.expect(200);
    }
}

/// Asserts that a page names its files relative to itself, that they exist, and that it holds no script or style of its own.
pub(super) async fn is_relative_and_without_script(service: &Service, page: &str) {
    let folder = page.rsplit_once('/').unwrap().0;
    let text = service.get(page).await.expect(200);
    let text = text.as_str().unwrap();
    for start in ["src=\"", "href=\""] {
        for rest in text.split(start).skip(1) {
            let url = rest.split('"').next().unwrap();
            assert!(!url.starts_with('/') && !url.contains(':'), "{url}");
            let path = match url.strip_prefix("../") {
                Some(url) => format!("/{url}"),
                None => format!("{folder}/{url}"),
            };
            service.get(&path).await.expect(200);
        }
    }
    assert!(!text.contains("<style") && !text.contains("<script>") && !text.contains(" on"), "{text}");
}
