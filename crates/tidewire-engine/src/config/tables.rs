//! Settings of agents, pools, links and services. The engine has no use for them; they stand here because configuration is read in one place.

use std::collections::BTreeMap;

use tidewire_proto::generated::limits::{self, Limit};

use super::EngineConfig;

/// A table of numbers below the top level.
pub(super) struct Sub {
    pub(super) name: &'static str,
    pub(super) keys: &'static [&'static Limit],
    pub(super) of: fn(&EngineConfig) -> &Numbers,
    pub(super) of_mut: fn(&mut EngineConfig) -> &mut Numbers,
}

pub(super) static SUBS: [Sub; 3] = [
    Sub { name: "broker", keys: BROKER_KEYS, of: |c| &c.broker, of_mut: |c| &mut c.broker },
    Sub { name: "links", keys: LINK_KEYS, of: |c| &c.links, of_mut: |c| &mut c.links },
    Sub { name: "services", keys: SERVICE_KEYS, of: |c| &c.services, of_mut: |c| &mut c.services },
];

pub(super) const BROKER_KEYS: &[&Limit] = &[
    &limits::AGENT_MAILBOX,
    &limits::AGENT_CONCURRENCY,
    &limits::QUEUE_WARNING,
    &limits::RETRY_LIMIT,
    &limits::RETRY_BACKOFF_MS,
    &limits::RETRY_BACKOFF_MAX_MS,
    &limits::POOL_WORKERS,
    &limits::POOL_CAPACITY,
    &limits::POOL_BATCH_SIZE,
    &limits::POOL_BATCH_BUDGET_MS,
    &limits::POOL_TARGET_WAIT_MS,
    &limits::POOL_HEARTBEAT_MS,
    &limits::POOL_MAX_DELIVERIES,
    &limits::POOL_RESTARTS,
    &limits::POOL_BACKOFF_MS,
    &limits::POOL_BACKOFF_MAX_MS,
    &limits::POOL_RESULT_BYTES,
];

pub(super) const LINK_KEYS: &[&Limit] = &[
    &limits::LINK_HEARTBEAT_MS,
    &limits::LINK_GREETING_MS,
    &limits::LINK_HELLO_BYTES,
    &limits::LINK_GREETINGS,
    &limits::LINK_BACKOFF_MS,
    &limits::LINK_BACKOFF_MAX_MS,
    &limits::LINK_QUEUE_BYTES,
    &limits::LINK_FRAME_BYTES,
    &limits::LINK_CHUNK_BYTES,
    &limits::PAYLOAD_BYTES,
    &limits::LINK_COMPRESS_BYTES,
    &limits::LINK_COMPRESS_NEAR_BYTES,
    &limits::LINK_SHARED_BYTES,
    &limits::LINK_BATCH_BYTES,
    &limits::LINK_BATCH_FRAMES,
    &limits::LINK_LINGER_US,
    &limits::LINK_IN_FLIGHT,
    &limits::LINK_SUBSCRIPTIONS,
    &limits::LINK_RESENDS,
    &limits::HUB_LINKS,
    &limits::HUB_QUEUE_BYTES,
    &limits::HUB_HEARTBEAT_MS,
    &limits::HUB_NAME_MS,
    &limits::LINK_SAID_BYTES,
    &limits::STREAM_CREDIT,
    &limits::REMOTE_OBJECTS,
    &limits::REMOTE_LEASE_MS,
];

pub(super) const SERVICE_KEYS: &[&Limit] =
    &[&limits::SERVICE_CONCURRENCY, &limits::SERVICE_WAITING, &limits::SERVICE_STREAMS, &limits::STREAM_AHEAD];

/// The numbers of one table, by the names of their limits in `spec/limits.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Numbers {
    values: BTreeMap<&'static str, u64>,
}

impl Numbers {
    pub(super) fn defaults(keys: &[&'static Limit]) -> Self {
        Self { values: keys.iter().map(|limit| (limit.name, limit.default)).collect() }
    }

    /// The value of a key, if there is one of this name.
    pub fn get(&self, key: &str) -> Option<u64> {
        self.values.get(key).copied()
    }

    /// All keys with their values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.values.iter().map(|(key, value)| (*key, *value))
    }

    pub(super) fn set(&mut self, limit: &'static Limit, value: u64) {
        self.values.insert(limit.name, value);
    }
}

impl Sub {
    /// All keys of the table.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|limit| limit.name).collect()
    }
}
