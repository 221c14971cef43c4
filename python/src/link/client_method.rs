//! Client methods of services on other nodes: binding of arguments, and the fast path of a call.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};
use tidewire_core::rpc::balancer::{CallProfile, Policy};
use tidewire_engine::raw::Mutex;

use crate::actors::engine::Engine;
use crate::arguments::Priority;
use crate::interpreter::once::{Once, intern};
use crate::interpreter::py_ref::PyRef;
use crate::link::Link;
use crate::link::call_future::{CallFuture, DeferredCall};
use crate::link::native_stream::NativeStream;
use crate::pending::Pending;
use crate::services::balancer::{self, Balancer};

/// The connection to one instance of a service in another process.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Route {
    pub link: Py<Link>,
    pub engine: Py<Engine>,
    pub instance: String,
    /// Subject prefix of the methods.
    pub prefix: String,
    pub port: Py<PyAny>,
}

#[pymethods]
impl Route {
    #[new]
    fn new(link: Py<Link>, engine: Py<Engine>, instance: String, prefix: String, port: Py<PyAny>) -> Self {
        Self { link, engine, instance, prefix, port }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.link)?;
        visit.call(&self.engine)?;
        visit.call(&self.port)
    }
}

/// Base class of client methods. It makes the fast-path call: one value over links, with arguments
/// that are plain data. `_call` makes the others.
#[pyclass(frozen, subclass, module = "tidewire._tidewire")]
pub struct NativeMethod {
    priority: Priority,
    /// Makes a result the type that the client knows.
    result: Option<Py<PyAny>>,
    takes: Option<Takes>,
    fast_path: Mutex<Option<Arc<FastPath>>>,
}

/// Arguments of a method, as far as they are known: names of the positional ones, the number of
/// required ones, and true if others must be given by name.
type Takes = (Vec<String>, usize, bool);

/// The fast path of a call, valid while the instances have this version.
pub struct FastPath {
    pub group: PyRef<PyAny>,
    pub balancer: PyRef<Balancer>,
    pub version: u64,
    pub policy: Policy,
    pub dice: PyRef<PyAny>,
    pub idempotent: bool,
    /// Place and name of the argument that says the cost of a call.
    pub cost: Option<(usize, Arc<str>)>,
    pub headers: Option<PyRef<PyDict>>,
    pub method: Arc<str>,
    /// Service and method, for metrics and spans.
    pub title: Arc<str>,
    /// The node that calls.
    pub node: Arc<str>,
    pub timeout_s: f64,
    /// Items of a stream that may be sent ahead of its reader; 0 for a method that gives one value.
    pub credit: u32,
}

impl FastPath {
    /// A call with these arguments, for the balancer.
    pub fn profile(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        dice: u64,
    ) -> PyResult<CallProfile<'_>> {
        if !matches!(self.policy, Policy::LowestLatency { .. }) {
            return Ok(CallProfile { dice, ..CallProfile::default() });
        }
        let value = match (&self.cost, kwargs) {
            (Some((at, _)), _) if *at < args.len() => Some(args.get_item(*at)?),
            (Some((_, name)), Some(kwargs)) => kwargs.get_item(&**name)?,
            _ => None,
        };
        Ok(self.balancer.get().profile(&self.method, value.as_ref(), self.idempotent, dice))
    }
}

#[pymethods]
impl NativeMethod {
    #[new]
    fn new(priority: Priority, result: Option<Py<PyAny>>, takes: Option<Takes>) -> Self {
        Self { priority, result, takes, fast_path: Mutex::new(None) }
    }

    /// Enables the fast path while the instances have `version`.
    #[allow(clippy::too_many_arguments)]
    fn _goes(
        &self,
        group: Py<PyAny>,
        balancer: Py<Balancer>,
        version: u64,
        policy: (String, f64, Py<PyAny>, bool, Option<(usize, String)>),
        headers: Option<Py<PyDict>>,
        service: &str,
        method: &str,
        timeout_s: f64,
        node: &str,
        credit: u32,
    ) {
        let (kind, explore, dice, idempotent, cost) = policy;
        let fast_path = FastPath {
            group: group.into(),
            balancer: balancer.into(),
            version,
            policy: balancer::policy(&kind, explore),
            dice: dice.into(),
            idempotent,
            cost: cost.map(|(at, name)| (at, name.into())),
            headers: headers.map(PyRef::from),
            method: method.into(),
            title: format!("{service}/{method}").into(),
            node: node.into(),
            timeout_s,
            credit,
        };
        let before = self.fast_path.lock().replace(Arc::new(fast_path));
        drop(before);
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        this: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let kwargs = kwargs.filter(|kwargs| !kwargs.is_empty());
        if let Some(fast_path) = this.get().fast_path_for(args, kwargs)? {
            let streams = fast_path.credit > 0;
            return begun_later(py, DeferredCall::new(this.clone(), args, kwargs, Some(fast_path)), streams);
        }
        let kwargs = kwargs.map_or_else(|| PyDict::new(py), |kwargs| kwargs.clone());
        this.call_method1(intern!(py, "_call"), (args, kwargs))
    }

