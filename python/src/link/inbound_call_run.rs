//! The run of an inbound call: a coroutine step by step, a plain function on a worker thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyTuple};
use tidewire_engine::raw::{Mutex, Watch};

use crate::actors::coroutine::ConcurrencyPermit;
use crate::interpreter::PerProcessOwned;
use crate::interpreter::once::{Once, intern};
use crate::interpreter::steps::{Step, is_coroutine, step, steps_of};
use crate::link::inbound::RemoteCall;
use crate::link::instance_endpoint::{InstanceEndpoint, Method};
use crate::services::thread_workers::WorkerSlot;

/// Call of another node in progress at its instance: the counterpart of `InboundCall` of
/// `tidewire.services.instances.inbound_call`.
#[pyclass(frozen, weakref, module = "tidewire._tidewire")]
pub struct InboundCallRun {
    endpoint: Py<InstanceEndpoint>,
    call: Py<RemoteCall>,
    method: Method,
    cancelled: AtomicBool,
    interrupted: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Arguments of the method, until it is called.
    args: Option<Py<PyTuple>>,
    /// Resources of a plain function, until it is over.
    until_over: Option<PerProcessOwned<ThreadResources>>,
    began: Option<Instant>,
    steps: Option<Py<PyIterator>>,
    /// The context of the handler. Variables that the handler sets end with the call.
    context: Option<Py<PyAny>>,
    /// The exception to raise in the handler. `returned` is true once its last step was its end.
    thrown: Option<PyErr>,
    returned: bool,
    /// The task that the handler waits in, and its loop.
    task: Option<(Py<PyAny>, Py<PyAny>)>,
    request: Option<Py<PyAny>>,
    reason: Option<Py<PyAny>>,
}

/// The start of a call.
pub enum CallStart {
    With(Py<PyTuple>),
    /// A worker thread reads the arguments.
    OnThread(ThreadResources),
}

/// The slot of a plain function at a worker thread, its concurrency permit, unless the worker
/// threads have their own, and the watch of its deadline.
pub type ThreadResources = (WorkerSlot, Option<ConcurrencyPermit>, Option<Watch>);

