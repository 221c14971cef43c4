//! The lock around a mailbox, in all interleavings of two and three threads. Run with `make test-loom`.

#![cfg(loom)]
#![allow(missing_docs, unsafe_code)]

#[path = "../src/short_lock.rs"]
#[allow(dead_code)]
mod short_lock;

mod sync {
    pub use loom::hint::spin_loop;
    pub use loom::sync::atomic::{AtomicBool, Ordering};
    pub use loom::thread::yield_now;
    pub const SPINS: u32 = 0;
}

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use short_lock::RawShort;

/// Two numbers that are equal whenever nobody is inside; loom reports any access that is not ordered by the lock.
struct Guarded {
    lock: RawShort,
    pair: UnsafeCell<(u32, u32)>,
}

unsafe impl Sync for Guarded {}
unsafe impl Send for Guarded {}

impl Guarded {
    fn bump(&self) {
        self.lock.acquire();
        self.pair.with_mut(|pair| unsafe {
            assert_eq!((*pair).0, (*pair).1);
            (*pair).0 += 1;
            (*pair).1 += 1;
        });
        self.lock.release();
    }

    fn try_bump(&self) -> bool {
        let taken = self.lock.try_acquire();
        if taken {
            self.pair.with_mut(|pair| unsafe {
                (*pair).0 += 1;
                (*pair).1 += 1;
            });
            self.lock.release();
        }
        taken
    }
}

fn guarded() -> Arc<Guarded> {
    Arc::new(Guarded { lock: RawShort { locked: sync::AtomicBool::new(false) }, pair: UnsafeCell::new((0, 0)) })
}

#[test]
fn only_one_thread_is_inside_and_sees_what_the_last_one_wrote() {
    loom::model(|| {
        let guarded = guarded();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let guarded = Arc::clone(&guarded);
                thread::spawn(move || guarded.bump())
            })
            .collect();
        guarded.bump();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        guarded.lock.acquire();
        guarded.pair.with(|pair| assert_eq!(unsafe { *pair }, (3, 3)));
        guarded.lock.release();
    });
}

#[test]
fn a_try_that_fails_changes_nothing() {
    loom::model(|| {
        let guarded = guarded();
        let other = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || guarded.bump())
        };
        let tried = guarded.try_bump();
        other.join().unwrap();
        guarded.lock.acquire();
        guarded.pair.with(|pair| assert_eq!(unsafe { (*pair).0 }, 1 + u32::from(tried)));
        guarded.lock.release();
    });
}
