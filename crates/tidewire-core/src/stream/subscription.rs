//! A durable subscription: the credit, the deliveries under way and the drain of one handler of a
//! consumer's events.
//!
//! The caller fetches as many events as [`Subscription::credit`] allows, and begins those that
//! [`Subscription::begin`] returns. It calls [`Subscription::extend`] when
//! [`Subscription::next_deadline_us`] is reached, and settles ended deliveries as
//! [`Subscription::ended`] says. Times are microseconds of any clock that does not jump.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::fetch_pacer::FetchPacer;

/// How a subscription behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many deliveries are handled at once. At least 1.
    pub concurrency: u32,
    /// How many deliveries are fetched at once at most. At least 1.
    pub batch_max: u32,
    /// The consumer's ack wait: waiting deliveries are extended every third of it.
    pub ack_wait_us: u64,
}

/// One attempt at an event: its sequence, and the ticket with which the attempt is settled.
pub type Delivery = (u64, u64);

/// How a handler has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The handler returned.
    Returned,
    /// The handler raised an error.
    Raised,
    /// The handler was interrupted, as the service ends or is not active any more.
    Interrupted,
    /// The handler has settled its event itself.
    Settled,
}

/// The result of a delivery that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The event was handled.
    Ack,
    /// The handler failed: the event comes again after the consumer's backoff, or becomes a dead
    /// letter.
    Fail,
    /// The event goes to another consumer instance at once.
    GiveBack,
    /// No verdict: the event is settled.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
struct OutstandingDelivery {
    ticket: u64,
    /// The time of the next extension, if there is one.
    due_us: Option<u64>,
}

/// The deliveries of one handler.
#[derive(Clone, Debug)]
pub struct Subscription {
    options: Options,
    queued: VecDeque<u64>,
    out: BTreeMap<u64, OutstandingDelivery>,
    timers: BTreeSet<(u64, u64)>,
    running: u32,
    pace: FetchPacer,
    fetching: bool,
    draining: bool,
}

impl Subscription {
    /// A subscription that has fetched nothing.
    pub fn new(options: Options) -> Self {
        Self {
            options: Options {
                concurrency: options.concurrency.max(1),
                batch_max: options.batch_max.max(1),
                ..options
            },
            queued: VecDeque::new(),
            out: BTreeMap::new(),
            timers: BTreeSet::new(),
            running: 0,
            pace: FetchPacer::new(options.batch_max),
            fetching: false,
            draining: false,
        }
    }

    /// The number of deliveries to fetch now; 0: none. A fetch is under way then, until
    /// [`fetched`](Self::fetched).
    ///
    /// The ack wait of fetched deliveries runs while they wait here. So batches grow only while
    /// they are handled quickly.
    pub fn credit(&mut self, now_us: u64) -> u32 {
        let free = self.options.concurrency.saturating_sub(self.running);
        if self.draining || self.fetching || !self.queued.is_empty() || free == 0 {
            return 0;
        }
        self.fetching = true;
        self.pace.next(now_us).max(free).min(self.options.batch_max)
    }

    /// A fetch has ended, perhaps with nothing. Gives those to give back at once: the subscription
    /// drains.
    pub fn fetched(&mut self, deliveries: &[Delivery], now_us: u64) -> Vec<Delivery> {
        self.fetching = false;
        self.pace.fetched(deliveries.len(), now_us);
        if self.draining {
            return deliveries.to_vec();
        }
        for &(sequence, ticket) in deliveries {
            // An older delivery of the same event is stale by now: what its handler says will not
            // count.
            self.forget(sequence);
            self.queued.push_back(sequence);
            self.out.insert(sequence, OutstandingDelivery { ticket, due_us: None });
            self.arm(sequence, now_us);
        }
        Vec::new()
    }

    /// The delivery that is handled next, if there is one and a place for it.
    pub fn begin(&mut self) -> Option<Delivery> {
        if self.running >= self.options.concurrency {
            return None;
        }
        let sequence = self.queued.pop_front()?;
        self.running += 1;
        self.disarm(sequence);
        Some((sequence, self.out[&sequence].ticket))
    }

    /// A handler has ended. Returns the verdict on its delivery.
    pub fn ended(&mut self, (sequence, ticket): Delivery, outcome: Outcome) -> Verdict {
        self.running = self.running.saturating_sub(1);
        if self.out.get(&sequence).is_some_and(|out| out.ticket == ticket) && !self.queued.contains(&sequence) {
            self.disarm(sequence);
            self.out.remove(&sequence);
        }
        match outcome {
            Outcome::Returned => Verdict::Ack,
            Outcome::Raised => Verdict::Fail,
            Outcome::Interrupted => Verdict::GiveBack,
            Outcome::Settled => Verdict::Nothing,
        }
    }

    /// The deliveries whose ack wait is to begin anew.
    pub fn extend(&mut self, now_us: u64) -> Vec<Delivery> {
        let mut due = Vec::new();
        while let Some(&(at, sequence)) = self.timers.first() {
            if at > now_us {
                break;
            }
            self.disarm(sequence);
            due.push((sequence, self.out[&sequence].ticket));
            self.arm(sequence, now_us);
        }
        due
    }

    /// When to call [`extend`](Self::extend) next.
    pub fn next_deadline_us(&self) -> Option<u64> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Stops fetching. Fetched deliveries still begin and end.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Stops beginning deliveries, too. Returns the deliveries to give back.
    pub fn cut(&mut self) -> Vec<Delivery> {
        self.draining = true;
        let queued = std::mem::take(&mut self.queued);
        let back = queued.into_iter().map(|sequence| (sequence, self.out[&sequence].ticket)).collect::<Vec<_>>();
        for (sequence, _) in &back {
            self.forget(*sequence);
        }
        back
    }

    /// True if it drains and has nothing left.
    pub fn is_over(&self) -> bool {
        self.draining && !self.fetching && self.queued.is_empty() && self.running == 0
    }

    /// How many deliveries are queued and how many have begun.
    pub fn counts(&self) -> (usize, u32) {
        (self.queued.len(), self.running)
    }

    fn arm(&mut self, sequence: u64, now_us: u64) {
        let due_us = now_us.saturating_add((self.options.ack_wait_us / 3).max(1));
        if let Some(out) = self.out.get_mut(&sequence) {
            out.due_us = Some(due_us);
            self.timers.insert((due_us, sequence));
        }
    }

    fn disarm(&mut self, sequence: u64) {
        if let Some(due_us) = self.out.get_mut(&sequence).and_then(|out| out.due_us.take()) {
            self.timers.remove(&(due_us, sequence));
        }
    }

    fn forget(&mut self, sequence: u64) {
        self.disarm(sequence);
        if self.out.remove(&sequence).is_some() {
            self.queued.retain(|queued| *queued != sequence);
        }
    }
}

#[cfg(test)]
mod tests;
