//! A call to another node, from its beginning to its end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use tidewire_core::rpc::balancer::Ended;

use crate::attach::attach;
use crate::held::Held;
use crate::link::calling::{Calling, Route, Usual};
use crate::link::planned::Planned;
use crate::link::reply::Asking;
use crate::once::{Once, intern};

/// A call that may be made.
pub struct Sketch {
    calling: Held<Calling>,
    args: Held<PyTuple>,
    kwargs: Option<Held<PyDict>>,
    /// How it is made if everything is as usual.
    usual: Option<Usual>,
    errand: Once<Held<PyAny>>,
}

impl Sketch {
    pub fn new(
        calling: Bound<'_, Calling>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        usual: Option<Usual>,
    ) -> Self {
        Self {
            calling: calling.into(),
            args: args.clone().into(),
            kwargs: kwargs.map(|kwargs| kwargs.clone().into()),
            usual,
            errand: Once::new(),
        }
    }

    /// What makes it where something is not as usual; see `tidewire.services.errand.Errand`.
    pub fn errand<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let make = || {
            let kwargs = self.kwargs.as_ref().map_or_else(|| PyDict::new(py), |kwargs| kwargs.bind(py).clone());
            self.calling.call_method1(py, intern!(py, "_errand"), (self.args.bind(py), kwargs)).map(Held::from)
        };
        self.errand.get_or_try_init(py, make).map(|errand| errand.bind(py).clone())
    }

    /// What errors call it.
    pub fn title(&self, py: Python<'_>) -> PyResult<String> {
        self.calling.getattr(py, intern!(py, "_title"))?.extract(py)
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&*self.calling)?;
        visit.call(&*self.args)?;
        self.kwargs.as_ref().map_or(Ok(()), |kwargs| visit.call(&**kwargs))
    }

    /// Sends it, if everything is as usual.
    fn send(&self, py: Python<'_>) -> PyResult<Option<Sent>> {
        let Some(usual) = &self.usual else { return Ok(None) };
        let calling = self.calling.get();
        let is_current = calling.usual(py)?.is_some_and(|now| now.route.is(&*usual.route));
        if !is_current || in_a_call(py)? {
            return Ok(None);
        }
        let (route, value) = (usual.route.get(), self.args.bind(py).as_any());
        let begun = Instant::now();
        let link = route.link.get();
        let sent = link.ask(py, route.engine.get(), &usual.subject, value, usual.timeout_s, calling.priority(), begun);
        // What keeps it from being sent is found again, and told, where nothing is usual.
        let Ok(asking) = sent else { return Ok(None) };
        route.balancer.get().began(&route.instance);
        Ok(Some(Sent { asking, route: usual.route.clone_ref(py), begun }))
    }
}

/// Whether this code belongs to a call of a service: what it calls is a part of that.
fn in_a_call(py: Python<'_>) -> PyResult<bool> {
    static GET: Once<Py<PyAny>> = Once::new();
    let get = GET.of(py, "tidewire.services.context", "running.get")?;
    Ok(!get.call0()?.is_none())
}

/// The operation of a call.
pub struct Outgoing {
    sketch: Arc<Sketch>,
    state: State,
}

enum State {
    Waiting,
    Sent(Sent),
    /// Something is not as usual.
    Planned(Box<Planned>),
    Over,
}

struct Sent {
    asking: Asking,
    route: Held<Route>,
    begun: Instant,
}

impl Sent {
    fn ended(&self, how: Ended) {
        let route = self.route.get();
        route.balancer.get().note_end(&route.instance, how);
    }
}

impl Outgoing {
    pub fn new(sketch: Arc<Sketch>) -> Self {
        Self { sketch, state: State::Waiting }
    }

    fn begin(&mut self, py: Python<'_>) -> PyResult<()> {
        self.state = State::Over;
        self.state = match self.sketch.send(py)? {
            Some(sent) => State::Sent(sent),
            None => State::Planned(Box::new(Planned::new(self.sketch.errand(py)?.unbind()))),
        };
        Ok(())
    }

    /// What becomes of an answer. None: it goes on as a plan says.
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
        let errand = self.sketch.errand(py)?;
        if let Some(usual) = &self.sketch.usual {
            let route = usual.route.get();
            errand.call_method1(intern!(py, "was_sent"), (&route.group, &route.port, took.as_secs_f64()))?;
        }
        self.state = State::Planned(Box::new(Planned::failed(errand.unbind(), error)));
        Ok(None)
    }
}

impl Future for Outgoing {
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
                State::Planned(planned) => return Pin::new(&mut **planned).poll(context),
                State::Over => return Poll::Pending,
            }
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if let State::Sent(sent) = &self.state {
            sent.ended(Ended::Untold);
        }
    }
}
