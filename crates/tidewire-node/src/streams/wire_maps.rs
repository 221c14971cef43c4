//! Maps of streams, consumers and buckets on the wire: settings and counts in one map, as in
//! Python.

use serde::{Deserialize, Serialize};
use tidewire_backend::home::{
    BucketInfo, BucketSettings, Compact, ConsumerInfo, ConsumerSettings, Full, HomeError, HomeErrorKind, HomeResult,
    Order, Start, StreamInfo, StreamSettings,
};

use super::wire::{Wire, patterns, texts, wire};

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

fn stream_info(map: StreamMap) -> HomeResult<StreamInfo> {
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
fn consumer_info(map: ConsumerMap) -> HomeResult<ConsumerInfo> {
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

fn bucket_info(map: BucketMap) -> HomeResult<BucketInfo> {
    let BucketMap { name, history, ttl_us, max_bytes, replicas, keys, bytes, revision } = map;
    Ok(BucketInfo { settings: BucketSettings { name, history, ttl_us, max_bytes, replicas }, keys, bytes, revision })
}

wire!(StreamInfo as StreamMap: info => StreamMap::from(info.clone()), map => stream_info(map));
wire!(ConsumerInfo as ConsumerMap: info => ConsumerMap::from(info.clone()), map => consumer_info(map));
wire!(BucketInfo as BucketMap: info => BucketMap::from(info.clone()), map => bucket_info(map));

/// Default for a field that storage backends of older versions do not send.
const fn one() -> u32 {
    1
}

fn owned(texts: Vec<&str>) -> Vec<String> {
    texts.into_iter().map(str::to_owned).collect()
}

/// Which streams a caller asks for: those that have a text, sorted, from the first on.
pub(super) struct StreamQuery {
    /// A text in the name or in a subject; empty for all streams.
    pub(super) search: String,
    /// The field to sort by.
    pub(super) sort: String,
    /// True for the largest first.
    pub(super) is_down: bool,
    /// True with the streams of Tidewire itself.
    pub(super) has_own: bool,
    pub(super) first: usize,
    /// Streams of the answer at most.
    pub(super) limit: usize,
}

/// Some streams, how many fit the query, and how many there are.
pub(super) struct StreamPage {
    streams: Vec<StreamInfo>,
    found: u64,
    total: u64,
}

wire!(StreamPage as (Vec<StreamMap>, u64, u64):
    page => (page.streams.out(), page.found, page.total),
    (maps, found, total) => Ok(Self { streams: Wire::read(maps)?, found, total })
);

/// Most streams of one page.
const PAGE_STREAMS: usize = 1_000;
type SortKey = fn(&StreamInfo) -> u64;
const SORTS: [(&str, SortKey); 7] = [
    ("name", |_| 0),
    ("messages", |info| info.messages),
    ("bytes", |info| info.bytes),
    ("last", |info| info.last),
    ("last_time_us", |info| info.last_time_us.unwrap_or(0)),
    ("consumers", |info| info.consumers.into()),
    ("dead", |info| info.dead),
];

impl StreamQuery {
    /// Returns the function that applies the query to all streams.
    ///
    /// # Errors
    /// The field that is not allowed.
    pub(super) fn checked(self) -> HomeResult<impl FnOnce(Vec<StreamInfo>) -> StreamPage + Send + 'static> {
        let key = SORTS.iter().find(|(name, _)| *name == self.sort).map(|(_, key)| key).ok_or_else(|| {
            let names = SORTS.map(|(name, _)| name).join(", ");
            HomeError::new(HomeErrorKind::Invalid, format!("sort: {:?} is not allowed: give one of {names}", self.sort))
        })?;
        if !(1..=PAGE_STREAMS).contains(&self.limit) {
            let text = format!("limit: {} is not allowed: give 1 to {PAGE_STREAMS} streams", self.limit);
            return Err(HomeError::new(HomeErrorKind::Invalid, text));
        }
        Ok(move |mut streams: Vec<StreamInfo>| {
            let word = self.search.to_lowercase();
            let has_word = |text: &str| text.to_lowercase().contains(&word);
            let is_own = |name: &str| name.starts_with('$') || name.starts_with("tidewire-");
            streams.retain(|StreamInfo { settings, .. }| self.has_own || !is_own(&settings.name));
            let total = streams.len() as u64;
            streams.retain(|StreamInfo { settings, .. }| {
                has_word(&settings.name) || settings.subjects.iter().any(|subject| has_word(subject.as_str()))
            });
            streams.sort_by(|one, other| (key(one), &one.settings.name).cmp(&(key(other), &other.settings.name)));
            if self.is_down {
                streams.reverse();
            }
            let found = streams.len() as u64;
            let streams = streams.into_iter().skip(self.first).take(self.limit).collect();
            StreamPage { streams, found, total }
        })
    }
}
