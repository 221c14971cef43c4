//! The watchdog of handlers: it detects an event loop, or handler threads, that do not begin ready
//! work.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// They are blocked if something has been ready for so long, and was not begun.
const BLOCKED_US: u64 = 100_000;

/// Since when something has been ready that was not begun. Times are microseconds on one clock;
/// threads may share it.
///
/// ```
/// use tidewire_core::rpc::watchdog::{Blocked, Watchdog};
///
/// let watchdog = Watchdog::default();
/// assert!(watchdog.ready(1_000));
/// assert_eq!(watchdog.blocked(51_000), None);
/// assert_eq!(watchdog.blocked(151_000), Some(Blocked { ms: 150, is_new: true }));
/// watchdog.begun();
/// assert_eq!(watchdog.blocked(900_000), None);
/// ```
#[derive(Debug, Default)]
pub struct Watchdog {
    /// The time plus one; 0: all ready work has begun.
    ready_at: AtomicU64,
    is_reported: AtomicBool,
}

/// A report of blocked handlers: ready work has not begun for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// For how many milliseconds.
    pub ms: u32,
    /// True in the first report of this blockage.
    pub is_new: bool,
}

impl Watchdog {
    /// Records ready work. Returns true if no other work was ready.
    pub fn ready(&self, now_us: u64) -> bool {
        let at = now_us.saturating_add(1);
        self.ready_at.load(Ordering::Relaxed) == 0
            && self.ready_at.compare_exchange(0, at, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Records that work has begun.
    pub fn begun(&self) {
        self.ready_at.store(0, Ordering::Release);
        if self.is_reported.load(Ordering::Relaxed) {
            self.is_reported.store(false, Ordering::Relaxed);
        }
    }

    /// Reports blocked handlers, if there are any.
    pub fn blocked(&self, now_us: u64) -> Option<Blocked> {
        let ready_at = self.ready_at.load(Ordering::Acquire);
        let since_us = now_us.saturating_add(1).saturating_sub(ready_at);
        if ready_at == 0 || since_us < BLOCKED_US {
            return None;
        }
        let ms = u32::try_from(since_us / 1_000).unwrap_or(u32::MAX);
        Some(Blocked { ms, is_new: !self.is_reported.swap(true, Ordering::AcqRel) })
    }
}
