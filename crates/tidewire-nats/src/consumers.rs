//! Consumers on JetStream: create, inspect, pause, seek and delete.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tidewire_backend::home::{ConsumerInfo, ConsumerSettings, HomeErrorKind, HomeResult, Order, Start};
use tidewire_proto::subject::Pattern;

use crate::clock;
use crate::connection::{Connection, Failure};
use crate::names;
use crate::pull::{Pull, Puller, Wait};
use crate::shared::Shared;
use crate::stream_cache::CachedStream;
use crate::streams::{create_dead, find, same, sorted};

/// A server measures pauses by the clock; this pause is practically endless.
const FOR_EVER_US: u64 = 100 * 366 * 86_400 * 1_000_000;
/// Metadata keys of settings without a field on the server.
const FILTER: &str = "tidewire.filter";
const ACK_WAIT: &str = "tidewire.ack_wait_us";
const BACKOFF: &str = "tidewire.backoff_us";

/// The settings of consumers that were made or looked up.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    known: Mutex<HashMap<(String, String), Arc<ConsumerSettings>>>,
}

impl Consumers {
    fn learn(&self, stream: &str, settings: &ConsumerSettings) -> Arc<ConsumerSettings> {
        let settings = Arc::new(settings.clone());
        let key = (stream.to_owned(), settings.name.clone());
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&settings));
        settings
    }

    pub fn forget(&self, stream: &str, consumer: Option<&str>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, name), _| of != stream || consumer.is_some_and(|consumer| consumer != name));
    }

    /// The settings of a consumer; asks if they are not known.
    pub async fn settings(&self, shared: &Shared, stream: &str, consumer: &str) -> HomeResult<Arc<ConsumerSettings>> {
        let key = (stream.to_owned(), consumer.to_owned());
        if let Some(known) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Arc::clone(known));
        }
        names::check_consumer(stream, consumer)?;
        let info = ask(shared, stream, consumer).await?;
        Ok(self.learn(stream, &read(&info)))
    }
}

/// Makes a consumer, or finds it with the same settings.
pub(crate) async fn create(shared: &Shared, stream: &str, settings: ConsumerSettings) -> HomeResult<ConsumerInfo> {
    names::check("stream", stream)?;
    check(&shared.connection, &settings)?;
    let known = shared.streams.find(&shared.connection, stream).await?;
    let info = match found(shared, stream, &settings.name).await? {
        Some(info) => info,
        None => make(shared, stream, &known, &settings).await?,
    };
    same(&shared.connection, read(&info).difference(&settings))?;
    shared.consumers.learn(stream, &settings);
    described(shared, stream, &info).await
}

/// The state of a consumer.
pub(crate) async fn info(shared: &Shared, stream: &str, consumer: &str) -> HomeResult<ConsumerInfo> {
    names::check_consumer(stream, consumer)?;
    let info = ask(shared, stream, consumer).await?;
    described(shared, stream, &info).await
}

/// True if the server reports events that the consumer may deliver now. The server does not report
/// events to be redelivered.
pub(crate) async fn is_ready(shared: &Shared, stream: &str, consumer: &str) -> HomeResult<bool> {
    let info = ask(shared, stream, consumer).await?;
    let number = |name: &str| info[name].as_u64().unwrap_or_default();
    let has_capacity = info["config"]["max_ack_pending"].as_u64().is_none_or(|most| number("num_ack_pending") < most);
    Ok(number("num_pending") > 0 && has_capacity && !info["paused"].as_bool().unwrap_or_default())
}

/// Every consumer of a stream that has a name of its own.
pub(crate) async fn list(shared: &Shared, stream: &str) -> HomeResult<Vec<ConsumerInfo>> {
    names::check("stream", stream)?;
    let (mut found, mut seen) = (Vec::new(), 0);
    loop {
        let page = shared.connection.api(&format!("CONSUMER.LIST.{stream}"), &json!({"offset": seen})).await;
        let page = page.map_err(|failure| failure.of_stream(&shared.connection, stream))?;
        let consumers = page["consumers"].as_array().map_or(&[][..], Vec::as_slice);
        seen += consumers.len();
        // Consumers without a durable name are cursors, of Tidewire or of other programs.
        for info in consumers.iter().filter(|info| info["config"]["durable_name"].is_string()) {
            found.push(described(shared, stream, info).await?);
        }
        if consumers.is_empty() || seen as u64 >= page["total"].as_u64().unwrap_or_default() {
            break;
        }
    }
    found.sort_by(|left, right| left.settings.name.cmp(&right.settings.name));
    Ok(found)
}

