//! Streams on JetStream: create, inspect, purge and delete.

use serde_json::{Value, json};
use tidewire_backend::home::{Compact, Full, HomeError, HomeErrorKind, HomeResult, Purge, StreamInfo, StreamSettings};
use tidewire_proto::generated::limits::NATS_DEAD_LETTERS;
use tidewire_proto::subject::Pattern;

use crate::clock;
use crate::connection::{Connection, Failure};
use crate::names;
use crate::shared::Shared;
use crate::stream_cache::CachedStream;
use crate::version::Version;

/// The version from which a server has schedules and atomic batches.
pub(crate) const WITH_BATCHES: Version = Version(2, 12, 0);
/// The version from which its schedules beat again and again.
const WITH_SCHEDULES: Version = Version(2, 14, 0);
/// The shortest span that a server knows for the age of events and the window of ids.
const SHORTEST_US: u64 = 100_000;
/// Metadata key of the policy at limits, for a stream without limits.
const FULL: &str = "tidewire.full";
const PAGE: usize = 256;

/// Makes a stream, or finds it with the same settings.
pub(crate) async fn create(shared: &Shared, settings: StreamSettings) -> HomeResult<StreamInfo> {
    let connection = &shared.connection;
    check(connection, &settings)?;
    let name = settings.name.clone();
    match find(connection, &name).await {
        Ok(info) => {
            same(connection, read(&info).difference(&settings))?;
            // The stream belongs to another client: its private streams are created when missing.
            shared.streams.learn(connection, &name, &info);
            return described(shared, &info).await;
        }
        Err(Failure::Refused { code: 10_059, .. }) => (),
        Err(failure) => return Err(failure.of_stream(connection, &name)),
    }
    let created = connection.api(&format!("STREAM.CREATE.{name}"), &config(connection, &settings)).await;
    let info = match created {
        Ok(info) => info,
        // Somebody else has made it meanwhile.
        Err(Failure::Refused { code: 10_058, .. }) => {
            let info = find(connection, &name).await.map_err(|failure| failure.of_stream(connection, &name))?;
            same(connection, read(&info).difference(&settings))?;
            info
        }
        Err(failure) => return Err(refused(connection, &name, failure)),
    };
    shared.streams.learn(connection, &name, &info);
    described(shared, &info).await
}

/// The server's description of a stream.
pub(crate) async fn find(connection: &Connection, stream: &str) -> Result<Value, Failure> {
    connection.api(&format!("STREAM.INFO.{stream}"), &Value::Null).await
}

/// The state of a stream.
pub(crate) async fn info(shared: &Shared, stream: &str) -> HomeResult<StreamInfo> {
    names::check("stream", stream)?;
    let found = find(&shared.connection, stream).await;
    let info = found.map_err(|failure| failure.of_stream(&shared.connection, stream))?;
    shared.streams.learn(&shared.connection, stream, &info);
    described(shared, &info).await
}

/// Every stream that people publish into.
pub(crate) async fn list(shared: &Shared) -> HomeResult<Vec<StreamInfo>> {
    let mut found = Vec::new();
    for info in all(&shared.connection).await? {
        if info["config"]["name"].as_str().is_some_and(names::is_stream) {
            found.push(described(shared, &info).await?);
        }
    }
    found.sort_by(|left, right| left.settings.name.cmp(&right.settings.name));
    Ok(found)
}

