//! A vector under a lock, which the consumer swaps out whole: the simplest mailbox that is fast.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::job::{Job, Workload};
use crate::outcome::Outcome;
use crate::pacing::{self, BURST};
use crate::probe::{Counter, Finish, Handler, Latency};

/// Runs what makes sense for one queue without actors: the storm, the wake-up and the burst.
pub fn run(job: &Job) -> Option<Outcome> {
    match job.workload {
        Workload::Storm if job.idle == 0 => Some(storm(job)),
        Workload::PingIdle => Some(paced(job, job.count, 1, |send| pacing::after_idle(job.count, send))),
        Workload::Burst => Some(paced(job, job.count * BURST, BURST, |send| pacing::in_bursts(job.count, send))),
        _ => None,
    }
}

fn storm(job: &Job) -> Outcome {
    let finish = Finish::after(1);
    let queue = consumer(job, Counter::new(job.count, &finish));
    let start = Instant::now();
    for word in 0..job.count {
        queue.push(word);
    }
    Outcome::rate(job.count, finish.since(start))
}

fn paced(job: &Job, goal: u64, every: u64, pace: impl FnOnce(&mut dyn FnMut(u64))) -> Outcome {
    let finish = Finish::after(1);
    let queue = consumer(job, Latency::new(goal, every, &finish));
    pace(&mut |word| queue.push(word));
    Outcome::latency(finish.samples())
}

/// The consumer is never joined: it sleeps for good when nothing comes any more.
fn consumer(job: &Job, mut handler: impl Handler) -> Arc<Queue> {
    let queue = Arc::new(Queue::new(job.mailbox));
    let theirs = Arc::clone(&queue);
    thread::spawn(move || {
        let mut batch = Vec::with_capacity(theirs.places);
        loop {
            theirs.swap_out(&mut batch);
            batch.drain(..).for_each(|word| handler.take(word));
        }
    });
    queue
}

struct Queue {
    places: usize,
    words: Mutex<Vec<u64>>,
    filled: Condvar,
    emptied: Condvar,
}

impl Queue {
    fn new(places: usize) -> Queue {
        let words = Mutex::new(Vec::with_capacity(places));
        Queue { places, words, filled: Condvar::new(), emptied: Condvar::new() }
    }

    #[inline]
    fn push(&self, word: u64) {
        let mut words = self.words.lock();
        while words.len() == self.places {
            self.emptied.wait(&mut words);
        }
        words.push(word);
        let was_empty = words.len() == 1;
        drop(words);
        if was_empty {
            self.filled.notify_one();
        }
    }

    fn swap_out(&self, batch: &mut Vec<u64>) {
        let mut words = self.words.lock();
        while words.is_empty() {
            self.filled.wait(&mut words);
        }
        let was_full = words.len() == self.places;
        std::mem::swap(&mut *words, batch);
        drop(words);
        if was_full {
            self.emptied.notify_one();
        }
    }
}
