//! Stand-in for `src/sync.rs` in a model: atomics, locks and threads of loom.

pub use loom::sync::Arc;
pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};

/// As `tidewire_sync::Mutex`, without poison.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

pub mod thread {
    pub use loom::thread::{Thread, current, park};

    /// Time does not pass in a model: nobody asks for this there.
    pub fn park_timeout(_: std::time::Duration) {
        unreachable!("models wait without a limit");
    }
}
