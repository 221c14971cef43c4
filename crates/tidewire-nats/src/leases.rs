//! Leases: an entry of a bucket for each name, taken and renewed by compare-and-set in one step.
//!
//! The revision of the write that took a lease is its fence: it grows for ever, for all writers.
//! The server that stores an entry tells its age, and only the clock of that server counts. An
//! entry that was released or has expired stays in the bucket with its fence.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::HeaderMap;
use serde_json::{Value, json};
use tidewire_backend::home::{BucketSettings, Expect, Grant, HomeError, HomeErrorKind, HomeResult, LeaseInfo};
use tidewire_proto::subject::Subject;
use tokio::sync::Mutex as Turn;
use tokio::time::Instant;

use crate::clock;
use crate::cursor::Selection;
use crate::keyvalue::{newest, newest_of_all, write};
use crate::names::{self, LEASES};
use crate::shared::Shared;
use crate::stream_reader::wait;
use crate::streams::find;

/// Maximal attempts of a release that meets a renewal on its way.
const RELEASE_ATTEMPTS: u32 = 10;
const SHORTEST_US: u64 = 1_000;
const LONGEST_US: u64 = 365 * 86_400 * 1_000_000;

/// Leases that this client holds or waits for.
#[derive(Debug, Default)]
pub(crate) struct LeaseTable {
    /// Queues of local waiters, by name.
    turns: Mutex<HashMap<String, Arc<Turn<()>>>>,
    is_bucket_created: Mutex<bool>,
}

/// A lease, decoded from its entry.
#[derive(Debug)]
struct LeaseEntry {
    revision: u64,
    time_us: u64,
    holder: String,
    /// 0: that of the entry itself.
    fence: u64,
    ttl_us: u64,
    /// True once it was released.
    released: bool,
}

impl LeaseEntry {
    fn read(entry: tidewire_backend::home::Entry) -> Option<Self> {
        let value: Value = serde_json::from_slice(entry.value.as_deref()?).ok()?;
        Some(Self {
            revision: entry.revision,
            time_us: entry.time_us,
            holder: value["holder"].as_str()?.to_owned(),
            fence: value["fence"].as_u64()?,
            ttl_us: value["ttl_us"].as_u64()?,
            released: value["released"] == true,
        })
    }

    const fn fence(&self) -> u64 {
        if self.fence == 0 { self.revision } else { self.fence }
    }

    /// Remaining time of the lease, by the server's clock.
    const fn remaining_us(&self, now_us: u64) -> u64 {
        if self.released { 0 } else { (self.time_us + self.ttl_us).saturating_sub(now_us) }
    }
}

