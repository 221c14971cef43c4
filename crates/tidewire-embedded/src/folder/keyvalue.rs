//! Buckets of a folder.

use bytes::Bytes;
use tidewire_backend::home::{
    BucketInfo, BucketSettings, Changes, Entry, Expect, HomeError, HomeErrorKind, HomeResult, Watch,
};
use tidewire_core::stream::keyvalue::{self, Bucket, Options, Refusal};
use tidewire_proto::generated::limits;
use tidewire_proto::subject::{Pattern, Subject};

use super::errors::{invalid, not_found};
use super::names::check_bucket;
use super::streams::same;
use super::{Folder, StoredConsumer};
use crate::state::Op;

impl Folder {
    /// Makes a bucket, or finds that it is there.
    ///
    /// # Errors
    ///
    /// `Invalid`, `Differs`, `Unsupported`.
    pub fn create_bucket(&mut self, settings: BucketSettings) -> HomeResult<()> {
        check_bucket(&settings)?;
        let name = settings.name.clone();
        if let Some(stored) = self.buckets.get(&name) {
            return same(stored.settings.difference(&settings));
        }
        self.keep(&Op::Bucket(settings.clone()));
        self.buckets.insert(name, StoredConsumer::new(settings));
        Ok(())
    }

    /// The state of a bucket.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn bucket_info(&self, name: &str) -> HomeResult<BucketInfo> {
        let StoredConsumer { settings, bucket } = self.bucket(name)?;
        let (keys, bytes, revision) = (bucket.len(), bucket.bytes(), bucket.revision());
        Ok(BucketInfo { settings: settings.clone(), keys, bytes, revision })
    }

    /// Every bucket.
    pub fn list_buckets(&self) -> Vec<BucketInfo> {
        self.buckets.keys().filter_map(|name| self.bucket_info(name).ok()).collect()
    }

    /// Deletes a bucket.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn delete_bucket(&mut self, name: &str) -> HomeResult<()> {
        self.bucket(name)?;
        self.buckets.remove(name);
        self.keep(&Op::BucketGone(name.to_owned()));
        Ok(())
    }

    /// Writes a value. Returns the revision.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Invalid`, `Revision`, `Full`.
    pub fn put(
        &mut self,
        name: &str,
        key: &Subject,
        value: Bytes,
        (expect, ttl_us): (Expect, Option<u64>),
        now_us: u64,
    ) -> HomeResult<u64> {
        let most = limits::BUCKET_VALUE_BYTES.max;
        if value.len() as u64 > most {
            let text =
                format!("value: it has {} bytes, more than {most} (bucket_value_bytes); write less", value.len());
            return Err(invalid(text));
        }
        let bucket = self.bucket_mut(name)?;
        let written = bucket.put(key.as_str(), value, expect, ttl_us, now_us);
        let entry = written.map_err(|refusal| refused(name, key, expect, refusal))?;
        let (revision, expires_us) = (entry.revision, entry.expires_us);
        self.expiring.note(name, expires_us);
        self.keep(&Op::Entry(name.to_owned(), entry));
        Ok(revision)
    }

    /// Deletes a value. Returns the revision.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Revision`.
    pub fn delete(&mut self, name: &str, key: &Subject, expect: Expect, purge: bool, now_us: u64) -> HomeResult<u64> {
        let bucket = self.bucket_mut(name)?;
        let deleted = bucket.delete(key.as_str(), expect, purge, now_us);
        match deleted.map_err(|refusal| refused(name, key, expect, refusal))? {
            None => Ok(bucket.revision()),
            Some(entry) => {
                let revision = entry.revision;
                self.keep(&Op::Entry(name.to_owned(), entry));
                Ok(revision)
            }
        }
    }

    /// The newest entry of a key, or that of a revision.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn get(&self, name: &str, key: &Subject, revision: Option<u64>, now_us: u64) -> HomeResult<Option<Entry>> {
        Ok(self.bucket(name)?.bucket.get(key.as_str(), revision, now_us).and_then(shown))
    }

    /// Keys that have a value.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn keys(
        &self,
        name: &str,
        filter: &Pattern,
        after: Option<&Subject>,
        max: u32,
        now_us: u64,
    ) -> HomeResult<Vec<Subject>> {
        let keys = self.bucket(name)?.bucket.keys(after.map(Subject::as_str), now_us);
        let selected = keys.filter(|key| filter.matches_str(key)).take(max as usize);
        Ok(selected.filter_map(|key| Subject::new(key).ok()).collect())
    }

    /// Stored entries of a key.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn history(&self, name: &str, key: &Subject) -> HomeResult<Vec<Entry>> {
        Ok(self.bucket(name)?.bucket.history(key.as_str()).filter_map(shown).collect())
    }

    /// Changes after a revision. Without changes, `entries` is empty, and `upto` is the given
    /// revision or newer.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn changes(&self, name: &str, watch: &Watch) -> HomeResult<Changes> {
        let bucket = &self.bucket(name)?.bucket;
        let mut selected = bucket.changes(watch.after).filter(|entry| watch.filter.matches_str(&entry.key));
        let entries: Vec<Entry> = selected.by_ref().take(watch.max.max(1) as usize).filter_map(shown).collect();
        let more = selected.next().is_some();
        let upto = match entries.last() {
            Some(last) if more => last.revision,
            _ => bucket.revision(),
        };
        Ok(Changes { entries, upto, more })
    }

    /// Deletes expired entries. Returns the changed buckets.
    pub fn tick_buckets(&mut self, now_us: u64) -> Vec<String> {
        let mut changed = Vec::new();
        while let Some(name) = self.expiring.take(now_us) {
            // It may have been deleted.
            let Some(stored) = self.buckets.get_mut(&name) else { continue };
            let entries = stored.bucket.tick(now_us);
            self.expiring.note(&name, stored.bucket.next_deadline_us());
            if !entries.is_empty() {
                changed.push(name.clone());
            }
            for entry in entries {
                self.journal.append(&Op::Entry(name.clone(), entry));
                self.urgent = true;
            }
        }
        changed
    }

    fn bucket(&self, name: &str) -> HomeResult<&StoredConsumer> {
        self.buckets.get(name).ok_or_else(|| not_found("bucket", name))
    }

    fn bucket_mut(&mut self, name: &str) -> HomeResult<&mut Bucket> {
        self.buckets.get_mut(name).map(|stored| &mut stored.bucket).ok_or_else(|| not_found("bucket", name))
    }
}

