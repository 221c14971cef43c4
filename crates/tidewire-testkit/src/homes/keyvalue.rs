//! Conformance cases of key-value buckets.

use bytes::Bytes;
use tidewire_backend::home::{BucketSettings, Capability, Entry, Expect, Home, HomeErrorKind, Watch};

use super::{SECOND_US, can, good, pattern, refused, subject};

fn bucket(home: &dyn Home, history: u32) {
    good(home.create_bucket(BucketSettings { history, ..BucketSettings::new("config") }));
}

fn put(home: &dyn Home, key: &str, value: &str) -> u64 {
    good(home.put("config", subject(key), Bytes::copy_from_slice(value.as_bytes()), Expect::Any, None))
}

fn get(home: &dyn Home, key: &str) -> Option<String> {
    let entry = good(home.get("config", subject(key), None));
    entry.and_then(|entry| entry.value).map(|value| String::from_utf8_lossy(&value).into_owned())
}

fn key_values(entries: &[Entry]) -> Vec<(String, Option<String>)> {
    let text = |value: &Bytes| String::from_utf8_lossy(value).into_owned();
    entries.iter().map(|entry| (entry.key.to_string(), entry.value.as_ref().map(text))).collect()
}

// Promises: P17.35.
pub fn values_have_revisions_and_history(home: &dyn Home) {
    bucket(home, 3);
    let revisions: Vec<u64> = ["1", "2", "3", "4"].into_iter().map(|value| put(home, "limits.eu", value)).collect();
    assert!(revisions.is_sorted() && revisions[0] > 0);
    let entry = good(home.get("config", subject("limits.eu"), None)).expect("it was written");
    assert_eq!((entry.value.as_deref(), entry.revision), (Some(&b"4"[..]), revisions[3]));
    let third = good(home.get("config", subject("limits.eu"), Some(revisions[2]))).expect("it is kept");
    assert_eq!(third.value.as_deref(), Some(&b"3"[..]));
    assert_eq!(good(home.get("config", subject("limits.eu"), Some(revisions[0]))), None);
    good(home.delete("config", subject("limits.eu"), Expect::Any, false));
    assert_eq!(get(home, "limits.eu"), None);
    let history = key_values(&good(home.history("config", subject("limits.eu"))));
    let expected = [Some("3"), Some("4"), None].map(|value| ("limits.eu".to_owned(), value.map(str::to_owned)));
    assert_eq!(history, expected);
    refused(home.bucket_info("nothing"), HomeErrorKind::NotFound);
    let other = BucketSettings { history: 5, ..BucketSettings::new("config") };
    refused(home.create_bucket(other), HomeErrorKind::Differs);
}

// Promises: P17.34.
pub fn writes_happen_only_if_the_key_is_as_expected(home: &dyn Home) {
    bucket(home, 1);
    let write = |value: &'static str, expect| {
        home.put("config", subject("a.b"), Bytes::from_static(value.as_bytes()), expect, None)
    };
    let first = good(write("1", Expect::Absent));
    refused(write("2", Expect::Absent), HomeErrorKind::Revision);
    let second = good(write("2", Expect::Revision(first)));
    refused(write("3", Expect::Revision(first)), HomeErrorKind::Revision);
    refused(home.delete("config", subject("a.b"), Expect::Revision(first), false), HomeErrorKind::Revision);
    good(home.delete("config", subject("a.b"), Expect::Revision(second), false));
    good(write("4", Expect::Absent));
    assert_eq!(get(home, "a.b").as_deref(), Some("4"));
}

// Promises: P17.34, P17.121.
pub fn a_deletion_that_finds_no_value_writes_nothing(home: &dyn Home) {
    bucket(home, 5);
    let delete = |key: &str, expect, purge| home.delete("config", subject(key), expect, purge);
    assert_eq!(good(delete("a.b", Expect::Any, false)), 0, "nothing was written yet");
    let first = put(home, "a.b", "1");
    let other = put(home, "other", "2");
    for purge in [false, true] {
        assert_eq!(good(delete("missing", Expect::Any, purge)), other);
        assert_eq!(good(delete("missing", Expect::Absent, purge)), other);
        assert_eq!(good(delete("missing", Expect::Revision(0), purge)), other);
        refused(delete("missing", Expect::Revision(other), purge), HomeErrorKind::Revision);
        refused(delete("a.b", Expect::Absent, purge), HomeErrorKind::Revision);
        refused(delete("a.b", Expect::Revision(0), purge), HomeErrorKind::Revision);
    }
    let deletion = good(delete("a.b", Expect::Revision(first), false));
    assert!(deletion > other);
    let newest = put(home, "other", "3");
    for expect in [Expect::Any, Expect::Absent, Expect::Revision(deletion), Expect::Revision(0)] {
        assert_eq!(good(delete("a.b", expect, false)), newest, "{expect:?}");
    }
    refused(delete("a.b", Expect::Revision(first), false), HomeErrorKind::Revision);
    let history = key_values(&good(home.history("config", subject("a.b"))));
    assert_eq!(history, [Some("1"), None].map(|value| ("a.b".to_owned(), value.map(str::to_owned))));
    for expect in [Expect::Absent, Expect::Revision(0), Expect::Any] {
        let before = good(home.bucket_info("config")).revision;
        assert!(good(delete("a.b", expect, true)) > before, "a purge of a deleted key removes its history");
        assert_eq!(good(home.history("config", subject("a.b"))).len(), 1);
    }
}

