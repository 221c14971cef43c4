//! Consumers: named cursors over a stream, with their unacknowledged deliveries.

pub use tidewire_core::stream::consumer::{Fault, Settlement};
use tidewire_proto::subject::Pattern;

use super::Event;

/// Settings of a consumer. Two settings are the same if all fields but `start` are equal.
///
/// All who fetch from one consumer compete for its events. For broadcast each instance has a
/// consumer of its own, with a name such as `prices-<instance>`. Set `inactive_us` so that the
/// consumer is deleted after the instance has gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerSettings {
    /// Letters, digits, `_` and `-`, 1 to 64 characters.
    pub name: String,
    /// Which subjects; empty for all.
    pub filter: Vec<Pattern>,
    /// Where it begins when it is made.
    pub start: Start,
    /// A delivery that is not settled, nor said to be worked on, for so long counts as failed.
    pub ack_wait_us: u64,
    /// After so many failed deliveries an event is a dead letter. 0: never.
    pub max_deliver: u32,
    /// The delay before the second, third, ... delivery of one that failed; the last counts for all
    /// further ones. Empty: no delay.
    pub backoff_us: Vec<u64>,
    /// How many deliveries may be out at once, over all who fetch.
    pub max_in_flight: u32,
    /// The order of deliveries.
    pub order: Order,
    /// Deleted when nobody has fetched or settled for so long. 0: never.
    pub inactive_us: u64,
}

impl ConsumerSettings {
    /// A consumer of everything new, with 30 s for an ack, five deliveries, and 1,000 out at once.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            filter: Vec::new(),
            start: Start::New,
            ack_wait_us: 30_000_000,
            max_deliver: 5,
            backoff_us: vec![100_000, 1_000_000, 10_000_000],
            max_in_flight: 1_000,
            order: Order::None,
            inactive_us: 0,
        }
    }
}

/// A place in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Behind the newest event.
    New,
    /// At the oldest event.
    All,
    /// At this sequence, or the next that there is.
    Sequence(u64),
    /// At the first event stored at this time or later.
    Time(u64),
}

/// Which events wait for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// None does: they are delivered in order, and settled in any.
    None,
    /// An event with a key is delivered when all earlier ones of its key are acked or dead. Events
    /// without a key wait for nothing.
    Key,
}

/// State of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerInfo {
    /// The settings that it was created with.
    pub settings: ConsumerSettings,
    /// Every event up to here is acked, dead, or not selected.
    pub acked_to: u64,
    /// How many deliveries are out.
    pub in_flight: u64,
    /// How many failed events wait for their next delivery.
    pub waiting: u64,
    /// The lag: the newest event of the stream minus `acked_to`, filtered or not.
    pub lag: u64,
    /// How many deliveries were not the first of their event, since the storage backend was opened.
    pub redelivered: u64,
    /// How many dead letters it has.
    pub dead: u64,
    /// When the oldest event that is not acked was stored.
    pub oldest_time_us: Option<u64>,
    /// Paused until then; `u64::MAX` for until it is resumed.
    pub paused_until_us: Option<u64>,
}

/// How much to take, and how long to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// At most so many deliveries. At least 1.
    pub max_messages: u32,
    /// At most so many bytes of payload, but at least one event.
    pub max_bytes: u32,
    /// How long to wait for the first. 0: not at all.
    pub wait_us: u64,
}

/// One attempt at an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The delivered event.
    pub event: Event,
    /// Which attempt it is, counted from 1.
    pub delivery: u32,
    /// The ticket that settles it. No other delivery of the event has the same ticket, also after
    /// `seek` and `requeue`.
    pub ticket: u64,
}

/// The result of a delivery, as the client settles it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// The event.
    pub sequence: u64,
    /// The ticket of the delivery.
    pub ticket: u64,
    /// The result.
    pub how: Settlement,
}

/// An event that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The event; None if the stream does not have it any more.
    pub event: Option<Event>,
    /// Its sequence.
    pub sequence: u64,
    /// How often it was delivered.
    pub deliveries: u32,
    /// When it was given up.
    pub dead_at_us: u64,
    /// Why: `max_deliver`, or what `term` was given.
    pub reason: String,
    /// The last error of the handler; "no ack within 30 s" if it raised none.
    pub fault: Fault,
}
