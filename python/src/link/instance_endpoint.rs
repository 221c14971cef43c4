//! The endpoint of one service instance for calls of other nodes.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};
use tidewire_engine::raw::Envelope;
use tidewire_engine::{Priority, Refusal};
use tidewire_proto::generated::errors::ErrorCode;

use crate::actors::actor::ActorRef;
use crate::actors::coroutine::ConcurrencyPermit;
use crate::actors::message::Message;
use crate::errors;
use crate::interpreter::once::{Once, intern};
use crate::interpreter::steps::Steps;
use crate::link::inbound::RemoteCall;
use crate::link::inbound_call_run::{CallStart, InboundCallRun};
use crate::services::call_counters::CallCounters;
use crate::services::thread_workers::ThreadWorkers;

/// The lanes of a mailbox, in the order of those of a link.
const PRIORITIES: [Priority; 4] = [Priority::Urgent, Priority::High, Priority::Normal, Priority::Low];

/// The handler of the actor that runs the calls of one instance, from all connections: one limit
/// holds for all calls.
///
/// It admits calls of other nodes, begins coroutines whose arguments need no further check, and
/// hands plain functions to the worker threads. The Python endpoint gets the other calls.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct InstanceEndpoint {
    /// Runs a call of this process: `tidewire.services.instances.instance.ServiceInstance.receive`.
    receive: Py<PyAny>,
    instance: Py<PyAny>,
    counters: Py<CallCounters>,
    /// The calls whose handlers are running.
    calls: Py<PySet>,
    opened: Once<RemoteAccess>,
}

/// State of an endpoint that other nodes may call.
struct RemoteAccess {
    /// `tidewire.links.service_endpoint.ServiceEndpoint`.
    service_endpoint: Py<PyAny>,
    methods: HashMap<String, Method>,
    /// The actors that take calls which give one value, and streams.
    values: Py<ActorRef>,
    streams: Py<ActorRef>,
    /// Run plain functions, if there are any among the methods.
    workers: Option<Py<ThreadWorkers>>,
    /// True if calls on worker threads use the concurrency permits of `values`. Otherwise the
    /// worker threads have their own.
    lends: bool,
}

/// A method that can be called from other nodes.
#[derive(Clone)]
pub struct Method(Arc<Inner>);

struct Inner {
    /// Its service and its name, for metrics.
    title: String,
    bound: Py<PyAny>,
    call: Py<PyAny>,
    streams: bool,
    coroutine: bool,
    public: bool,
    /// The numbers of arguments that it takes; none if some must be named.
    least: usize,
    most: usize,
    /// Names of the arguments that may be given by position and by name; none if the first may not.
    names: Vec<String>,
    /// The classes of arguments that need no look; None: any.
    exact: Option<Vec<Option<Py<PyType>>>>,
    /// The name of the parameter that takes the context, and its place.
    context: Option<(String, Option<usize>)>,
}

type Context = Option<(String, Option<usize>)>;

impl Method {
    /// Reads a `tidewire.services.contract.methods.Bound`.
    fn of(bound: &Bound<'_, PyAny>, public: bool, title: String) -> PyResult<Self> {
        let signature = bound.getattr("signature")?;
        let counts: Option<(usize, usize)> = signature.getattr("counts")?.extract()?;
        let (least, most) = counts.unwrap_or((1, 0));
        let exact: Vec<Option<Py<PyType>>> = signature.getattr("exact")?.extract()?;
        let plain: bool = signature.getattr("plain")?.extract()?;
        let context: Context = signature.getattr("context")?.extract()?;
        Ok(Self(Arc::new(Inner {
            title,
            bound: bound.clone().unbind(),
            call: bound.getattr("call")?.unbind(),
            streams: bound.getattr("streams")?.extract()?,
            coroutine: bound.getattr("coroutine")?.extract()?,
            public,
            least,
            most,
            names: signature.getattr("by_name")?.extract()?,
            exact: (!plain).then_some(exact),
            context,
        })))
    }

    /// True for a coroutine function, or one that returns asynchronous iterators.
    pub fn is_coroutine(&self) -> bool {
        self.0.coroutine
    }

