//! Change signals: wake those who wait for the state of a node.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use tidewire_engine::raw::Mutex;

use crate::interpreter::pause::TimerFuture;

/// A count of changes, and the waiters for the next one. It does not say which change happened.
#[derive(Default)]
pub struct ChangeCounter {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    count: u64,
    waiting: Vec<Waker>,
}

impl ChangeCounter {
    /// Number of changes so far.
    pub fn count(&self) -> u64 {
        self.state.lock().count
    }

    /// Counts a change and wakes the waiters.
    pub fn tell(&self) {
        let waiting = {
            let mut state = self.state.lock();
            state.count += 1;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// True if there are more changes than `known`. Otherwise the next change wakes the waker.
    fn is_newer(&self, known: u64, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        if state.count != known {
            return true;
        }
        if !state.waiting.iter().any(|other| other.will_wake(waker)) {
            state.waiting.push(waker.clone());
        }
        false
    }

    /// Removes the waiter that this waker belongs to.
    fn forget(&self, waker: &Waker) {
        // A waker may hold the last reference to something: it is dropped after the lock.
        let removed = {
            let mut state = self.state.lock();
            let at = state.waiting.iter().position(|other| other.will_wake(waker));
            at.map(|at| state.waiting.swap_remove(at))
        };
        drop(removed);
    }
}

/// A change counter that Python increments and awaits.
#[pyclass(frozen, name = "ChangeCounter", module = "tidewire._tidewire")]
pub struct PyChangeCounter(pub Arc<ChangeCounter>);

#[pymethods]
impl PyChangeCounter {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// Number of changes.
    #[getter]
    fn count(&self) -> u64 {
        self.0.count()
    }

    /// Says that there are some: those who wait for them look again.
    fn ring(&self) {
        self.0.tell();
    }
}

/// Ends with True when something has changed, or with False when the time is up.
pub struct Changed {
    change_counter: Arc<ChangeCounter>,
    known: u64,
    pause: Option<TimerFuture>,
    waker: Option<Waker>,
}

impl Changed {
    pub fn new(change_counter: Arc<ChangeCounter>, known: u64, pause: Option<TimerFuture>) -> Self {
        Self { change_counter, known, pause, waker: None }
    }
}

impl Future for Changed {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let changed = self.change_counter.is_newer(self.known, context.waker());
        let over = !changed && self.pause.as_mut().is_some_and(|pause| Pin::new(pause).poll(context).is_ready());
        if changed || over {
            return Poll::Ready(crate::interpreter::attach::attach(|py| changed.into_py_any(py)));
        }
        self.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        if let Some(waker) = &self.waker {
            self.change_counter.forget(waker);
        }
    }
}
