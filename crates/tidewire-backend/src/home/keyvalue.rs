//! The port of key-value buckets: the newest value of each key, with revisions and some history.

use bytes::Bytes;
pub use tidewire_core::stream::keyvalue::Expect;
use tidewire_proto::subject::{Pattern, Subject};

use super::Answer;

/// Settings of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSettings {
    /// Letters, digits, `_` and `-`, 1 to 64 characters.
    pub name: String,
    /// How many entries of a key are stored, the newest included. 1 to 64.
    pub history: u32,
    /// Entries go when they are so old.
    pub ttl_us: Option<u64>,
    /// The bytes that keys and values may take.
    pub max_bytes: Option<u64>,
    /// How many servers keep it.
    pub replicas: u32,
}

impl BucketSettings {
    /// A bucket with the newest entry of each key.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), history: 1, ttl_us: None, max_bytes: None, replicas: 1 }
    }
}

/// State of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketInfo {
    /// The settings that it was created with.
    pub settings: BucketSettings,
    /// How many keys have a value.
    pub keys: u64,
    /// Bytes of keys and values, history included.
    pub bytes: u64,
    /// The newest revision.
    pub revision: u64,
}

/// A value of a key, or that it was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key: a subject, such as `limits.eu`.
    pub key: Subject,
    /// The value; None if the key was deleted.
    pub value: Option<Bytes>,
    /// Grows with every change of the bucket, from 1.
    pub revision: u64,
    /// When it was written.
    pub time_us: u64,
}

/// Which changes to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Which keys.
    pub filter: Pattern,
    /// Changes after this revision. 0: begin with the newest entry of each key.
    pub after: u64,
    /// At most so many entries. At least 1.
    pub max: u32,
    /// How long to wait for the first.
    pub wait_us: u64,
}

/// Changes of a bucket, as a watcher reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// In order of revision; of each key at least the newest. A change between may be missing if
    /// the history is short.
    pub entries: Vec<Entry>,
    /// The `after` of the next call.
    pub upto: u64,
    /// More is there already: the caller has not seen everything up to the present.
    pub more: bool,
}

/// Buckets. Keys are subjects; a name is checked as those of streams are.
///
/// An entry whose time is over is gone for `get`, `keys` and `Expect::Absent` at once, and watchers
/// get it as deleted, with a revision of its own.
pub trait KeyValue: Send + Sync {
    /// Makes a bucket, or finds that it is there with the same settings.
    ///
    /// # Errors
    ///
    /// [`Differs`](super::HomeErrorKind::Differs), as of streams.
    fn create_bucket(&self, settings: BucketSettings) -> Answer<()>;

    /// The state of a bucket.
    fn bucket_info(&self, bucket: &str) -> Answer<BucketInfo>;

    /// Every bucket, in order of name.
    fn list_buckets(&self) -> Answer<Vec<BucketInfo>>;

    /// Deletes a bucket with all its entries.
    fn delete_bucket(&self, bucket: &str) -> Answer<()>;

    /// Writes a value, with a time to live of its own if one is given. Returns the new revision.
    ///
    /// # Errors
    ///
    /// [`Revision`](super::HomeErrorKind::Revision) if `expect` does not hold: the message has the
    /// key's revision. [`Full`](super::HomeErrorKind::Full) over `max_bytes`.
    fn put(&self, bucket: &str, key: Subject, value: Bytes, expect: Expect, ttl_us: Option<u64>) -> Answer<u64>;

    /// The newest entry of a key, or that of a revision if the history still has it. None: it has
    /// no value.
    fn get(&self, bucket: &str, key: Subject, revision: Option<u64>) -> Answer<Option<Entry>>;

    /// Deletes the value; the history stays, or goes too with `purge`. Gives the new revision, or
    /// the old one if there was no value.
    ///
    /// # Errors
    ///
    /// [`Revision`](super::HomeErrorKind::Revision), as of `put`.
    fn delete(&self, bucket: &str, key: Subject, expect: Expect, purge: bool) -> Answer<u64>;

    /// Keys that have a value, in order, those after `after`, at most `max`.
    fn keys(&self, bucket: &str, filter: Pattern, after: Option<Subject>, max: u32) -> Answer<Vec<Subject>>;

    /// The stored entries of a key, oldest first, deletions included.
    fn history(&self, bucket: &str, key: Subject) -> Answer<Vec<Entry>>;

    /// Waits for changes. Called again with `upto`, it gives every change, or at least the newest
    /// of each key.
    fn watch(&self, bucket: &str, watch: Watch) -> Answer<Changes>;
}
