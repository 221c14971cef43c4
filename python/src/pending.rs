//! Something that will be ready later: awaitable in asyncio, and waitable in plain threads.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::exceptions::{PyAttributeError, PyBaseException, PyRuntimeError, PyStopIteration, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyType;
use pyo3::{PyTraverseError, PyVisit};
use tidewire_engine::raw::Mutex;
use tidewire_engine::raw::{ActorKey, acting_as};

use crate::bridge::{Line, line_here, running_loop};
use crate::errors;
use crate::fork::Born;
use crate::held::Held;
use crate::link::Sketch;
use crate::once::{Once, intern};
use crate::wait::{Operation, wait};

/// An operation under way. `await` it, `wait()` for it in a plain thread, or give it to `asyncio.gather`.
#[pyclass(frozen, weakref, subclass, module = "tidewire")]
pub struct Pending {
    state: Mutex<State>,
    /// The coroutine actor in whose handler the operation was started.
    acting: Option<ActorKey>,
    what: &'static str,
    /// What the operation begins with when somebody waits for it, asyncio included.
    plan: Option<Arc<Sketch>>,
    /// Whether somebody awaits it. Until then it refuses to be iterated over, as data would be.
    awaited: AtomicBool,
    born: Born,
}

enum State {
    /// Not looked at yet, or under way.
    Running {
        operation: Operation,
        waker: Option<(Waker, Arc<Ring>)>,
        blocking: bool,
        callbacks: Vec<(Py<PyAny>, Option<Py<PyAny>>)>,
    },
    /// The error as an object, so that the garbage collector sees it: its traceback often leads back here.
    Done(Result<Py<PyAny>, Py<PyBaseException>>),
    Cancelled,
    /// Being looked at on some thread.
    Busy,
}

impl State {
    fn done(py: Python<'_>, result: PyResult<Py<PyAny>>) -> Self {
        Self::Done(result.map_err(|error| error.into_value(py)))
    }
}

impl Pending {
    pub fn new(what: &'static str, acting: Option<ActorKey>, operation: Operation) -> Self {
        let state = State::Running { operation, waker: None, blocking: false, callbacks: Vec::new() };
        Self { state: Mutex::new(state), acting, what, plan: None, awaited: AtomicBool::new(false), born: Born::now() }
    }

    /// One whose operation begins when somebody waits for it, as `plan` says.
    pub fn later(what: &'static str, operation: Operation, plan: Arc<Sketch>) -> Self {
        let mut later = Self::new(what, None, operation);
        later.plan = Some(plan);
        later
    }

    /// What it begins with, if that is later.
    pub fn plan(&self) -> Option<&Arc<Sketch>> {
        self.plan.as_ref()
    }

    pub fn done(py: Python<'_>, what: &'static str, result: PyResult<Py<PyAny>>) -> Self {
        Self {
            state: Mutex::new(State::done(py, result)),
            acting: None,
            what,
            plan: None,
            awaited: AtomicBool::new(false),
            born: Born::now(),
        }
    }

    /// One that is done, with None; always the same object.
    pub fn none(py: Python<'_>) -> PyResult<Py<Self>> {
        static NONE: Once<Py<Pending>> = Once::new();
        NONE.get_or_try_init(py, || Py::new(py, Self::done(py, "send", Ok(py.None())))).map(|none| none.clone_ref(py))
    }

    /// Takes the operation out of one that nobody has looked at yet.
    pub fn take(&self) -> Option<Operation> {
        let mut state = self.state.lock();
        if !matches!(&*state, State::Running { waker: None, .. }) {
            return None;
        }
        match std::mem::replace(&mut *state, State::Cancelled) {
            State::Running { operation, .. } => Some(operation),
            _ => None,
        }
    }

    /// Looks whether the operation is ready, and if so calls those who wait. On the loop's thread.
    pub fn look(this: &Py<Self>, py: Python<'_>) {
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
                error.write_unraisable(py, None);
            }
        }
    }

    /// Polls once. Some: it has become ready, and these wait for it. None: it has not.
    #[allow(clippy::type_complexity)]
    fn poll(&self, this: &Py<Self>, py: Python<'_>) -> PyResult<Option<Vec<(Py<PyAny>, Option<Py<PyAny>>)>>> {
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
                    let ring = Arc::new(Ring { line, pending: Mutex::new(None) });
                    (Waker::from(Arc::clone(&ring)), ring)
                }
                Err(error) => {
                    *self.state.lock() = State::Running { operation, waker: None, blocking, callbacks };
                    return Err(error);
                }
            },
        };
        // The one that wakes takes it out, as it may not hold the interpreter and could not make another reference.
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
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.born.is_past() && matches!(&*self.state.lock(), State::Running { .. } | State::Busy) {
            return self.born.check(py);
        }
        Ok(())
    }

    /// Begins a call that asyncio takes for a future, and makes it one: to `asyncio.wait` it must not look like a coroutine any more.
    /// Where no loop runs it stays what it is.
    fn become_future(this: &Bound<'_, Self>) -> PyResult<()> {
        let py = this.py();
        let unseen = matches!(&*this.get().state.lock(), State::Running { waker: None, .. });
        if unseen && this.get().poll(&this.clone().unbind(), py).is_ok() {
            this.setattr(intern!(py, "__class__"), py.get_type::<Self>())?;
        }
        Ok(())
    }

    pub fn outcome(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match &*self.state.lock() {
            State::Done(Ok(value)) => Ok(value.clone_ref(py)),
            State::Done(Err(error)) => Err(PyErr::from_value(error.bind(py).clone().into_any())),
            State::Cancelled => Err(cancelled(py)),
            State::Running { .. } | State::Busy => Err(asyncio_error(py, "InvalidStateError", "Result is not set.")),
        }
    }
}

