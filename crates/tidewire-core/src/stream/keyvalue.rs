//! A key-value bucket: the newest value of each key, with revisions, some history, and times to
//! live.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

/// How a bucket behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many entries of a key are stored, the newest included.
    pub history: usize,
    /// Entries go when they are so old.
    pub ttl_us: Option<u64>,
    /// Bytes that keys and values may take.
    pub max_bytes: Option<u64>,
    /// How many deleted keys are remembered; the oldest go.
    pub deleted_max: usize,
}

/// A value of a key, or that it was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Arc<str>,
    /// None: deleted.
    pub value: Option<Bytes>,
    /// Grows with each change of the bucket, from 1.
    pub revision: u64,
    /// When it was written.
    pub time_us: u64,
    /// When its time is over.
    pub expires_us: Option<u64>,
    /// True if the earlier entries of the key were removed.
    pub purged: bool,
}

/// The precondition of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    Any,
    /// The key has no value: it was never written, was deleted or has expired.
    Absent,
    /// Its newest entry has this revision.
    Revision(u64),
}

/// Why a change did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The key has this revision; 0: no value.
    Revision(u64),
    /// The change would need so many bytes.
    Full(u64),
}

/// Keys and their entries.
#[derive(Clone, Debug)]
pub struct Bucket {
    options: Options,
    revision: u64,
    bytes: u64,
    live: u64,
    keys: BTreeMap<Arc<str>, VecDeque<Entry>>,
    /// The key of each stored entry.
    revisions: BTreeMap<u64, Arc<str>>,
    /// When the newest entry of a key expires.
    expiries: BTreeSet<(u64, Arc<str>)>,
    /// Deleted keys, by the revision of their deletion.
    deleted: BTreeSet<u64>,
}

impl Bucket {
    /// An empty bucket.
    pub const fn new(options: Options) -> Self {
        Self {
            options,
            revision: 0,
            bytes: 0,
            live: 0,
            keys: BTreeMap::new(),
            revisions: BTreeMap::new(),
            expiries: BTreeSet::new(),
            deleted: BTreeSet::new(),
        }
    }

    /// The newest revision.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Bytes of keys and values.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many keys have a value.
    pub const fn len(&self) -> u64 {
        self.live
    }

    /// True if no key has a value.
    pub const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Writes a value. The entry must be stored before anybody learns of it.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the key is not as expected, or there is no capacity.
    pub fn put(
        &mut self,
        key: &str,
        value: Bytes,
        expect: Expect,
        ttl_us: Option<u64>,
        now_us: u64,
    ) -> Result<Entry, Refusal> {
        self.check(key, expect, now_us)?;
        let after = self.bytes + (key.len() + value.len()) as u64 - self.freed_by(key);
        if self.options.max_bytes.is_some_and(|max| after > max) {
            return Err(Refusal::Full(after));
        }
        let ttl_us = [ttl_us, self.options.ttl_us].into_iter().flatten().min();
        let expires_us = ttl_us.map(|ttl| now_us.saturating_add(ttl));
        Ok(self.write(key, Some(value), expires_us, false, now_us))
    }

    /// Deletes the value. None if there was none.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the key is not as expected.
    pub fn delete(&mut self, key: &str, expect: Expect, purge: bool, now_us: u64) -> Result<Option<Entry>, Refusal> {
        self.check(key, expect, now_us)?;
        let nothing = if purge { !self.keys.contains_key(key) } else { self.get(key, None, now_us).is_none() };
        Ok((!nothing).then(|| self.write(key, None, None, purge, now_us)))
    }

    /// The newest entry of a key that has a value, or that of a revision.
    pub fn get(&self, key: &str, revision: Option<u64>, now_us: u64) -> Option<&Entry> {
        let entries = self.keys.get(key)?;
        let entry = match revision {
            None => entries.back(),
            Some(revision) => entries.iter().find(|entry| entry.revision == revision),
        };
        entry.filter(|entry| entry.value.is_some() && entry.expires_us.is_none_or(|at| at > now_us))
    }

    /// The stored entries of a key, oldest first.
    pub fn history(&self, key: &str) -> impl Iterator<Item = &Entry> {
        self.keys.get(key).into_iter().flatten()
    }

