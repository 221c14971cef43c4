//! Key-value buckets: the newest value of each key, with revisions and history.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidewire_backend::home::{self, BucketInfo, BucketSettings, Changes, Expect, Home, HomeError, HomeResult};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::Subject;

use super::conventions::{PAGE, answered, micros, time_of};
use super::fetcher::{Fetcher, Reader, Reads, Timeout};
use crate::error::Error;
use crate::names;
use crate::pending::{Pending, wait};
use crate::values;

/// Settings of a bucket. By default it stores the newest entry of each key, for ever.
#[derive(Clone, Debug)]
pub struct BucketOptions(BucketSettings);

impl Default for BucketOptions {
    fn default() -> Self {
        Self(BucketSettings::new(""))
    }
}

impl BucketOptions {
    pub(crate) fn settings(self, name: &str) -> BucketSettings {
        BucketSettings { name: name.to_owned(), ..self.0 }
    }
}

setters! {
    BucketOptions:
    /// Number of stored entries of a key, the newest included; 1 to 64.
    history(entries: u32) => 0.history = entries;
    /// Entries go when they are so old.
    ttl(ttl: Duration) => 0.ttl_us = Some(micros(ttl));
    /// Limit of the bytes of keys and values; `bucket_bytes` by default. An embedded storage
    /// backend holds them in memory.
    max_bytes(bytes: u64) => 0.max_bytes = Some(bytes);
    /// Number of servers that store it; 1 by default.
    replicas(servers: u32) => 0.replicas = servers;
}

/// A bucket. Its keys are subjects, such as `limits.eu`; a value is any type of serde, at most 1
/// MiB. Clones are the same bucket.
///
/// ```
/// # use tidewire_node::streams::BucketOptions;
/// # use tidewire_node::{Error, ErrorCode, Node};
/// async fn raise(node: &Node) -> Result<(), Error> {
///     let config = node.bucket_with("config", BucketOptions::default().history(5)).await?;
///     let revision = config.put("limits.eu", &3).await?;
///     config.update("limits.eu", &4, revision).await?;
///     let late = config.update("limits.eu", &5, revision).await.unwrap_err();
///     assert_eq!(late.code(), ErrorCode::RevisionConflict);
///     let entry = config.get("limits.eu").await?.expect("it has a value");
///     assert_eq!(entry.read::<i64>()?, Some(4));
///     Ok(())
/// }
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("Bucket({name:?})")]
pub struct Bucket {
    reads: Reads,
    name: Arc<str>,
    ttl_us: Option<u64>,
}

