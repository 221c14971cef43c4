//! Key-value buckets: those of NATS itself, which any client of NATS can use.

use std::collections::BTreeMap;

use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use serde_json::{Value, json};
use tidewire_backend::home::{
    BucketInfo, BucketSettings, Changes, Entry, Expect, HomeError, HomeErrorKind, HomeResult, Watch,
};
use tidewire_proto::subject::{Pattern, Subject};
use tokio::time::Instant;

use crate::clock;
use crate::connection::{Connection, Failure};
use crate::content;
use crate::cursor::{Cursor, From, Selection, scan};
use crate::message::AckSubject;
use crate::names;
use crate::pull::{End, Pull, Puller, Wait};
use crate::shared::{Shared, Stored};
use crate::stream_reader::wait;
use crate::streams::{all, find, same};

const OPERATION: &str = "KV-Operation";
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
const MARKER: &str = "Nats-Marker-Reason";
/// Bytes of a header beside its name and value.
const HEADER_LINE: usize = 4;
/// At most so many bytes of headers that each write adds: the id and the expected revision.
const OWN_HEADERS: usize = 160;
const HISTORY_MAX: u32 = 64;
/// How long a server remembers that a key's time was over, so that watchers learn of it.
const MARKED_FOR_US: u64 = 60_000_000;
/// Attempts to delete a key that others write meanwhile.
const DELETE_ATTEMPTS: u32 = 64;
const SHORTEST_TTL_US: u64 = 100_000;

/// Makes a bucket, or finds it with the same settings.
pub(crate) async fn create(shared: &Shared, settings: BucketSettings) -> HomeResult<()> {
    let connection = &shared.connection;
    check(connection, &settings)?;
    let info = make(shared, &settings).await?;
    same(connection, read(&info).difference(&settings))
}

/// Makes the stream of a bucket, or finds it.
pub(crate) async fn make(shared: &Shared, settings: &BucketSettings) -> HomeResult<Value> {
    let connection = &shared.connection;
    let stream = names::bucket(&settings.name);
    match find(connection, &stream).await {
        Ok(info) => return Ok(info),
        Err(Failure::Refused { code: 10_059, .. }) => (),
        Err(failure) => return Err(failure.of_bucket(connection, &settings.name)),
    }
    match connection.api(&format!("STREAM.CREATE.{stream}"), &config(settings)).await {
        Ok(info) => Ok(info),
        Err(Failure::Refused { code: 10_058, .. }) => ask(connection, &settings.name).await,
        Err(Failure::Refused { code: 10_005 | 10_074, words }) => {
            let words = format!(
                "replicas: there are not so many servers now ({words}): start those that are away, or ask for fewer"
            );
            Err(connection.error(HomeErrorKind::Unsupported, &words))
        }
        Err(failure) => Err(failure.of_bucket(connection, &settings.name)),
    }
}

pub(crate) async fn info(shared: &Shared, bucket: &str) -> HomeResult<BucketInfo> {
    names::check("bucket", bucket)?;
    described(shared, &ask(&shared.connection, bucket).await?).await
}

/// Every bucket but that of the leases.
pub(crate) async fn list(shared: &Shared) -> HomeResult<Vec<BucketInfo>> {
    let mut found = Vec::new();
    for info in all(&shared.connection).await? {
        let name = info["config"]["name"].as_str().and_then(|name| name.strip_prefix("KV_"));
        if name.is_some_and(|name| name != names::LEASES && names::check("bucket", name).is_ok()) {
            found.push(described(shared, &info).await?);
        }
    }
    found.sort_by(|left, right| left.settings.name.cmp(&right.settings.name));
    Ok(found)
}

pub(crate) async fn delete_bucket(shared: &Shared, bucket: &str) -> HomeResult<()> {
    names::check("bucket", bucket)?;
    let stream = names::bucket(bucket);
    let deleted = shared.connection.api(&format!("STREAM.DELETE.{stream}"), &Value::Null).await;
    shared.forget_stream(&stream);
    deleted.map(|_| ()).map_err(|failure| failure.of_bucket(&shared.connection, bucket))
}

