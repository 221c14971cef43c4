//! Queues of calls that wait for changes, one for each key; with an index of their timeouts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tidewire_backend::home::{HomeError, Teller};

/// A call that waits until then.
pub struct ParkedCall<C, T> {
    pub call: C,
    pub until_us: u64,
    pub teller: Teller<T>,
}

/// Queues of calls by the key that they wait for. Queues without changes cost nothing.
pub struct Parked<K, C, T> {
    lines: BTreeMap<K, ParkedQueue<C, T>>,
    /// When the first wait of a line is over.
    ends: BTreeSet<(u64, K)>,
    /// Queues with changes, or with a timeout.
    ready: BTreeSet<K>,
}

struct ParkedQueue<C, T> {
    waits: VecDeque<ParkedCall<C, T>>,
    /// Its time in `ends`; `u64::MAX` while it is not in there.
    until_us: u64,
}

impl<K: Ord + Clone, C, T> Parked<K, C, T> {
    pub const fn new() -> Self {
        Self { lines: BTreeMap::new(), ends: BTreeSet::new(), ready: BTreeSet::new() }
    }

    /// Takes a call in, which is looked at in this turn.
    pub fn push(&mut self, key: K, waits: ParkedCall<C, T>) {
        self.ready.insert(key.clone());
        let line = self.lines.entry(key).or_insert_with(|| ParkedQueue { waits: VecDeque::new(), until_us: u64::MAX });
        line.waits.push_back(waits);
    }

    /// Marks the queue of a key as changed.
    pub fn wake(&mut self, key: &K) {
        if self.lines.contains_key(key) {
            self.ready.insert(key.clone());
        }
    }

    /// Marks all queues from one on as changed, as long as `of` is true.
    pub fn wake_from(&mut self, first: &K, of: impl Fn(&K) -> bool) {
        let keys = self.lines.range(first..).map(|(key, _)| key).take_while(|key| of(key));
        self.ready.extend(keys.cloned());
    }

    /// Marks the lines with a wait that is over.
    pub fn wake_late(&mut self, now_us: u64) {
        while self.ends.first().is_some_and(|(until_us, _)| *until_us <= now_us) {
            let (_, key) = self.ends.pop_first().expect("it was seen");
            if let Some(line) = self.lines.get_mut(&key) {
                line.until_us = u64::MAX;
                self.ready.insert(key);
            }
        }
    }

    pub fn holds(&self, key: &K) -> bool {
        self.lines.contains_key(key)
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub fn is_ready(&self, key: &K) -> bool {
        self.ready.contains(key)
    }

    /// A line that is to be looked at again in the next turn.
    pub fn again(&mut self, key: K) {
        self.ready.insert(key);
    }

    pub fn take_ready(&mut self) -> BTreeSet<K> {
        std::mem::take(&mut self.ready)
    }

    /// Takes a line out.
    pub fn take(&mut self, key: &K) -> Option<VecDeque<ParkedCall<C, T>>> {
        let line = self.lines.remove(key)?;
        if line.until_us < u64::MAX {
            self.ends.remove(&(line.until_us, key.clone()));
        }
        Some(line.waits)
    }

    /// Lets calls wait on.
    pub fn park(&mut self, key: K, waits: VecDeque<ParkedCall<C, T>>) {
        let Some(until_us) = waits.iter().map(|waits| waits.until_us).min() else { return };
        if until_us < u64::MAX {
            self.ends.insert((until_us, key.clone()));
        }
        self.lines.insert(key, ParkedQueue { waits, until_us });
    }

    /// When the next wait is over.
    pub fn next_us(&self) -> u64 {
        self.ends.first().map_or(u64::MAX, |(until_us, _)| *until_us)
    }

    /// Nobody waits any more.
    pub fn lose(&mut self, error: &HomeError) {
        let lost = std::mem::replace(self, Self::new());
        let waits = lost.lines.into_values().flat_map(|line| line.waits);
        waits.for_each(|waits| drop(waits.teller.tell(Err(error.clone()))));
    }
}