impl InboundCallRun {
    pub fn new(endpoint: Py<InstanceEndpoint>, call: Py<RemoteCall>, method: Method, start: CallStart) -> Self {
        let state = match start {
            CallStart::With(args) => State { args: Some(args), ..State::default() },
            CallStart::OnThread(resources) => {
                State { until_over: Some(PerProcessOwned::new(resources)), ..State::default() }
            }
        };
        Self {
            endpoint,
            call,
            method,
            cancelled: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    /// Goes one step on, in a task; the end of the handler is its answer to the caller.
    pub fn step(this: &Bound<'_, Self>, task: &Py<PyAny>, thrown: Option<PyErr>) -> PyResult<Step> {
        let py = this.py();
        let handling = this.get();
        let (first, context) = handling.prepare(py, thrown)?;
        if first {
            handling.endpoint.get().begins(this)?;
        }
        let stepped = context.bind(py).call_method1(intern!(py, "run"), (this,));
        match stepped {
            Ok(value) if handling.state.lock().returned => {
                handling.endpoint.get().counters(py).ended(handling.method.title(), handling.took_us());
                handling.leave(this, Some(task))?;
                handling.answer(this, &value)?;
            }
            Ok(waits) => {
                if first {
                    handling.waits(this, task)?;
                }
                return Ok(Step::Waits(waits.unbind()));
            }
            Err(error) => {
                let ended = handling.leave(this, Some(task));
                ended.and(handling.raised(this, error))?;
            }
        }
        Ok(Step::Returned(py.None()))
    }

    /// Runs a plain function on this thread; its end is its answer to the caller.
    fn run_plain(&self, this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, endpoint, call) = (this.py(), self.endpoint.get(), self.call.get());
        if call.cancelled() || self.cancelled() {
            return Ok(());
        }
        let args = call.decoded(py).and_then(|value| self.method.arguments(&value));
        let Ok(Some(args)) = args else {
            return endpoint.service_endpoint(py)?.call_method1(intern!(py, "_run"), (&self.call,)).map(drop);
        };
        self.state.lock().args = Some(args.unbind());
        let (_, context) = self.prepare(py, None)?;
        endpoint.begins(this)?;
        let ran = context.bind(py).call_method1(intern!(py, "run"), (this,));
        let ended = self.leave(this, None);
        let answered = match ran {
            Err(error) => self.raised(this, error),
            Ok(_) if self.cancelled() => {
                endpoint.counters(py).cancelled(self.method.title(), self.took_us());
                let reason = self.reason(py);
                reason.map_or(Ok(()), |reason| call.fail(py, reason.bind(py)))
            }
            Ok(value) => {
                endpoint.counters(py).ended(self.method.title(), self.took_us());
                self.answer(this, &value)
            }
        };
        ended.and(answered)
    }

    /// The deadline of a plain function has passed: its caller is notified.
    pub fn late(this: &Bound<'_, Self>) -> PyResult<()> {
        Self::cancel(this, None)?;
        let (py, endpoint) = (this.py(), this.get().endpoint.get());
        endpoint.service_endpoint(py)?.call_method1(intern!(py, "_late"), (this,)).map(drop)
    }

    /// The handler has raised.
    fn raised(&self, this: &Bound<'_, Self>, error: PyErr) -> PyResult<()> {
        let py = this.py();
        let service_endpoint = self.endpoint.get().service_endpoint(py)?;
        service_endpoint.call_method1(intern!(py, "raised"), (this, error.into_value(py))).map(drop)
    }

    /// True for the first step, and the context of the handler.
    fn prepare(&self, py: Python<'_>, thrown: Option<PyErr>) -> PyResult<(bool, Py<PyAny>)> {
        static COPY: Once<Py<PyAny>> = Once::new();
        {
            let mut state = self.state.lock();
            if let Some(context) = &state.context {
                let context = context.clone_ref(py);
                state.thrown = thrown;
                return Ok((false, context));
            }
        }
        let copy = COPY.of(py, "contextvars", "copy_context")?;
        let context = copy.call0()?.unbind();
        let mut state = self.state.lock();
        state.context = Some(context.clone_ref(py));
        state.began = Some(Instant::now());
        Ok((true, context))
    }

    /// The handler waits for the first time: a cancellation finds the task.
    fn waits(&self, this: &Bound<'_, Self>, task: &Py<PyAny>) -> PyResult<()> {
        let py = this.py();
        let running = crate::interpreter::asyncio::running_loop(py)?.unbind();
        self.state.lock().task = Some((task.clone_ref(py), running));
        if self.cancelled.load(Ordering::Acquire) {
            // By another thread, in its first step.
            return self.interrupt_soon(this);
        }
        self.call.get().cancels(py, this.clone().unbind())
    }

    /// The handler has ended. The task that was cancelled for it goes on with other calls.
    fn leave(&self, this: &Bound<'_, Self>, task: Option<&Py<PyAny>>) -> PyResult<()> {
        let py = this.py();
        let parts = {
            let mut state = self.state.lock();
            (state.task.take(), state.steps.take(), state.context.take())
        };
        drop(parts);
        self.call.get().forget();
        self.endpoint.get().ended(this)?;
        match task.filter(|_| self.interrupted.load(Ordering::Acquire)) {
            Some(task) => task.call_method0(py, intern!(py, "uncancel")).map(drop),
            None => Ok(()),
        }
    }

    fn answer(&self, this: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = this.py();
        // Mostly there is nothing in it that has to be given; what can't be sent is looked at
        // closely.
        if self.call.get().reply(py, value, None).is_ok() {
            return Ok(());
        }
        let node = self.call.get().node();
        let service_endpoint = self.endpoint.get().service_endpoint(py)?;
        service_endpoint.call_method1(intern!(py, "answer"), (&self.call, node, value)).map(drop)
    }

    fn interrupt_soon(&self, this: &Bound<'_, Self>) -> PyResult<()> {
        let py = this.py();
        let running = self.state.lock().task.as_ref().map(|(_, running)| running.clone_ref(py));
        let Some(running) = running else { return Ok(()) };
        let interrupt = this.getattr(intern!(py, "_interrupt"))?;
        // A loop that is closed runs no handler any more.
        match running.bind(py).call_method1(intern!(py, "call_soon_threadsafe"), (interrupt,)) {
            Err(error) if !error.is_instance_of::<pyo3::exceptions::PyRuntimeError>(py) => Err(error),
            _ => Ok(()),
        }
    }

    /// Calls the method.
    fn begin<'py>(&self, py: Python<'py>, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        match self.method.context() {
            None => self.method.call(py).call1(args),
            Some((name, at)) => {
                let context = self.endpoint.get().context(py)?;
                match at.filter(|at| *at <= args.len()) {
                    Some(at) => {
                        let mut all: Vec<_> = args.iter().collect();
                        all.insert(at, context);
                        self.method.call(py).call1(PyTuple::new(py, all)?)
                    }
                    None => {
                        let named = PyDict::new(py);
                        named.set_item(name, context)?;
                        self.method.call(py).call(args, Some(&named))
                    }
                }
            }
        }
    }
}