/// The server's description of every stream, including buckets and private streams of Tidewire.
pub(crate) async fn all(connection: &Connection) -> HomeResult<Vec<Value>> {
    let mut found: Vec<Value> = Vec::new();
    loop {
        let page = connection.api("STREAM.LIST", &json!({"offset": found.len()})).await;
        let mut page = page.map_err(|failure| failure.plain(connection, "list"))?;
        let streams = page["streams"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let last = streams.len() < PAGE;
        found.extend(streams);
        if last || found.len() as u64 >= page["total"].as_u64().unwrap_or_default() {
            return Ok(found);
        }
    }
}

/// Deletes a stream with its dead letters; its consumers go with it.
pub(crate) async fn delete(shared: &Shared, stream: &str) -> HomeResult<()> {
    names::check("stream", stream)?;
    let connection = &shared.connection;
    let deleted = connection.api(&format!("STREAM.DELETE.{stream}"), &Value::Null).await;
    shared.forget_stream(stream);
    let dead = connection.api(&format!("STREAM.DELETE.{}", names::dead(stream)), &Value::Null).await;
    if let Err(failure @ Failure::Away(_)) = dead {
        return Err(failure.of_stream(connection, stream));
    }
    deleted.map(|_| ()).map_err(|failure| failure.of_stream(connection, stream))
}

/// Removes events. Schedules stay.
pub(crate) async fn purge(shared: &Shared, stream: &str, purge: Purge) -> HomeResult<u64> {
    names::check("stream", stream)?;
    if purge.before.is_some() && purge.keep.is_some() {
        let words = "purge: before and keep are both said: say one of them";
        return Err(shared.connection.error(HomeErrorKind::Invalid, words));
    }
    let known = shared.streams.find(&shared.connection, stream).await?;
    if purge.filter.is_none() && shared.count(stream, &names::schedule(stream, "*")).await? > 0 {
        if purge.keep.is_some() && known.subjects.len() > 1 {
            let words = "keep: the stream has schedules, and several subjects: say before, or keep with a filter";
            return Err(shared.connection.error(HomeErrorKind::Unsupported, words));
        }
        let mut purged = 0;
        for subject in &known.subjects {
            purged += purge_some(shared, stream, &Purge { filter: Some(subject.clone()), ..purge.clone() }).await?;
        }
        return Ok(purged);
    }
    purge_some(shared, stream, &purge).await
}

async fn purge_some(shared: &Shared, stream: &str, purge: &Purge) -> HomeResult<u64> {
    let mut body = json!({});
    if let Some(before) = purge.before {
        body["seq"] = json!(before);
    }
    if let Some(keep) = purge.keep {
        body["keep"] = json!(keep);
    }
    if let Some(filter) = &purge.filter {
        body["filter"] = json!(filter.as_str());
    }
    let purged = shared.connection.api(&format!("STREAM.PURGE.{stream}"), &body).await;
    let purged = purged.map_err(|failure| failure.of_stream(&shared.connection, stream))?;
    Ok(purged["purged"].as_u64().unwrap_or_default())
}

/// The stream of dead letters, which the server fills too, when a process has died in its last
/// delivery.
pub(crate) async fn create_dead(shared: &Shared, stream: &str, replicas: u64) -> HomeResult<()> {
    let config = json!({
        "name": names::dead(stream),
        "subjects": [names::dead_subject(stream, "*"), names::given_up(stream, "*")],
        "max_msgs": NATS_DEAD_LETTERS.default,
        "max_bytes": -1,
        "max_age": 0,
        "discard": "old",
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
        "allow_direct": true,
        "metadata": {"tidewire": "dead letters"},
    });
    let created = shared.connection.api(&format!("STREAM.CREATE.{}", names::dead(stream)), &config).await;
    match created {
        Ok(_) | Err(Failure::Refused { code: 10_058, .. }) => Ok(()),
        Err(failure) => Err(failure.plain(&shared.connection, "dead letters")),
    }
}

fn config(connection: &Connection, settings: &StreamSettings) -> Value {
    let recent = connection.version >= WITH_BATCHES;
    // A server schedules nothing in a stream that refuses. Without a limit it never does.
    let limited = settings.max_bytes.is_some() || settings.max_messages.is_some();
    let refuses = limited && settings.full == Full::Refuse;
    let mut subjects: Vec<String> = settings.subjects.iter().map(ToString::to_string).collect();
    subjects.push(match settings.compact {
        Some(_) => names::again_each(&settings.name, "*", "*"),
        None => names::again(&settings.name, "*"),
    });
    if recent && !refuses {
        subjects.push(names::delayed(&settings.name, ">"));
    }
    if connection.version >= WITH_SCHEDULES && !refuses {
        subjects.push(names::schedule(&settings.name, "*"));
    }
    // A server forgets ids with their events, and knows no window that is shorter than this.
    let dedupe_us = settings.dedupe_us.min(settings.max_age_us.unwrap_or(u64::MAX)).max(SHORTEST_US);
    let mut config = json!({
        "name": settings.name,
        "subjects": subjects,
        "max_age": clock::nanos(settings.max_age_us.unwrap_or(0)),
        "max_bytes": settings.max_bytes.map_or(-1, |bytes| bytes as i64),
        "max_msgs": settings.max_messages.map_or(-1, |messages| messages as i64),
        "max_msgs_per_subject": if settings.compact.is_some() { 1 } else { -1 },
        "discard": if refuses { "new" } else { "old" },
        "duplicate_window": clock::nanos(dedupe_us),
        "num_replicas": settings.replicas,
        "retention": "limits",
        "storage": "file",
        "allow_direct": true,
        "allow_msg_ttl": true,
        "allow_rollup_hdrs": true,
        "metadata": {
            "tidewire": "stream",
            (names::DEDUPE): settings.dedupe_us.to_string(),
            FULL: match settings.full { Full::Refuse => "refuse", Full::DropOld => "drop_old" },
        },
    });
    if recent {
        config["allow_atomic"] = json!(true);
        config["allow_msg_schedules"] = json!(!refuses);
    }
    config
}

/// The settings of a stream, made by any client.
pub(crate) fn read(info: &Value) -> StreamSettings {
    let config = &info["config"];
    let limit = |name: &str| config[name].as_i64().filter(|value| *value > 0).map(|value| value as u64);
    let subjects = config["subjects"].as_array().into_iter().flatten().filter_map(Value::as_str);
    StreamSettings {
        name: config["name"].as_str().unwrap_or_default().to_owned(),
        subjects: subjects.filter(|text| !names::is_ours(text)).filter_map(|text| Pattern::new(text).ok()).collect(),
        max_age_us: limit("max_age").map(|nanos| nanos / 1_000),
        max_bytes: limit("max_bytes"),
        max_messages: limit("max_msgs"),
        full: if config["discard"] == "new" || config["metadata"][FULL] == "refuse" {
            Full::Refuse
        } else {
            Full::DropOld
        },
        dedupe_us: config["metadata"][names::DEDUPE]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| clock::micros(&config["duplicate_window"])),
        replicas: config["num_replicas"].as_u64().unwrap_or(1) as u32,
        compact: (config["max_msgs_per_subject"] == 1).then_some(Compact::Subject),
    }
}