    /// The arguments of the method. None or an error: the slow path has to handle the call.
    pub fn arguments<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let (py, of) = (value.py(), &*self.0);
        let args = match value.cast_exact::<PyTuple>() {
            Ok(args) => args.clone(),
            Err(_) => match self.by_position(value)? {
                Some(args) => args,
                None => return Ok(None),
            },
        };
        if !(of.least..=of.most).contains(&args.len()) {
            return Ok(None);
        }
        if self.fits(&args) {
            return Ok(Some(args));
        }
        // The code that reports an error of the method's own finds it again.
        let signature = of.bound.bind(py).getattr(intern!(py, "signature"))?;
        let converted = signature.call_method1(intern!(py, "convert"), ("", args, PyDict::new(py)))?;
        let (args, _): (Bound<'py, PyTuple>, Bound<'py, PyAny>) = converted.extract()?;
        Ok(Some(args))
    }

    /// Arguments of a list of a tuple and a dict, where those by name follow those by position.
    fn by_position<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Ok(both) = value.cast_exact::<PyList>() else { return Ok(None) };
        let (2, Ok(args), Ok(kwargs)) = (both.len(), both.get_item(0), both.get_item(1)) else { return Ok(None) };
        let (Ok(args), Ok(kwargs)) = (args.cast_into_exact::<PyTuple>(), kwargs.cast_into_exact::<PyDict>()) else {
            return Ok(None);
        };
        let mut all: Vec<_> = args.iter().collect();
        for name in self.0.names.iter().skip(args.len()).take(kwargs.len()) {
            match kwargs.get_item(name)? {
                Some(value) => all.push(value),
                None => return Ok(None),
            }
        }
        if all.len() == args.len() + kwargs.len() { PyTuple::new(value.py(), all).map(Some) } else { Ok(None) }
    }

    /// True if the method can be called with these arguments as they are.
    fn fits(&self, args: &Bound<'_, PyTuple>) -> bool {
        let of = &*self.0;
        let exact = |value: Bound<'_, PyAny>, class: &Option<Py<PyType>>| {
            class.as_ref().is_some_and(|class| value.get_type().as_any().is(class))
        };
        of.exact.as_ref().is_none_or(|classes| args.iter().zip(classes).all(|(value, class)| exact(value, class)))
    }

    pub fn title(&self) -> &str {
        &self.0.title
    }

    pub fn bound(&self, py: Python<'_>) -> Py<PyAny> {
        self.0.bound.clone_ref(py)
    }

    pub fn call<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.0.call.bind(py)
    }

    pub fn context(&self) -> Option<(&str, Option<usize>)> {
        self.0.context.as_ref().map(|(name, at)| (name.as_str(), *at))
    }
}

#[pymethods]
impl InstanceEndpoint {
    #[new]
    fn new(receive: Py<PyAny>, instance: Py<PyAny>, counters: Py<CallCounters>, calls: Py<PySet>) -> Self {
        Self { receive, instance, counters, calls, opened: Once::new() }
    }

    /// Lets other nodes call `methods`, by name, each with true if clients over HTTP may call it,
    /// too. `values` and `streams` are the actors that take the calls, and `workers` run plain
    /// functions. With `lends`, these use the concurrency permits of `values`.
    #[allow(clippy::too_many_arguments)]
    fn open(
        &self,
        py: Python<'_>,
        service_endpoint: Py<PyAny>,
        service: &str,
        methods: HashMap<String, (Bound<'_, PyAny>, bool)>,
        values: Py<ActorRef>,
        streams: Py<ActorRef>,
        workers: Option<Py<ThreadWorkers>>,
        lends: bool,
    ) -> PyResult<()> {
        let methods = methods.into_iter().map(|(name, (bound, public))| {
            let title = format!("{service}/{name}");
            Ok((name, Method::of(&bound, public, title)?))
        });
        let methods = methods.collect::<PyResult<_>>()?;
        self.opened.set(py, RemoteAccess { service_endpoint, methods, values, streams, workers, lends });
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.receive)?;
        visit.call(&self.calls)?;
        let Some(opened) = self.opened.peek() else { return Ok(()) };
        visit.call(&opened.service_endpoint)?;
        visit.call(opened.workers.as_ref())?;
        // Methods are shared with the calls in progress.
        if opened.methods.values().all(|method| Arc::strong_count(&method.0) == 1) {
            for method in opened.methods.values() {
                visit.call(&method.0.bound)?;
                visit.call(&method.0.call)?;
            }
        }
        Ok(())
    }

    /// Admits a call.
    fn __call__(&self, call: Bound<'_, RemoteCall>) -> PyResult<()> {
        self.admit(&call)
    }
}