/// Writes a value, if the expectation holds.
pub(crate) async fn put(
    shared: &Shared,
    bucket: &str,
    key: &Subject,
    value: Bytes,
    expect: Expect,
    ttl_us: Option<u64>,
) -> HomeResult<u64> {
    check_key(&shared.connection, bucket, key)?;
    let mut headers = HeaderMap::new();
    if let Some(ttl_us) = ttl_us {
        headers.insert(names::TTL, clock::ttl_header(ttl_us).as_str());
    }
    let payload = content::payload_of(value, &mut headers);
    write(shared, bucket, key, headers, payload, expect).await
}

/// Deletes a value, if one is present and the expectation holds.
pub(crate) async fn delete(
    shared: &Shared,
    bucket: &str,
    key: &Subject,
    expect: Expect,
    purge: bool,
) -> HomeResult<u64> {
    check_key(&shared.connection, bucket, key)?;
    let mut headers = HeaderMap::new();
    headers.insert(OPERATION, if purge { "PURGE" } else { "DEL" });
    if purge {
        headers.insert("Nats-Rollup", "sub");
    }
    let mut attempts = 1;
    loop {
        let newest = newest(shared, bucket, key).await?;
        let revision = newest.as_ref().map_or(0, |entry| entry.revision);
        let is_present = newest.as_ref().is_some_and(|entry| entry.value.is_some());
        match expect {
            // Deleted keys are absent, and have revision 0 as well.
            Expect::Revision(0) if !is_present => (),
            Expect::Revision(expected) if expected != revision => return Err(other(shared, key, expected, revision)),
            Expect::Absent if is_present => return Err(other(shared, key, 0, revision)),
            _ => (),
        }
        if newest.is_none() || !is_present && !purge {
            let info = ask(&shared.connection, bucket).await?;
            return Ok(info["state"]["last_seq"].as_u64().unwrap_or_default());
        }
        let deleted = write(shared, bucket, key, headers.clone(), Bytes::new(), Expect::Revision(revision)).await;
        match deleted {
            // The next attempt sees the entry that was written meanwhile.
            Err(error) if error.kind() == HomeErrorKind::Revision && attempts < DELETE_ATTEMPTS => attempts += 1,
            deleted => return deleted,
        }
    }
}

/// The newest entry of a key, or that of a revision.
pub(crate) async fn get(
    shared: &Shared,
    bucket: &str,
    key: &Subject,
    revision: Option<u64>,
) -> HomeResult<Option<Entry>> {
    check_key(&shared.connection, bucket, key)?;
    let Some(revision) = revision else {
        let which = json!({"last_by_subj": format!("$KV.{bucket}.{key}")});
        let newest = stored_entry(shared, bucket, &which, decoded_entry).await?;
        return Ok(newest.filter(|entry| entry.value.is_some()));
    };
    let found = stored_entry(shared, bucket, &json!({"seq": revision}), decoded_entry).await?;
    Ok(found.filter(|entry| entry.key == *key))
}

/// Keys that have a value, in order.
pub(crate) async fn keys(
    shared: &Shared,
    bucket: &str,
    filter: &Pattern,
    after: Option<Subject>,
    max: u32,
) -> HomeResult<Vec<Subject>> {
    names::check("bucket", bucket)?;
    let mut found = BTreeMap::new();
    newest_of_all(shared, bucket, filter.as_str(), |entry| {
        if entry.value.is_some() && after.as_ref().is_none_or(|after| entry.key > *after) {
            found.insert(entry.key, ());
        }
    })
    .await?;
    Ok(found.into_keys().take(max as usize).collect())
}

/// Stored entries of a key, oldest first.
pub(crate) async fn history(shared: &Shared, bucket: &str, key: &Subject) -> HomeResult<Vec<Entry>> {
    check_key(&shared.connection, bucket, key)?;
    let mut found = Vec::new();
    let selection = selection(bucket, key.as_str());
    let scanned = scan(&shared.connection, &selection, From::Sequence(1), |place, message| {
        found.push(decoded_entry(bucket, place, message));
        true
    });
    scanned.await.map_err(|error| of_bucket(&shared.connection, bucket, error))?;
    Ok(found)
}

