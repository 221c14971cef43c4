//! Wait for idle actors of a node. `tidewire._node.idle` combines it with the other parts.

use std::pin::Pin;
use std::task::Poll;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use tidewire_engine::EngineHandle;

use crate::interpreter::pause::TimerFuture;

/// The state of an engine whose actors have nothing to do. Equal ones say that they had nothing to
/// do between them either.
#[pyclass(frozen, eq, module = "tidewire._tidewire")]
#[derive(PartialEq)]
pub struct Mark(pub tidewire_engine::IdleSnapshot);

/// Ends with True once no actor has anything to do, or with False when the time is up.
pub fn idle(engine: EngineHandle, seconds: Option<f64>) -> impl Future<Output = PyResult<Py<PyAny>>> + Send {
    let (mut idle, mut pause) = (engine.idle(), TimerFuture::of(seconds, engine));
    std::future::poll_fn(move |context| {
        let is_idle = Pin::new(&mut idle).poll(context).is_ready();
        let over = !is_idle && pause.as_mut().is_some_and(|pause| Pin::new(pause).poll(context).is_ready());
        if !is_idle && !over {
            return Poll::Pending;
        }
        Poll::Ready(crate::interpreter::attach::attach(|py| is_idle.into_py_any(py)))
    })
}
