//! Timers: a future of a time, and functions for tests that set the clock of deadlines ahead.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tidewire_engine::EngineHandle;
use tidewire_engine::raw::{Fire, Watch};
use tidewire_engine::raw::{Mutex, clock};

use crate::errors::error;
use crate::interpreter::attach::{attach, detach};

/// A single wake-up.
#[derive(Default)]
struct Notifier {
    state: Mutex<(bool, Option<Waker>)>,
}

impl Fire for Notifier {
    fn fire(self: Arc<Self>) {
        let waker = {
            let mut state = self.state.lock();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A future that ends at a time. Dropping it cancels the timer.
pub struct TimerFuture {
    notifier: Arc<Notifier>,
    at: Instant,
    engine: EngineHandle,
    watch: Option<Watch>,
}

impl TimerFuture {
    /// A timer of so many seconds. None for no limit.
    pub fn of(seconds: Option<f64>, engine: EngineHandle) -> Option<Self> {
        let wait = Duration::try_from_secs_f64(seconds?).unwrap_or(Duration::MAX);
        Some(Self::new(clock::now().checked_add(wait)?, engine))
    }

    pub fn new(at: Instant, engine: EngineHandle) -> Self {
        Self { notifier: Arc::default(), at, engine, watch: None }
    }
}

impl Future for TimerFuture {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        {
            let mut state = self.notifier.state.lock();
            if state.0 {
                drop(state);
                return Poll::Ready(Ok(attach(|py| py.None())));
            }
            state.1 = Some(context.waker().clone());
        }
        if self.watch.is_none() {
            self.watch = Some(self.engine.watch(self.at, Arc::clone(&self.notifier) as Arc<dyn Fire>));
        }
        Poll::Pending
    }
}

/// Seconds until each deadline for which a thread of an engine, or of a storage backend in a
/// folder, sleeps; negative for those that have come.
#[pyfunction]
pub fn deadlines() -> Vec<f64> {
    let now = clock::now();
    let left = |at: Instant| (at.saturating_duration_since(now), now.saturating_duration_since(at));
    clock::deadlines().into_iter().map(left).map(|(left, late)| left.as_secs_f64() - late.as_secs_f64()).collect()
}

/// Sets the clock of deadlines and the time of day ahead by so many seconds.
#[pyfunction]
pub fn advance_clock(py: Python<'_>, seconds: f64) -> PyResult<()> {
    let by = Duration::try_from_secs_f64(seconds).map_err(|wrong| {
        let text = format!("seconds: {seconds} is not allowed: give 0 or more ({wrong})");
        error(py, "InvalidArgument", &text, &[])
    })?;
    // A thread that is woken may hold a lock, and wait for the interpreter.
    detach(py, || clock::advance(by));
    Ok(())
}

/// Sets the time of day to that of the system. Deadlines stay ahead.
#[pyfunction]
pub fn restore_time_of_day() {
    clock::restore_system_time();
}