impl Bucket {
    pub(crate) fn new(reads: Reads, name: &str) -> Self {
        Self { reads, name: name.into(), ttl_us: None }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same bucket, whose watches wait outages out, as with
    /// [`Stream::on_outage`](super::Stream::on_outage).
    pub fn on_outage(&self, notify: impl Fn(Option<&Error>) + Send + Sync + 'static) -> Self {
        Self { reads: self.reads.on_outage(notify), ..self.clone() }
    }

    /// The same bucket with a TTL for values that are written through it.
    pub fn ttl(&self, ttl: Duration) -> Self {
        Self { ttl_us: Some(micros(ttl)), ..self.clone() }
    }

    /// Writes a value, and returns its revision: it is stored then.
    ///
    /// # Errors
    /// Awaiting it fails with `stream_full` if the bucket would exceed its `max_bytes`, and with
    /// `invalid_subject` if the key is not allowed. It fails with `not_found` if the bucket was
    /// deleted, and with `home_unavailable` if the outcome is unknown.
    ///
    /// # Cancel safety
    /// If it is dropped, the value may be written; the same holds for all changes of a bucket.
    pub fn put<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Pending<u64> {
        self.write(key, value, Expect::Any)
    }

    /// Writes a value if the key has none.
    ///
    /// # Errors
    /// As for [`put`](Bucket::put), and with `revision_conflict` if it has one.
    pub fn create<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Pending<u64> {
        self.write(key, value, Expect::Absent)
    }

    /// Writes a value if the newest entry of the key has this revision: compare and set.
    ///
    /// # Errors
    /// As for [`put`](Bucket::put), and with `revision_conflict` if it has another.
    pub fn update<T: Serialize + ?Sized>(&self, key: &str, value: &T, revision: u64) -> Pending<u64> {
        self.write(key, value, Expect::Revision(revision))
    }

    fn write<T: Serialize + ?Sized>(&self, name: &str, value: &T, expect: Expect) -> Pending<u64> {
        let written = values::write(&format!("{}: {name}", self.name), value);
        match key(name).and_then(|key| Ok((key, written?.into_bytes()))) {
            Ok((key, value)) => answered(self.reads.home.put(&self.name, key, value.into(), expect, self.ttl_us)),
            Err(error) => Pending::failed(error),
        }
    }

    /// The newest entry of a key; None if it has no value.
    ///
    /// # Errors
    /// Awaiting it fails with `invalid_subject` if the key is not allowed, `not_found` if the
    /// bucket was deleted.
    pub fn get(&self, key: &str) -> Pending<Option<Entry>> {
        self.found(key, None)
    }

    /// The entry of a key with a revision, if the history still has it.
    ///
    /// # Errors
    /// As for [`get`](Bucket::get).
    pub fn get_revision(&self, key: &str, revision: u64) -> Pending<Option<Entry>> {
        self.found(key, Some(revision))
    }

    fn found(&self, name: &str, revision: Option<u64>) -> Pending<Option<Entry>> {
        match key(name) {
            Ok(key) => {
                let found = self.reads.home.get(&self.name, key, revision);
                Pending::new(async move { Ok(found.await?.map(Entry)) })
            }
            Err(error) => Pending::failed(error),
        }
    }

    /// Deletes the value of a key; the history stays. Returns the revision.
    ///
    /// # Errors
    /// As for [`get`](Bucket::get).
    pub fn delete(&self, key: &str) -> Pending<u64> {
        self.remove(key, Expect::Any, false)
    }

    /// Deletes the value of a key if its newest entry has this revision.
    ///
    /// # Errors
    /// As for [`get`](Bucket::get), and with `revision_conflict` if it has another.
    pub fn delete_revision(&self, key: &str, revision: u64) -> Pending<u64> {
        self.remove(key, Expect::Revision(revision), false)
    }

    /// Deletes the value of a key with its history.
    ///
    /// # Errors
    /// As for [`get`](Bucket::get).
    pub fn purge(&self, key: &str) -> Pending<u64> {
        self.remove(key, Expect::Any, true)
    }

    fn remove(&self, name: &str, expect: Expect, purge: bool) -> Pending<u64> {
        match key(name) {
            Ok(key) => answered(self.reads.home.delete(&self.name, key, expect, purge)),
            Err(error) => Pending::failed(error),
        }
    }

    /// The keys that have a value and match a pattern, in order: `>` for all.
    ///
    /// # Errors
    /// As for [`get`](Bucket::get).
    pub fn keys(&self, pattern: &str) -> Pending<Vec<String>> {
        let filter = match names::pattern(pattern) {
            Ok(filter) => filter,
            Err(error) => return Pending::failed(error),
        };
        let (home, name) = (Arc::clone(&self.reads.home), Arc::clone(&self.name));
        Pending::new(async move {
            let mut found: Vec<Subject> = Vec::new();
            loop {
                let more = home.keys(&name, filter.clone(), found.last().cloned(), PAGE).await?;
                let is_last = more.len() < PAGE as usize;
                found.extend(more);
                if is_last {
                    return Ok(found.iter().map(ToString::to_string).collect());
                }
            }
        })
    }

    /// Stored entries of a key, oldest first, deletions included.
    ///
    /// # Errors
    /// As for [`get`](Bucket::get).
    pub fn history(&self, name: &str) -> Pending<Vec<Entry>> {
        match key(name) {
            Ok(key) => {
                let entries = self.reads.home.history(&self.name, key);
                Pending::new(async move { Ok(entries.await?.into_iter().map(Entry).collect()) })
            }
            Err(error) => Pending::failed(error),
        }
    }

    /// Current entries of the keys that match a pattern, and then every change. Of each key at
    /// least the newest entry is delivered.
    pub fn watch(&self, pattern: &str) -> Watch {
        self.watch_after(pattern, 0)
    }

    /// The changes after a revision; of each key at least the newest.
    pub fn watch_after(&self, pattern: &str, revision: u64) -> Watch {
        Watch::of(&self.reads, &self.name, pattern, revision)
    }

    /// Its settings, and how many keys and bytes it has.
    ///
    /// # Errors
    /// As for [`get`](Bucket::get).
    pub fn info(&self) -> Pending<BucketInfo> {
        answered(self.reads.home.bucket_info(&self.name))
    }

    /// Deletes the bucket with all it has.
    ///
    /// # Errors
    /// As for [`get`](Bucket::get).
    pub fn delete_bucket(&self) -> Pending<()> {
        answered(self.reads.home.delete_bucket(&self.name))
    }
}

fn key(text: &str) -> Result<Subject, Error> {
    Subject::new(text).map_err(|wrong| Error::new(ErrorCode::InvalidSubject, format!("key: {wrong}")))
}

/// A value of a key, or that it was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry(home::Entry);

impl Entry {
    /// The key.
    pub fn key(&self) -> &str {
        self.0.key.as_str()
    }

