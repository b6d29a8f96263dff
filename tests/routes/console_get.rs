use std::{fs, path::Path};

use super::*;

/// Returns the names of the console's files, as they are under `assets/`.
fn assets() -> Vec<String> {
    fn walk(folder: &Path, root: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => walk(&path, root, found),
                false => found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned()),
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../functions/console_get/assets");
    let mut found = Vec::new();
    walk(&root, &root, &mut found);
    found
}

#[tokio::test]
async fn every_file_of_the_console_is_served_under_its_type_and_a_strict_policy() {
    let service = Service::start().await;
    let all = assets();
    assert!(all.len() > 15, "{all:?}");
    for name in &all {
        let path = if name == "index.html" { "/console".to_owned() } else { format!("/console/{name}") };
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
    for path in ["/console/nowhere.js", "/console/../Cargo.toml", "/console/%FF", "/console/vendor/"] {
        service.get(path).await.problem(404, "not-found");
    }
}

#[tokio::test]
async fn the_page_names_its_files_relative_to_itself_and_holds_no_script() {
    let service = Service::start().await;
    let page = service.get("/console").await.expect(200);
    let page = page.as_str().unwrap();
    for start in ["src=\"", "href=\""] {
        for rest in page.split(start).skip(1) {
            let url = rest.split('"').next().unwrap();
            assert!(!url.starts_with('/') && !url.contains(':'), "{url}");
            service.get(&format!("/{url}")).await.expect(200);
        }
    }
    assert!(!page.contains("<style") && !page.contains("<script>") && !page.contains(" on"), "{page}");
}

#[tokio::test]
async fn a_browser_that_has_a_file_is_not_sent_it_again() {
    let service = Service::start().await;
    for path in ["/console", "/console/app.js"] {
        let first = service.get(path).await;
        let tag = first.header("etag").unwrap().to_owned();
        assert_eq!(first.header("cache-control"), Some("no-cache"), "{path}");
        let again = service.send(Method::GET, path, &[("if-none-match", &tag)], None).await;
        assert_eq!(again.expect(304), Value::Null, "{path}");
    }
}

#[tokio::test]
async fn browsers_are_led_to_the_console_and_programs_to_the_documentation() {
    let service = Service::start().await;
    for (accept, to) in [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "console"),
        ("TEXT/HTML;q=0.9", "console"),
        ("*/*", "v1/docs"),
        ("application/json", "v1/docs"),
    ] {
        let answer = service.send(Method::GET, "/", &[("accept", accept)], None).await;
        assert_eq!((answer.status.as_u16(), answer.header("location")), (307, Some(to)), "{accept}");
        assert_eq!(answer.header("vary"), Some("accept"), "{accept}");
    }
}
