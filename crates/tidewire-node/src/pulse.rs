//! The watchdog of handlers: notices when ready handlers do not begin.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// They are blocked if something has been ready for so long, and was not begun.
const BLOCKED: Duration = Duration::from_millis(100);

/// Since when something has been ready that was not begun.
pub(crate) struct Pulse {
    began: Instant,
    /// Microseconds from `began`; 0: all that was ready has begun.
    asked_us: AtomicU64,
    told: AtomicBool,
}

impl Pulse {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), asked_us: AtomicU64::new(0), told: AtomicBool::new(false) })
    }

    /// Something is ready. Answers whether nothing else was.
    pub fn ask(&self) -> bool {
        self.asked_us.load(Ordering::Relaxed) == 0
            && self.asked_us.compare_exchange(0, self.now_us(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Something has begun.
    pub fn beat(&self) {
        self.asked_us.store(0, Ordering::Release);
        if self.told.load(Ordering::Relaxed) {
            self.told.store(false, Ordering::Relaxed);
        }
    }

    /// For how many milliseconds they have been blocked, and whether that is to be logged: the first time that it is so.
    pub fn blocked_ms(&self) -> (u32, bool) {
        let asked_us = self.asked_us.load(Ordering::Acquire);
        let since = Duration::from_micros(self.now_us().saturating_sub(asked_us));
        if asked_us == 0 || since < BLOCKED {
            return (0, false);
        }
        let blocked_ms = u32::try_from(since.as_millis()).unwrap_or(u32::MAX);
        (blocked_ms, !self.told.swap(true, Ordering::AcqRel))
    }

    fn now_us(&self) -> u64 {
        // 0 stands for a question that was not asked.
        1 + u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX - 1)
    }
}
