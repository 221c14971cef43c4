//! A lock for sections of a few instructions: one atomic exchange to take it, one plain store to
//! release it.
//!
//! Releasing a `parking_lot::Mutex` needs a second atomic exchange, which waits until everything
//! written under the lock has left the store buffer: lock and push took 13 ns with it and 7 ns with
//! this one (`docs/decisions/0002-*`). The price is that a waiting thread cannot sleep; it spins
//! briefly and then yields its time slice, so this lock is only for sections that never block,
//! allocate rarely and run no user code.
//!
//! Invariant: `locked` is true exactly while one thread is between `acquire` and `release`. The
//! exchange acquires, the store releases, so each holder sees everything that the one before it
//! wrote. `tests/loom_short_lock.rs` includes this file and checks that in all interleavings.

use super::sync::{AtomicBool, Ordering, SPINS, looks_taken, spin_loop, yield_now};

pub(crate) struct RawShort {
    pub locked: AtomicBool,
}

impl RawShort {
    #[inline]
    pub fn acquire(&self) {
        if !self.try_acquire() {
            self.acquire_slowly();
        }
    }

    #[inline]
    pub fn try_acquire(&self) -> bool {
        self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Only for the thread that holds the lock.
    #[inline]
    pub fn release(&self) {
        self.locked.store(false, Ordering::Release);
    }

    #[cold]
    fn acquire_slowly(&self) {
        let mut spins = 0;
        loop {
            while looks_taken(&self.locked) {
                if spins < SPINS {
                    spins += 1;
                    spin_loop();
                } else {
                    spins = 0;
                    yield_now();
                }
            }
            if self.try_acquire() {
                return;
            }
        }
    }
}
