//! A lock for sections of a few instructions: one atomic exchange to take it, one plain store to release it.
//!
//! Measured against `parking_lot::Mutex` around a mailbox: releasing that one needs a second atomic exchange, which waits
//! until everything written under the lock has left the store buffer, and costs a third of a `tell`. The price is that a
//! waiting thread cannot sleep; it spins briefly and then yields its time slice, so this lock is only for sections
//! that never block, allocate rarely and run no user code.
//!
//! Invariant: `locked` is true exactly while one guard exists. The exchange acquires, the store releases, so each
//! holder sees everything that the one before it wrote. `tests/loom_short_lock.rs` checks it in all interleavings.

#![allow(unsafe_code)]

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::yield_now;

/// A mutex for very short sections.
pub(crate) type ShortMutex<T> = lock_api::Mutex<RawShort, T>;

/// Spins before each yield.
const SPINS: u32 = 32;

pub(crate) struct RawShort {
    locked: AtomicBool,
}

// SAFETY: only one thread can change `locked` from false to true, and nobody else changes it back until that thread,
// through `unlock`, does; see the invariant above.
unsafe impl lock_api::RawMutex for RawShort {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self { locked: AtomicBool::new(false) };

    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        !self.locked.swap(true, Ordering::Acquire)
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.locked.store(false, Ordering::Release);
    }
}

impl RawShort {
    #[cold]
    fn lock_slow(&self) {
        let mut spins = 0;
        loop {
            while self.locked.load(Ordering::Relaxed) {
                if spins < SPINS {
                    spins += 1;
                    spin_loop();
                } else {
                    spins = 0;
                    yield_now();
                }
            }
            if !self.locked.swap(true, Ordering::Acquire) {
                return;
            }
        }
    }
}
