//! State machine of a consumer: a cursor over a stream, with pending, waiting and acknowledged
//! events.
//!
//! The caller offers the events of the stream in order ([`Consumer::offer`]) and takes ready events
//! ([`Consumer::take`]). It reports each result ([`Consumer::settle`]), and calls
//! [`Consumer::tick`] when a deadline is over. [`Change`]s are the state that must survive a crash.
//! Given to [`Consumer::restore`] in their order, they restore the same consumer.

mod change;
mod settle;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

pub use change::{Change, Dead};
pub use settle::{Fault, Settlement, Stale};

use super::ranges::Ranges;

/// How a consumer behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// A delivery that is not settled for so long has failed.
    pub ack_wait_us: u64,
    /// After so many failed deliveries an event is dead. 0: never.
    pub max_deliver: u32,
    /// The delays before the second, third, ... delivery; the last counts for all further ones.
    pub backoff_us: Vec<u64>,
    /// How many deliveries may be out.
    pub max_in_flight: usize,
    /// True if an event waits until all earlier ones of its key are done.
    pub by_key: bool,
    /// How many events may wait for earlier ones of their keys before nothing more is read.
    pub parked_max: usize,
    /// How many dead letters are stored; the oldest are deleted.
    pub dead_max: usize,
}

/// A cursor over a stream.
#[derive(Clone, Debug)]
pub struct Consumer {
    options: Options,
    /// Every event up to here is done.
    acked_to: u64,
    /// Sequences above it that are done.
    done: Ranges,
    /// The next event to be offered.
    next: u64,
    /// Events that were offered or requeued, and are not done.
    pending: BTreeMap<u64, Pending>,
    ready: BTreeSet<u64>,
    /// When an ack wait or a delay is over, and of which event.
    timers: BTreeSet<(u64, u64)>,
    /// Of each key with an event that is not done: who waits for it. By-key consumers only.
    lines: BTreeMap<Arc<str>, VecDeque<u64>>,
    /// Deliveries before a crash, of events that were not offered again yet: how many, and when the
    /// next is due.
    tried: BTreeMap<u64, (u32, u64)>,
    dead: BTreeMap<u64, Dead>,
    out: usize,
    waiting: usize,
    parked: usize,
    redelivered: u64,
    paused_until_us: Option<u64>,
    /// The newest ticket.
    ticket: u64,
    changes: Vec<Change>,
    floor_reported: u64,
}

#[derive(Clone, Debug)]
struct Pending {
    stage: Stage,
    /// How many there were, the one that is out included.
    deliveries: u32,
    /// The ticket of the last delivery; 0 while there is none that may be settled.
    ticket: u64,
    key: Option<Arc<str>>,
}

/// A delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its number, from 1.
    pub delivery: u32,
    /// The ticket that settles it. Later deliveries of the consumer always have larger tickets.
    pub ticket: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Ready,
    /// An earlier event of its key is not done.
    Parked,
    Out {
        until_us: u64,
    },
    /// The delivery has failed, and its delay is not over.
    Waiting {
        due_us: u64,
    },
}

impl Consumer {
    /// A consumer whose first event is `next` or later.
    pub fn new(options: Options, next: u64) -> Self {
        let next = next.max(1);
        Self {
            options,
            acked_to: next - 1,
            done: Ranges::default(),
            next,
            pending: BTreeMap::new(),
            ready: BTreeSet::new(),
            timers: BTreeSet::new(),
            lines: BTreeMap::new(),
            tried: BTreeMap::new(),
            dead: BTreeMap::new(),
            out: 0,
            waiting: 0,
            parked: 0,
            redelivered: 0,
            paused_until_us: None,
            ticket: 0,
            changes: Vec::new(),
            floor_reported: next - 1,
        }
    }

    /// The next event that it has to be offered.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Every event up to here is done.
    pub fn acked_to(&self) -> u64 {
        self.acked_to
    }

    /// How many deliveries are out.
    pub fn in_flight(&self) -> usize {
        self.out
    }

    /// How many events that failed wait for their delay.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many events wait for earlier ones of their keys.
    pub fn parked(&self) -> usize {
        self.parked
    }

    /// How many deliveries were not the first of their event.
    pub fn redelivered(&self) -> u64 {
        self.redelivered
    }

    /// Until when nothing is delivered; `u64::MAX` for until it is resumed.
    pub fn paused_until_us(&self) -> Option<u64> {
        self.paused_until_us
    }

    /// Dead letters, by sequence.
    pub fn dead(&self) -> &BTreeMap<u64, Dead> {
        &self.dead
    }

