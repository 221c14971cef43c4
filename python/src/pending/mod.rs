//! `Pending`: an operation in progress, awaitable in asyncio and waitable in plain threads.

mod driver;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyAttributeError, PyStopIteration, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyType;
use pyo3::{PyTraverseError, PyVisit};
use tidewire_engine::raw::{ActorKey, Mutex, acting_as};

use self::driver::{State, StateView};
use crate::errors;
use crate::interpreter::PerProcessOwned;
use crate::interpreter::asyncio::{asyncio_error, cancelled, running_loop};
use crate::interpreter::attach::{attach, is_sole};
use crate::interpreter::never_awaited::NeverAwaited;
use crate::interpreter::py_ref::PyRef;
use crate::interpreter::wait::Operation;
use crate::link::DeferredCall;

/// An operation in progress. `await` it, `wait()` for it in a plain thread, or give it to
/// `asyncio.gather`.
#[pyclass(frozen, weakref, subclass, module = "tidewire")]
pub struct Pending {
    state: PerProcessOwned<Mutex<State>>,
    /// The coroutine actor in whose handler the operation was started.
    acting: Option<ActorKey>,
    what: &'static str,
    /// The call that begins when a task or a thread waits for the operation, asyncio included.
    plan: Option<Arc<DeferredCall>>,
    /// True once somebody awaits the operation. Until then it refuses to be iterated over, as data
    /// would be.
    awaited: AtomicBool,
    /// Warns, once, if nobody ever awaited the operation.
    owed: Option<NeverAwaited>,
}

/// An operation that is done, for all who ask for one.
type Shared = Mutex<Option<PyRef<Pending>>>;

impl Pending {
    pub fn new(what: &'static str, acting: Option<ActorKey>, operation: Operation) -> Self {
        let state = State::Running { operation, waker: None, blocking: false, callbacks: Vec::new() };
        Self::in_state(what, acting, state)
    }

    fn in_state(what: &'static str, acting: Option<ActorKey>, state: State) -> Self {
        let (state, awaited) = (PerProcessOwned::new(Mutex::new(state)), AtomicBool::new(false));
        Self { state, acting, what, plan: None, awaited, owed: None }
    }

    /// An operation that is only of use if it is awaited: forgetting to await it gives a warning.
    pub fn owed(py: Python<'_>, what: &'static str, acting: Option<ActorKey>, operation: Operation) -> PyResult<Self> {
        let mut pending = Self::new(what, acting, operation);
        pending.owed = Some(NeverAwaited::here(py)?);
        Ok(pending)
    }

    /// An operation that begins when it is awaited, as `plan` says.
    pub fn later(py: Python<'_>, what: &'static str, operation: Operation, plan: Arc<DeferredCall>) -> PyResult<Self> {
        let mut later = Self::owed(py, what, None, operation)?;
        later.plan = Some(plan);
        Ok(later)
    }

    /// The deferred call, if the operation is one.
    pub fn plan(&self) -> Option<&Arc<DeferredCall>> {
        self.plan.as_ref()
    }

    pub fn done(py: Python<'_>, what: &'static str, result: PyResult<Py<PyAny>>) -> Self {
        Self::in_state(what, None, State::done(py, result))
    }

    /// A send that is done: True if the mailbox has the message, False if its policy dropped it.
    /// The usual one is the same object again, unless somebody has stored it.
    pub fn sent(py: Python<'_>, accepted: bool) -> PyResult<Py<Self>> {
        static SENT: Shared = Mutex::new(None);
        if accepted {
            return Self::shared(py, &SENT, "send", true.into_py_any(py));
        }
        Py::new(py, Self::done(py, "send", false.into_py_any(py)))
    }

    /// A message that a publisher has taken.
    pub fn accepted(py: Python<'_>) -> PyResult<Py<Self>> {
        static TAKEN: Shared = Mutex::new(None);
        Self::shared(py, &TAKEN, "publish", Ok(py.None()))
    }

    fn shared(py: Python<'_>, slot: &Shared, what: &'static str, result: PyResult<Py<PyAny>>) -> PyResult<Py<Self>> {
        if let Some(shared) = &*slot.lock() {
            let shared = shared.bind(py);
            // asyncio may have taken it for a future.
            if is_sole(shared) && shared.is_exact_instance_of::<Self>() {
                return Ok(shared.clone().unbind());
            }
        }
        let pending = Py::new(py, Self::done(py, what, result))?;
        let before = slot.lock().replace(pending.clone_ref(py).into());
        drop(before);
        Ok(pending)
    }

