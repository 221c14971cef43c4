//! Deadlines of asks, in shards, with a cheap insert and cancel: nearly every ask ends long before
//! its deadline.
//!
//! A deadline lies in a plain slab, in one of a few shards, so that threads seldom meet. Nobody
//! looks at the slab until the earliest deadline that its shard has seen comes. Deadlines that are
//! still there then move to the timing wheel, which fires them in time. Each deadline moves at most
//! once. A deadline that is cancelled before has cost two short locks.
//!
//! A slot in the slab may have been reused since, with another deadline ([`Fire::due`]): then it
//! stays, with that deadline. An idle slot is removed.

use std::sync::Arc;
use std::time::Instant;

use tidewire_core::wheel::Key;

use crate::short_mutex::ShortMutex;
use crate::timers::{Due, Fire};

const SHARDS: u32 = 8;
/// Most deadlines that move to the wheel under one hold of a shard's lock.
const MOVES: usize = 128;
/// Capacity in entries that an empty shard keeps.
const KEEP: usize = 1024;
const NIL: u32 = u32::MAX;

/// Names one deadline of one engine, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeadlineKey {
    shard: u32,
    index: u32,
    serial: u64,
}

/// All deadlines that are not in the wheel, and where in the wheel the others are.
pub(crate) struct Deadlines {
    shards: [ShortMutex<Shard>; SHARDS as usize],
}

struct Shard {
    entries: Vec<Entry>,
    free: u32,
    used: usize,
    serial: u64,
    /// No deadline that was put down since the last move is before this.
    earliest: u64,
}

struct Entry {
    serial: u64,
    place: DeadlineLocation,
}

enum DeadlineLocation {
    Free { next: u32 },
    Here { at: u64, fire: Arc<dyn Fire> },
    InWheel(Key),
}

pub(crate) enum CancelOutcome {
    /// It was here, or nowhere any more.
    Over,
    /// The wheel has it.
    InWheel(Key),
}

impl Deadlines {
    pub fn new() -> Self {
        Self { shards: std::array::from_fn(|_| ShortMutex::new(Shard::new())) }
    }

    /// Inserts a deadline. The caller then checks if the timer thread has to wake earlier.
    #[inline]
    pub fn insert(&self, at: u64, fire: Arc<dyn Fire>) -> DeadlineKey {
        let shard = crate::dispatch::threads::number() % SHARDS;
        let (index, serial) = self.shards[shard as usize].lock().insert(at, fire);
        DeadlineKey { shard, index, serial }
    }

    /// Takes a deadline back, so that it does not fire unless it has begun to.
    #[inline]
    pub fn remove(&self, key: DeadlineKey) -> CancelOutcome {
        let place = self.shards[key.shard as usize].lock().remove(key);
        match place {
            Some(DeadlineLocation::InWheel(key)) => CancelOutcome::InWheel(key),
            _ => CancelOutcome::Over,
        }
    }

    /// The earliest deadline that may be here.
    ///
    /// Taking each lock is what makes this meet insertions: one that this has not seen sees what
    /// the caller wrote before.
    pub fn earliest(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().earliest).min().unwrap_or(u64::MAX)
    }

    /// Moves the deadlines of the shards in which one is due to a wheel, by `insert`.
    pub fn move_due(
        &self,
        now: u64,
        micros: impl Fn(Instant) -> u64,
        mut insert: impl FnMut(u64, Arc<dyn Fire>) -> Key,
    ) {
        for shard in &self.shards {
            let mut next = 0;
            if shard.lock().begin_move(now) {
                loop {
                    let mut removed = Vec::new();
                    let from = shard.lock().move_some(next, &micros, &mut insert, &mut removed);
                    drop(removed);
                    let Some(from) = from else { break };
                    next = from;
                }
            }
        }
    }

    /// All waiters of the deadlines that are in the shards, and the wheel keys of the other
    /// deadlines.
    pub fn all(&self) -> (Vec<Arc<dyn Fire>>, Vec<Key>) {
        let (mut here, mut in_wheel) = (Vec::new(), Vec::new());
        for shard in &self.shards {
            for entry in &shard.lock().entries {
                match &entry.place {
                    DeadlineLocation::Free { .. } => {}
                    DeadlineLocation::Here { fire, .. } => here.push(Arc::clone(fire)),
                    DeadlineLocation::InWheel(key) => in_wheel.push(*key),
                }
            }
        }
        (here, in_wheel)
    }

    /// How many deadlines are here for which anybody waits.
    pub fn waiting(&self) -> usize {
        let mut waiting = 0;
        for shard in &self.shards {
            let mut next = 0;
            while let Some((count, from)) = shard.lock().count_some(next) {
                (waiting, next) = (waiting + count, from);
            }
        }
        waiting
    }
}