/// Changes after a revision; waits for the first.
pub(crate) async fn watch(shared: &Shared, bucket: &str, watch: Watch) -> HomeResult<Changes> {
    names::check("bucket", bucket)?;
    let connection = &shared.connection;
    if watch.max == 0 {
        return Err(connection.error(HomeErrorKind::Invalid, "max: 0 watches nothing: write 1 or more"));
    }
    let selection = selection(bucket, watch.filter.as_str());
    let until = Instant::now() + clock::wait(watch.wait_us);
    let patience = Instant::now() + clock::wait(watch.wait_us).max(connection.settings.request_timeout);
    loop {
        let changes = match changes(shared, bucket, &selection, &watch).await {
            Ok(changes) => changes,
            // A cursor ends with its server: the next attempt opens another one.
            Err(error) if error.kind() == HomeErrorKind::Unreachable && Instant::now() < patience => {
                Puller::pause(patience).await;
                continue;
            }
            Err(error) => return Err(of_bucket(connection, bucket, error)),
        };
        let left = until.saturating_duration_since(Instant::now());
        if !changes.entries.is_empty() || left.is_zero() {
            return Ok(changes);
        }
        wait(shared, &selection, watch.after + 1, left).await?;
    }
}

/// Changes up to now.
async fn changes(shared: &Shared, bucket: &str, selection: &Selection, watch: &Watch) -> HomeResult<Changes> {
    let connection = &shared.connection;
    let from = if watch.after == 0 { From::Newest } else { From::Sequence(watch.after + 1) };
    let idle = (watch.after > 0).then(|| shared.cursors.take(selection, watch.after + 1)).flatten();
    let mut cursor = match idle {
        Some(cursor) => cursor,
        None => Cursor::open(connection, selection, from).await?,
    };
    let pull = Pull { messages: watch.max, bytes: 0, wait: Wait::No };
    let (messages, end) = cursor.next(connection, pull).await;
    let pending = messages.last().map_or(0, |(place, _)| place.pending);
    let entries: Vec<_> = messages.into_iter().map(|(place, message)| decoded_entry(bucket, place, message)).collect();
    match end {
        End::Away(error) if entries.is_empty() => return Err(error),
        End::Gone if entries.is_empty() => return Err(connection.away("a cursor was lost")),
        _ => (),
    }
    let upto = entries.last().map_or(watch.after, |entry| entry.revision);
    if entries.is_empty() {
        cursor.close(connection).await;
    } else {
        shared.cursors.leave(connection, cursor, upto + 1).await;
    }
    Ok(Changes { entries, upto, more: pending > 0 })
}

/// One step that writes: the server compares and sets.
pub(crate) async fn write(
    shared: &Shared,
    bucket: &str,
    key: &Subject,
    headers: HeaderMap,
    value: Bytes,
    expect: Expect,
) -> HomeResult<u64> {
    let mut expected = match expect {
        Expect::Any => None,
        Expect::Absent => Some(0),
        Expect::Revision(revision) => Some(revision),
    };
    let stream = names::bucket(bucket);
    let subject = format!("$KV.{bucket}.{key}");
    check_size(&shared.connection, key, &headers, &value)?;
    let (mut attempt, nonce) = (0, shared.connection.client.new_inbox());
    loop {
        let mut headers = headers.clone();
        if let Some(expected) = expected {
            headers.insert(EXPECTED, expected.to_string().as_str());
        }
        // The id deduplicates a second write after the first reply was lost.
        headers.insert(names::MSG_ID, format!("{nonce}.{attempt}").as_str());
        match shared.put(&stream, &subject, headers, value.clone()).await {
            Ok(revision) => return Ok(revision),
            Err(Failure::Refused { code: 10_071 | 10_164, .. }) => {
                let newest = newest(shared, bucket, key).await?;
                let revision = newest.as_ref().map_or(0, |entry| entry.revision);
                let is_present = newest.is_some_and(|entry| entry.value.is_some());
                match expect {
                    // Deleted keys are absent: the next attempt expects the revision of the
                    // deletion.
                    Expect::Absent if !is_present && expected != Some(revision) && attempt < 3 => {
                        expected = Some(revision);
                        attempt += 1;
                    }
                    Expect::Revision(number) => return Err(other(shared, key, number, revision)),
                    _ => return Err(other(shared, key, 0, revision)),
                }
            }
            Err(failure) => return Err(failure.of_bucket(&shared.connection, bucket)),
        }
    }
}

