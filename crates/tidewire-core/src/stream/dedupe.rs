//! The de-duplication window: ids of messages, and the sequences under which they were stored.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Ids within a span of time.
#[derive(Clone, Debug)]
pub struct Window {
    span_us: u64,
    ids_max: usize,
    sequences: BTreeMap<Arc<str>, u64>,
    /// In order of time, oldest first.
    ages: VecDeque<(u64, Arc<str>)>,
}

impl Window {
    /// A window that remembers ids for a span, the newest `ids_max` at most.
    pub fn new(span_us: u64, ids_max: usize) -> Self {
        Self { span_us, ids_max, sequences: BTreeMap::new(), ages: VecDeque::new() }
    }

    /// The sequence of a message with this id, if it was stored within the span.
    pub fn find(&mut self, id: &str, now_us: u64) -> Option<u64> {
        self.forget(now_us);
        self.sequences.get(id).copied()
    }

    /// Remembers an id that [`find`](Self::find) did not.
    pub fn insert(&mut self, id: &str, sequence: u64, time_us: u64) {
        if self.span_us == 0 {
            return;
        }
        let id: Arc<str> = id.into();
        if self.sequences.insert(Arc::clone(&id), sequence).is_none() {
            self.ages.push_back((time_us, id));
        }
        while self.ages.len() > self.ids_max {
            self.forget_oldest();
        }
    }

    /// How many ids are remembered.
    pub fn len(&self) -> usize {
        self.ages.len()
    }

    /// True if no id is remembered.
    pub fn is_empty(&self) -> bool {
        self.ages.is_empty()
    }

    fn forget(&mut self, now_us: u64) {
        // A message may come again as long as less than the span is over.
        while self.ages.front().is_some_and(|(time, _)| time.saturating_add(self.span_us) <= now_us) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, id)) = self.ages.pop_front() {
            self.sequences.remove(&id);
        }
    }
}
