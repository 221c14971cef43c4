//! Statistics of actors and dispatchers, taken while they run.

pub mod idle;
pub mod stop_future;
pub mod stop_report;

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewire_core::histogram::Histogram;

use crate::actor::id::ActorId;
use crate::dispatch::starvation::Starvation;
use crate::error::DeadReason;

/// True if this turn is timed, or this message of a handler that awaits.
pub fn is_sampled(number: impl Into<u64>) -> bool {
    let number = number.into();
    number < 64 || number.is_multiple_of(64)
}

/// Sampled times in nanoseconds: the first 64 messages or turns, then one message of 1,024 and one
/// turn of 64; of handlers that await, one message of 64.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Timings {
    /// From accepted to taken by the actor.
    pub queueing: Histogram,
    /// In the handler, as the mean of one turn. In one that awaits, from its beginning to its end.
    pub handling: Histogram,
}

/// One actor at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ActorStatistics {
    /// Its id.
    pub id: ActorId,
    /// Its name.
    pub name: Option<Arc<str>>,
    /// The name of its dispatcher.
    pub dispatcher: Box<str>,
    /// Messages that its mailbox took.
    pub accepted: u64,
    /// Messages handled without failure.
    pub handled: u64,
    /// Failures of its handler and hooks.
    pub failed: u64,
    /// Messages dropped by the overflow policy.
    pub dropped: u64,
    /// Messages that wait.
    pub depth: usize,
    /// The most that ever waited at once.
    pub high_water: usize,
    /// The most that may wait.
    pub capacity: usize,
    /// How often it was restarted.
    pub restarts: u64,
    /// How long messages wait and are handled.
    pub timings: Timings,
}

/// One dispatcher at one moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DispatcherStatistics {
    /// Its name.
    pub name: Box<str>,
    /// Threads alive.
    pub threads: usize,
    /// Most threads that may be alive, spare threads included.
    pub threads_max: usize,
    /// Threads asleep.
    pub asleep: usize,
    /// The handlers that hold all threads while other actors wait for one.
    pub starved: Option<Starvation>,
    /// Most messages of one turn.
    pub throughput: usize,
    /// Actors on it.
    pub actors: usize,
    /// Sums over its actors, terminated ones not included.
    pub accepted: u64,
    /// As for actors.
    pub handled: u64,
    /// As for actors.
    pub failed: u64,
    /// As for actors.
    pub dropped: u64,
    /// As for actors.
    pub depth: usize,
    /// Merged over its actors.
    pub timings: Timings,
}

/// An engine at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Statistics {
    /// Every actor alive, by id.
    pub actors: Vec<ActorStatistics>,
    /// Every dispatcher, by name.
    pub dispatchers: Vec<DispatcherStatistics>,
    /// Asks that ended because their time was up.
    pub ask_timeouts: u64,
    /// Timers that wait.
    pub timers: usize,
    /// Subscriptions in force.
    pub subscriptions: usize,
    /// Actors that wait in their handlers for the reply of another.
    pub waiting_for_others: usize,
    /// Dead letters so far, by reason.
    pub dead_letters: BTreeMap<DeadReason, u64>,
    /// Dead letters that were evicted from the full store.
    pub dead_letters_let_go: u64,
}