    /// Takes the operation out of an object that has not been polled yet.
    pub fn take(&self) -> Option<Operation> {
        let mut state = self.state.lock();
        if !matches!(&*state, State::Running { waker: None, .. }) {
            return None;
        }
        let State::Running { mut operation, .. } = std::mem::replace(&mut *state, State::Cancelled(None)) else {
            return None;
        };
        Some(match self.acting {
            Some(actor) => Box::pin(poll_fn(move |context| acting_as(actor, || operation.as_mut().poll(context)))),
            None => operation,
        })
    }
}

impl Pending {
    /// The title of the operation in errors.
    fn title(&self, py: Python<'_>) -> String {
        self.plan.as_ref().and_then(|plan| plan.title(py).ok()).unwrap_or_else(|| self.what.to_owned())
    }

    /// The error text for using the operation as its result.
    fn is_no_data(&self, py: Python<'_>) -> String {
        let title = self.title(py);
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
        // asyncio asks this of the coroutine of a task that it shows, from Python 3.12 on.
        let shown = PyModule::import(py, "tidewire._runtime.futures")?.getattr("is_shown_by_asyncio")?.call0()?;
        if shown.is_truthy()? { Ok(true) } else { self.refused(py) }
    }

    fn __next__(this: &Bound<'_, Self>) -> PyResult<Option<Py<Self>>> {
        let py = this.py();
        if matches!(&*this.get().state.lock(), State::Done(Ok(value)) if value.is_none(py)) {
            return Ok(None);
        }
        let owned = this.clone().unbind();
        if Self::is_pending(this)? {
            return Ok(Some(owned));
        }
        let value = this.get().outcome(py).map_err(|error| errors::inside_next(py, error))?;
        // A tuple or an exception must be wrapped, or StopIteration would take it apart.
        Err(PyStopIteration::new_err((value,)))
    }

