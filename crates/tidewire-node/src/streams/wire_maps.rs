//! Maps of streams, consumers and buckets on the wire: settings and counts in one map, as in
//! Python.

use serde::{Deserialize, Serialize};
use tidewire_backend::home::{
    BucketInfo, BucketSettings, Compact, ConsumerInfo, ConsumerSettings, Full, HomeResult, Order, Start, StreamInfo,
    StreamSettings,
};

use super::wire::{patterns, texts};

#[derive(Serialize, Deserialize)]
pub(super) struct StreamMap {
    name: String,
    subjects: Vec<String>,
    max_age_us: Option<u64>,
    max_bytes: Option<u64>,
    max_messages: Option<u64>,
    full: String,
    dedupe_us: u64,
    replicas: u32,
    #[serde(default)]
    compact: Option<String>,
    messages: u64,
    bytes: u64,
    first: u64,
    last: u64,
    first_time_us: Option<u64>,
    last_time_us: Option<u64>,
    delayed: u64,
    dead: u64,
    consumers: u32,
}

impl From<StreamInfo> for StreamMap {
    fn from(info: StreamInfo) -> Self {
        let settings = info.settings;
        Self {
            subjects: owned(texts(&settings.subjects)),
            full: if settings.full == Full::DropOld { "drop_old" } else { "refuse" }.to_owned(),
            compact: settings.compact.map(|compact| compact.name().to_owned()),
            name: settings.name,
            max_age_us: settings.max_age_us,
            max_bytes: settings.max_bytes,
            max_messages: settings.max_messages,
            dedupe_us: settings.dedupe_us,
            replicas: settings.replicas,
            messages: info.messages,
            bytes: info.bytes,
            first: info.first,
            last: info.last,
            first_time_us: info.first_time_us,
            last_time_us: info.last_time_us,
            delayed: info.delayed,
            dead: info.dead,
            consumers: info.consumers,
        }
    }
}

pub(super) fn stream_info(map: StreamMap) -> HomeResult<StreamInfo> {
    let settings = StreamSettings {
        subjects: patterns("subjects", &map.subjects)?,
        full: if map.full == "drop_old" { Full::DropOld } else { Full::Refuse },
        compact: map.compact.as_deref().map(compact_named),
        name: map.name,
        max_age_us: map.max_age_us,
        max_bytes: map.max_bytes,
        max_messages: map.max_messages,
        dedupe_us: map.dedupe_us,
        replicas: map.replicas,
    };
    Ok(StreamInfo {
        settings,
        messages: map.messages,
        bytes: map.bytes,
        first: map.first,
        last: map.last,
        first_time_us: map.first_time_us,
        last_time_us: map.last_time_us,
        delayed: map.delayed,
        dead: map.dead,
        consumers: map.consumers,
    })
}

pub(super) fn compact_named(name: &str) -> Compact {
    if name == "key" { Compact::Key } else { Compact::Subject }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ConsumerMap {
    name: String,
    filter: Vec<String>,
    ack_wait_us: u64,
    max_deliver: u32,
    max_in_flight: u32,
    order: String,
    #[serde(default)]
    backoff_us: Vec<u64>,
    #[serde(default)]
    inactive_us: u64,
    acked_to: u64,
    in_flight: u64,
    waiting: u64,
    lag: u64,
    redelivered: u64,
    dead: u64,
    oldest_time_us: Option<u64>,
    paused_until_us: Option<u64>,
}

impl From<ConsumerInfo> for ConsumerMap {
    fn from(info: ConsumerInfo) -> Self {
        let settings = info.settings;
        Self {
            filter: owned(texts(&settings.filter)),
            order: if settings.order == Order::Key { "key" } else { "none" }.to_owned(),
            name: settings.name,
            ack_wait_us: settings.ack_wait_us,
            max_deliver: settings.max_deliver,
            max_in_flight: settings.max_in_flight,
            backoff_us: settings.backoff_us,
            inactive_us: settings.inactive_us,
            acked_to: info.acked_to,
            in_flight: info.in_flight,
            waiting: info.waiting,
            lag: info.lag,
            redelivered: info.redelivered,
            dead: info.dead,
            oldest_time_us: info.oldest_time_us,
            paused_until_us: info.paused_until_us,
        }
    }
}

/// The start of a consumer is neither sent nor compared.
pub(super) fn consumer_info(map: ConsumerMap) -> HomeResult<ConsumerInfo> {
    let settings = ConsumerSettings {
        filter: patterns("filter", &map.filter)?,
        start: Start::New,
        order: if map.order == "key" { Order::Key } else { Order::None },
        name: map.name,
        ack_wait_us: map.ack_wait_us,
        max_deliver: map.max_deliver,
        backoff_us: map.backoff_us,
        max_in_flight: map.max_in_flight,
        inactive_us: map.inactive_us,
    };
    Ok(ConsumerInfo {
        settings,
        acked_to: map.acked_to,
        in_flight: map.in_flight,
        waiting: map.waiting,
        lag: map.lag,
        redelivered: map.redelivered,
        dead: map.dead,
        oldest_time_us: map.oldest_time_us,
        paused_until_us: map.paused_until_us,
    })
}

#[derive(Serialize, Deserialize)]
pub(super) struct BucketMap {
    name: String,
    history: u32,
    ttl_us: Option<u64>,
    max_bytes: Option<u64>,
    #[serde(default = "one")]
    replicas: u32,
    keys: u64,
    bytes: u64,
    revision: u64,
}

impl From<BucketInfo> for BucketMap {
    fn from(info: BucketInfo) -> Self {
        let BucketSettings { name, history, ttl_us, max_bytes, replicas } = info.settings;
        let (keys, bytes, revision) = (info.keys, info.bytes, info.revision);
        Self { name, history, ttl_us, max_bytes, replicas, keys, bytes, revision }
    }
}

pub(super) fn bucket_info(map: BucketMap) -> HomeResult<BucketInfo> {
    let BucketMap { name, history, ttl_us, max_bytes, replicas, keys, bytes, revision } = map;
    Ok(BucketInfo { settings: BucketSettings { name, history, ttl_us, max_bytes, replicas }, keys, bytes, revision })
}

/// Default for a field that storage backends of older versions do not send.
const fn one() -> u32 {
    1
}

fn owned(texts: Vec<&str>) -> Vec<String> {
    texts.into_iter().map(str::to_owned).collect()
}