/// Deletes a consumer with its dead letters and its events to be redelivered.
pub(crate) async fn delete(shared: &Shared, stream: &str, consumer: &str) -> HomeResult<()> {
    names::check_consumer(stream, consumer)?;
    remove(shared, stream, consumer).await?;
    let purge = async |of: String, filter: String| {
        let purged = shared.connection.api(&format!("STREAM.PURGE.{of}"), &json!({"filter": filter})).await;
        match purged {
            Err(failure @ Failure::Away(_)) => Err(failure.of_stream(&shared.connection, stream)),
            _ => Ok(()),
        }
    };
    purge(stream.to_owned(), names::again(stream, consumer)).await?;
    purge(stream.to_owned(), names::again_each(stream, consumer, "*")).await?;
    purge(names::dead(stream), names::dead_subject(stream, consumer)).await?;
    purge(names::dead(stream), names::given_up(stream, consumer)).await
}

/// Moves a consumer: the server has no such step, so that the consumer is recreated.
pub(crate) async fn seek(shared: &Shared, stream: &str, consumer: &str, start: Start) -> HomeResult<()> {
    names::check_consumer(stream, consumer)?;
    let info = ask(shared, stream, consumer).await?;
    let known = shared.streams.find(&shared.connection, stream).await?;
    let settings = ConsumerSettings { start, ..read(&info) };
    remove(shared, stream, consumer).await?;
    let paused_us = clock::micros(&info["pause_remaining"]);
    make(shared, stream, &known, &settings).await?;
    shared.consumers.learn(stream, &settings);
    if paused_us > 0 {
        return pause(shared, stream, consumer, Some(clock::now_us() + paused_us)).await;
    }
    Ok(())
}

/// Pauses a consumer until a time; `None`: until it is resumed.
pub(crate) async fn pause(shared: &Shared, stream: &str, consumer: &str, until_us: Option<u64>) -> HomeResult<()> {
    let latest = clock::now_us() + FOR_EVER_US;
    let until = clock::written(until_us.unwrap_or(latest).min(latest));
    set_pause(shared, stream, consumer, &json!({"pause_until": until})).await
}

pub(crate) async fn resume(shared: &Shared, stream: &str, consumer: &str) -> HomeResult<()> {
    set_pause(shared, stream, consumer, &json!({})).await?;
    // A server looks at the pulls that wait only when another one comes. This one is too small for
    // any message.
    let probe = Pull { messages: 1, bytes: 1, wait: Wait::No };
    let mut puller = Puller::new(&shared.connection).await?;
    let _too_small = puller.pull(&shared.connection, stream, consumer, probe, &mut Vec::new()).await;
    Ok(())
}

async fn set_pause(shared: &Shared, stream: &str, consumer: &str, body: &Value) -> HomeResult<()> {
    names::check_consumer(stream, consumer)?;
    let set = shared.connection.api(&format!("CONSUMER.PAUSE.{stream}.{consumer}"), body).await;
    set.map(|_| ()).map_err(|failure| failure.of_consumer(&shared.connection, stream, consumer))
}

async fn remove(shared: &Shared, stream: &str, consumer: &str) -> HomeResult<()> {
    let deleted = shared.connection.api(&format!("CONSUMER.DELETE.{stream}.{consumer}"), &Value::Null).await;
    shared.consumers.forget(stream, Some(consumer));
    shared.pullers.forget(stream, Some(consumer));
    shared.out.forget(stream, Some(consumer));
    deleted.map(|_| ()).map_err(|failure| failure.of_consumer(&shared.connection, stream, consumer))
}

async fn ask(shared: &Shared, stream: &str, consumer: &str) -> HomeResult<Value> {
    let info = shared.connection.api(&format!("CONSUMER.INFO.{stream}.{consumer}"), &Value::Null).await;
    info.map_err(|failure| failure.of_consumer(&shared.connection, stream, consumer))
}

async fn found(shared: &Shared, stream: &str, consumer: &str) -> HomeResult<Option<Value>> {
    match shared.connection.api(&format!("CONSUMER.INFO.{stream}.{consumer}"), &Value::Null).await {
        Ok(info) => Ok(Some(info)),
        Err(Failure::Refused { code: 10_014, .. }) => Ok(None),
        Err(failure) => Err(failure.of_consumer(&shared.connection, stream, consumer)),
    }
}

