//! Messages in flight without an ack, oldest first, and messages to be resent.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_nats::HeaderMap;
use bytes::Bytes;
use tokio::time::Instant;

use crate::stream_cache::CachedStream;

/// A message in flight.
#[derive(Debug)]
pub(crate) struct Sent {
    pub call: u64,
    pub index: usize,
    pub stream: Arc<str>,
    pub known: Arc<CachedStream>,
    pub subject: async_nats::Subject,
    pub headers: Option<HeaderMap>,
    pub payload: Bytes,
    /// A second copy is not stored: the server looks at its id.
    pub once: bool,
    /// When it was sent first.
    pub since: Instant,
    /// When the server must have answered.
    pub until: Instant,
    /// How many messages of a batch are acked with it; 1 for those that are no batch.
    pub batch: usize,
}

/// Messages by the numbers of their reply subjects, which grow: the first is the oldest.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    sent: BTreeMap<u64, Sent>,
    next: u64,
}

impl InFlight {
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// The number of the next message.
    pub const fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn insert(&mut self, number: u64, sent: Sent) {
        self.sent.insert(number, sent);
    }

    pub fn take(&mut self, number: u64) -> Option<Sent> {
        self.sent.remove(&number)
    }

    /// Those that the server should have answered by now. All wait equally long, so that the oldest
    /// come first.
    pub fn late(&mut self, now: Instant) -> Vec<Sent> {
        let mut late = Vec::new();
        while let Some(first) = self.sent.first_entry().filter(|first| first.get().until <= now) {
            late.push(first.remove());
        }
        late
    }

    /// All of them, oldest first.
    pub fn all(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent).into_values().collect()
    }
}
