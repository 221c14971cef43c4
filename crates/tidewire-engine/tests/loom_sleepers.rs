//! Falling asleep and waking up: work that is made visible while a thread falls asleep is never left lying.
//! The protocol of `dispatch/sleepers.rs`, with loom's own parking in the place of the thread's. Run with `make test-loom`.

#![cfg(loom)]
#![allow(missing_docs)]

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use loom::sync::{Arc, Mutex, Notify};
use loom::thread;

struct Pool {
    work: AtomicUsize,
    sleepers: Mutex<bool>,
    count: AtomicUsize,
    woken: AtomicBool,
    bed: Notify,
}

impl Pool {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            work: AtomicUsize::new(0),
            sleepers: Mutex::new(false),
            count: AtomicUsize::new(0),
            woken: AtomicBool::new(false),
            bed: Notify::new(),
        })
    }

    /// A producer: make the work visible, then look for a sleeper.
    fn produce(&self) {
        self.work.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let slept = std::mem::take(&mut *self.sleepers.lock().unwrap());
        if slept {
            self.count.store(0, Ordering::Relaxed);
            self.woken.store(true, Ordering::Release);
            self.bed.notify();
        }
    }

    /// A worker: announce, look once more, and only then sleep. Answers with the work it found.
    fn consume(&self) {
        while self.work.swap(0, Ordering::Relaxed) == 0 {
            self.woken.store(false, Ordering::Relaxed);
            {
                let mut sleepers = self.sleepers.lock().unwrap();
                *sleepers = true;
                self.count.store(1, Ordering::Relaxed);
            }
            fence(Ordering::SeqCst);
            if self.work.load(Ordering::Relaxed) > 0 {
                *self.sleepers.lock().unwrap() = false;
                self.count.store(0, Ordering::Relaxed);
                continue;
            }
            while !self.woken.load(Ordering::Acquire) {
                self.bed.wait();
            }
        }
    }
}

#[test]
fn work_that_comes_while_falling_asleep_is_found() {
    loom::model(|| {
        let pool = Pool::new();
        let worker = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.consume())
        };
        pool.produce();
        // If the worker slept on, loom would report a deadlock here.
        worker.join().unwrap();
    });
}