async fn make(shared: &Shared, stream: &str, known: &CachedStream, settings: &ConsumerSettings) -> HomeResult<Value> {
    let info =
        find(&shared.connection, stream).await.map_err(|failure| failure.of_stream(&shared.connection, stream))?;
    create_dead(shared, stream, info["config"]["num_replicas"].as_u64().unwrap_or(1)).await?;
    let body = json!({"stream_name": stream, "config": config(stream, known, settings), "action": "create"});
    let created = shared.connection.api(&format!("CONSUMER.CREATE.{stream}.{}", settings.name), &body).await;
    match created {
        Ok(info) => Ok(info),
        // Somebody else has made it meanwhile.
        Err(Failure::Refused { code: 10_148, .. }) => ask(shared, stream, &settings.name).await,
        Err(failure) => Err(failure.of_consumer(&shared.connection, stream, &settings.name)),
    }
}

fn config(stream: &str, known: &CachedStream, settings: &ConsumerSettings) -> Value {
    let patterns = if settings.filter.is_empty() { &known.subjects } else { &settings.filter };
    let mut filter: Vec<String> = widest(patterns).iter().map(ToString::to_string).collect();
    if known.again {
        filter.push(known.again_of(stream, &settings.name));
    } else if settings.filter.is_empty() {
        // A stream of others has nothing that is not meant for everybody.
        filter.clear();
    }
    let mut config = json!({
        "durable_name": settings.name,
        "name": settings.name,
        "ack_policy": "explicit",
        "ack_wait": clock::nanos(settings.ack_wait_us),
        "max_deliver": if settings.max_deliver == 0 { -1 } else { i64::from(settings.max_deliver) },
        "max_ack_pending": settings.max_in_flight,
        "max_waiting": 4_096,
        "replay_policy": "instant",
        "inactive_threshold": clock::nanos(settings.inactive_us),
        "metadata": {
            "tidewire": "consumer",
            FILTER: sorted(&settings.filter),
            ACK_WAIT: settings.ack_wait_us.to_string(),
            BACKOFF: settings.backoff_us.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        },
    });
    if !filter.is_empty() {
        config["filter_subjects"] = json!(filter);
    }
    // The backoff of a server begins with the delivery. Deliveries of a process that died are
    // redelivered after the ack wait and the pause of a failure.
    let most = if settings.max_deliver == 0 { usize::MAX } else { settings.max_deliver as usize };
    let waits = settings.backoff_us.iter().take(most);
    let waits: Vec<_> = waits.map(|pause_us| clock::nanos(settings.ack_wait_us + pause_us)).collect();
    if !waits.is_empty() {
        config["backoff"] = json!(waits);
    }
    config["deliver_policy"] = match settings.start {
        Start::New => json!("new"),
        Start::All => json!("all"),
        Start::Sequence(sequence) => {
            config["opt_start_seq"] = json!(sequence.max(1));
            json!("by_start_sequence")
        }
        Start::Time(time_us) => {
            config["opt_start_time"] = json!(clock::written(time_us));
            json!("by_start_time")
        }
    };
    config
}

/// Patterns without those that others cover: a server refuses filters that overlap.
pub(crate) fn widest(patterns: &[Pattern]) -> Vec<Pattern> {
    let mut patterns_left: Vec<Pattern> = Vec::new();
    for pattern in patterns {
        if !patterns_left.iter().any(|other| covers(other, pattern)) {
            patterns_left.retain(|other| !covers(pattern, other));
            patterns_left.push(pattern.clone());
        }
    }
    patterns_left
}

/// True if every subject that `narrow` selects is selected by `wide`.
fn covers(wide: &Pattern, narrow: &Pattern) -> bool {
    let (mut wide, mut narrow) = (wide.tokens(), narrow.tokens());
    loop {
        match (wide.next(), narrow.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(token)) if token != ">" => (),
            (Some(left), Some(right)) if left == right => (),
            _ => return false,
        }
    }
}

