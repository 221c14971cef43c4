//! Calls of methods that other nodes serve: what a client's method is, and what calling it gives.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};
use tidewire_engine::raw::Mutex;

use crate::arguments::Priority;
use crate::balancer::Balancer;
use crate::engine::Engine;
use crate::held::Held;
use crate::link::Link;
use crate::link::outgoing::{Outgoing, Sketch};
use crate::once::{Once, intern};
use crate::pending::Pending;

/// The way to the one instance of a service, if there is one only, and in another process.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Route {
    pub link: Py<Link>,
    pub engine: Py<Engine>,
    pub balancer: Py<Balancer>,
    /// The id of the instance.
    pub instance: String,
    pub port: Py<PyAny>,
    pub group: Py<PyAny>,
}

#[pymethods]
impl Route {
    #[new]
    fn new(
        link: Py<Link>,
        engine: Py<Engine>,
        balancer: Py<Balancer>,
        instance: String,
        port: Py<PyAny>,
        group: Py<PyAny>,
    ) -> Self {
        Self { link, engine, balancer, instance, port, group }
    }

    /// The way as Python knows it.
    #[getter]
    fn port(&self, py: Python<'_>) -> Py<PyAny> {
        self.port.clone_ref(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.link)?;
        visit.call(&self.engine)?;
        visit.call(&self.balancer)?;
        visit.call(&self.port)?;
        visit.call(&self.group)
    }
}

/// What methods of clients derive from: the usual call, of one value over a link with plain arguments, is made here, and
/// `_call` makes the others.
#[pyclass(frozen, subclass, module = "tidewire._tidewire")]
pub struct Calling {
    service: Py<PyString>,
    /// The groups of the registry by name.
    groups: Py<PyDict>,
    priority: Priority,
    /// Makes a result the type that the client knows.
    result: Option<Py<PyAny>>,
    /// How many arguments are known to be right.
    counts: Option<(usize, usize)>,
    usual: Mutex<Option<Usual>>,
}

/// How the usual call is made.
pub struct Usual {
    pub route: Held<Route>,
    pub subject: Arc<str>,
    pub timeout_s: f64,
}

impl Usual {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self { route: self.route.clone_ref(py), subject: Arc::clone(&self.subject), timeout_s: self.timeout_s }
    }
}

#[pymethods]
impl Calling {
    #[new]
    fn new(
        service: Py<PyString>,
        groups: Py<PyDict>,
        priority: Priority,
        result: Option<Py<PyAny>>,
        counts: Option<(usize, usize)>,
    ) -> Self {
        Self { service, groups, priority, result, counts, usual: Mutex::new(None) }
    }

    /// From now on, as long as the way to the service is this one, calls go to `subject`.
    fn _goes(&self, route: Py<Route>, subject: &str, timeout_s: f64) {
        let before = self.usual.lock().replace(Usual { route: route.into(), subject: subject.into(), timeout_s });
        drop(before);
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        this: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let calling = this.get();
        if kwargs.is_none_or(|kwargs| kwargs.is_empty())
            && calling.is_plain(args)
            && let Some(usual) = calling.usual(py)?
        {
            return begun_later(py, Sketch::new(this.clone(), args, None, Some(usual)));
        }
        let kwargs = kwargs.map_or_else(|| PyDict::new(py), |kwargs| kwargs.clone());
        this.call_method1(intern!(py, "_call"), (args, kwargs))
    }

    /// A call over a link that the client's method decides about.
    fn _over_link<'py>(
        this: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        begun_later(this.py(), Sketch::new(this.clone(), args, Some(kwargs), None))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.groups)?;
        visit.call(&self.result)?;
        // Whoever holds the lock has not come to the end yet: the collector looks again.
        let Some(usual) = self.usual.try_lock() else { return Ok(()) };
        usual.as_ref().map_or(Ok(()), |usual| visit.call(&*usual.route))
    }
}

impl Calling {
    /// How the usual call is made at present, if it can be.
    pub fn usual(&self, py: Python<'_>) -> PyResult<Option<Usual>> {
        let usual = match &*self.usual.lock() {
            Some(usual) => usual.clone_ref(py),
            None => return Ok(None),
        };
        let Some(group) = self.groups.bind(py).get_item(&self.service)? else { return Ok(None) };
        let is_current = group.getattr(intern!(py, "route"))?.is(&*usual.route);
        Ok(is_current.then_some(usual))
    }

    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// A result as the type that the client knows.
    pub fn made(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<Py<PyAny>> {
        match &self.result {
            None => Ok(value),
            Some(make) => make.call1(py, (value,)),
        }
    }

    /// Whether arguments are as many as the method takes, and none is an iterator.
    fn is_plain(&self, args: &Bound<'_, PyTuple>) -> bool {
        self.counts.is_none_or(|(least, most)| (least..=most).contains(&args.len()))
            && args.iter_borrowed().all(|value| {
                value.is_none()
                    || value.is_exact_instance_of::<PyBytes>()
                    || value.is_exact_instance_of::<PyString>()
                    || value.is_exact_instance_of::<PyInt>()
                    || value.is_exact_instance_of::<PyDict>()
                    || value.is_exact_instance_of::<PyList>()
                    || value.is_exact_instance_of::<PyFloat>()
                    || value.is_exact_instance_of::<PyBool>()
                    || value.is_exact_instance_of::<PyTuple>()
            })
    }
}

/// A call that begins when somebody waits for it, as a `tidewire.services.errand.LinkCall`.
fn begun_later(py: Python<'_>, sketch: Sketch) -> PyResult<Bound<'_, PyAny>> {
    static CALL: Once<Py<PyType>> = Once::new();
    let sketch = Arc::new(sketch);
    let operation = Box::pin(Outgoing::new(Arc::clone(&sketch)));
    let call = Bound::new(py, Pending::later(py, "call", operation, sketch)?)?.into_any();
    call.setattr(intern!(py, "__class__"), CALL.of(py, "tidewire.services.errand", "LinkCall")?)?;
    Ok(call)
}
