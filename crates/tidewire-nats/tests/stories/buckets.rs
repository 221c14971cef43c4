//! Stories of buckets: invalid keys, races for a key, settings, late answers.

use std::time::Duration;

use bytes::Bytes;
use tidewire_backend::home::{BucketSettings, Expect, Home, HomeErrorKind};

use crate::servers::{Server, home, subject, unique};

fn bucket(home: &dyn Home, history: u32) -> String {
    let name = unique("bucket");
    home.create_bucket(BucketSettings { history, ..BucketSettings::new(&name) }).wait().unwrap();
    name
}

fn put(home: &dyn Home, bucket: &str, key: &str, value: &str, expect: Expect) -> Result<u64, HomeErrorKind> {
    let put = home.put(bucket, subject(key), Bytes::copy_from_slice(value.as_bytes()), expect, None);
    put.wait().map_err(|error| error.kind())
}

#[test]
fn a_key_and_a_bucket_that_nats_does_not_have_are_named() {
    let Some(home) = home() else { return };
    let name = bucket(&*home, 1);
    let error = home.put(&name, subject("a$b"), Bytes::new(), Expect::Any, None).wait().unwrap_err();
    assert!(
        error.kind() == HomeErrorKind::Invalid && error.message().contains("key: \"a$b\" is none that NATS takes"),
        "{error}"
    );
    let error = home.get("nowhere", subject("a"), None).wait().unwrap_err();
    assert!(
        error.kind() == HomeErrorKind::NotFound && error.message().contains("bucket: there is no \"nowhere\""),
        "{error}"
    );
}

#[test]
fn of_many_who_create_a_key_one_does() {
    let Some(home) = home() else { return };
    let name = bucket(&*home, 1);
    let puts: Vec<_> = (0..32)
        .map(|number| home.put(&name, subject("only.one"), Bytes::from(vec![number]), Expect::Absent, None))
        .collect();
    let done: Vec<_> = puts.into_iter().map(|put| put.wait().map_err(|error| error.kind())).collect();
    assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 1);
    assert!(done.iter().all(|done| matches!(done, Ok(1) | Err(HomeErrorKind::Revision))), "{done:?}");
}

#[test]
fn a_bucket_with_too_long_a_history_is_refused() {
    let Some(home) = home() else { return };
    let error = home.create_bucket(BucketSettings { history: 65, ..BucketSettings::new("many") }).wait().unwrap_err();
    assert!(error.kind() == HomeErrorKind::Invalid && error.message().contains("history: 65"), "{error}");
}

// Promises: P17.123.
#[test]
fn a_write_whose_answer_comes_late_is_no_conflict_with_itself() {
    let Some(mut server) = Server::start("") else { return };
    let url = format!("{}?request_timeout_ms=9000", server.url);
    let home = tidewire_nats::open(&url).unwrap();
    let name = bucket(&*home, 5);
    let mut revision = put(&*home, &name, "k", "1", Expect::Absent).unwrap();
    server.order("freeze");
    // An attempt takes a third of the request timeout: the second one is sent while no answer came.
    let pending = loop {
        let update = home.put(&name, subject("k"), Bytes::from_static(b"2"), Expect::Revision(revision), None);
        match update.wait_for(Duration::from_millis(3_500)) {
            // A server that is busy answers for some moments still.
            Ok(answered) => revision = answered.unwrap(),
            Err(pending) => break pending,
        }
    };
    server.order("thaw");
    assert_eq!(pending.wait().unwrap(), revision + 1);
    assert_eq!(home.bucket_info(&name).wait().unwrap().revision, revision + 1, "stored once");
    server.end();
}
