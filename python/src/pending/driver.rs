//! The driver of a pending operation: polls it on the loop's thread, or blocks a plain thread,
//! until it is done or cancelled.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use pyo3::exceptions::{PyBaseException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyType;
use tidewire_engine::raw::{Mutex, acting_as};

use super::Pending;
use crate::actors::bridge::{LoopHandle, line_here};
use crate::errors;
use crate::interpreter::asyncio::{asyncio_error, cancelled, soon};
use crate::interpreter::once::{Once, intern};
use crate::interpreter::py_ref::PyRef;
use crate::interpreter::wait::{Operation, wait};

/// Callbacks for the end of the operation, each with a context of its own.
type Callbacks = Vec<(Py<PyAny>, Option<Py<PyAny>>)>;

pub(super) enum State {
    /// Not polled yet, or in progress.
    Running { operation: Operation, waker: Option<(Waker, Arc<LoopWaker>)>, blocking: bool, callbacks: Callbacks },
    /// The error as an object, so that the garbage collector sees it: its traceback often leads
    /// back here.
    Done(Result<Py<PyAny>, Py<PyBaseException>>),
    /// Cancelled with this argument of `cancel`, by which cancel scopes know their own.
    Cancelled(Option<Py<PyAny>>),
    /// Being looked at on some thread.
    Busy,
}

/// The part of a state that its readers need.
pub(super) enum StateView {
    UnderWay,
    Done(Result<Py<PyAny>, Py<PyBaseException>>),
    Cancelled(Option<Py<PyAny>>),
}

impl State {
    pub(super) fn done(py: Python<'_>, result: PyResult<Py<PyAny>>) -> Self {
        Self::Done(result.map_err(|error| error.into_value(py)))
    }
}

impl Pending {
    /// Polls the operation, and calls its callbacks if it is ready. On the loop's thread.
    pub fn poll_and_call_back(this: &Py<Self>, py: Python<'_>) {
        let callbacks = match this.get().poll(this, py) {
            Ok(Some(callbacks)) => callbacks,
            Ok(None) | Err(_) => return,
        };
        for (callback, context) in callbacks {
            let result = match context {
                Some(context) => context.call_method1(py, intern!(py, "run"), (callback, this.clone_ref(py))),
                None => callback.call1(py, (this.clone_ref(py),)),
            };
            if let Err(error) = result {
                crate::actors::bridge::raised(py, error);
            }
        }
    }

    /// Polls once. Some: it has become ready, and these wait for it. None: it has not.
    pub(super) fn poll(&self, this: &Py<Self>, py: Python<'_>) -> PyResult<Option<Callbacks>> {
        self.check(py)?;
        let before = std::mem::replace(&mut *self.state.lock(), State::Busy);
        let State::Running { mut operation, waker, blocking, callbacks } = before else {
            *self.state.lock() = before;
            return Ok(Some(Vec::new()));
        };
        let (waker, ring) = match waker {
            Some(waker) => waker,
            None => match line_here(py) {
                Ok(line) => {
                    let ring = Arc::new(LoopWaker { line, pending: Mutex::new(None) });
                    (Waker::from(Arc::clone(&ring)), ring)
                }
                Err(error) => {
                    *self.state.lock() = State::Running { operation, waker: None, blocking, callbacks };
                    return Err(error);
                }
            },
        };
        // The one that wakes takes it out, as it may not hold the interpreter and could not make
        // another reference.
        *ring.pending.lock() = Some(this.clone_ref(py).into());
        let mut context = Context::from_waker(&waker);
        let polled = match self.acting {
            Some(actor) => acting_as(actor, || operation.as_mut().poll(&mut context)),
            None => operation.as_mut().poll(&mut context),
        };
        match polled {
            Poll::Ready(result) => {
                let unused = ring.pending.lock().take();
                drop(unused);
                *self.state.lock() = State::done(py, result);
                Ok(Some(callbacks))
            }
            Poll::Pending => {
                *self.state.lock() = State::Running { operation, waker: Some((waker, ring)), blocking, callbacks };
                Ok(None)
            }
        }
    }

    /// In the child of a fork nobody completes what the parent began.
    pub(super) fn check(&self, py: Python<'_>) -> PyResult<()> {
        if matches!(&*self.state.lock(), State::Running { .. } | State::Busy) { self.state.check(py) } else { Ok(()) }
    }

    /// Begins what asyncio takes for a future, and makes it one: until then it is a coroutine,
    /// which tasks can be made of and `asyncio.wait` refuses. Where no loop runs it stays what it
    /// is.
    pub(super) fn become_future(this: &Bound<'_, Self>) -> PyResult<()> {
        static FUTURE: Once<Py<PyType>> = Once::new();
        let py = this.py();
        let future = FUTURE.of(py, "tidewire._runtime.futures", "Begun")?;
        if this.get_type().is(future) {
            return Ok(());
        }
        let is_unpolled = matches!(&*this.get().state.lock(), State::Running { waker: None, .. });
        if !is_unpolled || this.get().poll(&this.clone().unbind(), py).is_ok() {
            this.setattr(intern!(py, "__class__"), future)?;
        }
        Ok(())
    }