    /// The oldest event that is not done, if it was offered.
    pub fn oldest(&self) -> Option<u64> {
        self.pending.first_key_value().map(|(sequence, _)| *sequence)
    }

    /// True if a delivery may go out now, provided that an event is ready.
    pub fn has_capacity(&self) -> bool {
        self.paused_until_us.is_none() && self.out < self.options.max_in_flight
    }

    /// True if it takes further events.
    pub fn wants_more(&self) -> bool {
        // Ranges of done events would grow without bound behind an event that never gets done.
        self.has_capacity() && self.parked < self.options.parked_max && self.done.len() < self.options.parked_max
    }

    /// When to call [`tick`](Self::tick) next.
    pub fn next_deadline_us(&self) -> Option<u64> {
        let paused = self.paused_until_us.filter(|until| *until != u64::MAX);
        [self.timers.first().map(|(at, _)| *at), paused].into_iter().flatten().min()
    }

    /// Offers the event `sequence`, and with it all before it that do not exist. True if it is
    /// ready.
    ///
    /// # Panics
    ///
    /// If it was offered before.
    pub fn offer(&mut self, sequence: u64, selected: bool, key: Option<&str>, now_us: u64) -> bool {
        assert!(sequence >= self.next, "event {sequence} was offered before: {} is next", self.next);
        self.skip_to(sequence);
        self.next = sequence + 1;
        let tried = self.tried.remove(&sequence);
        if self.done.contains(sequence) || sequence <= self.acked_to {
            return false;
        }
        if !selected {
            self.done.insert(sequence);
            self.raise_floor();
            return false;
        }
        let (deliveries, due_us) = tried.unwrap_or((0, 0));
        let key: Option<Arc<str>> = key.filter(|_| self.options.by_key).map(Arc::from);
        let mut stage = if due_us > now_us { Stage::Waiting { due_us } } else { Stage::Ready };
        if let Some(key) = &key {
            match self.lines.get_mut(key) {
                Some(line) => {
                    line.push_back(sequence);
                    stage = Stage::Parked;
                }
                None => drop(self.lines.insert(Arc::clone(key), VecDeque::new())),
            }
        }
        self.pending.insert(sequence, Pending { stage: Stage::Parked, deliveries, ticket: 0, key });
        self.parked += 1;
        self.enter(sequence, stage, now_us);
        self.ready.contains(&sequence)
    }

    /// Everything before `sequence` that was not offered yet does not exist, or is gone.
    pub fn skip_to(&mut self, sequence: u64) {
        if sequence > self.next {
            self.done.insert_range(self.next, sequence - 1);
            self.next = sequence;
            self.raise_floor();
        }
    }

    /// The event that goes out next, if one is ready and may.
    pub fn first_ready(&self) -> Option<u64> {
        if self.has_capacity() { self.ready.first().copied() } else { None }
    }

    /// Sends the event that is ready out.
    ///
    /// # Panics
    ///
    /// If it is not ready.
    pub fn take(&mut self, sequence: u64, now_us: u64) -> Delivered {
        // The time, so that no ticket of before a restart is given again.
        self.ticket = (self.ticket + 1).max(now_us);
        let ticket = self.ticket;
        let pending = self.pending.get_mut(&sequence).filter(|pending| pending.stage == Stage::Ready);
        let pending = pending.expect("the event is ready");
        pending.deliveries = pending.deliveries.saturating_add(1);
        pending.ticket = ticket;
        let delivery = pending.deliveries;
        self.redelivered += u64::from(delivery > 1);
        self.enter(sequence, Stage::Out { until_us: now_us.saturating_add(self.options.ack_wait_us) }, now_us);
        self.tell(Change::tried(sequence, delivery, 0));
        Delivered { delivery, ticket }
    }

    /// Finishes an event that the stream no longer has.
    pub fn skip_missing(&mut self, sequence: u64, now_us: u64) {
        if self.pending.contains_key(&sequence) {
            self.finish(sequence, now_us);
        }
    }

    /// Handles expired ack waits and ended delays.
    pub fn tick(&mut self, now_us: u64) {
        if self.paused_until_us.is_some_and(|until| until <= now_us) {
            self.resume();
        }
        while let Some(&(at, sequence)) = self.timers.first() {
            if at > now_us {
                break;
            }
            match self.pending[&sequence].stage {
                Stage::Out { .. } => self.fail(sequence, None, None, now_us),
                _ => self.enter(sequence, Stage::Ready, now_us),
            }
        }
    }