// Promises: P17.34, P17.121.
pub fn deletions_at_once_delete_each_value_once(home: &dyn Home) {
    bucket(home, 64);
    let delete = || home.delete("config", subject("a.b"), Expect::Any, false);
    let first = put(home, "a.b", "1");
    let deletions: Vec<_> = (0..16).map(|_| delete()).collect();
    for deletion in deletions {
        assert_eq!(good(deletion), first + 1, "one of them deletes");
    }
    let mut answers = Vec::new();
    for number in 0..16_u8 {
        let value = Bytes::from(vec![number]);
        answers.push((true, home.put("config", subject("a.b"), value, Expect::Any, None)));
        answers.extend((0..2).map(|_| (false, delete())));
    }
    let mut puts = Vec::new();
    for (is_put, answer) in answers {
        let revision = good(answer);
        puts.extend(is_put.then_some(revision));
    }
    let history = good(home.history("config", subject("a.b")));
    let twice = history.windows(2).filter(|pair| pair.iter().all(|entry| entry.value.is_none())).count();
    assert_eq!(twice, 0, "a deletion deletes a value: {history:?}");
    let written: Vec<_> =
        history[2..].iter().filter(|entry| entry.value.is_some()).map(|entry| entry.revision).collect();
    puts.sort_unstable();
    assert_eq!(written, puts, "a put is in the history");
    assert_eq!(good(home.bucket_info("config")).revision, history.last().expect("it has entries").revision);
    for number in 0..50 {
        drop((0..8).map(|_| delete()).collect::<Vec<_>>());
        good(delete());
        put(home, "a.b", "last");
        assert!(get(home, "a.b").is_some(), "a deletion whose caller is gone came later: {number}");
    }
}

// Promises: P17.36.
pub fn watchers_see_what_changes(home: &dyn Home) {
    bucket(home, 1);
    put(home, "a.x", "1");
    put(home, "b.x", "2");
    put(home, "a.x", "3");
    let watch = |after, wait_us| Watch { filter: pattern("a.*"), after, max: 100, wait_us };
    let now = good(home.watch("config", watch(0, 10 * SECOND_US)));
    assert_eq!(key_values(&now.entries), [("a.x".to_owned(), Some("3".to_owned()))]);
    assert!(!now.more);
    let waits = home.watch("config", watch(now.upto, 20 * SECOND_US));
    put(home, "b.x", "other");
    good(home.delete("config", subject("a.x"), Expect::Any, false));
    let changes = good(waits);
    assert_eq!(key_values(&changes.entries), [("a.x".to_owned(), None)]);
    put(home, "a.y", "5");
    let later = good(home.watch("config", watch(changes.upto, 10 * SECOND_US)));
    assert_eq!(key_values(&later.entries), [("a.y".to_owned(), Some("5".to_owned()))]);
}

pub fn entries_expire(home: &dyn Home) {
    bucket(home, 1);
    let short = || home.put("config", subject("short"), Bytes::from_static(b"x"), Expect::Any, Some(SECOND_US));
    if !can(home, Capability::EntryTtl, short) {
        return;
    }
    let revision = good(short());
    let watch = Watch { filter: pattern("short"), after: revision, max: 10, wait_us: 15 * SECOND_US };
    assert_eq!(key_values(&good(home.watch("config", watch)).entries), [("short".to_owned(), None)]);
    assert_eq!(get(home, "short"), None);
}

pub fn keys_are_listed_by_pattern(home: &dyn Home) {
    bucket(home, 1);
    for key in ["b", "a.x", "a.y", "c.x"] {
        put(home, key, key);
    }
    good(home.delete("config", subject("a.y"), Expect::Any, false));
    let keys = |filter: &str, after: Option<&str>, max| {
        let keys = good(home.keys("config", pattern(filter), after.map(subject), max));
        keys.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(keys(">", None, 100), ["a.x", "b", "c.x"]);
    assert_eq!(keys("*.x", None, 100), ["a.x", "c.x"]);
    assert_eq!(keys(">", None, 2), ["a.x", "b"]);
    assert_eq!(keys(">", Some("b"), 2), ["c.x"]);
    assert_eq!(good(home.bucket_info("config")).keys, 3);
}
