//! Journal records of a consumer: the changes that must survive a crash.

use super::{Consumer, Fault, Pending, Stage};

/// A change of a consumer's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Events that were delivered so often; the next delivery of one that has failed is due then.
    Tried {
        /// The first of them.
        first: u64,
        /// The last.
        last: u64,
        /// How many deliveries each has had.
        deliveries: u32,
        /// 0 for at once.
        due_us: u64,
    },
    /// Events that are acked, dead or gone.
    Done {
        /// The first of them.
        first: u64,
        /// The last.
        last: u64,
    },
    /// Everything up to here is done.
    Floor(u64),
    /// An event was given up.
    Dead(Box<Dead>),
    /// A dead letter is delivered anew.
    Requeued(u64),
    /// A dead letter was forgotten.
    Dropped(u64),
    /// The consumer goes on at another place.
    Moved(u64),
    /// The consumer is paused until a time, or no longer (None).
    Paused(Option<u64>),
}

/// An event that was given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dead {
    /// Which.
    pub sequence: u64,
    /// How often it was delivered.
    pub deliveries: u32,
    /// When it was given up.
    pub dead_at_us: u64,
    /// Why.
    pub reason: String,
    /// The last error.
    pub fault: Fault,
}

impl Change {
    pub(super) const fn tried(sequence: u64, deliveries: u32, due_us: u64) -> Self {
        Self::Tried { first: sequence, last: sequence, deliveries, due_us }
    }

    /// Takes another into this one, if they say the same of neighbours.
    fn absorb(&mut self, other: &Self) -> bool {
        match (self, other) {
            (Self::Done { last, .. }, Self::Done { first, last: end }) if *last + 1 == *first => *last = *end,
            (
                Self::Tried { last, deliveries, due_us, .. },
                Self::Tried { first, last: end, deliveries: theirs, due_us: due },
            ) if *last + 1 == *first && deliveries == theirs && due_us == due => *last = *end,
            _ => return false,
        }
        true
    }
}

impl Consumer {
    pub(super) fn tell(&mut self, change: Change) {
        if !self.changes.last_mut().is_some_and(|last| last.absorb(&change)) {
            self.changes.push(change);
        }
    }

    /// The changes since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<Change> {
        if self.floor_reported != self.acked_to {
            self.floor_reported = self.acked_to;
            self.changes.push(Change::Floor(self.acked_to));
        }
        std::mem::take(&mut self.changes)
    }

    /// Changes that make this consumer of a new one.
    pub fn snapshot(&self) -> Vec<Change> {
        let mut all = vec![Change::Moved(self.acked_to + 1)];
        all.extend(self.done.iter().map(|(first, last)| Change::Done { first, last }));
        all.extend(self.dead.values().map(|dead| Change::Dead(Box::new(dead.clone()))));
        for (&sequence, pending) in &self.pending {
            if self.is_requeued(sequence) {
                all.push(Change::Dead(Box::new(Dead { sequence, ..Dead::default() })));
                all.push(Change::Requeued(sequence));
            }
            let due_us = if let Stage::Waiting { due_us } = pending.stage { due_us } else { 0 };
            if pending.deliveries > 0 {
                all.push(Change::tried(sequence, pending.deliveries, due_us));
            }
        }
        all.extend(self.tried.iter().map(|(at, (deliveries, due_us))| Change::tried(*at, *deliveries, *due_us)));
        all.extend(self.paused_until_us.map(|until| Change::Paused(Some(until))));
        all
    }

    /// Repeats a change of before a crash. Only before anything else is called.
    pub fn restore(&mut self, change: Change, now_us: u64) {
        match change {
            Change::Tried { first, last, deliveries, due_us } => {
                (first..=last).for_each(|sequence| self.restore_tried(sequence, deliveries, due_us));
            }
            Change::Done { first, last } => {
                for sequence in first..=last {
                    self.tried.remove(&sequence);
                    if self.pending.contains_key(&sequence) {
                        self.leave(sequence);
                        self.pending.remove(&sequence);
                    }
                    if sequence > self.acked_to {
                        self.done.insert(sequence);
                    }
                }
                self.raise_floor();
            }
            Change::Floor(floor) => {
                self.acked_to = self.done.advance(self.acked_to.max(floor));
            }
            Change::Dead(dead) => self.lay_down(*dead),
            Change::Requeued(sequence) => drop(self.put_back(sequence, now_us)),
            Change::Dropped(sequence) => drop(self.dead.remove(&sequence)),
            Change::Moved(next) => self.move_to(next),
            Change::Paused(until) => self.paused_until_us = until,
        }
        self.next = self.acked_to + 1;
        self.tried = self.tried.split_off(&self.next);
        self.floor_reported = self.acked_to;
        self.changes.clear();
    }

    fn restore_tried(&mut self, sequence: u64, deliveries: u32, due_us: u64) {
        match self.pending.get_mut(&sequence) {
            Some(Pending { deliveries: known, .. }) => *known = deliveries,
            None if deliveries == 0 => drop(self.tried.remove(&sequence)),
            None => drop(self.tried.insert(sequence, (deliveries, due_us))),
        }
    }

    /// True if a pending event was done once.
    fn is_requeued(&self, sequence: u64) -> bool {
        sequence <= self.acked_to || self.done.contains(sequence)
    }
}
