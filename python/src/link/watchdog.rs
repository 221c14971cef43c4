//! The watchdog of an event loop: notices when the loop of the handlers does not go round, and logs
//! it.

use std::time::Instant;

use pyo3::prelude::*;
use tidewire_core::rpc::watchdog::{Blocked, Watchdog};

use crate::attach::try_attach;

/// Since when a loop has been asked for a sign of life that it did not give.
pub struct LoopWatchdog {
    began: Instant,
    machine: Watchdog,
}

impl LoopWatchdog {
    pub fn new() -> Self {
        Self { began: Instant::now(), machine: Watchdog::default() }
    }

    /// The loop is asked for something, and will be woken.
    pub fn asks(&self) {
        self.machine.ready(self.now_us());
    }

    /// The loop goes round.
    pub fn goes_round(&self) {
        self.machine.begun();
    }

    /// For how many milliseconds it has been blocked. The first time that is so it is logged.
    pub fn blocked_ms(&self) -> u32 {
        let Some(Blocked { ms, is_new }) = self.machine.blocked(self.now_us()) else { return 0 };
        if is_new {
            log(ms);
        }
        ms
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// Logs on a thread of its own. Code that blocks the loop may hold the interpreter, and the link
/// thread must not wait.
fn log(blocked_ms: u32) {
    let told = std::thread::Builder::new().name("tidewire-log".to_owned()).spawn(move || {
        // At the end of the program there is nobody to tell.
        let _ = try_attach(|py| {
            if let Err(error) = warn(py, blocked_ms) {
                error.write_unraisable(py, None);
            }
        });
    });
    // Without a thread no line is logged. Callers are notified all the same.
    drop(told);
}

fn warn(py: Python<'_>, blocked_ms: u32) -> PyResult<()> {
    let text = "the event loop has been blocked for %d ms while calls of other nodes wait: look for a handler that does not await";
    let logger = PyModule::import(py, "tidewire._log")?.getattr("logger")?;
    logger.call_method1("warning", (text, blocked_ms)).map(drop)
}
