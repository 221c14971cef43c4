//! Settings of agents and worker pools. The engine has no use for them; they stand here because configuration is read in one place.

use std::collections::BTreeMap;

use tidewire_proto::generated::limits::{self, Limit};

/// The table of agents and pools.
pub(super) const BROKER: &str = "broker";

pub(super) const BROKER_KEYS: [&Limit; 17] = [
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

/// Settings of agents and worker pools, by the names of their limits in `spec/limits.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerConfig {
    values: BTreeMap<&'static str, u64>,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self { values: BROKER_KEYS.iter().map(|limit| (limit.name, limit.default)).collect() }
    }
}

impl BrokerConfig {
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

/// All keys of the table.
pub(super) fn of_broker() -> Vec<&'static str> {
    BROKER_KEYS.iter().map(|limit| limit.name).collect()
}
