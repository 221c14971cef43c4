//! The reader of announcements.

use super::{EventInfo, InstanceInfo, MethodInfo, ServiceInfo, Skipped, entries, services};
use crate::values::Bytes;

fn put(listed: &mut Vec<u8>, pattern: &str, says: &[u8]) {
    for text in ["ann", "", pattern] {
        listed.extend_from_slice(&(text.len() as u16).to_le_bytes());
        listed.extend_from_slice(text.as_bytes());
    }
    listed.extend_from_slice(&[0; 4]);
    listed.extend_from_slice(&(says.len() as u32).to_le_bytes());
    listed.extend_from_slice(says);
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
    let mut listed = Vec::new();
    put(&mut listed, "svc.bank.one.*", &info.said().expect("it is short"));
    put(&mut listed, "svc.bank.two.*", &info.said().expect("it is short"));
    let twice = ServiceInfo { methods: vec![method.clone(), method], ..info.clone() };
    put(&mut listed, "svc.bank.one.*", &twice.said().expect("it is short"));
    put(&mut listed, "svc.bank.one.*", b"\x01no fields");
    put(&mut listed, "news", b"");
    let (listed, skipped) = (Bytes::from(listed), Skipped::default());
    let known: Vec<_> = entries(&listed, &skipped).expect("it is a list").into_iter().map(|one| one.instance).collect();
    assert_eq!((known, skipped.get()), (vec!["one".to_owned()], 3));
    let detail = InstanceInfo { id: "one".to_owned(), node: "ann".to_owned(), ..InstanceInfo::default() };
    let info = ServiceInfo { details: vec![detail], ..info };
    assert_eq!(services(&listed, &skipped).expect("it is a list"), [info]);
    assert_eq!(skipped.get(), 6);
    assert!(entries(&Bytes::from(vec![7]), &skipped).is_err());
}
