//! Sleep and wakeup of idle worker threads.
//!
//! A thread that wants to sleep first announces itself, then looks for work once more. A producer
//! first makes its work visible, then looks for sleepers. With a full fence between the two steps
//! on both sides, at least one sees the other: `tests/loom_sleepers.rs` runs this file in all
//! interleavings.

use std::time::{Duration, Instant};

use crate::sync::thread::{self, Thread};
use crate::sync::{Arc, AtomicBool, AtomicUsize, Mutex, Ordering, fence};

/// The bed of one thread.
pub(crate) struct Parker {
    woken: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Parker {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { woken: AtomicBool::new(false), thread: Mutex::new(None) })
    }

    /// Says which thread sleeps here; called by that thread.
    pub fn mine(&self) {
        *self.thread.lock() = Some(thread::current());
    }

    fn rouse(&self) {
        self.woken.store(true, Ordering::Release);
        if let Some(thread) = self.thread.lock().as_ref() {
            thread.unpark();
        }
    }
}

#[derive(Default)]
pub(crate) struct ParkedThreads {
    beds: Mutex<Vec<Arc<Parker>>>,
    count: AtomicUsize,
}

impl ParkedThreads {
    /// Announces a thread that is about to sleep. It must look for work once more before it does.
    pub fn announce(&self, bed: &Arc<Parker>) {
        bed.woken.store(false, Ordering::Relaxed);
        {
            let mut beds = self.beds.lock();
            beds.push(Arc::clone(bed));
            self.count.store(beds.len(), Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// Takes an announcement back. Answers false if the thread has been woken already.
    pub fn retract(&self, bed: &Arc<Parker>) -> bool {
        let mut beds = self.beds.lock();
        let at = beds.iter().position(|other| Arc::ptr_eq(other, bed));
        if let Some(at) = at {
            beds.swap_remove(at);
            self.count.store(beds.len(), Ordering::Relaxed);
        }
        at.is_some()
    }

    /// Sleeps until woken, or until the time is up. Answers whether it was woken.
    pub fn sleep(&self, bed: &Arc<Parker>, most: Option<Duration>) -> bool {
        let until = most.and_then(|most| Instant::now().checked_add(most));
        while !bed.woken.load(Ordering::Acquire) {
            match until {
                None => thread::park(),
                Some(until) => {
                    let remaining = until.saturating_duration_since(Instant::now());
                    if remaining.is_zero() {
                        return !self.retract(bed);
                    }
                    thread::park_timeout(remaining);
                }
            }
        }
        true
    }

    /// Wakes one sleeper, the one that fell asleep last. Answers false if nobody sleeps.
    pub fn wake_one(&self) -> bool {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let bed = {
            let mut beds = self.beds.lock();
            let bed = beds.pop();
            self.count.store(beds.len(), Ordering::Relaxed);
            bed
        };
        bed.inspect(|bed| bed.rouse()).is_some()
    }

    pub fn wake_all(&self) {
        while self.wake_one() {}
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}