impl Pending {
    /// Looks whether it is ready; if not, whoever yields this to a task is called when it is.
    pub fn is_under_way(this: &Bound<'_, Self>) -> PyResult<bool> {
        let owned = this.clone().unbind();
        let under_way = this.get().poll(&owned, this.py())?.is_none();
        if under_way && let State::Running { blocking, .. } = &mut *this.get().state.lock() {
            *blocking = true;
        }
        Ok(under_way)
    }

    /// Blocks this thread until the operation is ready, unless an event loop runs on it.
    pub fn block(this: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = this.py();
        if crate::bridge::on_a_loop(py)? {
            Self::cancel(this, None)?;
            let text = "node.sync would block this thread's event loop: await the same call without .sync";
            return Err(errors::error(py, "InvalidArgument", text, &[]));
        }
        this.get().wait(py)
    }
}

impl Pending {
    /// What whoever takes it for its result is told.
    fn is_no_data(&self, py: Python<'_>) -> String {
        let title = self.plan.as_ref().and_then(|plan| plan.title(py).ok());
        let title = title.as_deref().unwrap_or(self.what);
        format!(
            "{title}: this is not its result, which comes later: await it, or call it with .sync from a plain function"
        )
    }

    fn refused<T>(&self, py: Python<'_>) -> PyResult<T> {
        Err(PyTypeError::new_err(self.is_no_data(py)))
    }
}

#[pymethods]
impl Pending {
    fn __await__(this: Py<Self>) -> Py<Self> {
        this.get().awaited.store(true, Ordering::Relaxed);
        this
    }

    /// For `yield from ... .__await__()`.
    fn __iter__(this: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        if this.get().awaited.load(Ordering::Relaxed) { Ok(this) } else { this.get().refused(this.py()) }
    }

    /// `Pending[int]`: gives an `int`. For type checkers alone.
    #[classmethod]
    fn __class_getitem__(cls: &Bound<'_, PyType>, item: Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        generic(cls, item)
    }

    // An `await` or `.sync` that was forgotten shows where the result is used.

    fn __getattr__(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        Err(PyAttributeError::new_err(format!("{name}: {}", self.is_no_data(py))))
    }

    fn __getitem__(&self, py: Python<'_>, key: Py<PyAny>) -> PyResult<Py<PyAny>> {
        drop(key);
        self.refused(py)
    }

    fn __contains__(&self, py: Python<'_>, item: Py<PyAny>) -> PyResult<bool> {
        drop(item);
        self.refused(py)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.refused(py)
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.refused(py)
    }

    fn __next__(this: &Bound<'_, Self>) -> PyResult<Option<Py<Self>>> {
        let py = this.py();
        if matches!(&*this.get().state.lock(), State::Done(Ok(value)) if value.is_none(py)) {
            return Ok(None);
        }
        let owned = this.clone().unbind();
        if Self::is_under_way(this)? {
            return Ok(Some(owned));
        }
        let value = this.get().outcome(py).map_err(|error| errors::inside_next(py, error))?;
        // A tuple or an exception must be wrapped, or StopIteration would take it apart.
        Err(PyStopIteration::new_err((value,)))
    }

    /// Blocks this thread until the operation is ready, and gives its result. Not on an event loop's thread.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.check(py)?;
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

    #[getter(_asyncio_future_blocking)]
    fn blocking(this: &Bound<'_, Self>) -> PyResult<bool> {
        if this.get().plan.is_some() {
            // asyncio reads this before it takes something for a future, as in `ensure_future`, and futures are under way.
            Self::become_future(this)?;
        }
        Ok(matches!(&*this.get().state.lock(), State::Running { blocking: true, .. }))
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&self, value: bool) {
        if let State::Running { blocking, .. } = &mut *self.state.lock() {
            *blocking = value;
        }
    }

    #[getter(_loop)]
    fn running_loop(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        running_loop(py).map(Bound::unbind)
    }

    fn get_loop(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.running_loop(py)
    }