#[pymethods]
impl InboundCallRun {
    /// The call as it travels. It is made when it is first asked for.
    #[getter]
    fn request(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(request) = &self.state.lock().request {
            return Ok(request.clone_ref(py));
        }
        let request =
            self.endpoint.get().service_endpoint(py)?.call_method1(intern!(py, "_request"), (&self.call,))?.unbind();
        let mut state = self.state.lock();
        if let Some(before) = &state.request {
            // Another thread was faster; what was made here is dropped after the lock.
            return Ok(before.clone_ref(py));
        }
        state.request = Some(request.clone_ref(py));
        Ok(request)
    }

    /// The headers of its trace context, for all that is sent in it.
    #[getter]
    fn trace_fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.call.get().trace_fields(py)
    }

    /// The method that was called.
    #[getter]
    fn method(&self, py: Python<'_>) -> Py<PyAny> {
        self.method.bound(py)
    }

    /// The id of the instance that was called.
    #[getter]
    fn instance(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.endpoint.get().instance(py)
    }

    /// Its handler has begun.
    #[getter]
    fn begun(&self) -> bool {
        self.state.lock().began.is_some()
    }

    /// Microseconds since its handler has begun.
    fn took_us(&self) -> u64 {
        let took = self.state.lock().began.map_or(Duration::ZERO, |began| began.elapsed());
        u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
    }

    /// True once nobody waits for the call.
    #[getter]
    fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// True if the CancelledError that the handler ended with came from this call's cancellation.
    #[getter]
    fn was_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// The reason of its end for the caller, or None.
    #[getter]
    fn reason(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state.lock().reason.as_ref().map(|reason| reason.clone_ref(py))
    }

    /// The call itself.
    #[getter]
    fn call(&self, py: Python<'_>) -> Py<RemoteCall> {
        self.call.clone_ref(py)
    }

    /// Cancels the handler, from whichever thread.
    #[pyo3(signature = (reason = None))]
    pub fn cancel(this: &Bound<'_, Self>, reason: Option<Py<PyAny>>) -> PyResult<()> {
        let handling = this.get();
        {
            let mut state = handling.state.lock();
            if handling.cancelled.swap(true, Ordering::AcqRel) {
                return Ok(());
            }
            state.reason = reason;
        }
        handling.interrupt_soon(this)
    }

    /// Cancels the task if the handler is still in it. On its loop, where no task runs.
    fn _interrupt(&self, py: Python<'_>) -> PyResult<()> {
        let task = self.state.lock().task.as_ref().map(|(task, _)| task.clone_ref(py));
        let Some(task) = task else { return Ok(()) };
        if self.interrupted.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        task.call_method0(py, intern!(py, "cancel")).map(drop)
    }

    /// Runs a plain function. A worker actor calls this.
    fn run(this: &Bound<'_, Self>) -> PyResult<()> {
        let until_over = this.get().state.lock().until_over.take();
        let ran = this.get().run_plain(this);
        drop(until_over);
        ran
    }

    /// One step, inside of the context of the handler. A plain function is over after it.
    fn __call__(this: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let (py, handling) = (this.py(), this.get());
        let (steps, args, thrown) = {
            let mut state = handling.state.lock();
            (state.steps.as_ref().map(|steps| steps.clone_ref(py)), state.args.take(), state.thrown.take())
        };
        let steps = match (steps, args) {
            (Some(steps), _) => steps.into_bound(py),
            (None, args) => {
                handling.endpoint.get().enters(this)?;
                let args = args.map_or_else(|| PyTuple::empty(py), |args| args.into_bound(py));
                let called = handling.begin(py, &args)?;
                if !handling.method.is_coroutine() {
                    return unless_coroutine(this, called);
                }
                let steps = steps_of(&called)?;
                handling.state.lock().steps = Some(steps.clone().unbind());
                steps
            }
        };
        match step(&steps, thrown)? {
            Step::Waits(what) => Ok(what),
            Step::Returned(value) => {
                handling.state.lock().returned = true;
                Ok(value)
            }
        }
    }
}

/// The return value of a plain function. A coroutine is refused, because nobody would await it.
fn unless_coroutine(this: &Bound<'_, InboundCallRun>, value: Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let py = value.py();
    if is_coroutine(&value)? {
        let service_endpoint = this.get().endpoint.get().service_endpoint(py)?;
        service_endpoint.call_method1(intern!(py, "_refuse_coroutine"), (this, &value))?;
    }
    Ok(value.unbind())
}
