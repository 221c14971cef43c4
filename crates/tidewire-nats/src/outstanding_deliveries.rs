//! Deliveries that are not settled yet.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use async_nats::Subject;

use crate::connection::ReplyInbox;

/// Deliveries of one consumer that are noted. A consumer has fewer out, if it is one of ours.
const NOTED: usize = 65_536;

#[derive(Clone, Debug)]
pub(crate) struct OutstandingDelivery {
    /// Ticket by which the delivery is settled.
    pub ticket: u64,
    pub delivery: u32,
    pub reply: Subject,
    /// For a redelivered event: the sequence of its copy.
    pub again: Option<u64>,
}

type Of = (String, String);

/// Outstanding deliveries by consumer and sequence, and subscriptions for the server's replies.
#[derive(Debug, Default)]
pub(crate) struct OutstandingDeliveries {
    deliveries: Mutex<HashMap<Of, BTreeMap<u64, OutstandingDelivery>>>,
    tickets: AtomicU64,
    pub boxes: Mutex<Vec<ReplyInbox>>,
}

impl OutstandingDeliveries {
    /// A ticket that no other delivery has.
    pub fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn note(&self, stream: &str, consumer: &str, deliveries: Vec<(u64, OutstandingDelivery)>) {
        let mut all = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
        let out = all.entry((stream.to_owned(), consumer.to_owned())).or_default();
        out.extend(deliveries);
        while out.len() > NOTED {
            out.pop_first();
        }
    }

    /// Takes an outstanding delivery. None: it was settled, or the event was redelivered.
    pub fn take(&self, stream: &str, consumer: &str, sequence: u64, ticket: u64) -> Option<OutstandingDelivery> {
        let mut all = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
        let out = all.get_mut(&(stream.to_owned(), consumer.to_owned()))?;
        if out.get(&sequence)?.ticket != ticket {
            return None;
        }
        out.remove(&sequence)
    }

    pub fn put_back(&self, stream: &str, consumer: &str, sequence: u64, delivery: OutstandingDelivery) {
        let mut all = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
        let out = all.entry((stream.to_owned(), consumer.to_owned())).or_default();
        out.entry(sequence).or_insert(delivery);
    }

    pub fn forget(&self, stream: &str, consumer: Option<&str>) {
        let mut all = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(of, name), _| of != stream || consumer.is_some_and(|consumer| consumer != name));
    }
}