    /// Keys that have a value, in order, those behind `after`.
    pub fn keys<'a>(&'a self, after: Option<&str>, now_us: u64) -> impl Iterator<Item = &'a str> {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let range = self.keys.range::<str, _>((from, std::ops::Bound::Unbounded));
        range.map(|(key, _)| &**key).filter(move |key| self.get(key, None, now_us).is_some())
    }

    /// Entries with a greater revision, in its order. After 0: the newest of each key that has a
    /// value.
    pub fn changes(&self, after: u64) -> impl Iterator<Item = &Entry> {
        self.revisions.range(after + 1..).filter_map(move |(revision, key)| {
            let entries = &self.keys[key];
            let newest = entries.back().filter(|entry| entry.revision == *revision && entry.value.is_some());
            if after == 0 { newest } else { entries.iter().find(|entry| entry.revision == *revision) }
        })
    }

    /// Every stored entry, in order of revision.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        let of = |(revision, key): (&u64, &Arc<str>)| {
            let revision = *revision;
            self.keys[key].iter().find(move |entry| entry.revision == revision)
        };
        self.revisions.iter().filter_map(of)
    }

    /// Deletes expired values. Returns the entries to store.
    pub fn tick(&mut self, now_us: u64) -> Vec<Entry> {
        let mut entries = Vec::new();
        while let Some((at, key)) = self.expiries.first().cloned() {
            if at > now_us {
                break;
            }
            entries.push(self.write(&key, None, None, true, now_us));
        }
        entries
    }

    /// When to call [`tick`](Self::tick) next.
    pub fn next_deadline_us(&self) -> Option<u64> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// Repeats a change of before a crash.
    pub fn restore(&mut self, entry: Entry) {
        self.revision = self.revision.max(entry.revision);
        self.insert(entry);
    }

    /// Repeats that there were revisions up to this one.
    pub fn restore_revision(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    fn check(&self, key: &str, expect: Expect, now_us: u64) -> Result<(), Refusal> {
        let current = self.get(key, None, now_us).map_or(0, |entry| entry.revision);
        let newest = self.keys.get(key).and_then(|entries| entries.back()).map_or(0, |entry| entry.revision);
        match expect {
            Expect::Absent if current != 0 => Err(Refusal::Revision(current)),
            Expect::Revision(expected) if expected != current && expected != newest => Err(Refusal::Revision(current)),
            _ => Ok(()),
        }
    }

    fn freed_by(&self, key: &str) -> u64 {
        let entries = self.keys.get(key).filter(|entries| entries.len() >= self.options.history);
        entries.and_then(|entries| entries.front()).map_or(0, Entry::bytes)
    }

    fn write(&mut self, key: &str, value: Option<Bytes>, expires_us: Option<u64>, purged: bool, now_us: u64) -> Entry {
        self.revision += 1;
        let entry = Entry { key: key.into(), value, revision: self.revision, time_us: now_us, expires_us, purged };
        self.insert(entry.clone());
        entry
    }

    fn insert(&mut self, entry: Entry) {
        let key = Arc::clone(&entry.key);
        let entries = self.keys.entry(Arc::clone(&key)).or_default();
        if let Some(before) = entries.back() {
            self.live -= u64::from(before.value.is_some());
            self.deleted.remove(&before.revision);
            if let Some(at) = before.expires_us {
                self.expiries.remove(&(at, Arc::clone(&key)));
            }
        }
        let keep = if entry.purged { 0 } else { self.options.history.max(1) - 1 };
        while entries.len() > keep {
            let removed = entries.pop_front().expect("there is one");
            self.bytes -= removed.bytes();
            self.revisions.remove(&removed.revision);
        }
        self.bytes += entry.bytes();
        self.live += u64::from(entry.value.is_some());
        if entry.value.is_none() {
            self.deleted.insert(entry.revision);
        }
        if let Some(at) = entry.expires_us {
            self.expiries.insert((at, Arc::clone(&key)));
        }
        self.revisions.insert(entry.revision, key);
        entries.push_back(entry);
        self.forget_deleted();
    }

    fn forget_deleted(&mut self) {
        while self.deleted.len() > self.options.deleted_max {
            let revision = self.deleted.pop_first().expect("there is one");
            let Some(key) = self.revisions.get(&revision).cloned() else { continue };
            for removed in self.keys.remove(&key).into_iter().flatten() {
                self.bytes -= removed.bytes();
                self.revisions.remove(&removed.revision);
            }
        }
    }
}

impl Entry {
    fn bytes(&self) -> u64 {
        (self.key.len() + self.value.as_ref().map_or(0, Bytes::len)) as u64
    }
}
