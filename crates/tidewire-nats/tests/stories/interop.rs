//! A story of two clients: one of Tidewire, and one of NATS that knows nothing of it, on the same
//! streams and buckets.

use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use serde_json::{Value, json};
use tidewire_backend::home::{
    ConsumerSettings, Expect, Fault, Fetch, Home, NewMessage, Read, Settle, Settlement, Start, StreamSettings,
};

use crate::servers::{home, message, stream, subject, unique};

#[test]
fn a_plain_client_uses_what_is_ours_and_we_use_what_is_its() {
    let Some(home) = home() else { return };
    let Some(python) = python() else { return };
    let [ours, bucket] = [stream(&*home, "interop"), unique("interop")];
    let [theirs, their_bucket] = [unique("theirs"), unique("theirs")];
    let mut first = message(&ours, "created", "one");
    first.key = Some("customer 7".to_owned());
    first.id = Some("order-42".to_owned());
    home.publish(&ours, vec![first, message(&ours, "billed", "two")], false).wait().unwrap();
    home.create_bucket(tidewire_backend::home::BucketSettings::new(&bucket)).wait().unwrap();
    put(&*home, &bucket, "limits.eu.max", "1");
    put(&*home, &bucket, "gone", "x");
    home.delete(&bucket, subject("gone"), Expect::Any, false).wait().unwrap();

    let seen = run(&python, &[&url(&*home), &ours, &bucket, &theirs, &their_bucket]);
    let headers = json!({"Nats-Msg-Id": "order-42", "Tidewire-Key": "customer 7"});
    assert_eq!(
        seen["messages"],
        json!([[format!("{ours}.created"), "one", headers], [format!("{ours}.billed"), "two", {}]])
    );
    assert_eq!(seen["acks"], json!([3, true]));
    assert_eq!(seen["entry"], json!(["limits.eu.max", "1", 1]));
    assert_eq!((&seen["keys"], &seen["gone"]), (&json!(["limits.eu.max", "plain.key"]), &json!(true)));

    let event = read(&*home, &ours).pop().unwrap();
    assert_eq!((&event.payload[..], event.id.as_deref()), (&br#"{"from": "plain"}"#[..], Some("p1")));
    assert_eq!(event.headers, [("content-type".to_owned(), "application/json".to_owned())]);
    let entry = home.get(&bucket, subject("limits.eu.max"), None).wait().unwrap().unwrap();
    // An entry of another client is the encoded value of its bytes.
    assert_eq!(
        (entry.value.unwrap(), json!(entry.revision)),
        (Bytes::from_static(b"\xc4\x012"), seen["updated"].clone())
    );
    theirs_is_used(&*home, &theirs, &their_bucket);
}

/// A stream and a bucket of others, read, written and consumed.
fn theirs_is_used(home: &dyn Home, theirs: &str, bucket: &str) {
    assert_eq!(&read(home, theirs)[0].payload[..], b"theirs");
    let sent = vec![NewMessage::new(subject(&format!("{theirs}.b")), "ours")];
    home.publish(theirs, sent, false).wait().unwrap().remove(0).unwrap();
    let settings = ConsumerSettings { start: Start::All, max_deliver: 1, ..ConsumerSettings::new("billing") };
    home.create_consumer(theirs, settings).wait().unwrap();
    let fetch = Fetch { max_messages: 10, max_bytes: 1 << 20, wait_us: 10_000_000 };
    let deliveries = home.fetch(theirs, "billing", fetch).wait().unwrap();
    assert_eq!(deliveries.len(), 2);
    let fault = Some(Fault { error: "ValueError".to_owned(), traceback: String::new() });
    let hows = [Settlement::Ack, Settlement::Nak { delay_us: None, fault }];
    let settled =
        deliveries.iter().zip(hows).map(|(one, how)| Settle { sequence: one.event.sequence, ticket: one.ticket, how });
    home.settle(theirs, "billing", settled.collect()).wait().unwrap().into_iter().for_each(Result::unwrap);
    assert_eq!(home.dead_letters(theirs, "billing", 0, 10).wait().unwrap()[0].sequence, 2);
    let error = home.requeue(theirs, "billing", vec![2]).wait().unwrap_err();
    assert!(error.message().contains("was not made by Tidewire: add $TW.again."), "{error}");
    // It is found with the settings that it has, and no others.
    let found: StreamSettings = home.stream_info(theirs).wait().unwrap().settings;
    assert_eq!(home.create_stream(found.clone()).wait().unwrap().settings, found);

    let history = home.history(bucket, subject("a.b")).wait().unwrap();
    assert_eq!(history.iter().map(|entry| entry.revision).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(home.get(bucket, subject("c"), None).wait().unwrap(), None);
    let keys = home.keys(bucket, crate::servers::pattern(">"), None, 10).wait().unwrap();
    assert_eq!(keys.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a.b"]);
    let update = home.put(bucket, subject("a.b"), Bytes::from("3"), Expect::Revision(2), None).wait().unwrap();
    assert!(update > 2);
}

fn put(home: &dyn Home, bucket: &str, key: &str, value: &str) {
    home.put(bucket, subject(key), Bytes::from(value.to_owned()), Expect::Any, None).wait().unwrap();
}

fn read(home: &dyn Home, stream: &str) -> Vec<tidewire_backend::home::Event> {
    let read =
        Read { start: Start::All, stop: None, filter: Vec::new(), max_messages: 100, max_bytes: 1 << 20, wait_us: 0 };
    home.read(stream, read).wait().unwrap().events
}

fn url(home: &dyn Home) -> String {
    home.place().replace("NATS at ", "nats://")
}

/// A Python that has nats-py: that of the repository's environment, as `make` makes it, or that of
/// the system.
fn python() -> Option<String> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python").display().to_string();
    let has = |python: &String| {
        Command::new(python).args(["-c", "import nats.js"]).output().is_ok_and(|done| done.status.success())
    };
    let found = [own, "python3".to_owned()].into_iter().find(has);
    if found.is_none() {
        println!("skipped: no Python here has nats-py: install tools/requirements-dev.txt");
    }
    found
}

fn run(python: &str, arguments: &[&str]) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories/plain_client.py");
    let done = Command::new(python).arg(script).args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}
