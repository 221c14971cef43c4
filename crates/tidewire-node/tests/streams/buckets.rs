//! Key-value buckets.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidewire_node::ErrorCode;
use tidewire_node::streams::BucketOptions;

use crate::hubs::Place;
use crate::support::in_time;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Limit {
    most: u32,
}

#[test]
fn a_value_is_written_only_over_the_one_that_was_seen() {
    let place = Place::new();
    let config = in_time(place.node.bucket_with("config", BucketOptions::default().history(3)));
    let first = in_time(config.create("limits.eu", &Limit { most: 3 }));
    let taken = config.create("limits.eu", &Limit { most: 4 }).wait().expect_err("it has a value");
    assert_eq!(taken.code(), ErrorCode::RevisionConflict);
    let second = in_time(config.update("limits.eu", &Limit { most: 4 }, first));
    assert_eq!(
        config.update("limits.eu", &Limit { most: 5 }, first).wait().unwrap_err().code(),
        ErrorCode::RevisionConflict
    );
    let entry = in_time(config.get("limits.eu")).expect("it has a value");
    assert_eq!(
        (entry.key(), entry.revision(), entry.read().ok()),
        ("limits.eu", second, Some(Some(Limit { most: 4 })))
    );
    let before = in_time(config.get_revision("limits.eu", first)).expect("it is kept");
    assert_eq!(before.read::<Limit>().ok(), Some(Some(Limit { most: 3 })));
    in_time(config.put("limits.us", &Limit { most: 9 }));
    assert_eq!(in_time(config.keys("limits.*")), ["limits.eu", "limits.us"]);
    assert_eq!(config.delete_revision("limits.eu", first).wait().unwrap_err().code(), ErrorCode::RevisionConflict);
    in_time(config.delete("limits.eu"));
    assert_eq!(in_time(config.get("limits.eu")), None);
    let history = in_time(config.history("limits.eu"));
    assert_eq!(history.iter().map(|entry| entry.is_deleted()).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(history[2].read::<Limit>().ok(), Some(None));
    assert_eq!(in_time(config.info()).keys, 1);
    assert_eq!(in_time(in_time(place.node.bucket("config")).keys(">")), ["limits.us"]);
    assert_eq!(place.node.bucket("missing").wait().unwrap_err().code(), ErrorCode::NotFound);
    assert_eq!(config.put("a b", &1).wait().unwrap_err().code(), ErrorCode::InvalidSubject);
    in_time(config.delete_bucket());
    assert_eq!(config.get("limits.us").wait().unwrap_err().code(), ErrorCode::NotFound);
}

#[test]
fn a_watch_sees_the_present_state_and_then_every_change() {
    let place = Place::new();
    let config = in_time(place.node.bucket_with("config", BucketOptions::default()));
    in_time(config.put("a.x", &1));
    in_time(config.put("b.x", &2));
    let mut watch = config.watch("a.>");
    assert_eq!(watch.next_blocking().expect("it is there").read::<i64>().ok(), Some(Some(1)));
    let waits = std::thread::spawn(move || (watch.next_blocking().map(|entry| entry.is_deleted()), watch));
    in_time(config.delete("a.x"));
    let (deleted, mut watch) = waits.join().expect("it does not panic");
    assert_eq!(deleted.ok(), Some(true));
    in_time(config.ttl(Duration::from_millis(50)).put("a.short", &3));
    assert_eq!(watch.next_blocking().expect("it is written").read::<i64>().ok(), Some(Some(3)));
    assert!(watch.next_blocking().expect("its time is over").is_deleted());
    assert_eq!(config.watch("a..b").next_blocking().unwrap_err().code(), ErrorCode::InvalidSubject);
}