impl StoredConsumer {
    pub(super) fn new(settings: BucketSettings) -> Self {
        let options = Options {
            history: settings.history as usize,
            ttl_us: settings.ttl_us,
            max_bytes: Some(settings.max_bytes.unwrap_or(limits::BUCKET_BYTES.default)),
            deleted_max: limits::BUCKET_DELETED.max as usize,
        };
        Self { settings, bucket: Bucket::new(options) }
    }
}

fn shown(entry: &keyvalue::Entry) -> Option<Entry> {
    let key = Subject::new(&entry.key).ok()?;
    Some(Entry { key, value: entry.value.clone(), revision: entry.revision, time_us: entry.time_us })
}

fn refused(bucket: &str, key: &Subject, expect: Expect, refusal: Refusal) -> HomeError {
    match refusal {
        Refusal::Full(bytes) => {
            let text = format!(
                "bucket {bucket:?}: max_bytes is less than the {bytes} that it would have; delete keys, or make it with more"
            );
            HomeError::new(HomeErrorKind::Full, text)
        }
        Refusal::Revision(has) => {
            let has = if has == 0 { "it has no value".to_owned() } else { format!("its revision is {has}") };
            let expected = match expect {
                Expect::Revision(revision) => format!("revision {revision}"),
                _ => "no value".to_owned(),
            };
            let text = format!(
                "bucket {bucket:?}: key {:?}: {has}, not {expected}; read it again and decide anew",
                key.as_str()
            );
            HomeError::new(HomeErrorKind::Revision, text)
        }
    }
}