    /// Grows with every change of the bucket, from 1.
    pub fn revision(&self) -> u64 {
        self.0.revision
    }

    /// When it was written.
    pub fn time(&self) -> SystemTime {
        time_of(self.0.time_us)
    }

    /// True if the key was deleted.
    pub fn is_deleted(&self) -> bool {
        self.0.value.is_none()
    }

    /// The value; None if it was deleted.
    ///
    /// # Errors
    /// [`Error`] with the code `invalid_argument` and the path of the part that does not fit the
    /// type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        self.0.value.as_deref().map(|value| values::read(self.key(), value)).transpose()
    }
}

/// The changes of a bucket: a `futures_core::Stream` for any runtime, or read by
/// [`next`](Watch::next) and [`next_blocking`](Watch::next_blocking).
#[derive(derive_more::Debug)]
#[must_use = "nothing is watched before it is asked for a change"]
#[debug("Watch({bucket:?})")]
pub struct Watch {
    home: Arc<dyn Home>,
    bucket: Arc<str>,
    watch: Result<home::Watch, Error>,
    ready: VecDeque<Entry>,
    fetcher: Fetcher<Changes>,
}

impl Watch {
    /// A watch in a storage backend that another part of the process owns, of the changes after a
    /// revision.
    pub fn of(reads: &Reads, bucket: &str, pattern: &str, after: u64) -> Self {
        let watch = names::pattern(pattern).map(|filter| home::Watch { filter, after, max: PAGE, wait_us: 0 });
        let (home, bucket, fetcher) = (Arc::clone(&reads.home), bucket.into(), reads.fetcher());
        Self { home, bucket, watch, ready: VecDeque::new(), fetcher }
    }

    /// The next entry, if it is here.
    pub fn take(&mut self) -> Option<home::Entry> {
        self.ready.pop_front().map(|entry| entry.0)
    }

    /// Waits for the next entry.
    ///
    /// # Errors
    /// `not_found` if the bucket was deleted, `home_unavailable` if the storage backend cannot be
    /// reached, `invalid_subject` if the pattern is invalid. A retry continues at the same
    /// position.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub async fn next(&mut self) -> Result<Entry, Error> {
        poll_fn(|context| self.poll(context)).await
    }

    /// Blocks this thread until the next entry is there.
    ///
    /// # Errors
    /// As for [`next`](Watch::next).
    pub fn next_blocking(&mut self) -> Result<Entry, Error> {
        wait(self.next())
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<Entry, Error>> {
        loop {
            let result = ready!(self.poll_ready(context, None));
            result.map_err(|error| self.watch.as_ref().err().cloned().unwrap_or_else(|| error.into()))?;
            if let Some(entry) = self.ready.pop_front() {
                return Poll::Ready(Ok(entry));
            }
        }
    }
}

impl Reader for Watch {
    fn poll_ready(&mut self, context: &Context<'_>, mut timeout: Option<&mut Timeout>) -> Poll<HomeResult<bool>> {
        let watch = self.watch.as_mut().map_err(|error| HomeError::from(error.clone()))?;
        while self.ready.is_empty() {
            let begin = |wait_us| self.home.watch(&self.bucket, home::Watch { wait_us, ..watch.clone() }).into();
            let Some(changes) = ready!(self.fetcher.poll(context, &mut timeout, begin))? else { break };
            watch.after = changes.upto;
            self.ready.extend(changes.entries.into_iter().map(Entry));
        }
        Poll::Ready(Ok(!self.ready.is_empty()))
    }

    fn give_back(&mut self) {
        self.fetcher.cancel();
    }
}

impl futures_core::Stream for Watch {
    type Item = Result<Entry, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(context).map(Some)
    }
}
