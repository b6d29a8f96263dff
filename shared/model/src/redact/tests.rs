use std::{sync::mpsc, thread, time::Duration};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

pub(super) fn redacted(mut value: Value) -> Value {
    redact(&mut value);
    value
}

#[test]
fn no_form_of_a_text_shows_its_secret() {
    for text in [
        "postgres://u:SECRET@db:5432/x",
        "https://SECRET@github.com/o/r.git",
        "pg://u:x@SECRET@db/x",
        "pg://u:SECRET,SECRET@db/x",
        "https://a.example/x, https://u:SECRET@b.example/y",
        "https://SECRET@a.example/x and https://SECRET@b.example",
        "pg://u:SECRET/SECRET@db/x",
        "pg://u:SECRET#SECRET@db/x",
        "see <https://u:SECRET@b.example/y>",
        "https://a.example/cb#access_token=SECRET&state=1",
        "https://a.example/?q=1&api_key=SECRET#x",
        "https://a.example/?TOKEN=SECRET",
        "https://a.example/?X-Amz-Signature=SECRET",
        "https://acc.blob.example/c?sv=1&sig=SECRET",
        "jdbc:sqlserver://db:1;user=u;password=SECRET;a=b",
        "jdbc:oracle:thin:scott/SECRET@//db.example:1521/x",
        "user:SECRET@tcp(127.0.0.1:3306)/db",
        "Server=db;Database=x;User Id=u;Password=SECRET;",
        "Server=db;Pwd={SECRET;SECRET};x=y",
        "Server=db;PWD='SECRET SECRET';x=y",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=SECRET==;EndpointSuffix=core",
        "Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=SECRET=",
        "Account Name=a;Account Key=SECRET",
        "host=db user=u password=SECRET dbname=x",
        "host=db password = 'SECRET SECRET' dbname=x",
        "export DB_PASSWORD=SECRET",
        "run --token SECRET --password=SECRET".split_once("--token SECRET ").map_or("", |(_, rest)| rest),
        "password: SECRET",
        "run --password SECRET --verbose",
        "run --api-key   SECRET",
        "<a><password>SECRET</password></a>",
        "<p><name>db.password</name><value>SECRET</value></p>",
        "Pwd={a}}SECRET};x=y",
        r#"password="a\"SECRET";x=y"#,
        "Password: a,SECRET",
        "password=SE&SECRET",
        "password=SE#SECRET",
        ":password => SECRET",
        "password: |\n  a\n  SECRET\n",
        "Authorization: Bearer SECRETSECRET",
        "use Bearer SECRETSECRET",
        r#"{"a": {"password": "SECRET"}}"#,
        r#" [{"name": "PASSWORD", "value": "SECRET"}]"#,
        r#"config={"password":"SECRET","a":1}"#,
        r#"{"inner": "{\"clientSecret\": \"SECRET\"}"}"#,
        "-----BEGIN RSA PRIVATE KEY-----\nSECRET\n-----END RSA PRIVATE KEY-----",
        "eyJSECRETSECRET.eyJSECRET.SECRET",
        "it is AKIASECRETSECRET11",
        "https://SECRET:@h.example/x",
        "https://SECRET:x-oauth-basic@github.com/o/r.git",
        "jdbc:oracle:thin:scott/SECRET@db:1521:orcl",
        "scott/SECRET@db.example:1521/x",
        "scott/SECRET@//db/x",
        "u:SECRET@db",
        "u:SECRET@localhost:5432",
        "pg://u:12/SECRET@db/x",
        "u:SECRET@t:5432/x",
        "eyJ/SECRETSECRET",
        "https://u:123456/SECRET@h.example/x",
        "<add key=\"db.password\" value=\"SECRET\"/>",
        "<add value='SECRET' key='password' />",
        "<c><setting name=\"apiKey\" serializeAs=\"String\" value = \"SECRET\"></setting></c>",
        r#"was {"type": "password", "value": "SECRET"} before"#,
        "key sk-SECRETSECRETSECRETSECRET1",
        "hf_SECRETSECRETSECRETSECRETSECRETSECRET",
        "AIzaSECRETSECRETSECRETSECRETSECRETSECRET",
        "SG.SECRETSECRETSECRETSECRET.SECRETSECRETSECRETSECRET",
        "npm_SECRETSECRETSECRETSECRETSECRETSECRET",
        "dapiSECRETSECRETSECRETSECRETSECRETSECRET",
        "xapp-1-SECRETSECRET",
        // Quotes in a password.
        "pg://u:a'SECRET@db/x",
        "pg://u:a\"SECRET@db/x",
        "pg://u:a`SECRET@db/x",
        "pg://u:a<SECRET@db/x",
        "pg://u:SECRET'@db/x",
        "pg://u:'SECRET'@db/x",
        "pg://u:12'SECRET@db/x",
        "pg://u:x@a'SECRET@db/x",
        "pg://u:a','SECRET@db/x",
        "pg://u:'SECRET/SECRET@db/x",
        "dsn='pg://u:a\"SECRET@db/x'",
        "dsn=\"pg://u:a\"SECRET@db/x\"",
        "u:a'SECRET@tcp(127.0.0.1:3306)/db",
        "dsn='u:a\"SECRET@tcp(db)/x'",
        "['https://a.example','pg://u:SECRET@db/x']",
        "https://a.example/?token=a'SECRET&x=1",
        // JSON inside of a text, and escaped in it.
        r#""{\"password\":\"SECRET\"}""#,
        r#""\"{\\\"password\\\":\\\"SECRET\\\"}\"""#,
        r#"config="{\"password\":\"SECRET\"}" x=1"#,
        r#"{\"password\":\"SECRET\"}"#,
        r#"{\\\"password\\\":\\\"SECRET\\\"}"#,
        r#"was {\"password\":\"a\\\"SECRET\"} before"#,
        r#"was {\"name\":\"PASSWORD\",\"value\":\"SECRET\"} before"#,
        r#"was {\\\"a\\\":{\\\"tokens\\\":[\\\"x\\\",\\\"SECRET\\\"]}} before"#,
        r#"was {\n  \"password\": \"SECRET\"} before"#,
        r#"at C:\dir {\"password\":\"SECRET\"}"#,
        r#"cut {\"a\":1,\"password\":\"SECRET"#,
        r#"was {"name":"PASSWORD","value":"SECRET"} before"#,
        r#"run ["--password", "SECRET"]"#,
        r#"was {"credentials": {"a": {"b": "x"}, "c": "SECRET"}, cut"#,
        r#"was {"tokens": ["x", "SECRET"], cut"#,
        "{credentials: {a: {b: 'x'}, c: 'SECRET'}}",
        // YAML.
        "password: >\n  SECRET",
        "password: >-\n  a\n\n  SECRET\nuser: u",
        "password: |2+ # a comment\r\n    SECRET\r\nuser: u",
        "a:\n  password: >\n    a\n    SECRET\n  user: u",
        "- password: |\n    a\n    SECRET\n  user: u",
        "\"password\": |\n  a\n  SECRET",
        "password:\n  a\n  SECRET",
        "password: a\n  SECRET",
        "password: >\nSECRET\nSECRET",
        "credentials:\n  user: u\n  other:\n    x: SECRET\nz: 1",
        "passwords:\n- a\n- SECRET\nz: 1",
        "run -password SECRET",
        "run --password -SECRET",
    ] {
        let shown = redacted(json!({ "url": text }))["url"].to_string();
        assert!(!shown.contains("SECRET") && shown.contains(REDACTED), "{text}: {shown}");
    }
}