/// The newest entry of a key, deleted or not, as the leader has it.
pub(crate) async fn newest(shared: &Shared, bucket: &str, key: &Subject) -> HomeResult<Option<Entry>> {
    let which = json!({"last_by_subj": format!("$KV.{bucket}.{key}")});
    stored_entry(shared, bucket, &which, entry).await
}

/// A stored entry, as `read` reads it.
async fn stored_entry(
    shared: &Shared,
    bucket: &str,
    which: &Value,
    read: fn(&str, AckSubject, Message) -> Entry,
) -> HomeResult<Option<Entry>> {
    let stored = shared.stored(&names::bucket(bucket), which).await;
    let stored = stored.map_err(|error| of_bucket(&shared.connection, bucket, error))?;
    Ok(stored.map(|Stored { message, sequence, time_us }| {
        read(bucket, AckSubject { sequence, delivery: 1, time_us, pending: 0 }, message)
    }))
}

/// The newest entry of every key that a pattern selects.
pub(crate) async fn newest_of_all(
    shared: &Shared,
    bucket: &str,
    filter: &str,
    mut visit: impl FnMut(Entry),
) -> HomeResult<()> {
    let selection = selection(bucket, filter);
    let scanned = scan(&shared.connection, &selection, From::Newest, |place, message| {
        visit(entry(bucket, place, message));
        true
    });
    scanned.await.map_err(|error| of_bucket(&shared.connection, bucket, error))
}

fn selection(bucket: &str, filter: &str) -> Selection {
    Selection { stream: names::bucket(bucket), filter: vec![format!("$KV.{bucket}.{filter}")] }
}

/// An entry whose value is encoded, also if another client wrote it.
fn decoded_entry(bucket: &str, place: AckSubject, mut message: Message) -> Entry {
    message.payload = content::value_of(message.payload, message.headers.as_ref());
    entry(bucket, place, message)
}

/// An entry with its payload as the value.
fn entry(bucket: &str, place: AckSubject, message: Message) -> Entry {
    let start = "$KV.".len() + bucket.len() + 1;
    let key = message.subject.get(start..).unwrap_or_default();
    // A key of others that is no subject of ours is shown as near to it as can be.
    let key = Subject::new(key)
        .or_else(|_| Subject::new("unreadable"))
        .unwrap_or_else(|_| unreachable!("a word is a subject"));
    let is_deletion = message
        .headers
        .as_ref()
        .is_some_and(|headers| headers.get(OPERATION).is_some() || headers.get(MARKER).is_some());
    let value = (!is_deletion).then_some(message.payload);
    Entry { key, value, revision: place.sequence, time_us: place.time_us }
}

fn config(settings: &BucketSettings) -> Value {
    let ttl_us = settings.ttl_us.unwrap_or(0);
    let window_us = if ttl_us == 0 { 120_000_000 } else { ttl_us.min(120_000_000) };
    json!({
        "name": names::bucket(&settings.name),
        "subjects": [format!("$KV.{}.>", settings.name)],
        "max_msgs_per_subject": settings.history,
        "max_msgs": -1,
        "max_bytes": settings.max_bytes.map_or(-1, |bytes| bytes as i64),
        "max_age": clock::nanos(ttl_us),
        "max_consumers": -1,
        "duplicate_window": clock::nanos(window_us),
        "num_replicas": settings.replicas,
        "discard": "new",
        "retention": "limits",
        "storage": "file",
        "allow_rollup_hdrs": true,
        "deny_delete": true,
        "allow_direct": true,
        "allow_msg_ttl": true,
        "subject_delete_marker_ttl": clock::nanos(MARKED_FOR_US),
        "metadata": {"tidewire": "bucket"},
    })
}

fn read(info: &Value) -> BucketSettings {
    let config = &info["config"];
    let limit = |name: &str| config[name].as_i64().filter(|value| *value > 0).map(|value| value as u64);
    BucketSettings {
        name: config["name"].as_str().unwrap_or_default().trim_start_matches("KV_").to_owned(),
        history: limit("max_msgs_per_subject").unwrap_or(1) as u32,
        ttl_us: limit("max_age").map(|nanos| nanos / 1_000),
        max_bytes: limit("max_bytes"),
        replicas: config["num_replicas"].as_u64().unwrap_or(1) as u32,
    }
}

