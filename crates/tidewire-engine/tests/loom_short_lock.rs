//! The lock around a mailbox, in all interleavings of three threads that try to take it. (Waiting
//! for it is trying again; a model of that has no end.) Run with `make test-loom`.

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

    pub fn looks_taken(locked: &AtomicBool) -> bool {
        locked.load(Ordering::Relaxed)
    }
}

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use short_lock::RawShort;

/// Two numbers that are equal whenever nobody is inside; loom reports any access that is not
/// ordered by the lock.
struct Guarded {
    lock: RawShort,
    pair: UnsafeCell<(u32, u32)>,
}

// SAFETY: the pair is only touched by the thread that holds the lock, which is what the model
// checks.
unsafe impl Sync for Guarded {}
// SAFETY: as above.
unsafe impl Send for Guarded {}

impl Guarded {
    /// Answers whether the lock was free.
    fn try_bump(&self) -> bool {
        let taken = self.lock.try_acquire();
        if taken {
            // SAFETY: this thread holds the lock.
            self.pair.with_mut(|pair| unsafe {
                assert_eq!((*pair).0, (*pair).1, "somebody else is inside, or was not seen");
                (*pair).0 += 1;
                (*pair).1 += 1;
            });
            self.lock.release();
        }
        taken
    }
}

#[test]
fn one_thread_at_a_time_is_inside_and_sees_what_the_last_one_wrote() {
    loom::model(|| {
        let lock = RawShort { locked: sync::AtomicBool::new(false) };
        let guarded = Arc::new(Guarded { lock, pair: UnsafeCell::new((0, 0)) });
        let others: Vec<_> = (0..2)
            .map(|_| {
                let guarded = Arc::clone(&guarded);
                thread::spawn(move || u32::from(guarded.try_bump()) + u32::from(guarded.try_bump()))
            })
            .collect();
        let mut inside = u32::from(guarded.try_bump());
        inside += others.into_iter().map(|other| other.join().unwrap()).sum::<u32>();
        assert!(guarded.try_bump(), "the lock is free at the end");
        // SAFETY: all other threads have ended.
        guarded.pair.with(|pair| assert_eq!(unsafe { *pair }, (inside + 1, inside + 1)));
    });
}
