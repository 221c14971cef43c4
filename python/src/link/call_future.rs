//! A call to another node: a future from its first poll to its outcome.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use tidewire_core::rpc::balancer::Ended;
use tidewire_engine::raw::{Mutex, clock};
use tidewire_node::raw::CLIENT;

use crate::interpreter::attach::attach;
use crate::interpreter::once::{Once, intern};
use crate::interpreter::py_ref::PyRef;
use crate::link::client_method::{FastPath, NativeMethod, Route};
use crate::link::hub_link::CallRequest;
use crate::link::native_stream::FastStream;
use crate::link::reply_slot::PendingReply;
use crate::link::steps_future::StepsFuture;
use crate::services::balancer::{self, InstanceLoad, drawn};
use crate::services::call_durations::note;

/// A call that has not begun.
pub struct DeferredCall {
    calling: PyRef<NativeMethod>,
    args: PyRef<PyTuple>,
    kwargs: Option<PyRef<PyDict>>,
    /// The fast path, if it applies.
    fast_path: Option<Arc<FastPath>>,
    outbound_call: Once<PyRef<PyAny>>,
}

impl DeferredCall {
    pub fn new(
        calling: Bound<'_, NativeMethod>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        fast_path: Option<Arc<FastPath>>,
    ) -> Self {
        Self {
            calling: calling.into(),
            args: args.clone().into(),
            kwargs: kwargs.map(|kwargs| kwargs.clone().into()),
            fast_path,
            outbound_call: Once::new(),
        }
    }

    /// The call outside of the fast path: a `tidewire.services.caller.outbound_call.OutboundCall`.
    pub fn outbound_call<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let make = || {
            let kwargs = self.kwargs.as_ref().map_or_else(|| PyDict::new(py), |kwargs| kwargs.bind(py).clone());
            self.calling.call_method1(py, intern!(py, "_outbound_call"), (self.args.bind(py), kwargs)).map(PyRef::from)
        };
        self.outbound_call.get_or_try_init(py, make).map(|call| call.bind(py).clone())
    }

    /// The title of the call in errors.
    pub fn title(&self, py: Python<'_>) -> PyResult<String> {
        self.calling.getattr(py, intern!(py, "_title"))?.extract(py)
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&*self.calling)?;
        visit.call(&*self.args)?;
        self.kwargs.as_ref().map_or(Ok(()), |kwargs| visit.call(&**kwargs))
    }

    /// A result as the type that the client knows.
    pub fn convert_result(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<Py<PyAny>> {
        self.calling.get().convert_result(py, value)
    }

    /// Opens a stream, if the fast path applies.
    pub fn open(&self, py: Python<'_>) -> PyResult<Option<FastStream>> {
        let credit = self.fast_path.as_ref().map_or(0, |fast_path| fast_path.credit);
        let sent =
            self.send_by(py, |route, value, request| route.link.get().open_stream(py, value, request, credit))?;
        Ok(sent.map(|Sent { asking: stream, load, span, .. }| FastStream {
            stream,
            load: Mutex::new(Some(load)),
            span: Mutex::new(span),
        }))
    }

    /// Sends the call, if the fast path applies.
    fn send_by<'py, T>(
        &self,
        py: Python<'py>,
        send: impl FnOnce(&Route, &Bound<'py, PyAny>, &CallRequest<'_, 'py>) -> PyResult<T>,
    ) -> PyResult<Option<Sent<T>>> {
        let Some(fast_path) = &self.fast_path else { return Ok(None) };
        let dice = drawn(fast_path.policy, fast_path.dice.bind(py))?;
        let Some(outer) = ParentCall::of(py)? else { return Ok(None) };
        let balancer = fast_path.balancer.get();
        let args = self.args.bind(py);
        let call = fast_path.profile(args, self.kwargs.as_ref().map(|kwargs| kwargs.bind(py)), dice)?;
        let Some(route_ref) = balancer.route(py, fast_path.version, fast_path.policy, &call) else { return Ok(None) };
        let route = route_ref.get();
        let args = args.as_any();
        let value = match &self.kwargs {
            None => args.clone(),
            Some(kwargs) => PyList::new(py, [args, kwargs.bind(py).as_any()])?.into_any(),
        };
        let given = fast_path.headers.as_ref().map(|headers| headers.bind(py));
        let (span, headers) = match ClientSpan::begin(py, fast_path, given)? {
            Some((span, headers)) => (Some(span), Some(headers)),
            None => (None, outer.headers(given)?),
        };
        let request = CallRequest {
            subject: &format!("{}{}", route.prefix, fast_path.method),
            timeout_s: Some(outer.left_s.map_or(fast_path.timeout_s, |left_s| left_s.min(fast_path.timeout_s)))
                .filter(|seconds| seconds.is_finite()),
            priority: Some(self.calling.get().priority()),
            headers,
            give: None,
            begun: clock::now(),
        };
        // An error here is found again, and reported, by the slow path.
        let Ok(asking) = send(route, &value, &request) else {
            self.continue_span(py, span.as_ref())?;
            return Ok(None);
        };
        let load = Some(balancer.began(&route.instance, fast_path.policy, &call));
        let load = InstanceLoad { balancer: fast_path.balancer.clone_ref(py), load, route: route_ref };
        Ok(Some(Sent { asking, load, begun: request.begun, span }))
    }

    /// Has the slow path end the span of the call.
    fn continue_span(&self, py: Python<'_>, span: Option<&ClientSpan>) -> PyResult<()> {
        let Some(ClientSpan(_, span)) = span else { return Ok(()) };
        self.outbound_call(py)?.setattr(intern!(py, "span"), span.bind(py))
    }
}