    /// Delivers nothing until then; `u64::MAX`: until it is resumed.
    pub fn pause(&mut self, until_us: u64) {
        self.paused_until_us = Some(until_us);
        self.tell(Change::Paused(Some(until_us)));
    }

    /// Goes on with delivering.
    pub fn resume(&mut self) {
        if self.paused_until_us.take().is_some() {
            self.tell(Change::Paused(None));
        }
    }

    /// Moves the cursor to another position. Open deliveries are forgotten; dead letters stay.
    pub fn seek(&mut self, next: u64) {
        self.move_to(next);
        self.tell(Change::Moved(self.next));
    }

    /// Delivers a dead letter anew. False if there is none.
    pub fn requeue(&mut self, sequence: u64, now_us: u64) -> bool {
        let was = self.put_back(sequence, now_us);
        if was {
            self.tell(Change::Requeued(sequence));
        }
        was
    }

    /// Forgets a dead letter. False if there is none.
    pub fn drop_dead(&mut self, sequence: u64) -> bool {
        let was = self.dead.remove(&sequence).is_some();
        if was {
            self.tell(Change::Dropped(sequence));
        }
        was
    }

    fn put_back(&mut self, sequence: u64, now_us: u64) -> bool {
        if self.dead.remove(&sequence).is_none() {
            return false;
        }
        // Later events of its key were handled already: it waits for none.
        self.pending.insert(sequence, Pending { stage: Stage::Parked, deliveries: 0, ticket: 0, key: None });
        self.parked += 1;
        self.enter(sequence, Stage::Ready, now_us);
        true
    }

    fn move_to(&mut self, next: u64) {
        let (options, dead) = (self.options.clone(), std::mem::take(&mut self.dead));
        let (redelivered, paused_until_us, ticket) = (self.redelivered, self.paused_until_us, self.ticket);
        let changes = std::mem::take(&mut self.changes);
        *self = Self { dead, redelivered, paused_until_us, ticket, changes, ..Self::new(options, next) };
    }

    /// Moves an event from one stage to another, with the counters and indexes of both.
    fn enter(&mut self, sequence: u64, stage: Stage, now_us: u64) {
        self.leave(sequence);
        let pending = self.pending.get_mut(&sequence).expect("the event is pending");
        // An event without further deliveries gets here only after a crash during its last
        // delivery.
        let spent = self.options.max_deliver > 0 && pending.deliveries >= self.options.max_deliver;
        if stage == Stage::Ready && spent {
            pending.stage = Stage::Parked;
            self.parked += 1;
            let fault = Fault::new("the home ended while its last delivery was out");
            self.bury(sequence, "max_deliver", fault, now_us);
            return;
        }
        pending.stage = stage;
        match stage {
            Stage::Ready => drop(self.ready.insert(sequence)),
            Stage::Parked => self.parked += 1,
            Stage::Out { until_us } => {
                self.out += 1;
                self.timers.insert((until_us, sequence));
            }
            Stage::Waiting { due_us } => {
                self.waiting += 1;
                self.timers.insert((due_us, sequence));
            }
        }
    }

    fn leave(&mut self, sequence: u64) {
        match self.pending[&sequence].stage {
            Stage::Ready => drop(self.ready.remove(&sequence)),
            Stage::Parked => self.parked -= 1,
            Stage::Out { until_us } => {
                self.out -= 1;
                self.timers.remove(&(until_us, sequence));
            }
            Stage::Waiting { due_us } => {
                self.waiting -= 1;
                self.timers.remove(&(due_us, sequence));
            }
        }
    }

    /// An event is done: acked, dead or gone. The next of its key is ready.
    fn finish(&mut self, sequence: u64, now_us: u64) {
        self.leave(sequence);
        let pending = self.pending.remove(&sequence).expect("the event is pending");
        if sequence > self.acked_to {
            self.done.insert(sequence);
        }
        self.tell(Change::Done { first: sequence, last: sequence });
        self.raise_floor();
        let Some(key) = pending.key else { return };
        let Some(line) = self.lines.get_mut(&key) else { return };
        // An event that was removed while it waited is no longer pending.
        let next = std::iter::from_fn(|| line.pop_front()).find(|next| self.pending.contains_key(next));
        match next {
            Some(next) => self.enter(next, Stage::Ready, now_us),
            None => drop(self.lines.remove(&key)),
        }
    }

    fn raise_floor(&mut self) {
        self.acked_to = self.done.advance(self.acked_to);
    }
}
