//! Messages to publish, their acks, and events that are read.

use bytes::Bytes;
use tidewire_proto::subject::Subject;

/// Names and values, in their order. Names are compared as they are written.
pub type Headers = Vec<(String, String)>;

/// A message to publish to a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// Where it goes: one of the stream's `subjects` selects it.
    pub subject: Subject,
    /// The encoded value. A header names its encoding.
    pub payload: Bytes,
    /// The key, such as a customer: consumers with `Order::Key` handle one event of a key at a
    /// time.
    pub key: Option<String>,
    /// The idempotency key: a second message with it is not stored within the stream's `dedupe_us`.
    pub id: Option<String>,
    /// Further headers.
    pub headers: Headers,
    /// Not delivered before this time.
    pub deliver_at_us: Option<u64>,
    /// Not delivered any more once it is so old, counted from when it was stored or became due.
    pub ttl_us: Option<u64>,
}

impl NewMessage {
    /// A message with nothing but a payload.
    pub fn new(subject: Subject, payload: impl Into<Bytes>) -> Self {
        let payload = payload.into();
        Self { subject, payload, key: None, id: None, headers: Vec::new(), deliver_at_us: None, ttl_us: None }
    }
}

/// The acknowledgement of a published message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Its place in the stream, from 1; of a duplicate, that of the first. A delayed message gets
    /// another when it is due.
    pub sequence: u64,
    /// The durability that the message has reached.
    pub durability: Durability,
    /// A message with the same id was there before: this one was not stored again.
    pub duplicate: bool,
}

/// The failures that a stored message survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The end of the publisher.
    Memory,
    /// The end of everything on this machine, power included: it was synced.
    Disk,
    /// The loss of a machine: most of its replicas have it.
    Replicated,
}

impl Durability {
    /// The name in Python: `memory`, `disk`, `replicated`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Replicated => "replicated",
        }
    }
}

/// A message of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its place in the stream, from 1. Grows by one or more from event to event.
    pub sequence: u64,
    /// When it was stored. Never smaller than that of the event before.
    pub time_us: u64,
    /// Where it was published.
    pub subject: Subject,
    /// The value, encoded.
    pub payload: Bytes,
    /// The key.
    pub key: Option<String>,
    /// Its idempotency key.
    pub id: Option<String>,
    /// Further headers.
    pub headers: Headers,
}
