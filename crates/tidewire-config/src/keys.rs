//! The keys of the top level and of dispatchers, with the options of an engine that they set.

use tidewire_engine::config::{DispatcherConfig, EngineConfig};
use tidewire_proto::generated::limits::{self, Limit};

use crate::tables::SUBS;

/// The table of dispatchers.
pub(crate) const DISPATCHERS: &str = "dispatchers";

/// The key of a dispatcher that uses the threads of another.
pub(crate) const SHARE: &str = "share";

/// A key with a number: its limit, and its field in the configuration. The name of the limit is the
/// key.
pub(crate) struct Key<T> {
    pub(crate) limit: &'static Limit,
    pub(crate) get: fn(&T) -> u64,
    pub(crate) set: fn(&mut T, u64),
}

pub(crate) const ENGINE_KEYS: [Key<EngineConfig>; 8] = [
    Key {
        limit: &limits::MAILBOX_CAPACITY,
        get: |c| c.mailbox_capacity as u64,
        set: |c, value| c.mailbox_capacity = size(value),
    },
    Key { limit: &limits::DEAD_LETTERS, get: |c| c.dead_letters as u64, set: |c, value| c.dead_letters = size(value) },
    Key { limit: &limits::LANE_BURST, get: |c| c.lane_burst as u64, set: |c, value| c.lane_burst = size(value) },
    Key { limit: &limits::SPIN_US, get: |c| c.spin_us, set: |c, value| c.spin_us = value },
    Key { limit: &limits::STALL_US, get: |c| c.stall_us, set: |c, value| c.stall_us = value },
    Key { limit: &limits::ASK_TIMEOUT_MS, get: |c| c.ask_timeout_ms, set: |c, value| c.ask_timeout_ms = value },
    Key { limit: &limits::STOP_TIMEOUT_MS, get: |c| c.stop_timeout_ms, set: |c, value| c.stop_timeout_ms = value },
    Key { limit: &limits::ABORT_TIMEOUT_MS, get: |c| c.abort_timeout_ms, set: |c, value| c.abort_timeout_ms = value },
];

pub(crate) const DISPATCHER_KEYS: [Key<DispatcherConfig>; 3] = [
    Key { limit: &limits::THREADS, get: |d| d.threads as u64, set: |d, value| d.threads = size(value) },
    Key {
        limit: &limits::SPARE_THREADS,
        get: |d| d.spare_threads as u64,
        set: |d, value| d.spare_threads = size(value),
    },
    Key { limit: &limits::THROUGHPUT, get: |d| d.throughput as u64, set: |d, value| d.throughput = size(value) },
];

/// All keys of the top level.
pub(crate) fn of_engine() -> Vec<&'static str> {
    of_top().chain([DISPATCHERS]).chain(SUBS.iter().map(|sub| sub.name)).collect()
}

/// The keys of the top level that are no tables.
pub(crate) fn of_top() -> impl Iterator<Item = &'static str> {
    ENGINE_KEYS.iter().map(|key| key.limit.name)
}

/// All keys of one dispatcher.
pub(crate) fn of_dispatcher() -> Vec<&'static str> {
    DISPATCHER_KEYS.iter().map(|key| key.limit.name).chain([SHARE]).collect()
}

/// True if a key is about threads, so that it has no meaning together with a share.
pub(crate) fn is_of_threads(key: &str) -> bool {
    [limits::THREADS.name, limits::SPARE_THREADS.name].contains(&key)
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
