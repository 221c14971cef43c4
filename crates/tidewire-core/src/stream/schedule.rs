//! Schedules of one stream: their beats, the due ones and the ended ones.
//!
//! A beat that has arrived covers all time up to its arrival: however many beats were missed
//! before, one is published.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::recurrence::Timing;

/// Schedules by name, each with its message.
#[derive(Clone, Debug)]
pub struct Schedules<T> {
    all: BTreeMap<String, Schedule<T>>,
}

/// A schedule.
#[derive(Clone, Debug)]
pub struct Schedule<T> {
    /// The message that it publishes.
    pub what: T,
    /// From when on its intervals are counted.
    pub began_us: u64,
    /// Beats up to here are over.
    pub over_us: u64,
    /// Its next beat.
    pub next_us: Option<u64>,
    timing: Timing,
}

impl<T> Schedules<T> {
    /// Makes one, or takes the place of the one of this name.
    pub fn set(&mut self, name: &str, timing: Timing, what: T, (began_us, over_us): (u64, u64)) -> &Schedule<T> {
        let next_us = timing.next_us(began_us, over_us);
        let schedule = Schedule { what, began_us, over_us, next_us, timing };
        match self.all.entry(name.to_owned()) {
            Entry::Occupied(mut at) => {
                at.insert(schedule);
                at.into_mut()
            }
            Entry::Vacant(at) => at.insert(schedule),
        }
    }

    /// Removes one. False: there was none.
    pub fn remove(&mut self, name: &str) -> bool {
        self.all.remove(name).is_some()
    }

    /// The one of a name.
    pub fn get(&self, name: &str) -> Option<&Schedule<T>> {
        self.all.get(name)
    }

    /// All, in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Schedule<T>)> {
        self.all.iter().map(|(name, schedule)| (name.as_str(), schedule))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// True if there are no schedules.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Schedules with a due beat, in order of its time.
    pub fn due(&self, now_us: u64) -> Vec<String> {
        let due = self.all.iter().filter_map(|(name, schedule)| Some((schedule.next_us?, name)));
        let mut due: Vec<_> = due.filter(|(at_us, _)| *at_us <= now_us).collect();
        due.sort_unstable();
        due.into_iter().map(|(_, name)| name.clone()).collect()
    }

    /// A beat of one has come: those up to `over_us` are over. One that is known to be over for
    /// longer stays so.
    pub fn beaten(&mut self, name: &str, over_us: u64) {
        if let Some(schedule) = self.all.get_mut(name).filter(|schedule| schedule.over_us < over_us) {
            schedule.over_us = over_us;
            schedule.next_us = schedule.timing.next_us(schedule.began_us, over_us);
        }
    }

    /// When the next beat is.
    pub fn next_us(&self) -> Option<u64> {
        self.all.values().filter_map(|schedule| schedule.next_us).min()
    }
}

impl<T> Default for Schedules<T> {
    /// None.
    fn default() -> Self {
        Self { all: BTreeMap::new() }
    }
}
