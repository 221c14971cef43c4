//! The end of the program: CPython ends a thread that runs Python then, in the middle of its call,
//! and aborts the program if frames of Rust are below. So the end waits for threads of our own.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tidewire_engine::raw::{Condvar, Mutex, PerProcess};

use crate::interpreter::attach::detach;

/// Longest wait for threads that run Python.
const PATIENCE: Duration = Duration::from_secs(1);

static AT_EXIT: PerProcess<ExitBarrier> = PerProcess::new();

#[derive(Default)]
struct ExitBarrier {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    permits: usize,
    is_shut: bool,
}

/// Leave to run Python on a thread of our own: the end of the program waits until it is dropped.
pub struct ExitPermit(&'static ExitBarrier);

impl ExitPermit {
    /// None if the program has reached its end.
    pub fn take() -> Option<Self> {
        let barrier = AT_EXIT.get();
        let mut state = barrier.state.lock();
        (!state.is_shut).then(|| {
            state.permits += 1;
            Self(barrier)
        })
    }
}

impl Drop for ExitPermit {
    fn drop(&mut self) {
        self.0.state.lock().permits -= 1;
        self.0.changed.notify_all();
    }
}

/// Waits until no thread of our own runs Python, for a second at most. None begins after that.
#[pyfunction]
pub fn finish_threads(py: Python<'_>) {
    detach(py, || {
        let (barrier, until) = (AT_EXIT.get(), Instant::now() + PATIENCE);
        let mut state = barrier.state.lock();
        state.is_shut = true;
        while state.permits > 0
            && let Some(left) = until.checked_duration_since(Instant::now())
        {
            state = barrier.changed.wait_for(state, left).0;
        }
    });
}
