//! Compaction of a log: the newest event of each key or subject stays, and older ones are hidden
//! and deleted.
//!
//! An event is hidden once a newer one of its name was synced. Its bytes are deleted when the
//! sealed segments are rewritten: once they have at least twice as many events as there are names.

use std::collections::BTreeMap;

use super::record::Event;

/// The identity of events in a compacted log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Their keys.
    Key,
    /// Their subjects.
    Subject,
}

/// The newest event of each name.
#[derive(Clone, Debug)]
pub struct Newest {
    by: By,
    names_max: usize,
    sequences: BTreeMap<Box<str>, u64>,
    /// Names of the group that is not synced yet: the events that they replace are still visible.
    group: Vec<(Box<str>, u64)>,
    /// How many events the last cleaning had to keep.
    retained: u64,
}

impl Newest {
    /// The state of an empty log with at most so many names.
    pub fn new(by: By, names_max: usize) -> Self {
        Self { by, names_max, sequences: BTreeMap::new(), group: Vec::new(), retained: 0 }
    }

    /// The identity of events.
    pub const fn by(&self) -> By {
        self.by
    }

    /// How many names there are.
    pub fn len(&self) -> u64 {
        self.sequences.len() as u64
    }

    /// True if there are no names.
    pub fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    /// Checks the capacity for an event with this name. Returns the limit if there is none.
    pub fn full(&self, subject: &str, key: Option<&str>) -> Option<u64> {
        let known = self.name(subject, key).is_none_or(|name| self.sequences.contains_key(name));
        (!known && self.sequences.len() + self.group.len() >= self.names_max).then_some(self.names_max as u64)
    }

    /// Takes note of an event that was appended, and is not synced yet.
    pub fn appended(&mut self, subject: &str, key: Option<&str>, sequence: u64) {
        if let Some(name) = self.name(subject, key) {
            self.group.push((name.into(), sequence));
        }
    }

    /// Marks the appended events as synced.
    pub fn synced(&mut self) {
        self.sequences.extend(self.group.drain(..));
    }

    /// Repeats an event of before a restart. They may come in any order.
    pub fn remember(&mut self, event: &Event<'_>) {
        if event.due_us.is_some() {
            return;
        }
        let Some(name) = self.name(event.subject, event.key) else { return };
        match self.sequences.get_mut(name) {
            Some(newest) => *newest = event.sequence.max(*newest),
            None => drop(self.sequences.insert(name.into(), event.sequence)),
        }
    }

    /// True if a newer event of the same name is synced.
    pub fn hides(&self, event: &Event<'_>) -> bool {
        let newest = self.name(event.subject, event.key).and_then(|name| self.sequences.get(name));
        event.due_us.is_none() && newest.is_some_and(|newest| *newest != event.sequence)
    }

    /// Events before this one were purged.
    pub fn purged(&mut self, first: u64) {
        self.sequences.retain(|_, sequence| *sequence >= first);
    }

    /// Removes the name of a deleted event, if that was the newest one of its name.
    pub fn remove(&mut self, name: &str, sequence: u64) {
        if self.sequences.get(name) == Some(&sequence) {
            self.sequences.remove(name);
        }
    }

    /// True if rewriting sealed segments with so many events is worth the effort.
    pub fn is_worth(&self, events: u64) -> bool {
        events > 2 * self.len().max(self.retained)
    }

    /// Sealed segments were rewritten, and so many events had to stay.
    pub const fn cleaned(&mut self, retained: u64) {
        self.retained = retained;
    }

    /// The name of an event: its key or its subject.
    pub fn name<'a>(&self, subject: &'a str, key: Option<&'a str>) -> Option<&'a str> {
        match self.by {
            By::Key => key,
            By::Subject => Some(subject),
        }
    }
}