/// The spans of this process, and the span of a call.
pub struct ClientSpan(PyRef<PyAny>, PyRef<PyAny>);

impl ClientSpan {
    /// Begins the span of a call, and gives the headers of the call. None if nobody has spans.
    fn begin<'py>(
        py: Python<'py>,
        fast_path: &FastPath,
        given: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Option<(Self, Bound<'py, PyDict>)>> {
        static CONTEXT: Once<Py<PyModule>> = Once::new();
        let context = || PyModule::import(py, "tidewire._trace_context").map(Bound::unbind);
        let spans = CONTEXT.get_or_try_init(py, context)?.bind(py).getattr(intern!(py, "spans"))?;
        if spans.is_none() {
            return Ok(None);
        }
        let begun = spans.call_method1(intern!(py, "fast_call"), (&*fast_path.title, &*fast_path.node, given))?;
        let (span, headers): (Bound<'py, PyAny>, Bound<'py, PyDict>) = begun.extract()?;
        Ok(Some((Self(spans.into(), span.into()), headers)))
    }

    pub fn end(&self, py: Python<'_>, error: Option<&PyErr>) {
        let error = error.map(|error| error.value(py));
        if let Err(error) = self.0.call_method1(py, intern!(py, "end"), (self.1.bind(py), error)) {
            error.write_unraisable(py, None);
        }
    }
}

/// The call of a service that this code belongs to, if there is one: what it calls is a part of
/// that, ends with it, and shares its trace.
#[derive(Default)]
struct ParentCall<'py> {
    left_s: Option<f64>,
    running: Option<Bound<'py, PyAny>>,
}

impl<'py> ParentCall<'py> {
    /// None: nothing is called in it any more.
    fn of(py: Python<'py>) -> PyResult<Option<Self>> {
        static GET: Once<Py<PyAny>> = Once::new();
        let running = GET.of(py, "tidewire._trace_context", "running.get")?.call0()?;
        if running.is_none() {
            return Ok(Some(Self::default()));
        }
        if running.getattr(intern!(py, "cancelled"))?.is_truthy()? {
            return Ok(None);
        }
        let request = running.getattr(intern!(py, "request"))?;
        let deadline: Option<f64> = request.getattr(intern!(py, "deadline"))?.extract()?;
        // Looked up for each call: the clock of tests replaces the function.
        let now: f64 = py.import(intern!(py, "time"))?.call_method0(intern!(py, "monotonic"))?.extract()?;
        let left_s = deadline.map(|deadline| deadline - now);
        Ok(left_s.is_none_or(|left_s| left_s > 0.0).then(|| Self { left_s, running: Some(running.clone()) }))
    }

    fn headers(&self, given: Option<&Bound<'py, PyDict>>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(running) = &self.running else { return Ok(given.cloned()) };
        let py = running.py();
        let headers: Bound<'py, PyDict> = running.getattr(intern!(py, "trace_fields"))?.cast_into()?;
        given.map_or(Ok(()), |given| headers.update(given.as_mapping()))?;
        let trace = running.getattr(intern!(py, "request"))?.getattr(intern!(py, "trace"))?;
        headers.set_item(intern!(py, "tw-trace"), trace)?;
        Ok(Some(headers))
    }
}

