//! Attributes of records in their files: in members of their own, or in the note.

use nameservice_embedded::state::Portable;

use super::*;
use crate::codec::{self, Content, Stored};

#[test]
fn a_file_keeps_every_attribute_of_a_record_of_its_kind() {
    for attribute in RecordAttribute::ALL.iter().copied() {
        let samples = [serde_json::json!(true), "x".into(), serde_json::json!(["x:main"])];
        let is_kept = samples.into_iter().any(|sample| {
            let mut attributes = RecordAttributes::default();
            attributes.set(attribute, sample);
            let is_kept = |kind| {
                let mut attributes = attributes.clone();
                if kind == RecordKind::GraphSource && attribute != RecordAttribute::SourceType {
                    attributes.source_type = Some("f:Any".into());
                }
                let record = Record {
                    head: (kind == RecordKind::Ledger).then(Head::unborn),
                    status: Status::new(1, StatusPayload::state(StatusPayload::READY)),
                    ..Record::base(at("mydb"), kind, attributes.clone())
                };
                let portable = Portable { record, lease: None, token: 0, calls: Default::default() };
                let bytes = codec::encode_main(None, &portable);
                let content = Content { bytes, modified: 0 };
                Stored::decode(&content, None).unwrap().portable.record.attributes() == attributes
            };
            attributes.get(attribute).is_some() && RecordKind::ALL.into_iter().any(is_kept)
        });
        assert!(is_kept, "{attribute:?}");
    }
}
