//! Atomics, locks and threads of the parts that loom models run directly: the models replace them
//! by those of loom (`tests/loom_*.rs`).

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
pub(crate) use std::thread::{self, yield_now};

pub(crate) use tidewire_sync::Mutex;

/// Spins of a waiting thread before each yield.
pub(crate) const SPINS: u32 = 32;

/// True if the lock looks taken, so that an attempt is not worth it yet. A read is cheaper than an
/// attempt: the cache line stays where it is.
#[inline]
pub(crate) fn looks_taken(locked: &AtomicBool) -> bool {
    locked.load(Ordering::Relaxed)
}