impl InstanceEndpoint {
    /// Admits a call, or notifies its caller that too many wait.
    pub fn admit(&self, call: &Bound<'_, RemoteCall>) -> PyResult<()> {
        let py = call.py();
        let remote = call.get();
        let Some(RemoteAccess { methods, values, streams, .. }) = self.opened.get(py) else { return Ok(()) };
        let (name, lane) = remote.about();
        let (method, lane) = (methods.get(name).cloned(), PRIORITIES[lane]);
        let streaming = method.as_ref().is_some_and(|method| method.0.streams);
        method.into_iter().for_each(|method| drop(remote.method().set(method)));
        let actor = if streaming { streams } else { values }.get();
        actor.inner.check(py)?;
        let envelope = Envelope::Plain(Message::plain(call.clone().into_any().unbind()));
        if let Err((refusal, envelope)) = actor.inner.cell().push(envelope, lane) {
            drop(envelope);
            let (code, text) = match refusal {
                Refusal::Full { capacity, .. } => (
                    ErrorCode::Overloaded,
                    format!("service_waiting={capacity}: so many calls wait already: try again later"),
                ),
                // Nothing of it has begun, so that another instance can have it.
                refusal => {
                    let error = errors::refusal(py, refusal, actor.inner.name());
                    (ErrorCode::NoResponders, error.value(py).to_string())
                }
            };
            remote.refuse(py, code.number(), &text);
        }
        Ok(())
    }

    /// Begins a call. None: nobody waits for it any more, or a worker thread runs it, with the
    /// permit of `lend`.
    pub fn begin(
        this: &Bound<'_, Self>,
        call: &Bound<'_, PyAny>,
        lend: impl FnOnce() -> ConcurrencyPermit,
    ) -> PyResult<Option<Steps>> {
        let (py, endpoint) = (this.py(), this.get());
        let Ok(call) = call.cast::<RemoteCall>() else {
            return Steps::of(&endpoint.receive.bind(py).call1((call,))?).map(Some);
        };
        let remote = call.get();
        if remote.cancelled() {
            return Ok(None);
        }
        if let Some(method) = remote.method().get()
            && !remote.reads_items()
            && (method.0.public || !remote.is_public())
            && !method.0.streams
        {
            let handling =
                |args| InboundCallRun::new(this.clone().unbind(), call.clone().unbind(), method.clone(), args);
            let opened = endpoint.opened(py)?;
            if let (false, Some(workers)) = (method.is_coroutine(), &opened.workers) {
                let make = |slot| {
                    let place = opened.lends.then(lend);
                    let watch = remote.watch(&opened.values.get().inner.cell().engine());
                    let handling = Py::new(py, handling(CallStart::OnThread((slot, place, watch))))?;
                    remote.cancels(py, handling.clone_ref(py))?;
                    Ok(handling.into_any())
                };
                if let Err(error) = workers.get().send(py, make, PRIORITIES[remote.about().1], true) {
                    let code = match () {
                        () if errors::is(py, &error, "MailboxFull") => ErrorCode::Overloaded,
                        // Nothing of it has begun, so that another instance can have it.
                        () if errors::is(py, &error, "ActorStopped") => ErrorCode::NoResponders,
                        () => return Err(error),
                    };
                    remote.refuse(py, code.number(), &error.value(py).to_string());
                }
                return Ok(None);
            }
            if let Ok(value) = remote.decoded(py)
                && let Ok(Some(args)) = method.arguments(&value)
            {
                return Ok(Some(Steps::Call(Py::new(py, handling(CallStart::With(args.unbind())))?)));
            }
        }
        let coroutine = endpoint.service_endpoint(py)?.call_method1(intern!(py, "_receive"), (call,))?;
        Steps::of(&coroutine).map(Some)
    }

    /// The `ServiceEndpoint` of Python, which handles calls of other nodes.
    pub fn service_endpoint<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        Ok(self.opened(py)?.service_endpoint.bind(py))
    }

    fn opened(&self, py: Python<'_>) -> PyResult<&RemoteAccess> {
        self.opened.get(py).ok_or_else(|| PyRuntimeError::new_err("no other node may call this"))
    }

    pub fn counters<'a>(&'a self, py: Python<'a>) -> &'a CallCounters {
        self.counters.bind(py).get()
    }

    pub fn instance(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.instance.clone_ref(py))
    }

    /// A handler is about to begin.
    pub fn begins(&self, handling: &Bound<'_, InboundCallRun>) -> PyResult<()> {
        let py = handling.py();
        self.calls.bind(py).add(handling)?;
        self.counters(py).began();
        Ok(())
    }

    /// A handler has ended.
    pub fn ended(&self, handling: &Bound<'_, InboundCallRun>) -> PyResult<()> {
        self.calls.bind(handling.py()).discard(handling).map(drop)
    }

    /// Marks the rest of this context as part of a call.
    pub fn enters(&self, handling: &Bound<'_, InboundCallRun>) -> PyResult<()> {
        static SET: Once<Py<PyAny>> = Once::new();
        let py = handling.py();
        let set = SET.of(py, "tidewire._trace_context", "running.set")?;
        set.call1((handling,)).map(drop)
    }

    /// The context of the call that this code belongs to.
    pub fn context<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static CONTEXT: Once<Py<PyAny>> = Once::new();
        let context = CONTEXT.of(py, "tidewire.services.instances.context", "context")?;
        context.call0()
    }
}