impl Shard {
    fn new() -> Self {
        Self { entries: Vec::new(), free: NIL, used: 0, serial: 0, earliest: u64::MAX }
    }

    fn insert(&mut self, at: u64, fire: Arc<dyn Fire>) -> (u32, u64) {
        self.earliest = self.earliest.min(at);
        self.used += 1;
        self.serial += 1;
        let entry = Entry { serial: self.serial, place: DeadlineLocation::Here { at, fire } };
        let index = self.free;
        if let Some(old) = self.entries.get_mut(index as usize) {
            if let DeadlineLocation::Free { next } = old.place {
                self.free = next;
            }
            *old = entry;
            return (index, self.serial);
        }
        self.entries.push(entry);
        (self.entries.len() as u32 - 1, self.serial)
    }

    fn remove(&mut self, key: DeadlineKey) -> Option<DeadlineLocation> {
        let entry = self.entries.get_mut(key.index as usize).filter(|entry| entry.serial == key.serial)?;
        let place = std::mem::replace(&mut entry.place, DeadlineLocation::Free { next: self.free });
        entry.serial = 0;
        self.free = key.index;
        self.used -= 1;
        if self.used == 0 && self.entries.capacity() > KEEP {
            *self = Self { serial: self.serial, earliest: self.earliest, ..Self::new() };
        }
        Some(place)
    }

    fn begin_move(&mut self, now: u64) -> bool {
        let due = self.earliest <= now;
        if due {
            self.earliest = u64::MAX;
        }
        due
    }

    /// Moves the deadlines of the next few entries to the wheel. Returns the entry to go on with.
    /// Removed entries are put into `removed`, to be dropped after the lock is released.
    fn move_some(
        &mut self,
        from: usize,
        micros: &impl Fn(Instant) -> u64,
        insert: &mut impl FnMut(u64, Arc<dyn Fire>) -> Key,
        removed: &mut Vec<DeadlineLocation>,
    ) -> Option<usize> {
        let to = self.entries.len().min(from + MOVES);
        for index in from..to {
            let entry = self.entries.get_mut(index)?;
            let DeadlineLocation::Here { at, fire } = &mut entry.place else { continue };
            match fire.due() {
                Due::AsSaid => entry.place = DeadlineLocation::InWheel(insert(*at, Arc::clone(fire))),
                Due::Later(later) => {
                    *at = micros(later);
                    self.earliest = self.earliest.min(*at);
                }
                Due::Never => {
                    let key = DeadlineKey { shard: 0, index: index as u32, serial: entry.serial };
                    removed.extend(self.remove(key));
                }
            }
        }
        (to > from).then_some(to)
    }

    fn count_some(&self, from: usize) -> Option<(usize, usize)> {
        let to = self.entries.len().min(from + MOVES);
        let here = |entry: &&Entry| matches!(&entry.place, DeadlineLocation::Here { fire, .. } if fire.waits());
        (to > from).then(|| (self.entries[from..to].iter().filter(here).count(), to))
    }
}

#[cfg(test)]
mod tests;
