//! Sleep and wakeup of threads in all interleavings: no work that becomes visible while a thread
//! falls asleep is lost. The model runs `dispatch/parker.rs` itself, over the atomics, locks and
//! threads of loom. Run with `make test-loom`.

#![cfg(loom)]
#![allow(missing_docs)]

#[path = "../src/dispatch/parker.rs"]
#[allow(dead_code)]
mod parker;
#[path = "support/loom_sync.rs"]
#[allow(dead_code, unused_imports)]
mod sync;

use loom::thread;
use parker::{ParkedThreads, Parker};
use sync::{Arc, AtomicUsize, Ordering};

#[derive(Default)]
struct Pool {
    work: AtomicUsize,
    sleepers: ParkedThreads,
}

impl Pool {
    /// A producer: make the work visible, then look for a sleeper.
    fn produce(&self) {
        self.work.fetch_add(1, Ordering::Relaxed);
        self.sleepers.wake_one();
    }

    /// A worker: announce, look once more, and only then sleep. It ends with the first work that it
    /// finds.
    fn consume(&self) {
        let bed = Parker::new();
        bed.mine();
        while !self.takes_one() {
            self.sleepers.announce(&bed);
            if self.work.load(Ordering::Relaxed) > 0 && self.sleepers.retract(&bed) {
                continue;
            }
            self.sleepers.sleep(&bed, None);
        }
    }

    fn takes_one(&self) -> bool {
        self.work.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |work| work.checked_sub(1)).is_ok()
    }
}

fn consumer(pool: &Arc<Pool>) -> thread::JoinHandle<()> {
    let pool = Arc::clone(pool);
    thread::spawn(move || pool.consume())
}

#[test]
fn work_that_comes_while_falling_asleep_is_found() {
    loom::model(|| {
        let pool = Arc::new(Pool::default());
        let worker = consumer(&pool);
        pool.produce();
        // If the worker slept on, loom would report a deadlock here.
        worker.join().unwrap();
        assert_eq!(pool.sleepers.count(), 0);
    });
}

#[test]
fn each_of_two_sleepers_gets_up_for_work_of_its_own() {
    let mut model = loom::model::Builder::new();
    // More changes of threads than these find nothing more that a fault would need, and take hours.
    model.preemption_bound = Some(3);
    model.check(|| {
        let pool = Arc::new(Pool::default());
        let workers = [consumer(&pool), consumer(&pool)];
        pool.produce();
        pool.produce();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}
