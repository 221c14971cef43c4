//! `PublishQueue` and `StreamPublisher`: messages on their way into one stream.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use tidewire_backend::home::{Home, HomeError, NewMessage};
use tidewire_engine::raw::Mutex;
use tidewire_node::Error;
use tidewire_node::raw::{CallDurations, SEND};
use tidewire_node::streams as node;
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::Subject;

use super::arguments::subject;
use super::results::{ack, raise};
use crate::errors::error;
use crate::interpreter::PerProcessOwned;
use crate::interpreter::attach::attach;
use crate::interpreter::round_end::at_round_end;
use crate::pending::Pending;
use crate::services::call_durations::note;

/// `(subject, payload, key, id, headers, deliver_at_us, ttl_us)`.
pub type Message =
    (PyBackedStr, PyBackedBytes, Option<String>, Option<String>, Vec<(String, String)>, Option<u64>, Option<u64>);

/// Makes messages. A message with the subject of the one before shares it.
#[derive(Default)]
pub struct MessageMaker(Mutex<Option<Subject>>);

impl MessageMaker {
    pub fn make(&self, py: Python<'_>, message: Message) -> PyResult<NewMessage> {
        let (name, payload, key, id, headers, deliver_at_us, ttl_us) = message;
        let last = self.0.lock().clone().filter(|last| last.as_str() == &*name);
        let subject = match last {
            Some(last) => last,
            None => self.0.lock().insert(subject(py, &name)?).clone(),
        };
        let payload = Bytes::copy_from_slice(&payload);
        Ok(NewMessage { subject, payload, key, id, headers, deliver_at_us, ttl_us })
    }
}

/// Messages on their way into one stream, each with its ack. Those of one round of an event loop
/// share a batch.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct PublishQueue(PerProcessOwned<node::PublishQueue>, MessageMaker, Arc<str>, Arc<CallDurations>);

impl PublishQueue {
    pub fn new(home: Arc<dyn Home>, stream: &str, durations: Arc<CallDurations>) -> Self {
        let queue = node::PublishQueue::new(home, stream, Some(flush()));
        Self(PerProcessOwned::new(queue), MessageMaker::default(), stream.into(), durations)
    }
}

fn flush() -> node::Flush {
    Arc::new(|send| attach(|py| at_round_end(py, send)))
}

#[pymethods]
impl PublishQueue {
    /// Stores a message, once somebody awaits this. Gives its ack. The last header of a delayed
    /// message is its schedule id.
    fn publish(&self, py: Python<'_>, message: Message) -> PyResult<Pending> {
        let message = self.1.make(py, message)?;
        let schedule_id = message.deliver_at_us.and_then(|_| message.headers.last().map(|(_, id)| id.clone()));
        let queue = self.0.checked(py)?.clone();
        // Pushed at the first poll: the queue has no more messages than somebody awaits.
        let (stream, durations) = (Arc::clone(&self.2), Arc::clone(&self.3));
        let operation = async move {
            let began = Instant::now();
            let result = queue.push(message).await;
            attach(|py| {
                let stored = result.map_err(|failure| raise(py, &failure));
                note(py, &durations, SEND, &stream, began.elapsed(), stored.as_ref().err());
                ack(py, stored?, schedule_id.as_deref())
            })
        };
        Pending::owed(py, "publish", None, Box::pin(operation))
    }
}

/// A publisher with a window of messages in flight.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct StreamPublisher(PerProcessOwned<Arc<node::Publisher>>, MessageMaker);

impl StreamPublisher {
    pub fn new(py: Python<'_>, home: &Arc<dyn Home>, stream: &str, window: usize) -> PyResult<Self> {
        let publisher =
            node::Publisher::new(home, stream, window, Some(flush())).map_err(|failure| raise(py, &failure.into()))?;
        Ok(Self(PerProcessOwned::new(Arc::new(publisher)), MessageMaker::default()))
    }

    fn later(&self, what: &'static str, operation: tidewire_node::Pending<()>) -> Pending {
        let publisher = Arc::clone(&self.0);
        let operation = async move {
            let result = operation.await;
            attach(|py| result.map_err(|failure| refused(py, &publisher, failure)).map(|()| py.None()))
        };
        Pending::new(what, None, Box::pin(operation))
    }
}

#[pymethods]
impl StreamPublisher {
    /// Publishes a message, as soon as the window has capacity.
    fn publish(&self, py: Python<'_>, message: Message) -> PyResult<Py<Pending>> {
        let operation = self.0.checked(py)?.begin(self.1.make(py, message)?);
        let operation = operation.map_err(|failure| refused(py, &self.0, failure))?;
        operation.map_or_else(|| Pending::accepted(py), |operation| Py::new(py, self.later("publish", operation)))
    }

    /// Waits until everything is stored.
    fn flush(&self, py: Python<'_>) -> PyResult<Pending> {
        Ok(self.later("flush", self.0.checked(py)?.flush()))
    }

    #[getter]
    fn acked(&self) -> u64 {
        self.0.acked()
    }

    #[getter]
    fn last(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.0.last().map(|last| ack(py, last, None)).transpose()
    }
}

/// The exception of an error, with the messages that were not stored.
fn refused(py: Python<'_>, publisher: &node::Publisher, failure: Error) -> PyErr {
    if failure.code() != ErrorCode::PublishFailed {
        return raise(py, &HomeError::from(failure));
    }
    let failures = publisher.failures();
    let lines: Vec<_> = failures.iter().map(ToString::to_string).collect();
    let refused = match lines.into_py_any(py) {
        Ok(lines) => error(py, "PublishFailed", failure.message(), &[("failures", lines)]),
        Err(failure) => failure,
    };
    if let Some(first) = failures.into_iter().next() {
        refused.set_cause(py, Some(raise(py, &first.error.into())));
    }
    refused
}