    /// Blocks this thread until the operation is ready, and gives its result. Not on an event
    /// loop's thread.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.check(py)?;
        // The operation may need this very loop, and everything else on the loop would stand still.
        if !self.is_done() && crate::actors::bridge::on_a_loop(py)? {
            self.awaited.store(true, Ordering::Relaxed);
            let text = format!("{}: wait() would block this thread's event loop: await it instead", self.title(py));
            return Err(errors::error(py, "InvalidArgument", &text, &[]));
        }
        self.wait_here(py)
    }

    // A task can be made of it, as of any coroutine.

    /// Goes on, as a coroutine does.
    fn send(this: &Bound<'_, Self>, value: Py<PyAny>) -> PyResult<Option<Py<Self>>> {
        drop(value);
        this.get().awaited.store(true, Ordering::Relaxed);
        match Self::__next__(this)? {
            Some(waits) => Ok(Some(waits)),
            None => Err(PyStopIteration::new_err(())),
        }
    }

    /// Raises an error where it waits, as a coroutine does.
    #[pyo3(signature = (error, value = None, traceback = None))]
    fn throw(
        this: &Bound<'_, Self>,
        error: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        drop(traceback);
        Self::cancel(this, None)?;
        Err(PyErr::from_value(value.unwrap_or(error)))
    }

    /// Cancels the operation, as for a coroutine.
    fn close(this: &Bound<'_, Self>) -> PyResult<()> {
        Self::cancel(this, None).map(drop)
    }

    /// The name of a task that is made of the operation.
    #[getter]
    fn __name__(&self, py: Python<'_>) -> String {
        self.title(py)
    }

    #[getter]
    fn __qualname__(&self, py: Python<'_>) -> String {
        self.title(py)
    }

    /// `asyncio.wait` makes a set of its arguments before it looks for coroutines, which it
    /// refuses. An operation in progress is a future to it. A call that begins when it is awaited
    /// is a coroutine, as calls within this process are.
    fn __hash__(this: &Bound<'_, Self>) -> PyResult<isize> {
        if this.get().plan.is_none() {
            Self::become_future(this)?;
        }
        // As objects are hashed: the lowest bits of an address are always 0.
        Ok((this.as_ptr() as usize).rotate_right(4) as isize)
    }

    /// The deferred call over a link, for a caller that reads it as a stream.
    fn _outbound_call<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.awaited.store(true, Ordering::Relaxed);
        self.plan.as_ref().map(|plan| plan.outbound_call(py)).transpose()
    }

    #[getter(_asyncio_future_blocking)]
    fn blocking(this: &Bound<'_, Self>) -> PyResult<bool> {
        // asyncio reads this before it takes an object for a future, as in `ensure_future`. Futures
        // are in progress.
        let is_polled = matches!(&*this.get().state.lock(), State::Running { waker: Some(_), .. });
        if !is_polled {
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

    /// The loop on which it was first looked at; asyncio refuses tasks of another one.
    #[getter(_loop)]
    fn home<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let line = match &*self.state.lock() {
            State::Running { waker: Some((_, ring)), .. } => Some(Arc::clone(&ring.line)),
            _ => None,
        };
        line.and_then(|line| line.event_loop(py)).map_or_else(|| running_loop(py), Ok)
    }

    fn get_loop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.home(py)
    }

    #[pyo3(signature = (callback, /, *, context=None))]
    fn add_done_callback(this: &Bound<'_, Self>, callback: Py<PyAny>, context: Option<Py<PyAny>>) -> PyResult<()> {
        Self::call_at_end(this, callback, context)
    }

    fn remove_done_callback(&self, callback: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.call_no_more(callback)
    }

    /// Cancels the operation. Returns true if it was still in progress.
    #[pyo3(signature = (msg=None))]
    pub fn cancel(this: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        Self::give_up(this, msg)
    }

    #[pyo3(name = "done")]
    pub fn is_done(&self) -> bool {
        matches!(&*self.state.lock(), State::Done(_) | State::Cancelled(_))
    }

    fn cancelled(&self) -> bool {
        matches!(&*self.state.lock(), State::Cancelled(_))
    }

    /// `asyncio.gather` looks at this on whatever was cancelled.
    #[getter]
    fn _cancel_message(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &*self.state.lock() {
            State::Cancelled(why) => why.as_ref().map(|why| why.clone_ref(py)),
            _ => None,
        }
    }

    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.outcome(py)
    }

    fn exception(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.view(py) {
            StateView::Done(Ok(_)) => Ok(None),
            StateView::Done(Err(error)) => Ok(Some(error.into_any())),
            StateView::Cancelled(why) => Err(cancelled(py, why.as_ref())),
            StateView::UnderWay => Err(asyncio_error(py, "InvalidStateError", ("Exception is not set.",))),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(plan) = &self.plan {
            plan.traverse(&visit)?;
        }
        // A locked state is in use by another thread: the garbage collector looks again later.
        let Some(state) = self.state.try_lock() else { return Ok(()) };
        match &*state {
            State::Done(Ok(value)) => visit.call(value),
            State::Done(Err(error)) => visit.call(error),
            State::Cancelled(Some(why)) => visit.call(why),
            State::Running { .. } | State::Cancelled(None) | State::Busy => Ok(()),
        }
    }

    fn __clear__(&self) {
        let ended = match self.state.try_lock() {
            Some(mut state) if matches!(&*state, State::Done(_) | State::Cancelled(Some(_))) => {
                std::mem::replace(&mut *state, State::Cancelled(None))
            }
            _ => return,
        };
        // Apart from the match, as what goes now may look here again.
        drop(ended);
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = match &*self.state.lock() {
            State::Running { .. } | State::Busy => "pending",
            State::Done(Ok(_)) => "done",
            State::Done(Err(_)) => "failed",
            State::Cancelled(_) => "cancelled",
        };
        match &self.plan {
            Some(_) => format!("<Call {}>", self.title(py)),
            None => format!("<Pending {} {state}>", self.what),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Some(mut state) = self.state.take_mine() else { return };
        if let State::Running { operation, waker, .. } = std::mem::replace(state.get_mut(), State::Cancelled(None)) {
            drop(operation);
            let forgotten = waker.is_none() && !*self.awaited.get_mut();
            if let Some(owed) = self.owed.take().filter(|_| forgotten) {
                attach(|py| owed.remind(py, &self.title(py)));
            }
        }
    }
}

/// A class with types in brackets, as annotations have it.
pub fn generic(cls: &Bound<'_, PyType>, item: Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    Ok(cls.py().import("types")?.getattr("GenericAlias")?.call1((cls, item))?.unbind())
}
