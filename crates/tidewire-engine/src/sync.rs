//! Atomics and locks under [`short_lock`](crate::short_lock). Its model puts loom's in their place.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::thread::yield_now;

/// Spins of a waiting thread before each yield.
pub(crate) const SPINS: u32 = 32;

/// Whether it is not worth trying yet. Reading is cheaper than trying: it leaves the cache line where it is.
#[inline]
pub(crate) fn looks_taken(locked: &AtomicBool) -> bool {
    locked.load(Ordering::Relaxed)
}