async fn described(shared: &Shared, info: &Value) -> HomeResult<BucketInfo> {
    let settings = read(info);
    let number = |name: &str| info["state"][name].as_u64().unwrap_or_default();
    let mut keys = 0;
    newest_of_all(shared, &settings.name, ">", |entry| keys += u64::from(entry.value.is_some())).await?;
    Ok(BucketInfo { settings, keys, bytes: number("bytes"), revision: number("last_seq") })
}

async fn ask(connection: &Connection, bucket: &str) -> HomeResult<Value> {
    find(connection, &names::bucket(bucket)).await.map_err(|failure| failure.of_bucket(connection, bucket))
}

fn check(connection: &Connection, settings: &BucketSettings) -> HomeResult<()> {
    names::check("bucket", &settings.name)?;
    let refuse = |words: &str| Err(connection.error(HomeErrorKind::Invalid, words));
    if settings.name == names::LEASES {
        return refuse("bucket: this name is that of the leases: choose another");
    }
    if !(1..=HISTORY_MAX).contains(&settings.history) {
        return refuse(&format!("history: {} is not possible: write 1 to {HISTORY_MAX}", settings.history));
    }
    if !(1..=5).contains(&settings.replicas) {
        return refuse(&format!("replicas: {} are not possible: write 1, 3 or 5", settings.replicas));
    }
    if settings.ttl_us.is_some_and(|ttl_us| ttl_us < SHORTEST_TTL_US) {
        return refuse("ttl: it is shorter than NATS allows: write 0.1 s or more");
    }
    Ok(())
}

/// Keys that every client of NATS takes.
fn check_key(connection: &Connection, bucket: &str, key: &Subject) -> HomeResult<()> {
    names::check("bucket", bucket)?;
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-/_=.".contains(letter);
    if key.as_str().chars().all(plain) && !key.as_str().starts_with("_kv") {
        return Ok(());
    }
    let words = format!("key: {:?} is none that NATS takes: write letters, digits, - / _ = and dots", key.as_str());
    Err(connection.error(HomeErrorKind::Invalid, &words))
}

/// Messages above `max_payload` end the connection: the servers count headers, too.
fn check_size(connection: &Connection, key: &Subject, headers: &HeaderMap, value: &Bytes) -> HomeResult<()> {
    let lines = headers.iter().flat_map(|(name, values)| {
        let name: &str = name.as_ref();
        values.iter().map(move |value| name.len() + value.as_str().len() + HEADER_LINE)
    });
    let (length, most) = (value.len() + lines.sum::<usize>() + OWN_HEADERS, connection.client.max_payload());
    if length <= most {
        return Ok(());
    }
    let words = format!(
        "value: key {:?} would have {} bytes, with headers {length}: write at most {most}, or raise max_payload of the servers",
        key.as_str(),
        value.len(),
    );
    Err(connection.error(HomeErrorKind::TooLarge, &words))
}

fn other(shared: &Shared, key: &Subject, expected: u64, revision: u64) -> HomeError {
    let target = if expected == 0 { "no value".to_owned() } else { format!("revision {expected}") };
    let words = format!(
        "revision: key {:?} has revision {revision}, and {target} was expected: get it, and try again",
        key.as_str()
    );
    shared.connection.error(HomeErrorKind::Revision, &words)
}

fn of_bucket(connection: &Connection, bucket: &str, error: HomeError) -> HomeError {
    match error.kind() {
        HomeErrorKind::NotFound => no_bucket(connection, bucket),
        _ => error,
    }
}

fn no_bucket(connection: &Connection, bucket: &str) -> HomeError {
    let words = format!("bucket: there is no {bucket:?}: create it, or check its name");
    connection.error(HomeErrorKind::NotFound, &words)
}

impl Failure {
    /// The error of a call that names a bucket.
    pub fn of_bucket(self, connection: &Connection, bucket: &str) -> HomeError {
        match self {
            Self::Refused { code: 10_059, .. } => no_bucket(connection, bucket),
            other => other.plain(connection, &format!("bucket {bucket:?}")),
        }
    }
}
