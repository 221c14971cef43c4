//! A call to another node: a future from its first poll to its outcome.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use tidewire_core::rpc::balancer::Ended;

use crate::interpreter::attach::attach;
use crate::interpreter::once::{Once, intern};
use crate::interpreter::py_ref::PyRef;
use crate::link::client_method::{FastPath, NativeMethod, Route};
use crate::link::hub_link::CallRequest;
use crate::link::reply_slot::PendingReply;
use crate::link::steps_future::StepsFuture;
use crate::services::balancer::{Balancer, drawn};

/// A call that has not begun.
pub struct DeferredCall {
    calling: PyRef<NativeMethod>,
    args: PyRef<PyTuple>,
    kwargs: Option<PyRef<PyDict>>,
    /// The fast path, if it applies.
    fast_path: Option<FastPath>,
    outbound_call: Once<PyRef<PyAny>>,
}

impl DeferredCall {
    pub fn new(
        calling: Bound<'_, NativeMethod>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        fast_path: Option<FastPath>,
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

    /// Sends the call, if the fast path applies.
    fn send(&self, py: Python<'_>) -> PyResult<Option<Sent>> {
        let Some(fast_path) = &self.fast_path else { return Ok(None) };
        let dice = drawn(fast_path.policy, fast_path.dice.bind(py))?;
        let Some(outer) = ParentCall::of(py)? else { return Ok(None) };
        let balancer = fast_path.balancer.get();
        let Some(held) = balancer.route(py, fast_path.version, fast_path.policy, dice) else { return Ok(None) };
        let route = held.get();
        let args = self.args.bind(py).as_any();
        let value = match &self.kwargs {
            None => args.clone(),
            Some(kwargs) => PyList::new(py, [args, kwargs.bind(py).as_any()])?.into_any(),
        };
        let request = CallRequest {
            subject: &format!("{}{}", route.prefix, fast_path.method),
            timeout_s: outer.left_s.map_or(fast_path.timeout_s, |left_s| left_s.min(fast_path.timeout_s)),
            priority: self.calling.get().priority(),
            headers: outer.headers(fast_path.headers.as_ref().map(|headers| headers.bind(py)))?,
            begun: Instant::now(),
        };
        // An error here is found again, and reported, by the slow path.
        let Ok(asking) = route.link.get().ask(py, route.engine.get(), &value, &request) else { return Ok(None) };
        balancer.began(&route.instance);
        Ok(Some(Sent { asking, balancer: fast_path.balancer.clone_ref(py), route: held, begun: request.begun }))
    }
}

/// The call of a service that this code belongs to, if there is one: what it calls is a part of
/// that, ends with it, and shares its trace.
#[derive(Default)]
struct ParentCall<'py> {
    left_s: Option<f64>,
    /// The id of the trace, and the headers of its context.
    trace: Option<(Bound<'py, PyAny>, Bound<'py, PyDict>)>,
}

impl<'py> ParentCall<'py> {
    /// None: nothing is called in it any more.
    fn of(py: Python<'py>) -> PyResult<Option<Self>> {
        static GET: Once<Py<PyAny>> = Once::new();
        static MONOTONIC: Once<Py<PyAny>> = Once::new();
        let running = GET.of(py, "tidewire._trace_context", "running.get")?.call0()?;
        if running.is_none() {
            return Ok(Some(Self::default()));
        }
        if running.getattr(intern!(py, "cancelled"))?.is_truthy()? {
            return Ok(None);
        }
        let request = running.getattr(intern!(py, "request"))?;
        let deadline: Option<f64> = request.getattr(intern!(py, "deadline"))?.extract()?;
        let now: f64 = MONOTONIC.of(py, "time", "monotonic")?.call0()?.extract()?;
        let left_s = deadline.map(|deadline| deadline - now);
        let fields = request.getattr(intern!(py, "trace_fields"))?.cast_into()?;
        let trace = Some((request.getattr(intern!(py, "trace"))?, fields));
        Ok(left_s.is_none_or(|left_s| left_s > 0.0).then_some(Self { left_s, trace }))
    }

    fn headers(&self, given: Option<&Bound<'py, PyDict>>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some((trace, fields)) = &self.trace else { return Ok(given.cloned()) };
        let headers = fields.copy()?;
        given.map_or(Ok(()), |given| headers.update(given.as_mapping()))?;
        headers.set_item(intern!(trace.py(), "tw-trace"), trace)?;
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
    Sent(Sent),
    /// The slow path.
    Steps(StepsFuture),
    Over,
}

struct Sent {
    asking: PendingReply,
    balancer: PyRef<Balancer>,
    route: PyRef<Route>,
    begun: Instant,
}

impl Sent {
    fn ended(&self, how: Ended) {
        self.balancer.get().note_end(&self.route.get().instance, how);
    }
}

impl CallFuture {
    pub fn new(sketch: Arc<DeferredCall>) -> Self {
        Self { sketch, state: State::Waiting }
    }

    fn begin(&mut self, py: Python<'_>) -> PyResult<()> {
        self.state = State::Over;
        self.state = match self.sketch.send(py)? {
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
        let State::Sent(sent) = std::mem::replace(&mut self.state, State::Over) else { return Ok(None) };
        let took = sent.begun.elapsed();
        let error = match outcome {
            Ok(value) => {
                sent.ended(Ended::Answered(u64::try_from(took.as_micros()).unwrap_or(u64::MAX)));
                return self.sketch.calling.get().made(py, value).map(Some);
            }
            Err(error) => error,
        };
        let Some(fast_path) = &self.sketch.fast_path else { return Err(error) };
        let attempt = (fast_path.group.bind(py), &sent.route.get().port, took.as_secs_f64(), error.value(py));
        let steps = self.sketch.outbound_call(py)?.call_method1(intern!(py, "steps_after"), attempt)?;
        if steps.is_none() {
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
        if let State::Sent(sent) = &self.state {
            sent.ended(Ended::Untold);
        }
    }
}
