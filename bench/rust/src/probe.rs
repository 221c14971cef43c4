//! Message handlers that the actors of all contenders share, so that only the delivery differs.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::pacing::now_ns;

/// The longest that a run may take.
const LIMIT: Duration = Duration::from_secs(120);

/// The body of a receiving actor.
pub trait Handler: Send + 'static {
    /// Handles one message of one machine word.
    fn take(&mut self, word: u64);
}

/// Adds what it receives; tells `finish` at the last one.
#[derive(Debug)]
pub struct Counter {
    sum: u64,
    left: u64,
    finish: Finish,
}

impl Counter {
    pub fn new(goal: u64, finish: &Finish) -> Counter {
        Counter { sum: 0, left: goal, finish: finish.clone() }
    }
}

impl Handler for Counter {
    #[inline]
    fn take(&mut self, word: u64) {
        self.sum = self.sum.wrapping_add(word);
        self.left -= 1;
        if self.left == 0 {
            std::hint::black_box(self.sum);
            self.finish.one();
        }
    }
}

/// Reads each message as the time of its sending, and records the latency of every `every`th
/// message.
#[derive(Debug)]
pub struct Latency {
    every: u64,
    seen: u64,
    goal: u64,
    samples: Vec<u64>,
    finish: Finish,
}

impl Latency {
    pub fn new(goal: u64, every: u64, finish: &Finish) -> Latency {
        let samples = Vec::with_capacity((goal / every) as usize);
        Latency { every, seen: 0, goal, samples, finish: finish.clone() }
    }
}

impl Handler for Latency {
    #[inline]
    fn take(&mut self, word: u64) {
        self.seen += 1;
        if self.seen.is_multiple_of(self.every) {
            self.samples.push(now_ns().saturating_sub(word));
        }
        if self.seen == self.goal {
            self.finish.hand_over(std::mem::take(&mut self.samples));
            self.finish.one();
        }
    }
}

/// Waits until a number of actors have handled their last message, and knows when that was.
#[derive(Clone, Debug)]
pub struct Finish {
    shared: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Debug)]
struct State {
    left: usize,
    at: Instant,
    samples: Vec<u64>,
}

impl Finish {
    /// Done after `parties` calls of [`Finish::one`].
    pub fn after(parties: usize) -> Finish {
        let state = State { left: parties, at: Instant::now(), samples: Vec::new() };
        Finish { shared: Arc::new((Mutex::new(state), Condvar::new())) }
    }

    /// One party has handled its last message, now.
    pub fn one(&self) {
        let now = Instant::now();
        let mut state = self.shared.0.lock().expect("no holder panics");
        state.left -= 1;
        state.at = now;
        if state.left == 0 {
            self.shared.1.notify_all();
        }
    }

    /// Leaves samples for [`Finish::samples`].
    pub fn hand_over(&self, samples: Vec<u64>) {
        self.shared.0.lock().expect("no holder panics").samples.extend(samples);
    }

    /// Waits for the last party; the time from `start` until it was done.
    /// Panics after two minutes: a run that hangs should say so.
    pub fn since(&self, start: Instant) -> Duration {
        self.wait().at.saturating_duration_since(start)
    }

    /// Waits for the last party, then takes the samples that were handed over.
    pub fn samples(&self) -> Vec<u64> {
        std::mem::take(&mut self.wait().samples)
    }

    fn wait(&self) -> MutexGuard<'_, State> {
        let state = self.shared.0.lock().expect("no holder panics");
        let waited = self.shared.1.wait_timeout_while(state, LIMIT, |state| state.left > 0);
        let (state, timeout) = waited.expect("no holder panics");
        assert!(!timeout.timed_out(), "{} parties were not done after {LIMIT:?}", state.left);
        state
    }
}

/// The others' indices, round robin, beginning after one's own.
#[derive(Clone, Debug)]
pub struct Others {
    own: usize,
    next: usize,
    all: usize,
}

impl Others {
    pub fn new(own: usize, all: usize) -> Others {
        assert!(all > 1, "an exchange needs two actors");
        Others { own, next: own, all }
    }
}

impl Iterator for Others {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        self.next += 1;
        if self.next == self.all {
            self.next = 0;
        }
        if self.next == self.own {
            return self.next();
        }
        Some(self.next)
    }
}
