//! `aws deadletters`, if `NAMESERVICE_TEST_MINISTACK` names an SQS.

use aws_sdk_sqs::{
    Client,
    config::{BehaviorVersion, Credentials, Region},
    types::{MessageAttributeValue, QueueAttributeName},
};

use super::*;

const MINISTACK: &str = "NAMESERVICE_TEST_MINISTACK";

struct Queues {
    endpoint: String,
    sqs: Client,
    source: String,
    dead: String,
}

impl Queues {
    /// A queue, and that of its dead letters. `None` without an SQS.
    async fn new() -> Option<Self> {
        let endpoint = std::env::var(MINISTACK).ok().filter(|url| !url.is_empty())?;
        let mut config = aws_sdk_sqs::config::Builder::new()
            .behavior_version(BehaviorVersion::latest())
            .endpoint_url(&endpoint)
            .region(Region::from_static("us-east-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
            .timeout_config(engine::timeouts());
        config.set_http_client(nameservice_store::endpoint_client(&endpoint).config().http_client());
        let sqs = Client::from_conf(config.build());
        let name = uuid::Uuid::new_v4();
        let dead = sqs.create_queue().queue_name(format!("{name}-dead")).send().await.unwrap().queue_url.unwrap();
        let arn = QueueAttributeName::QueueArn;
        let about = sqs.get_queue_attributes().queue_url(&dead).attribute_names(arn.clone()).send().await.unwrap();
        let policy =
            serde_json::json!({ "deadLetterTargetArn": about.attributes().unwrap()[&arn], "maxReceiveCount": 3 });
        let source = sqs.create_queue().queue_name(name.to_string());
        let source = source.attributes(QueueAttributeName::RedrivePolicy, policy.to_string());
        let source = source.send().await.unwrap().queue_url.unwrap();
        Some(Self { endpoint, sqs, source, dead })
    }

    async fn store(&self, body: &str, reason: Option<&str>) -> String {
        let mut request = self.sqs.send_message().queue_url(&self.dead).message_body(body);
        if let Some(reason) = reason {
            let value = MessageAttributeValue::builder().data_type("String").string_value(reason).build().unwrap();
            request = request.message_attributes("reason", value);
        }
        request.send().await.unwrap().message_id.unwrap()
    }

    fn run(&self, line: &str) -> (i32, String, String) {
        let mut command = program();
        command.env("AWS_ENDPOINT_URL", &self.endpoint).env("AWS_REGION", "us-east-1");
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        let Output { status, stdout, stderr } = command
            .args(["aws", "deadletters"])
            .args(line.replace("QUEUE", &self.dead).replace("SOURCE", &self.source).split_whitespace())
            .output()
            .unwrap();
        (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    }

    /// The ids, reasons and bodies of the dead letters.
    fn list(&self) -> Vec<(String, Value, String)> {
        let (code, stdout, stderr) = self.run("list QUEUE --json");
        assert_eq!(code, 0, "{stderr}");
        let entry = |line: &str| {
            let entry: Value = serde_json::from_str(line).unwrap();
            (
                entry["id"].as_str().unwrap().to_owned(),
                entry["reason"].clone(),
                entry["body"].as_str().unwrap().to_owned(),
            )
        };
        stdout.lines().map(entry).collect()
    }

    /// What is in the source queue.
    async fn source(&self) -> Vec<String> {
        let mut bodies = Vec::new();
        loop {
            let request = self.sqs.receive_message().queue_url(&self.source).max_number_of_messages(10);
            let found = request.message_attribute_names("All").send().await.unwrap().messages.unwrap_or_default();
            if found.is_empty() {
                return bodies;
            }
            for message in found {
                assert!(message.message_attributes().is_none_or(|attributes| !attributes.contains_key("reason")));
                bodies.push(message.body.unwrap());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_listed_replayed_and_dropped_one_by_one() {
    let Some(queues) = Queues::new().await else { return };
    let one = queues.store("the first", Some("400: no such field")).await;
    let two = queues.store(r#"{"reason": "unreadable", "record": {}}"#, None).await;
    let three = queues.store("the third", None).await;
    let mut found = queues.list();
    found.sort_by_key(|(_, _, body)| body.len());
    assert_eq!(found.iter().map(|(id, ..)| id.clone()).collect::<Vec<_>>(), [&one, &three, &two].map(Clone::clone));
    assert_eq!(
        found.iter().map(|(_, reason, _)| reason.clone()).collect::<Vec<_>>(),
        ["400: no such field".into(), Value::Null, "unreadable".into()]
    );
    assert_eq!(queues.list().len(), 3, "looking takes nothing away");
    let (_, text, _) = queues.run("list QUEUE");
    assert!(text.contains("400: no such field") && text.contains("it failed too often"), "{text}");

    let (code, stdout, stderr) = queues.run(&format!("replay QUEUE --to SOURCE --id {one}"));
    assert_eq!((code, stdout.trim()), (0, "1 replayed"), "{stderr}");
    assert_eq!(queues.source().await, ["the first"]);
    let (code, _, stderr) = queues.run(&format!("replay QUEUE --to SOURCE --id {one}"));
    assert!(code == 2 && stderr.contains(&one), "{code} {stderr}");
    assert_eq!(queues.run("drop QUEUE").0, 2, "all or some must be named");
    assert_eq!(queues.run(&format!("drop QUEUE --id {two}")).0, 0);
    assert_eq!(queues.list().len(), 1);
    assert_eq!(queues.run("replay QUEUE --to SOURCE").1.trim(), "1 replayed");
    assert_eq!(queues.source().await, ["the third"]);
    assert!(queues.list().is_empty());
    queues.store("the last", None).await;
    assert_eq!(queues.run("drop QUEUE --all").1.trim(), "1 dropped");
    assert!(queues.list().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_sent_again_stays_where_it_is() {
    let Some(queues) = Queues::new().await else { return };
    queues.store("a record", None).await;
    assert_eq!(queues.run("replay QUEUE").0, 2, "the target must be named");
    queues.sqs.delete_queue().queue_url(&queues.source).send().await.unwrap();
    let (code, _, stderr) = queues.run("replay QUEUE --to SOURCE");
    assert!(code == 7 && stderr.contains("send a dead letter again"), "{code} {stderr}");
    assert_eq!(queues.list().len(), 1);
}
