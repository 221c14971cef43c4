//! Durations of calls and of events of a node, for its metrics.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;
use tidewire_core::histogram::{DURATION_ENDS_MS, Durations};
use tidewire_engine::raw::Mutex;

/// Names of the kinds in the statistics.
const KINDS: [&str; 4] = ["server", "client", "process", "send"];
/// Calls that this node answers.
pub const SERVER: usize = 0;
/// Calls that this node makes.
pub const CLIENT: usize = 1;
/// Durable events that this node handles.
pub const PROCESS: usize = 2;
/// Messages that this node has stored.
pub const SEND: usize = 3;
/// Most names of a kind, and most types of errors of a name. Further ones count together.
const NAMES_MAX: usize = 1_000;
const ERRORS_MAX: usize = 16;
const OTHER: &str = "_OTHER";

/// Durations by kind, name and type of error. A name is `service/method`,
/// `stream/consumer` or a stream.
#[derive(Default)]
pub struct CallDurations {
    kinds: Mutex<[HashMap<String, ByError>; KINDS.len()]>,
}

/// Durations by type of error; without one the type is empty.
type ByError = Vec<(String, Durations)>;

/// The durations of one kind, name and type of error.
#[derive(Debug, Serialize)]
pub struct DurationRow {
    /// The name of the kind: `server`, `client`, `process`, `send` or `commit`.
    pub kind: &'static str,
    /// The name.
    pub name: String,
    /// The type of the error; empty without one.
    pub error: String,
    /// How many there are; of a commit, how many calls it has answered.
    pub calls: u64,
    /// How many are in each bucket of [`DURATION_ENDS_MS`].
    pub buckets: [u64; DURATION_ENDS_MS.len() + 1],
    /// Their sum in microseconds.
    pub sum_us: u64,
}

impl CallDurations {
    /// The kind with this name.
    pub fn kind(name: &str) -> Option<usize> {
        KINDS.iter().position(|known| *known == name)
    }

    /// Counts one duration. It allocates for what was not seen before, and for nothing else.
    pub fn record(&self, kind: usize, name: &str, error: &str, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let mut kinds = self.kinds.lock();
        let names = &mut kinds[kind];
        let name = if names.len() >= NAMES_MAX && !names.contains_key(name) { OTHER } else { name };
        let all = match names.get_mut(name) {
            Some(all) => all,
            None => names.entry(name.to_owned()).or_default(),
        };
        let error = if all.len() >= ERRORS_MAX && all.iter().all(|(known, _)| known != error) { OTHER } else { error };
        match all.iter_mut().find(|(known, _)| known == error) {
            Some((_, durations)) => durations.record(us),
            None => {
                let mut first = Durations::default();
                first.record(us);
                all.push((error.to_owned(), first));
            }
        }
    }

    /// All of them, as rows.
    pub fn rows(&self) -> Vec<DurationRow> {
        let kinds = self.kinds.lock();
        let names =
            KINDS.iter().zip(kinds.iter()).flat_map(|(kind, names)| names.iter().map(move |name| (*kind, name)));
        names
            .flat_map(|(kind, (name, all))| {
                all.iter().map(move |(error, times)| DurationRow::new(kind, name, error, times))
            })
            .collect()
    }
}

impl DurationRow {
    /// The row of some durations.
    pub fn new(kind: &'static str, name: &str, error: &str, times: &Durations) -> Self {
        let (name, error, calls) = (name.to_owned(), error.to_owned(), times.count());
        Self { kind, name, error, calls, buckets: times.buckets, sum_us: times.sum_us }
    }
}
