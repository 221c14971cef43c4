//! The admission of a service: a concurrency limit, and a bounded queue with priorities for excess
//! calls.

use std::collections::VecDeque;

const LANES: usize = 4;

/// So many run at once; others wait in the order of their lanes, up to a limit.
///
/// ```
/// use tidewire_core::rpc::admission::{Admission, Entry};
///
/// let mut admission = Admission::new(1, 2);
/// assert_eq!(admission.enter("first", 2), Entry::Admitted("first"));
/// assert_eq!(admission.enter("later", 2), Entry::Queued);
/// assert_eq!(admission.enter("urgent", 0), Entry::Queued);
/// assert_eq!(admission.enter("too many", 0), Entry::Refused("too many"));
/// assert_eq!(admission.leave(), Some("urgent"));
/// ```
#[derive(Debug)]
pub struct Admission<T> {
    running: usize,
    running_max: usize,
    queues: [VecDeque<T>; LANES],
    waiting_max: usize,
}

/// The answer to one that comes.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry<T> {
    /// The call runs.
    Admitted(T),
    /// The call waits, until [`Admission::leave`] of another call returns it.
    Queued,
    /// Too many wait.
    Refused(T),
}

impl<T> Admission<T> {
    /// An admission without running or waiting calls.
    pub fn new(running_max: usize, waiting_max: usize) -> Self {
        Self { running: 0, running_max, queues: Default::default(), waiting_max }
    }

    /// Admits a call in a lane: 0 is the most urgent; a lane above the last counts as the last.
    pub fn enter(&mut self, one: T, lane: usize) -> Entry<T> {
        if self.running < self.running_max {
            self.running += 1;
            return Entry::Admitted(one);
        }
        if self.waiting() >= self.waiting_max {
            return Entry::Refused(one);
        }
        self.queues[lane.min(LANES - 1)].push_back(one);
        Entry::Queued
    }

    /// Ends a running call, and returns the waiting call that runs in its place.
    pub fn leave(&mut self) -> Option<T> {
        let next = self.next_waiting();
        if next.is_none() {
            self.running = self.running.saturating_sub(1);
        }
        next
    }

    /// Takes the next one out that waits, without letting it run.
    pub fn next_waiting(&mut self) -> Option<T> {
        self.queues.iter_mut().find_map(VecDeque::pop_front)
    }

    /// Takes the first one out that waits and of which this is true.
    pub fn remove(&mut self, is_it: impl Fn(&T) -> bool) -> Option<T> {
        self.queues.iter_mut().find_map(|queue| queue.iter().position(&is_it).and_then(|at| queue.remove(at)))
    }

    /// How many run.
    pub fn running(&self) -> usize {
        self.running
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    /// The waiting calls, in the order in which they will run.
    pub fn queued(&self) -> impl Iterator<Item = &T> {
        self.queues.iter().flatten()
    }
}
