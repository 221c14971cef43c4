//! Entries of a key-value bucket.

use bytes::Bytes;
use tidewire_core::stream::keyvalue::{Bucket, Expect, Options, Refusal};

fn bucket(history: usize) -> Bucket {
    Bucket::new(Options { history, ttl_us: None, max_bytes: Some(1_000), deleted_max: 3 })
}

fn put(bucket: &mut Bucket, key: &str, value: &'static str, expect: Expect) -> Result<u64, Refusal> {
    bucket.put(key, Bytes::from_static(value.as_bytes()), expect, None, 0).map(|entry| entry.revision)
}

// Promises: P17.36.
#[test]
fn history_and_changes_show_what_happened() {
    let mut bucket = bucket(2);
    for value in ["1", "2", "3"] {
        put(&mut bucket, "a", value, Expect::Any).expect("there is room");
    }
    put(&mut bucket, "b", "x", Expect::Any).expect("there is room");
    let revisions: Vec<u64> = bucket.history("a").map(|entry| entry.revision).collect();
    assert_eq!(revisions, [2, 3]);
    let newest: Vec<u64> = bucket.changes(0).map(|entry| entry.revision).collect();
    assert_eq!(newest, [3, 4], "the newest of each key");
    let later: Vec<u64> = bucket.changes(1).map(|entry| entry.revision).collect();
    assert_eq!(later, [2, 3, 4]);
    bucket.delete("a", Expect::Any, true, 0).expect("nothing is expected");
    assert_eq!(bucket.history("a").count(), 1, "the mark of its deletion");
    assert_eq!(bucket.bytes(), 3);
}

#[test]
fn an_expired_value_is_gone_at_once_and_told_later() {
    let mut bucket = bucket(1);
    bucket.put("a", Bytes::new(), Expect::Any, Some(10), 0).expect("there is room");
    assert_eq!(bucket.next_deadline_us(), Some(10));
    assert_eq!(bucket.get("a", None, 10), None);
    assert_eq!(put(&mut bucket, "a", "new", Expect::Absent), Err(Refusal::Revision(1)), "at time 0 it is there");
    let told = bucket.tick(10);
    assert_eq!((told.len(), told[0].revision, told[0].value.is_none()), (1, 2, true));
    assert!(bucket.is_empty());
}

#[test]
fn a_bucket_is_bounded() {
    let mut bucket = bucket(1);
    let big = Bytes::from(vec![0; 900]);
    bucket.put("a", big.clone(), Expect::Any, None, 0).expect("there is room");
    assert!(matches!(bucket.put("b", big.clone(), Expect::Any, None, 0), Err(Refusal::Full(_))));
    bucket.put("a", big, Expect::Any, None, 0).expect("it takes the place of the old one");
    for number in 0..50 {
        let key = format!("k{number}");
        put(&mut bucket, &key, "x", Expect::Any).expect("there is room");
        bucket.delete(&key, Expect::Any, false, 0).expect("it is there");
    }
    assert!(bucket.entries().count() <= 4, "of those that were deleted three are remembered");
}