#[test]
fn a_value_beside_the_name_of_a_secret_is_one() {
    for object in [
        json!({"name": "PASSWORD", "value": "SECRET"}),
        json!({"value": "SECRET", "name": "PASSWORD"}),
        json!({"key": "db.password", "val": ["SECRET"]}),
        json!({"header": "Authorization", "text": {"a": "SECRET"}}),
        json!({"Name": "apiKey", "Value": 5, "x": "SECRET"}),
        json!(["--password", "SECRET", "--verbose"]),
        json!({"@id": "ex:password", "@value": "SECRET"}),
        json!({"kty": "oct", "k": "SECRET"}),
        json!({"type": "password", "value": "SECRET"}),
        json!({"kind": "api_key", "Value": {"a": "SECRET"}}),
        json!({"kty": "EC", "crv": "P-256", "d": "SECRET"}),
        json!({"label": "Password", "@value": "SECRET"}),
        json!({"title": "client secret", "text": "SECRET"}),
        json!({"name": "$PASSWORD", "value": "SECRET"}),
        json!({"name": "db[password]", "value": "SECRET"}),
        json!({"name": "--password=", "value": "SECRET"}),
        json!([["PASSWORD", "SECRET"], ["a", "b"]]),
        json!(["user", "u", "password", "SECRET"]),
        json!(["-password", "SECRET"]),
        json!(["--password=", "SECRET"]),
        json!(["--password", "-SECRET"]),
        json!(["--password", "--token", "SECRET"]),
        json!(["password", "token", "SECRET"]),
        json!(["password", {"a": ["SECRET"]}]),
        json!(["Authorization:", "SECRET"]),
    ] {
        let shown = redacted(object.clone()).to_string();
        assert!(!shown.contains("SECRET"), "{object}: {shown}");
    }
    assert_eq!(redacted(json!(["--pin", 1234, 5])), json!(["--pin", REDACTED, 5]));
    for plain in [
        json!([{"name": "REGION", "value": "eu"}, ["--verbose", "x"]]),
        json!(["id", "password"]),
        json!(["--password", "--verbose", "x"]),
        json!(["--max-tokens", "5"]),
        json!(["--token-type", "x"]),
        json!(["primary_key", "id", "name"]),
        json!(["a password is needed", "x"]),
        json!(["--password", null, true]),
    ] {
        assert_eq!(redacted(plain.clone()), plain);
    }
}

