//! The reader of announcements.

use super::{EntryReader, EventInfo, InstanceInfo, MethodInfo, ServiceInfo, announced, entries};
use crate::values::Bytes;

fn put(listed: &mut Vec<u8>, pattern: &str, announcement: &[u8]) {
    for text in ["ann", "", pattern] {
        listed.extend_from_slice(&(text.len() as u16).to_le_bytes());
        listed.extend_from_slice(text.as_bytes());
    }
    listed.extend_from_slice(&[0; 4]);
    listed.extend_from_slice(&(announcement.len() as u32).to_le_bytes());
    listed.extend_from_slice(announcement);
}

#[test]
fn invalid_entries_are_skipped_and_counted() {
    let schema = serde_json::json!({});
    let method = MethodInfo {
        name: "pay".to_owned(),
        parameters: schema.clone(),
        result: schema.clone(),
        ..MethodInfo::default()
    };
    let event = EventInfo { message: schema, ..EventInfo::default() };
    let info = ServiceInfo {
        name: "bank".to_owned(),
        methods: vec![method.clone()],
        events: vec![event],
        instances: vec!["one".to_owned()],
        ..ServiceInfo::default()
    };
    // Without keys that readers complete.
    let methods = (0..1_000).map(|number| MethodInfo { name: format!("pay_{number}"), ..method.clone() });
    let long = ServiceInfo { name: "shop".to_owned(), methods: methods.collect(), events: Vec::new(), ..info.clone() };
    let mut listed = Vec::new();
    put(&mut listed, "svc.shop.one.*", &long.announcement().expect("it is short"));
    put(&mut listed, "svc.bank.one.*", &info.announcement().expect("it is short"));
    put(&mut listed, "svc.bank.two.*", &info.announcement().expect("it is short"));
    let twice = ServiceInfo { methods: vec![method.clone(), method], ..info.clone() };
    put(&mut listed, "svc.bank.one.*", &twice.announcement().expect("it is short"));
    put(&mut listed, "svc.bank.one.*", b"\x01no fields");
    put(&mut listed, "news", b"");
    let (listed, reader) = (Bytes::from(listed), EntryReader::default());
    let known: Vec<_> = entries(&listed, &reader).expect("it is a list").into_iter().map(|one| one.instance).collect();
    assert_eq!((known, reader.skipped()), (vec!["one".to_owned(); 2], 3));
    let detail = InstanceInfo { id: "one".to_owned(), node: "ann".to_owned(), ..InstanceInfo::default() };
    let infos = [info, long].map(|info| ServiceInfo { details: vec![detail.clone()], ..info });
    assert_eq!(announced(&listed, &reader).expect("it is a list").0, infos);
    assert_eq!(reader.skipped(), 6);
    assert!(entries(&Bytes::from(vec![7]), &reader).is_err());
}