/// The operation of a call.
pub struct CallFuture {
    sketch: Arc<DeferredCall>,
    state: State,
}

enum State {
    Waiting,
    Sent(Sent<PendingReply>),
    /// The slow path.
    Steps(StepsFuture),
    Over,
}

struct Sent<T> {
    asking: T,
    load: InstanceLoad,
    begun: Instant,
    span: Option<ClientSpan>,
}

impl<T> Sent<T> {
    /// Counts the time of the call, and the type of its error, and ends its span.
    fn took(&self, py: Python<'_>, title: &str, error: Option<&PyErr>) {
        if let Some(span) = &self.span {
            span.end(py, error);
        }
        let engine = self.load.route.get().engine.get();
        note(py, &engine.durations, CLIENT, title, clock::since(self.begun), error);
    }
}

impl CallFuture {
    pub fn new(sketch: Arc<DeferredCall>) -> Self {
        Self { sketch, state: State::Waiting }
    }

    fn begin(&mut self, py: Python<'_>) -> PyResult<()> {
        self.state = State::Over;
        let ask = |route: &Route, value: &Bound<'_, PyAny>, request: &CallRequest<'_, '_>| {
            route.link.get().ask(py, route.engine.get(), value, request)
        };
        self.state = match self.sketch.send_by(py, ask)? {
            Some(sent) => State::Sent(sent),
            None => {
                let steps = self.sketch.outbound_call(py)?.call_method0(intern!(py, "steps"))?;
                State::Steps(StepsFuture::new(&steps)?)
            }
        };
        Ok(())
    }

    /// The result of a reply. None: other attempts follow.
    fn ended(&mut self, py: Python<'_>, outcome: PyResult<Py<PyAny>>) -> PyResult<Option<Py<PyAny>>> {
        let State::Sent(mut sent) = std::mem::replace(&mut self.state, State::Over) else { return Ok(None) };
        let Some(fast_path) = &self.sketch.fast_path else { return Ok(None) };
        let took = clock::since(sent.begun);
        let error = match outcome {
            Ok(value) => {
                sent.took(py, &fast_path.title, None);
                sent.load.end(Ended::Answered(u64::try_from(took.as_micros()).unwrap_or(u64::MAX)));
                return self.sketch.convert_result(py, value).map(Some);
            }
            Err(error) => error,
        };
        // Noted by the steps.
        let load = sent.load.load.take().map(balancer::CallLoad);
        let attempt =
            (fast_path.group.bind(py), &sent.load.route.get().port, load, took.as_secs_f64(), error.value(py));
        self.sketch.continue_span(py, sent.span.as_ref())?;
        let steps = self.sketch.outbound_call(py)?.call_method1(intern!(py, "steps_after"), attempt)?;
        if steps.is_none() {
            sent.took(py, &fast_path.title, Some(&error));
            return Err(error);
        }
        self.state = State::Steps(StepsFuture::new(&steps)?);
        Ok(None)
    }
}

impl Future for CallFuture {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.state {
                State::Waiting => {
                    if let Err(error) = attach(|py| self.begin(py)) {
                        return Poll::Ready(Err(error));
                    }
                }
                State::Sent(sent) => {
                    let Poll::Ready(outcome) = Pin::new(&mut sent.asking).poll(context) else { return Poll::Pending };
                    match attach(|py| self.ended(py, outcome)) {
                        Ok(Some(value)) => return Poll::Ready(Ok(value)),
                        Ok(None) => {}
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
                State::Steps(steps) => return Pin::new(steps).poll(context),
                State::Over => return Poll::Pending,
            }
        }
    }
}

impl Drop for CallFuture {
    fn drop(&mut self) {
        if let (State::Sent(sent), Some(fast_path)) = (&self.state, &self.sketch.fast_path) {
            let (engine, took) = (sent.load.route.get().engine.get(), clock::since(sent.begun));
            engine.durations.record(CLIENT, &fast_path.title, "CancelledError", took);
            if let Some(span) = &sent.span {
                attach(|py| span.end(py, None));
            }
        }
    }
}