    /// A call over a link that the client's method decides about. It gives a stream or one value.
    fn _over_link<'py>(
        this: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
        streams: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let kwargs = Some(kwargs).filter(|kwargs| !kwargs.is_empty());
        let fast_path = this.get().fast_path_for(args, kwargs)?;
        begun_later(this.py(), DeferredCall::new(this.clone(), args, kwargs, fast_path), streams)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.result)?;
        // A locked state is in use by another thread: the garbage collector looks again later.
        let Some(fast_path) = self.fast_path.try_lock() else { return Ok(()) };
        let Some(fast_path) = &*fast_path else { return Ok(()) };
        visit.call(&*fast_path.group)?;
        visit.call(&*fast_path.balancer)?;
        visit.call(&*fast_path.dice)?;
        fast_path.headers.as_ref().map_or(Ok(()), |headers| visit.call(&**headers))
    }
}

impl NativeMethod {
    /// The fast path of a call with these arguments, if it applies now.
    fn fast_path_for(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<Arc<FastPath>>> {
        let Some(fast_path) = self.fast_path.lock().clone() else { return Ok(None) };
        let is_fast = fast_path.balancer.get().is_current(fast_path.version) && self.binds(args, kwargs)?;
        Ok((is_fast && is_plain(args, kwargs)?).then_some(fast_path))
    }

    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// A result as the type that the client knows.
    pub fn convert_result(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<Py<PyAny>> {
        match &self.result {
            None => Ok(value),
            Some(make) => make.call1(py, (value,)),
        }
    }

    /// True if the method takes these arguments, as far as its signature is known.
    fn binds(&self, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<bool> {
        let Some((names, least, must_name)) = &self.takes else { return Ok(true) };
        let count = args.len();
        if *must_name || count > names.len() {
            return Ok(false);
        }
        let Some(kwargs) = kwargs else { return Ok(count >= *least) };
        for name in kwargs.keys() {
            let name = name.cast_into::<PyString>()?;
            let name = name.to_str()?;
            if !names[count..].iter().any(|known| known == name) {
                return Ok(false);
            }
        }
        for name in names.iter().take(*least).skip(count) {
            if !kwargs.contains(name)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// True if no argument is an iterator: iterators travel item by item.
fn is_plain(args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<bool> {
    for value in args.iter_borrowed() {
        if is_stream(&value)? {
            return Ok(false);
        }
    }
    for value in kwargs.into_iter().flat_map(|kwargs| kwargs.values()) {
        if is_stream(&value)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_stream(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_plain = value.is_none()
        || value.is_exact_instance_of::<PyBytes>()
        || value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyDict>()
        || value.is_exact_instance_of::<PyList>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyTuple>();
    if is_plain {
        return Ok(false);
    }
    let (py, class) = (value.py(), value.get_type());
    Ok(class.hasattr(intern!(py, "__anext__"))? || class.hasattr(intern!(py, "__next__"))?)
}

/// A call that begins when it is awaited, as a `tidewire.services.caller.calls.LinkCall`, or a
/// stream that begins when it is read.
fn begun_later(py: Python<'_>, sketch: DeferredCall, streams: bool) -> PyResult<Bound<'_, PyAny>> {
    static CALL: Once<Py<PyType>> = Once::new();
    if streams {
        return NativeStream::later(py, sketch);
    }
    let sketch = Arc::new(sketch);
    let operation = Box::pin(CallFuture::new(Arc::clone(&sketch)));
    let call = Bound::new(py, Pending::later(py, "call", operation, sketch)?)?.into_any();
    call.setattr(intern!(py, "__class__"), CALL.of(py, "tidewire.services.caller.calls", "LinkCall")?)?;
    Ok(call)
}
