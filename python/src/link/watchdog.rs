//! The watchdog of handlers: notices when their event loop does not go round, or when a dispatcher
//! has no free thread, and logs the cause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tidewire_core::rpc::watchdog::{Blocked, Watchdog};
use tidewire_engine::{EngineHandle, Starvation};

use crate::actors::bridge::{LoopHandle, NOT_RUNNING};
use crate::interpreter::attach::try_attach;
use crate::interpreter::exit::ExitPermit;

/// Threads count as blocked if all have been in the same turns for so long, as the loop does.
const STARVED: Duration = Duration::from_millis(100);

/// Since when a loop has been asked for a sign of life that it did not give.
pub struct LoopWatchdog {
    began: Instant,
    machine: Watchdog,
    /// The engine whose threads run plain functions.
    engine: Option<EngineHandle>,
    starvation_logged: AtomicBool,
}

impl LoopWatchdog {
    pub fn new(engine: Option<EngineHandle>) -> Self {
        let (machine, starvation_logged) = (Watchdog::default(), AtomicBool::default());
        Self { began: Instant::now(), machine, engine, starvation_logged }
    }

    /// The loop is asked for something, and will be woken.
    pub fn asks(&self) {
        self.machine.ready(self.now_us());
    }

    /// The loop goes round.
    pub fn goes_round(&self) {
        self.machine.begun();
    }

    /// For how many milliseconds handlers have been blocked. The first time is logged.
    pub fn blocked_ms(&self, line: &Arc<LoopHandle>) -> u32 {
        let starved_ms = self.starved_ms();
        let Some(Blocked { ms, is_new }) = self.machine.blocked(self.now_us()) else { return starved_ms };
        if is_new {
            log(Cause::Loop(ms, Arc::clone(line)));
        }
        ms.max(starved_ms)
    }

    fn starved_ms(&self) -> u32 {
        let starvation = self.engine.as_ref().and_then(EngineHandle::starvation);
        let Some((starvation, time)) = starvation.filter(|(_, time)| *time >= STARVED) else {
            self.starvation_logged.store(false, Ordering::Relaxed);
            return 0;
        };
        if !self.starvation_logged.swap(true, Ordering::Relaxed) {
            log(Cause::Threads(starvation));
        }
        u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// The reason why ready calls do not begin.
enum Cause {
    Loop(u32, Arc<LoopHandle>),
    Threads(Starvation),
}

/// Logs on a thread of its own. Code that blocks the loop may hold the interpreter, and the link
/// thread must not wait.
fn log(cause: Cause) {
    // At the end of the program there is nobody to tell.
    let Some(permit) = ExitPermit::take() else { return };
    let started = std::thread::Builder::new().name("tidewire-log".to_owned()).spawn(move || {
        let _ = try_attach(|py| {
            if let Err(error) = warn(py, &cause) {
                error.write_unraisable(py, None);
            }
        });
        drop(permit);
    });
    // Without a thread no line is logged. Callers are notified all the same.
    drop(started);
}

fn warn(py: Python<'_>, cause: &Cause) -> PyResult<()> {
    let text = match cause {
        Cause::Threads(starvation) => starvation.to_string(),
        Cause::Loop(_, line) if !line.is_running(py) => NOT_RUNNING.to_owned(),
        Cause::Loop(ms, _) => {
            format!("the event loop has been blocked for {ms} ms: look for a handler that does not await")
        }
    };
    let logger = PyModule::import(py, "tidewire._log")?.getattr("logger")?;
    logger.call_method1("warning", ("calls of other nodes wait: %s", text)).map(drop)
}
