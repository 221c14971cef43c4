//! Which keys there are, and what a misspelt one was meant to be.

use tidewire_proto::generated::limits::{self, Limit};

use super::tables::SUBS;
use super::{DispatcherConfig, EngineConfig};

/// The table of dispatchers.
pub(super) const DISPATCHERS: &str = "dispatchers";

/// The key of a dispatcher that uses the threads of another.
pub(super) const SHARE: &str = "share";

/// A key with a number: its limit, and where the number is kept. The name of the limit is the key.
pub(super) struct Key<T> {
    pub(super) limit: &'static Limit,
    pub(super) get: fn(&T) -> u64,
    pub(super) set: fn(&mut T, u64),
}

pub(super) const ENGINE_KEYS: [Key<EngineConfig>; 8] = [
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

pub(super) const DISPATCHER_KEYS: [Key<DispatcherConfig>; 3] = [
    Key { limit: &limits::THREADS, get: |d| d.threads as u64, set: |d, value| d.threads = size(value) },
    Key {
        limit: &limits::SPARE_THREADS,
        get: |d| d.spare_threads as u64,
        set: |d, value| d.spare_threads = size(value),
    },
    Key { limit: &limits::THROUGHPUT, get: |d| d.throughput as u64, set: |d, value| d.throughput = size(value) },
];

/// All keys of the top level.
pub(super) fn of_engine() -> Vec<&'static str> {
    of_top().chain([DISPATCHERS]).chain(SUBS.iter().map(|sub| sub.name)).collect()
}

/// The keys of the top level that are no tables.
pub(super) fn of_top() -> impl Iterator<Item = &'static str> {
    ENGINE_KEYS.iter().map(|key| key.limit.name)
}

/// All keys of one dispatcher.
pub(super) fn of_dispatcher() -> Vec<&'static str> {
    DISPATCHER_KEYS.iter().map(|key| key.limit.name).chain([SHARE]).collect()
}

/// Whether a key says something about threads, so that it has no meaning beside a share.
pub(super) fn is_of_threads(key: &str) -> bool {
    [limits::THREADS.name, limits::SPARE_THREADS.name].contains(&key)
}

/// The one of `known` that is most like `given`, if it is like it at all.
pub(super) fn nearest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    let given = start_of(&given.to_lowercase(), LONGEST);
    // A unit that was left out is a long way in letters, and still the likeliest mistake.
    let without_unit =
        known.iter().copied().find(|known| known.strip_prefix(&given).is_some_and(|rest| rest.starts_with('_')));
    if without_unit.is_some() {
        return without_unit;
    }
    let distance = |known: &str| strsim::damerau_levenshtein(&given, known);
    let best = known.iter().copied().min_by_key(|known| distance(known))?;
    (distance(best) <= 1.max(best.len() / 3)).then_some(best)
}

/// The first characters of a text: what others wrote may be long.
pub(super) fn start_of(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

const LONGEST: usize = 64;

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