/// Takes a lease that is free; waits for it in turn.
pub(crate) async fn acquire(shared: &Shared, name: &str, holder: &str, ttl_us: u64, wait_us: u64) -> HomeResult<Grant> {
    let key = key(shared, name)?;
    if !(SHORTEST_US..=LONGEST_US).contains(&ttl_us) {
        let words = format!("ttl: {ttl_us} us is not possible: write 0.001 s to a year");
        return Err(shared.connection.error(HomeErrorKind::Invalid, &words));
    }
    let until = Instant::now() + clock::span(wait_us);
    bucket(shared).await?;
    let turn = Arc::clone(
        shared.leases.turns.lock().unwrap_or_else(PoisonError::into_inner).entry(name.to_owned()).or_default(),
    );
    // A local waiter before this one may wait longer.
    let mine = match turn.try_lock() {
        Ok(mine) => Some(mine),
        Err(_) => tokio::time::timeout_at(until, turn.lock()).await.ok(),
    };
    loop {
        let current = newest(shared, LEASES, &key).await?;
        let expect = current.as_ref().map_or(Expect::Absent, |entry| Expect::Revision(entry.revision));
        let current = current.and_then(LeaseEntry::read);
        let now_us = server_now(shared).await?;
        let remaining_us = current.as_ref().map_or(0, |written| written.remaining_us(now_us));
        if remaining_us == 0 && mine.is_some() {
            let value = json!({"holder": holder, "ttl_us": ttl_us, "fence": 0});
            match write(shared, LEASES, &key, HeaderMap::new(), value.to_string().into(), expect).await {
                Ok(fence) => return Ok(Grant { fence, ttl_us }),
                // Somebody else was faster.
                Err(error) if error.kind() == HomeErrorKind::Revision => continue,
                Err(error) => return Err(error),
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let who = current.map_or_else(|| "somebody".to_owned(), |written| written.holder);
            let words = format!(
                "lease {name:?}: {who} holds it for {} ms still: wait longer, or try again",
                remaining_us.div_ceil(1_000)
            );
            return Err(shared.connection.error(HomeErrorKind::LeaseHeld, &words));
        }
        let selection = Selection { stream: names::bucket(LEASES), filter: vec![format!("$KV.{LEASES}.{key}")] };
        let next = current.map_or(1, |written| written.revision + 1);
        let ttl_left = Duration::from_micros(remaining_us) + Duration::from_millis(1);
        wait(shared, &selection, next, left.min(ttl_left)).await?;
    }
}

/// Makes a lease valid for its whole time again.
pub(crate) async fn renew(shared: &Shared, name: &str, fence: u64) -> HomeResult<Grant> {
    let key = key(shared, name)?;
    let Some((written, now_us)) = read_entry(shared, &key).await? else { return Err(lost(shared, name, fence)) };
    if written.fence() != fence || written.remaining_us(now_us) == 0 {
        return Err(lost(shared, name, fence));
    }
    let value = json!({"holder": written.holder, "ttl_us": written.ttl_us, "fence": fence});
    let expect = Expect::Revision(written.revision);
    match write(shared, LEASES, &key, HeaderMap::new(), value.to_string().into(), expect).await {
        Ok(_) => Ok(Grant { fence, ttl_us: written.ttl_us }),
        Err(error) if error.kind() == HomeErrorKind::Revision => Err(lost(shared, name, fence)),
        Err(error) => Err(error),
    }
}

/// Releases a lease. A renewal of the same holder may still be on its way and write in between; the
/// release is then written again after it.
pub(crate) async fn release(shared: &Shared, name: &str, fence: u64) -> HomeResult<bool> {
    let key = key(shared, name)?;
    for _ in 0..RELEASE_ATTEMPTS {
        let Some((written, now_us)) = read_entry(shared, &key).await? else { return Ok(false) };
        if written.fence() != fence || written.remaining_us(now_us) == 0 {
            return Ok(false);
        }
        let value = json!({"holder": written.holder, "ttl_us": written.ttl_us, "fence": fence, "released": true});
        let expect = Expect::Revision(written.revision);
        match write(shared, LEASES, &key, HeaderMap::new(), value.to_string().into(), expect).await {
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == HomeErrorKind::Revision => (),
            Err(error) => return Err(error),
        }
    }
    Err(shared.connection.error(HomeErrorKind::Revision, "a renewal of the lease came before each release: try again"))
}

/// The state of a lease.
pub(crate) async fn info(shared: &Shared, name: &str) -> HomeResult<Option<LeaseInfo>> {
    let key = key(shared, name)?;
    Ok(read_entry(shared, &key).await?.map(|(written, now_us)| described(name, &written, now_us)))
}

/// All leases that are held.
pub(crate) async fn list(shared: &Shared) -> HomeResult<Vec<LeaseInfo>> {
    let mut found = Vec::new();
    let Some(now_us) = server_time(shared).await? else { return Ok(found) };
    newest_of_all(shared, LEASES, ">", |entry| {
        let name = entry.key.as_str().to_owned();
        if let Some(written) = LeaseEntry::read(entry).filter(|written| written.remaining_us(now_us) > 0) {
            found.push(described(&name, &written, now_us));
        }
    })
    .await?;
    found.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(found)
}

/// The entry of a lease, and the server's time. None if the lease never existed.
async fn read_entry(shared: &Shared, key: &Subject) -> HomeResult<Option<(LeaseEntry, u64)>> {
    let entry = match newest(shared, LEASES, key).await {
        Err(error) if error.kind() == HomeErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let Some(written) = entry.and_then(LeaseEntry::read) else { return Ok(None) };
    Ok(Some((written, server_now(shared).await?)))
}

fn described(name: &str, written: &LeaseEntry, now_us: u64) -> LeaseInfo {
    let remaining_us = written.remaining_us(now_us);
    let holder = (remaining_us > 0).then(|| written.holder.clone());
    LeaseInfo { name: name.to_owned(), holder, fence: written.fence(), remaining_us }
}

/// The clock of the server that stores the leases.
async fn server_now(shared: &Shared) -> HomeResult<u64> {
    let time = server_time(shared).await?;
    time.ok_or_else(|| {
        shared.connection.error(HomeErrorKind::NotFound, "the bucket of the leases was deleted: try again")
    })
}

async fn server_time(shared: &Shared) -> HomeResult<Option<u64>> {
    match find(&shared.connection, &names::bucket(LEASES)).await {
        Ok(info) => Ok(Some(info["ts"].as_str().and_then(clock::read).unwrap_or_else(clock::now_us))),
        Err(crate::connection::Failure::Refused { code: 10_059, .. }) => {
            *shared.leases.is_bucket_created.lock().unwrap_or_else(PoisonError::into_inner) = false;
            Ok(None)
        }
        Err(failure) => Err(failure.of_bucket(&shared.connection, LEASES)),
    }
}

/// Makes the bucket of the leases, with as many replicas as the servers can keep, up to three.
async fn bucket(shared: &Shared) -> HomeResult<()> {
    if *shared.leases.is_bucket_created.lock().unwrap_or_else(PoisonError::into_inner) {
        return Ok(());
    }
    if server_time(shared).await?.is_none() {
        let clustered = shared.connection.client.server_info().cluster.is_some();
        let settings = BucketSettings { replicas: if clustered { 3 } else { 1 }, ..BucketSettings::new(LEASES) };
        let created = crate::keyvalue::make(shared, &settings).await;
        if let Err(error) = created {
            if !clustered || error.kind() != HomeErrorKind::Unsupported {
                return Err(error);
            }
            crate::keyvalue::make(shared, &BucketSettings::new(LEASES)).await?;
        }
    }
    *shared.leases.is_bucket_created.lock().unwrap_or_else(PoisonError::into_inner) = true;
    Ok(())
}

/// The key of a lease; its name is refused where a bucket would refuse the key.
fn key(shared: &Shared, name: &str) -> HomeResult<Subject> {
    let key = Subject::new(name)
        .map_err(|error| shared.connection.error(HomeErrorKind::Invalid, &format!("lease: {error}")))?;
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-/_=.".contains(letter);
    if key.as_str().chars().all(plain) {
        return Ok(key);
    }
    let words = format!("lease: {name:?} is no key of NATS: write letters, digits, - / _ = and dots");
    Err(shared.connection.error(HomeErrorKind::Invalid, &words))
}

fn lost(shared: &Shared, name: &str, fence: u64) -> HomeError {
    let words =
        format!("lease {name:?}: fence {fence} no longer holds it: stop the protected work, and acquire it anew");
    shared.connection.error(HomeErrorKind::LeaseLost, &words)
}
