use super::{assets::assets, *};

#[tokio::test]
async fn every_file_of_the_console_is_served_under_its_type_and_a_strict_policy() {
    let service = Service::start().await;
    let all = assets("console_get");
    assert!(all.len() > 15, "{all:?}");
    assets::are_served(&service, &all, "/console").await;
    for path in ["/console/nowhere.js", "/console/../Cargo.toml", "/console/%FF", "/console/vendor/"] {
        service.get(path).await.problem(404, "not-found");
    }
}

#[tokio::test]
async fn the_page_names_its_files_relative_to_itself_and_holds_no_script() {
    let service = Service::start().await;
    assets::is_relative_and_without_script(&service, "/console").await;
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
