//! The short lock with a value in it: the one place of this crate with `unsafe`.

#![allow(unsafe_code)]

use crate::short_lock::RawShort;
use crate::sync::AtomicBool;

/// A mutex for very short sections; see [`RawShort`].
pub(crate) type ShortMutex<T> = lock_api::Mutex<RawShort, T>;

// SAFETY: `RawShort` lets one thread in at a time: only an exchange from false to true lets a
// thread in, and nothing but `unlock`, which `lock_api` calls for the thread that is in, makes it
// false again. The loom model is the proof.
unsafe impl lock_api::RawMutex for RawShort {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self { locked: AtomicBool::new(false) };

    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        self.acquire();
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.try_acquire()
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.release();
    }
}