/// The state of a stream, without the private parts of Tidewire.
async fn described(shared: &Shared, info: &Value) -> HomeResult<StreamInfo> {
    let settings = read(info);
    let state = &info["state"];
    let number = |name: &str| state[name].as_u64().unwrap_or_default();
    let time = |name: &str| state[name].as_str().and_then(clock::read);
    let known = CachedStream::read(&shared.connection, &settings.name, &info["config"]);
    let count = |wanted: bool, subject: String| async move {
        if wanted { shared.count(info["config"]["name"].as_str().unwrap_or_default(), &subject).await } else { Ok(0) }
    };
    let delayed = count(known.delays, names::delayed(&settings.name, ">")).await?;
    let schedules = count(known.schedules, names::schedule(&settings.name, "*")).await?;
    let again = count(known.again, known.again_of(&settings.name, "*")).await?;
    let dead = shared.dead_counts(&settings.name).await?.values().sum();
    let (messages, last) = (number("messages").saturating_sub(delayed + again + schedules), number("last_seq"));
    Ok(StreamInfo {
        messages,
        bytes: number("bytes"),
        first: if messages == 0 { last + 1 } else { number("first_seq") },
        last,
        first_time_us: time("first_ts").filter(|_| messages > 0),
        last_time_us: time("last_ts").filter(|_| last > 0),
        delayed,
        dead,
        consumers: number("consumer_count") as u32,
        settings,
    })
}

fn check(connection: &Connection, settings: &StreamSettings) -> HomeResult<()> {
    names::check("stream", &settings.name)?;
    let refuse = |words: &str| Err(connection.error(HomeErrorKind::Invalid, words));
    if settings.name.starts_with("KV_") || settings.name.starts_with("OBJ_") {
        return refuse("stream: names that begin with KV_ and OBJ_ belong to buckets: choose another");
    }
    if settings.subjects.is_empty() {
        return refuse("subjects: there is none: name at least one, such as orders.>");
    }
    for subject in &settings.subjects {
        if subject.as_str() == ">" || subject.as_str().starts_with('$') || subject.as_str().starts_with('*') {
            let words = format!("subjects: {subject} would take what belongs to NATS itself: begin it with a word");
            return refuse(&words);
        }
    }
    if !(1..=5).contains(&settings.replicas) {
        return refuse(&format!("replicas: {} are not possible: write 1, 3 or 5", settings.replicas));
    }
    if settings.max_age_us.is_some_and(|age_us| age_us < SHORTEST_US) {
        return refuse("max_age: it is shorter than NATS allows: write 0.1 s or more");
    }
    Ok(())
}

/// Refuses settings that differ from those of an existing object.
pub(crate) fn same(connection: &Connection, difference: Option<String>) -> HomeResult<()> {
    difference.map_or(Ok(()), |text| Err(connection.error(HomeErrorKind::Differs, &text)))
}

fn refused(connection: &Connection, stream: &str, failure: Failure) -> HomeError {
    match failure {
        Failure::Refused { code: 10_065, words } => {
            let words = format!("subjects: another stream takes some of them ({words}): choose others");
            connection.error(HomeErrorKind::Invalid, &words)
        }
        Failure::Refused { code: 10_005 | 10_074, words } => {
            let words = format!(
                "replicas: there are not so many servers now ({words}): start those that are away, or ask for fewer"
            );
            connection.error(HomeErrorKind::Unsupported, &words)
        }
        other => other.of_stream(connection, stream),
    }
}

pub(crate) fn sorted(patterns: &[Pattern]) -> String {
    let mut texts: Vec<_> = patterns.iter().map(|pattern| pattern.as_str()).collect();
    texts.sort_unstable();
    texts.join(", ")
}