#[test]
fn what_is_no_secret_stays() {
    for text in [
        "https://example.org/a?b=c",
        "s3://bucket/a@b:c",
        "https://db:5432/a@b",
        "mydb:main@t:50",
        "someone@example.org",
        "f:Bm25Index",
        "select ?s where { ?s ex:name \"x\" }",
        "http://example.org/ns#Person",
        "2026-11-23T12:00:00Z",
        "s3://lake/warehouse/db.table",
        "partition_key=a;sort=b",
        "'https://a.example','someone@example.org'",
        "['https://db:5432','someone@example.org']",
        "\"https://a.example/x:y\",\"someone@example.org\"",
        "<https://a.example>,<someone@example.org>",
        "<a href=\"https://a.example\">someone@example.org</a>",
        "https://a.example/it's@home",
        "he said \"hi\": x",
        r#"{\"name\":\"x\",\"n\":[1]}"#,
        r#"at C:\dir\"x\": y"#,
        r#"as in [1] and {"a": "b"}"#,
        "note: >\n  a\n  b\nuser: u",
        "steps: |\n  a\n  b",
        "keys:\n- a\n- b",
        "a -x b --max-tokens 5",
        "mydb:main@iso:2026-11-23",
        "mydb:main@commit:bafyrei",
        "uses org/action@v4",
        "sk-learn/estimators/ensemble/forest",
        "<add key=\"region\" value=\"eu\"/>",
        "<a name=\"x\">b</a>",
    ] {
        assert_eq!(redacted(json!({ "url": text })), json!({ "url": text }));
    }
    for (url, shown) in [
        ("postgres://u:p@db:5432/x", "postgres://u:[redacted]@db:5432/x"),
        ("jdbc:postgresql://db/x?user=u&password=p&ssl=1", "jdbc:postgresql://db/x?user=u&password=[redacted]&ssl=1"),
        ("jdbc:sqlserver://db:1;user=u;password=p;a=b", "jdbc:sqlserver://db:1;user=u;password=[redacted];a=b"),
        ("'pg://u:a\"p@db/x','someone@example.org'", "'pg://u:[redacted]@db/x','someone@example.org'"),
        ("password: |\n  a\n\n  b\n\nuser: u", "password: [redacted]\n\nuser: u"),
        ("a:\n  password: >-\n    b\n  user: u", "a:\n  password: [redacted]\n  user: u"),
        ("- password: >\n    b\n  user: u", "- password: [redacted]\n  user: u"),
        ("passwords:\n- a\n- b\nuser: u", "passwords:\n[redacted]\nuser: u"),
        (r#"x="{\"a\":\"b\",\"pin\":\"p\"}" y"#, r#"x="{\"a\":\"b\",\"pin\":\"[redacted]\"}" y"#),
        (r#"was {"a":"b","pin":"p"} before"#, r#"was {"a":"b","pin":"[redacted]"} before"#),
        ("run --password p -password q x", "run --password [redacted] -password [redacted] x"),
        ("run --password=p x", "run --password=[redacted] x"),
    ] {
        assert_eq!(redacted(json!({ "url": url })), json!({ "url": shown }));
    }
}

/// Every write, every change of the feed and every read wait for it.
#[test]
fn no_text_takes_long() {
    const BYTES: usize = 256 * 1024;
    let brackets = "[".repeat(127);
    for (begin, unit) in [
        ("", "@"),
        ("https://", "@"),
        ("https://a:", "b@"),
        ("", "a:b@c/"),
        ("", "<a>"),
        ("<a", " key='password' b='c'"),
        ("", "<a b='c'"),
        ("", "a/b@c:1 "),
        ("", "sk-"),
        ("", "<password>"),
        ("", "<name>password</name>"),
        ("", "password=;"),
        ("", "password:;"),
        ("", "password: "),
        ("", "password: x\n"),
        ("x?", "password=&"),
        ("", "password:{"),
        ("", "\"password\":\""),
        ("", "\\\"password\\\":"),
        ("", "--password "),
        ("", "eyj-"),
        ("", "eyj/"),
        ("", "sg.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/"),
        ("", "bearer "),
        ("", "["),
        ("", "{\"a\":"),
        ("", "[\""),
        ("", "\\\""),
        ("x", "\""),
        (&brackets, "1,"),
    ] {
        let text = json!({ "a": format!("{begin}{}", unit.repeat(BYTES / unit.len())) });
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || done.send(redacted(text)));
        // It takes less than a second of work. Quadratic, it took minutes.
        assert!(is_done.recv_timeout(Duration::from_secs(120)).is_ok(), "{begin:.20}{unit}");
    }
}

proptest! {
    #[test]
    fn any_text_survives_and_is_redacted_once(
            text in "\\PC{0,60}",
            url in "[a-z]{1,4}://[a-zü:@/?;&= '\"{}]{0,30}",
            yaml in "(token|a|pin)[\"]?: ?[|>{\\[\\\\\"ü@ \n,:a\\]}-]{0,40}",
        ) {
        let once = redacted(json!({ &text: &url, "a": text, "b": yaml, "c": yaml.repeat(2) }));
        prop_assert!(redacted(once.clone()) == once || is_redacted(&once));
    }
}
