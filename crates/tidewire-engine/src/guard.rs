//! Panic guards of the engine's own threads: they catch panics of code that the threads call, wake
//! or drop. The panic hook has reported such a panic.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Calls a destructor, a waker or a callback whose failure concerns no caller. Returns false if the
/// call panicked.
#[inline]
pub(crate) fn guarded(call: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(()) => true,
        Err(panic) => {
            // Its destructor may panic as well: it is left alone.
            let _leaked = ManuallyDrop::new(panic);
            false
        }
    }
}

/// Wakes all of them, whatever one of them does.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        guarded(|| waker.wake());
    }
}