    #[pyo3(signature = (callback, /, *, context=None))]
    fn add_done_callback(this: &Bound<'_, Self>, callback: Py<PyAny>, context: Option<Py<PyAny>>) -> PyResult<()> {
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
                        .try_for_each(|(callback, context)| soon(py, &callback, &owned, context));
                }
                return Ok(());
            }
        }
        soon(py, &callback, &owned, context)
    }

    fn remove_done_callback(&self, callback: &Bound<'_, PyAny>) -> PyResult<usize> {
        let kept = {
            let mut state = self.state.lock();
            match &mut *state {
                State::Running { callbacks, .. } => std::mem::take(callbacks),
                _ => return Ok(0),
            }
        };
        let py = callback.py();
        let before = kept.len();
        let mut left = Vec::new();
        for (other, context) in kept {
            if !other.bind(py).eq(callback)? {
                left.push((other, context));
            }
        }
        let removed = before - left.len();
        if let State::Running { callbacks, .. } = &mut *self.state.lock() {
            callbacks.extend(left);
        }
        Ok(removed)
    }

    /// Cancels the operation. Answers whether it was still under way.
    #[pyo3(signature = (msg=None))]
    pub fn cancel(this: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        let py = this.py();
        drop(msg);
        let before = {
            let mut state = this.get().state.lock();
            match &*state {
                State::Running { .. } => std::mem::replace(&mut *state, State::Cancelled),
                _ => return Ok(false),
            }
        };
        if let State::Running { operation, callbacks, .. } = before {
            self::end(operation, this.get().born);
            let owned = this.clone().unbind();
            for (callback, context) in callbacks {
                soon(py, &callback, &owned, context)?;
            }
        }
        Ok(true)
    }

    #[pyo3(name = "done")]
    pub fn is_done(&self) -> bool {
        matches!(&*self.state.lock(), State::Done(_) | State::Cancelled)
    }

    fn cancelled(&self) -> bool {
        matches!(&*self.state.lock(), State::Cancelled)
    }

    /// `asyncio.gather` looks at this on whatever was cancelled.
    #[getter]
    fn _cancel_message(&self) -> Option<String> {
        None
    }

    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.outcome(py)
    }

    fn exception(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match &*self.state.lock() {
            State::Done(Ok(_)) => Ok(None),
            State::Done(Err(error)) => Ok(Some(error.clone_ref(py).into_any())),
            State::Cancelled => Err(cancelled(py)),
            State::Running { .. } | State::Busy => Err(asyncio_error(py, "InvalidStateError", "Exception is not set.")),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(plan) = &self.plan {
            plan.traverse(&visit)?;
        }
        // Whoever holds the lock has not come to the end yet: the collector looks again.
        let Some(state) = self.state.try_lock() else { return Ok(()) };
        match &*state {
            State::Done(Ok(value)) => visit.call(value),
            State::Done(Err(error)) => visit.call(error),
            State::Running { .. } | State::Cancelled | State::Busy => Ok(()),
        }
    }

    fn __clear__(&self) {
        let ended = match self.state.try_lock() {
            Some(mut state) if matches!(&*state, State::Done(_)) => std::mem::replace(&mut *state, State::Cancelled),
            _ => return,
        };
        // Apart from the match, as what goes now may look here again.
        drop(ended);
    }

    fn __repr__(&self) -> String {
        let state = match &*self.state.lock() {
            State::Running { .. } | State::Busy => "pending",
            State::Done(Ok(_)) => "done",
            State::Done(Err(_)) => "failed",
            State::Cancelled => "cancelled",
        };
        format!("<Pending {} {state}>", self.what)
    }
}

/// To drop an operation is to give it up, which a forked child must not do to those of its parent.
fn end(operation: Operation, born: Born) {
    if born.is_past() {
        let _kept = ManuallyDrop::new(operation);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let State::Running { operation, .. } = std::mem::replace(self.state.get_mut(), State::Cancelled) {
            end(operation, self.born);
        }
    }
}

/// Rings the loop when the operation can be looked at again.
struct Ring {
    line: Arc<Line>,
    pending: Mutex<Option<Held<Pending>>>,
}

impl Wake for Ring {
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

fn soon(py: Python<'_>, callback: &Py<PyAny>, this: &Py<Pending>, context: Option<Py<PyAny>>) -> PyResult<()> {
    let running = running_loop(py)?;
    let keywords = pyo3::types::PyDict::new(py);
    if let Some(context) = context {
        keywords.set_item("context", context)?;
    }
    running.call_method("call_soon", (callback, this), Some(&keywords)).map(drop)
}

fn cancelled(py: Python<'_>) -> PyErr {
    asyncio_error(py, "CancelledError", "")
}

fn asyncio_error(py: Python<'_>, name: &str, text: &str) -> PyErr {
    static MODULE: Once<Py<PyModule>> = Once::new();
    let made = MODULE
        .get_or_try_init(py, || PyModule::import(py, "asyncio").map(Bound::unbind))
        .and_then(|module| module.bind(py).getattr(name))
        .and_then(|class| if text.is_empty() { class.call0() } else { class.call1((text,)) });
    made.map_or_else(|error| error, PyErr::from_value)
}

/// A class with types in brackets, as annotations have it.
pub fn generic(cls: &Bound<'_, PyType>, item: Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    Ok(cls.py().import("types")?.getattr("GenericAlias")?.call1((cls, item))?.unbind())
}
