//! Records as the bytes of their files.

use bytes::Bytes;
use jiff::Timestamp;
use nameservice_embedded::state::Portable;
use nameservice_model::{ContentId, Index, Object, RecordKind, StatusPayload};
use serde::Serialize;
use serde_json::Value;

use super::{
    CONFIG_ID, DEFAULT_CONTEXT, Main, Stored, TOKEN, files,
    files::{LedgerIndex, LedgerIndexFile, LedgerMain, Reference, SourceIndex, SourceIndexFile, SourceMain, Text},
    lease_member,
    note::{self, Note},
};

/// Returns the bytes of the main file of a record, which replace the current ones.
pub(crate) fn encode_main(before: Option<&Stored>, after: &Portable) -> Bytes {
    // Another program's lease excludes ours until it has expired. Then ours replaces it.
    let kept = before.filter(|_| after.lease.is_none());
    let foreign = kept.map(|before| &before.foreign).cloned().unwrap_or_default();
    let mut note = Note {
        created: after.record.created_at.map(Timestamp::as_second),
        updated: Some(after.record.updated_at.as_millisecond()),
        attributes: after.record.attributes(),
        token: after.token,
        calls: after.calls.clone(),
        ..Note::default()
    };
    // The calls of the index are in its own file.
    note.calls[1].clear();
    match before.map(|before| &before.main) {
        Some(Main::Ledger(ledger)) => text(&ledger_main(Some(ledger), after, &foreign, &note)),
        None if after.record.kind == RecordKind::Ledger => text(&ledger_main(None, after, &foreign, &note)),
        Some(Main::Source(source)) => text(&source_main(Some(source), after, note)),
        None => text(&source_main(None, after, note)),
    }
}

/// The bytes of the index file of a record.
pub(crate) fn encode_index(before: Option<&Stored>, after: &Portable) -> Bytes {
    let index = &after.record.index;
    let cid = index.payload.as_ref().map(|root| root.id.to_string());
    let rev = index.payload.as_ref().map_or(0, |root| root.rev);
    let mut note = Note {
        updated: Some(after.record.updated_at.as_millisecond()),
        rev,
        rev_of: cid.clone().filter(|_| rev > 0),
        ..Note::default()
    };
    note.calls[1].clone_from(&after.calls[1]);
    let mut context = match before.and_then(|before| before.index.as_ref()) {
        Some(index) => index.context().clone(),
        None => note::context(),
    };
    note.put_into(&mut context);
    match after.record.kind {
        RecordKind::Ledger => text(&LedgerIndexFile { context, index: LedgerIndex { cid, t: index.v } }),
        RecordKind::GraphSource => text(&SourceIndexFile {
            context,
            id: after.record.address.to_string(),
            index: SourceIndex { kind: SourceIndex::content_id(), cid },
            t: index.v,
        }),
    }
}

fn text(file: &impl Serialize) -> Bytes {
    // Structs of strings, numbers and JSON values can always be serialized.
    serde_json::to_vec_pretty(file).unwrap_or_default().into()
}

fn ledger_main(before: Option<&LedgerMain>, after: &Portable, foreign: &Object, note: &Note) -> LedgerMain {
    let record = &after.record;
    let (name, branch) = (record.address.name(), record.address.branch());
    let mut main = before.cloned().unwrap_or_else(|| LedgerMain {
        context: note::context(),
        id: record.address.to_string(),
        types: vec![files::LEDGER.to_owned()],
        ledger: Reference { id: name.to_owned() },
        branch: branch.to_owned(),
        commit_cid: None,
        t: 0,
        index: None,
        status: String::new(),
        default_context_cid: None,
        status_v: None,
        status_meta: None,
        config_v: None,
        config_meta: None,
        config_cid: None,
        source_branch: record.source_branch.clone(),
        branch_point: record.source_branch.clone().map(|source| files::BranchPoint { source, commit_cid: None, t: 0 }),
        branches: None,
    });
    note.put_into(&mut main.context);
    if let Some(head) = &record.head {
        main.t = head.v;
        main.commit_cid = head.payload.as_ref().map(ContentId::to_string);
    }
    main.status_v = Some(record.status.v);
    if let Some(status) = &record.status.payload {
        main.status.clone_from(&status.state);
        let mut meta = status.meta.clone();
        meta.extend(foreign.clone());
        if let Some(lease) = &after.lease {
            let mut member = lease_member(lease);
            member[TOKEN] = after.token.into();
            meta.insert(lease.name.to_string(), member);
        }
        main.status_meta = Some(meta);
    }
    main.config_v = Some(record.config.v);
    let mut config = match &record.config.payload {
        Some(Value::Object(config)) => config.clone(),
        _ => Object::new(),
    };
    let mut take = |member: &str| {
        let id = config.get(member).and_then(Value::as_str).filter(|id| ContentId::parse(id).is_ok())?.to_owned();
        config.remove(member);
        Some(id)
    };
    (main.default_context_cid, main.config_cid) = (take(DEFAULT_CONTEXT), take(CONFIG_ID));
    main.config_meta = Some(config);
    main.branches = u32::try_from(record.branches).ok();
    main
}

fn source_main(before: Option<&SourceMain>, after: &Portable, mut note: Note) -> SourceMain {
    let record = &after.record;
    let source_type = record.source_type.clone().unwrap_or_default();
    let status = record.status.payload.as_ref();
    note.status_v = Some(record.status.v);
    note.status_meta = status.map(|status| status.meta.clone()).filter(|meta| !meta.is_empty());
    note.lease.clone_from(&after.lease);
    note.config_v = Some(record.config.v);
    let mut context = before.map_or_else(note::context, |before| before.context.clone());
    note.put_into(&mut context);
    let same_type = before.filter(|before| super::source_type(&before.types).as_ref() == Some(&source_type));
    SourceMain {
        context,
        id: record.address.to_string(),
        types: same_type
            .map_or_else(|| vec![files::marker_of(&source_type).to_owned(), source_type], |same| same.types.clone()),
        name: record.address.name().to_owned(),
        branch: record.address.branch().to_owned(),
        config: Text { value: record.config.payload.as_ref().map_or_else(|| "{}".to_owned(), Value::to_string) },
        dependencies: record.dependencies.clone(),
        status: status.map_or_else(|| StatusPayload::READY.to_owned(), |status| status.state.clone()),
    }
}

/// Returns the main file with another inline index, as a reset writes it.
pub(crate) fn with_inline_index(bytes: &Bytes, index: &Index) -> Bytes {
    match serde_json::from_slice::<LedgerMain>(bytes) {
        Ok(mut main) => {
            let cid = index.payload.as_ref().map(|root| root.id.to_string());
            main.index = (index.v > 0 || cid.is_some()).then_some(LedgerIndex { cid, t: index.v });
            text(&main)
        }
        Err(_) => bytes.clone(),
    }
}