    pub fn outcome(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.view(py) {
            StateView::Done(result) => result.map_err(|error| PyErr::from_value(error.into_bound(py).into_any())),
            StateView::Cancelled(why) => Err(cancelled(py, why.as_ref())),
            StateView::UnderWay => Err(asyncio_error(py, "InvalidStateError", (self.is_no_data(py),))),
        }
    }

    /// The outcome. Errors are made of it without the lock, as that runs Python.
    pub(super) fn view(&self, py: Python<'_>) -> StateView {
        match &*self.state.lock() {
            State::Done(Ok(value)) => StateView::Done(Ok(value.clone_ref(py))),
            State::Done(Err(error)) => StateView::Done(Err(error.clone_ref(py))),
            State::Cancelled(why) => StateView::Cancelled(why.as_ref().map(|why| why.clone_ref(py))),
            State::Running { .. } | State::Busy => StateView::UnderWay,
        }
    }

    /// Polls the operation. If it is not ready, a task that this object is yielded to is called at
    /// its end.
    pub fn is_pending(this: &Bound<'_, Self>) -> PyResult<bool> {
        let owned = this.clone().unbind();
        let is_pending = this.get().poll(&owned, this.py())?.is_none();
        if is_pending && let State::Running { blocking, .. } = &mut *this.get().state.lock() {
            *blocking = true;
        }
        Ok(is_pending)
    }

    /// Blocks this thread until the operation is ready, unless an event loop runs on it.
    pub fn block(this: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = this.py();
        if crate::actors::bridge::on_a_loop(py)? {
            Self::cancel(this, None)?;
            let text = "node.sync would block this thread's event loop: await the same call without .sync";
            return Err(errors::error(py, "InvalidArgument", text, &[]));
        }
        this.get().wait(py)
    }

    /// Runs the operation on this thread, which blocks.
    pub(super) fn wait_here(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        // Apart from the match, so that the lock is free again in its arms.
        let before = std::mem::replace(&mut *self.state.lock(), State::Busy);
        let operation = match before {
            State::Running { operation, callbacks, .. } if callbacks.is_empty() => operation,
            other => {
                let running = matches!(other, State::Running { .. } | State::Busy);
                *self.state.lock() = other;
                if running {
                    return Err(PyRuntimeError::new_err(
                        "somebody awaits this already: await it, or wait() for it, not both",
                    ));
                }
                return self.outcome(py);
            }
        };
        let result = wait(py, operation);
        *self.state.lock() = State::done(py, result);
        self.outcome(py)
    }

    /// Calls something at the end of the operation, in a context. An operation that nobody has
    /// polled yet begins.
    pub(super) fn call_at_end(this: &Bound<'_, Self>, callback: Py<PyAny>, context: Option<Py<PyAny>>) -> PyResult<()> {
        let py = this.py();
        let owned = this.clone().unbind();
        {
            let mut state = this.get().state.lock();
            if let State::Running { callbacks, waker, .. } = &mut *state {
                callbacks.push((callback, context));
                if waker.is_some() {
                    return Ok(());
                }
                drop(state);
                // Nobody has looked at it yet: start it.
                if let Some(callbacks) = this.get().poll(&owned, py)? {
                    return callbacks
                        .into_iter()
                        .try_for_each(|(callback, context)| soon(py, None, &callback, this.as_any(), context));
                }
                return Ok(());
            }
        }
        soon(py, None, &callback, this.as_any(), context)
    }

    /// Takes a callback back, as often as it was given: how often that was.
    pub(super) fn call_no_more(&self, callback: &Bound<'_, PyAny>) -> PyResult<usize> {
        let callbacks = {
            let mut state = self.state.lock();
            match &mut *state {
                State::Running { callbacks, .. } => std::mem::take(callbacks),
                _ => return Ok(0),
            }
        };
        let py = callback.py();
        let before = callbacks.len();
        let mut others = Vec::new();
        for (other, context) in callbacks {
            if !other.bind(py).eq(callback)? {
                others.push((other, context));
            }
        }
        let removed = before - others.len();
        if let State::Running { callbacks, .. } = &mut *self.state.lock() {
            callbacks.extend(others);
        }
        Ok(removed)
    }

    /// Cancels the operation. Returns true if it was still in progress.
    pub(super) fn give_up(this: &Bound<'_, Self>, why: Option<Py<PyAny>>) -> PyResult<bool> {
        let py = this.py();
        let before = {
            let mut state = this.get().state.lock();
            match &*state {
                State::Running { .. } if this.get().state.is_mine() => {
                    std::mem::replace(&mut *state, State::Cancelled(why))
                }
                _ => return Ok(false),
            }
        };
        if let State::Running { operation, callbacks, waker, .. } = before {
            drop(operation);
            // The loop itself need not run just now: `asyncio.run` cancels what is left between two
            // runs of it.
            let running = waker.and_then(|(_, ring)| ring.line.event_loop(py));
            for (callback, context) in callbacks {
                soon(py, running.as_ref(), &callback, this.as_any(), context)?;
            }
        }
        Ok(true)
    }
}

/// A waker that makes an event loop poll an operation again.
pub struct LoopWaker {
    pub line: Arc<LoopHandle>,
    pub pending: Mutex<Option<PyRef<Pending>>>,
}

impl Wake for LoopWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let pending = self.pending.lock().take();
        if let Some(pending) = pending {
            self.line.complete(pending);
        }
    }
}
