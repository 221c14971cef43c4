//! The watchdog of an event loop: notices when the loop of the handlers does not go round.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::attach::try_attach;
/// A loop is blocked if it has had something to do for so long, and did not look.
const BLOCKED: Duration = Duration::from_millis(100);

/// Since when a loop has been asked for a sign of life that it did not give.
pub struct Pulse {
    began: Instant,
    /// Microseconds from `began`, 0: it was not asked, or has answered.
    asked_us: AtomicU64,
    told: AtomicBool,
}

impl Pulse {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), asked_us: AtomicU64::new(0), told: AtomicBool::new(false) })
    }

    /// The loop is asked for something, and will be woken.
    pub fn ask(&self) {
        if self.asked_us.load(Ordering::Relaxed) == 0 {
            let _ = self.asked_us.compare_exchange(0, self.now_us(), Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The loop goes round.
    pub fn beat(&self) {
        self.asked_us.store(0, Ordering::Release);
        if self.told.load(Ordering::Relaxed) {
            self.told.store(false, Ordering::Relaxed);
        }
    }

    /// For how many milliseconds it has been blocked. The first time that is so it is logged.
    pub fn blocked_ms(&self) -> u32 {
        let asked_us = self.asked_us.load(Ordering::Acquire);
        let since = Duration::from_micros(self.now_us().saturating_sub(asked_us));
        if asked_us == 0 || since < BLOCKED {
            return 0;
        }
        let blocked_ms = u32::try_from(since.as_millis()).unwrap_or(u32::MAX);
        if !self.told.swap(true, Ordering::AcqRel) {
            log(blocked_ms);
        }
        blocked_ms
    }

    fn now_us(&self) -> u64 {
        // 0 stands for a question that was not asked.
        1 + u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX - 1)
    }
}

/// Logs on a thread of its own: whoever blocks the loop may hold the interpreter, and the thread of links waits for nobody.
fn log(blocked_ms: u32) {
    let told = std::thread::Builder::new().name("tidewire-log".to_owned()).spawn(move || {
        // At the end of the program there is nobody to tell.
        let _ = try_attach(|py| {
            if let Err(error) = warn(py, blocked_ms) {
                error.write_unraisable(py, None);
            }
        });
    });
    // Without a thread there is no line; callers are told all the same.
    drop(told);
}

fn warn(py: Python<'_>, blocked_ms: u32) -> PyResult<()> {
    let text = "the event loop has been blocked for %d ms while calls of other nodes wait: look for a handler that does not await";
    let logger = PyModule::import(py, "tidewire._log")?.getattr("logger")?;
    logger.call_method1("warning", (text, blocked_ms)).map(drop)
}
