//! Yield of the core between two parts of a long copy.
//!
//! The thread of the links copies long payloads while event loops of the same host wait for short
//! ones, and there may be fewer cores than threads. The system lets a running thread go on for some
//! milliseconds, while one part takes some microseconds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::clock::now_us;

/// How much is copied in one go.
pub const PART_BYTES: usize = 65_536;
/// A yield that takes longer than this has met threads that use their whole time slice.
const LATE_US: u64 = 500;
/// Pause of yields after a late return, as those threads would take a slice between every two
/// parts. Meanwhile the system shares the core out.
const REST_US: u64 = 100_000;

static CORE: CoreContention = CoreContention { paused_until_us: AtomicU64::new(0) };

/// Yields the core to other threads of this host, if recent yields came back soon.
pub fn yield_core() {
    let gave_us = now_us();
    if CORE.is_given(gave_us) {
        thread::yield_now();
        CORE.came_back(gave_us, now_us());
    }
}

/// Record of late returns from yields.
struct CoreContention {
    paused_until_us: AtomicU64,
}

impl CoreContention {
    fn is_given(&self, now_us: u64) -> bool {
        now_us >= self.paused_until_us.load(Ordering::Relaxed)
    }

    fn came_back(&self, gave_us: u64, now_us: u64) {
        if now_us.saturating_sub(gave_us) > LATE_US {
            self.paused_until_us.store(now_us + REST_US, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_gets_the_core_back_late_keeps_it_for_a_while() {
        let core = CoreContention { paused_until_us: AtomicU64::new(0) };
        core.came_back(5_000, 5_000 + LATE_US);
        assert!(core.is_given(5_000 + LATE_US), "it was back in time");
        let late = 7_001 + LATE_US;
        core.came_back(7_000, late);
        assert!(!core.is_given(late) && !core.is_given(late + REST_US - 1), "it was late");
        assert!(core.is_given(late + REST_US), "that was long ago");
    }
}