/// The settings of a consumer, made by any client.
fn read(info: &Value) -> ConsumerSettings {
    let config = &info["config"];
    let metadata = |name: &str| config["metadata"][name].as_str();
    let number = |name: &str| config[name].as_u64().unwrap_or_default();
    let filter: Vec<String> = match metadata(FILTER) {
        Some(text) => text.split(", ").filter(|part| !part.is_empty()).map(str::to_owned).collect(),
        None => {
            let several = config["filter_subjects"].as_array().into_iter().flatten();
            several.chain([&config["filter_subject"]]).filter_map(Value::as_str).map(str::to_owned).collect()
        }
    };
    let backoff = metadata(BACKOFF).map(|text| text.split(',').filter_map(|part| part.parse().ok()).collect());
    ConsumerSettings {
        name: info["name"].as_str().unwrap_or_default().to_owned(),
        filter: filter.iter().filter_map(|text| Pattern::new(text).ok()).collect(),
        start: match config["deliver_policy"].as_str() {
            Some("by_start_sequence") => Start::Sequence(number("opt_start_seq")),
            Some("by_start_time") => Start::Time(config["opt_start_time"].as_str().and_then(clock::read).unwrap_or(0)),
            Some("new") => Start::New,
            _ => Start::All,
        },
        ack_wait_us: metadata(ACK_WAIT)
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| clock::micros(&config["ack_wait"])),
        max_deliver: config["max_deliver"].as_i64().filter(|most| *most > 0).unwrap_or(0) as u32,
        backoff_us: backoff.unwrap_or_default(),
        max_in_flight: number("max_ack_pending") as u32,
        order: Order::None,
        inactive_us: clock::micros(&config["inactive_threshold"]),
    }
}

async fn described(shared: &Shared, stream: &str, info: &Value) -> HomeResult<ConsumerInfo> {
    let settings = read(info);
    let connection = &shared.connection;
    let of_stream = find(connection, stream).await.map_err(|failure| failure.of_stream(connection, stream))?;
    let last = of_stream["state"]["last_seq"].as_u64().unwrap_or_default();
    let number = |name: &str| info[name].as_u64().unwrap_or_default();
    let (pending, in_flight) = (number("num_pending"), number("num_ack_pending"));
    let floor = info["ack_floor"]["stream_seq"].as_u64().unwrap_or_default();
    let idle = pending == 0 && in_flight == 0;
    let acked_to = if idle { last } else { floor };
    let oldest_time_us = if idle {
        None
    } else {
        // The next event that its filter selects was not acked yet, or acked out of order.
        let next = shared.stored(stream, &json!({"seq": acked_to + 1, "next_by_subj": ">"})).await?;
        next.map(|stored| stored.time_us)
    };
    let paused_us = clock::micros(&info["pause_remaining"]);
    let paused_until_us = (info["paused"] == true)
        .then(|| if paused_us > FOR_EVER_US / 2 { u64::MAX } else { clock::now_us() + paused_us });
    Ok(ConsumerInfo {
        dead: shared.dead_counts(stream).await?.get(&settings.name).copied().unwrap_or(0),
        acked_to,
        in_flight,
        waiting: 0,
        lag: last.saturating_sub(acked_to),
        redelivered: number("num_redelivered"),
        oldest_time_us,
        paused_until_us,
        settings,
    })
}

fn check(connection: &Connection, settings: &ConsumerSettings) -> HomeResult<()> {
    names::check("consumer", &settings.name)?;
    let refuse = |words: String| Err(connection.error(HomeErrorKind::Invalid, &words));
    if settings.max_in_flight == 0 {
        return refuse("max_in_flight: 0 would deliver nothing: write 1 or more".to_owned());
    }
    if settings.ack_wait_us < 1_000 {
        return refuse(format!("ack_wait: {} us are too short: write 0.001 s or more", settings.ack_wait_us));
    }
    let filter = widest(&settings.filter);
    for (at, left) in filter.iter().enumerate() {
        if let Some(right) = filter[at + 1..].iter().find(|right| left.overlaps(right)) {
            let words = format!(
                "filter: {left} and {right} select some of the same subjects, which NATS refuses: write others"
            );
            return refuse(words);
        }
    }
    Ok(())
}

impl Failure {
    /// The error of a call that names a consumer.
    pub fn of_consumer(
        self,
        connection: &Connection,
        stream: &str,
        consumer: &str,
    ) -> tidewire_backend::home::HomeError {
        match self {
            Self::Refused { code: 10_014, .. } => {
                let words =
                    format!("consumer: there is no {consumer:?} of stream {stream:?}: create it, or check its name");
                connection.error(HomeErrorKind::NotFound, &words)
            }
            other => other.of_stream(connection, stream),
        }
    }
}

#[cfg(test)]
mod tests;
