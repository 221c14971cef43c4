//! References to actors.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use tidewire_engine::raw::{Change, Envelope, Meta};
use tidewire_engine::{Priority, Refusal, Stop};

use crate::errors::{self, error};
use crate::function::Handler;
use crate::message::{Extra, Message};
use crate::pending::Pending;
use crate::present;
use crate::statistics;

/// A reference to an actor: compares and hashes by id, and does not keep the actor from stopping.
#[pyclass(frozen, weakref, module = "tidewire")]
pub struct ActorRef {
    pub inner: tidewire_engine::ActorRef<Message>,
}

impl ActorRef {
    /// A message with its sender, if it is sent from inside a handler.
    pub fn message(py: Python<'_>, object: Py<PyAny>) -> Message {
        Message { object, sender: present::actor(py), extra: None }
    }

    fn offer(&self, py: Python<'_>, object: Py<PyAny>, priority: Priority) -> Result<bool, Refusal> {
        let message = Self::message(py, object);
        match self.inner.cell().push(Envelope::Plain(message), priority) {
            Ok(sent) => Ok(sent == tidewire_engine::Sent::Accepted),
            Err((refusal, envelope)) => {
                drop(envelope);
                Err(refusal)
            }
        }
    }

    /// The operation of an ask; the message is on its way when this returns.
    pub fn asking(&self, py: Python<'_>, object: Py<PyAny>, extra: Extra, timeout: Duration) -> Pending {
        let sender = present::actor(py);
        let acting = sender.as_ref().and_then(|sender| crate::coroutine::acting(py, sender));
        let make = |reply| Message { object, sender, extra: Some(Box::new(Extra { reply: Some(reply), ..extra })) };
        let pending = match acting {
            Some(actor) => tidewire_engine::raw::acting_as(actor, || self.inner.ask(make, timeout)),
            None => self.inner.ask(make, timeout),
        };
        let operation = async move { pending.await.map_err(|error| Python::attach(|py| errors::ask(py, error))) };
        Pending::new("ask", acting, Box::pin(operation))
    }
}

#[pymethods]
impl ActorRef {
    /// The id: unique in its node, never used twice.
    #[getter]
    fn id(&self) -> u64 {
        self.inner.id().get()
    }

    /// The name, or None.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.inner.name()
    }

    /// Whether the actor takes messages.
    #[getter]
    fn alive(&self) -> bool {
        self.inner.is_alive()
    }

    #[pyo3(signature = (message, priority = None))]
    fn tell(&self, py: Python<'_>, message: Py<PyAny>, priority: Option<&str>) -> PyResult<bool> {
        crate::engine::check_fork(py)?;
        self.offer(py, message, self::priority(py, priority)?).map_err(|refusal| errors::refusal(py, refusal))
    }

    #[pyo3(signature = (message, priority = None))]
    fn try_tell(&self, py: Python<'_>, message: Py<PyAny>, priority: Option<&str>) -> PyResult<bool> {
        crate::engine::check_fork(py)?;
        Ok(self.offer(py, message, self::priority(py, priority)?).unwrap_or(false))
    }

    /// Sends if there is room now; answers false if the sender would have to wait.
    #[pyo3(signature = (message, priority = None))]
    fn try_send(&self, py: Python<'_>, message: Py<PyAny>, priority: Option<&str>) -> PyResult<bool> {
        crate::engine::check_fork(py)?;
        match self.offer(py, message, self::priority(py, priority)?) {
            Ok(_) => Ok(true),
            Err(Refusal::Full { .. }) if self.inner.cell().senders_wait() => Ok(false),
            Err(refusal) => Err(errors::refusal(py, refusal)),
        }
    }

    #[pyo3(signature = (message, priority = None))]
    fn send(&self, py: Python<'_>, message: Py<PyAny>, priority: Option<&str>) -> PyResult<Py<Pending>> {
        crate::engine::check_fork(py)?;
        let priority = self::priority(py, priority)?;
        let cell = self.inner.cell();
        let envelope = Envelope::Plain(Self::message(py, message));
        let envelope = match cell.push(envelope, priority) {
            Ok(_) => return Pending::none(py),
            Err((Refusal::Full { .. }, envelope)) if cell.senders_wait() => envelope,
            Err((refusal, _)) => return Err(errors::refusal(py, refusal)),
        };
        if tidewire_engine::raw::current_actor() == Some(self.inner.id()) {
            let text = format!(
                "{}: its own handler would wait for room in its own full mailbox for ever: use tell, or a larger mailbox",
                self.__repr__()
            );
            return Err(error(py, "MailboxFull", &text, &[]));
        }
        let cell = Arc::clone(cell);
        let mut waiting = Some(envelope);
        let operation = std::future::poll_fn(move |cx| {
            let Some(envelope) = waiting.take() else { return std::task::Poll::Pending };
            match cell.push_or_wait(envelope, priority, cx.waker()) {
                Ok(_) => std::task::Poll::Ready(Ok(Python::attach(|py| py.None()))),
                Err((Refusal::Full { .. }, envelope)) => {
                    waiting = Some(envelope);
                    std::task::Poll::Pending
                }
                Err((refusal, envelope)) => {
                    drop(envelope);
                    std::task::Poll::Ready(Err(Python::attach(|py| errors::refusal(py, refusal))))
                }
            }
        });
        Py::new(py, Pending::new("send", None, Box::pin(operation)))
    }

    #[pyo3(signature = (message, timeout = 30.0))]
    fn ask(&self, py: Python<'_>, message: Py<PyAny>, timeout: Option<f64>) -> PyResult<Pending> {
        crate::engine::check_fork(py)?;
        Ok(self.asking(py, message, Extra::default(), seconds(py, "timeout", timeout)?))
    }

    #[pyo3(signature = (drain = true, timeout = 30.0))]
    fn stop(&self, py: Python<'_>, drain: bool, timeout: Option<f64>) -> PyResult<Pending> {
        let timeout = seconds(py, "timeout", timeout)?;
        let stopping = self.inner.stop(Stop { drain, timeout });
        let operation = async move {
            let ended = stopping.await;
            Python::attach(|py| match ended {
                Ok(report) => statistics::ledger(py, report),
                Err(own) => Err(error(py, "AskCycle", &own.to_string(), &[])),
            })
        };
        Ok(Pending::new("stop", None, Box::pin(operation)))
    }

    #[pyo3(signature = (handler, stack = true))]
    fn request_become(&self, py: Python<'_>, handler: Bound<'_, PyAny>, stack: bool) -> PyResult<()> {
        let handler = Handler::inspect(&handler, "handler")?;
        let change = Change::Become { handler: Box::new(handler), stack };
        self.inner.request(change).map(drop).map_err(|refusal| errors::refusal(py, refusal))
    }

    fn request_unbecome(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.request(Change::Unbecome).map(drop).map_err(|refusal| errors::refusal(py, refusal))
    }

    fn statistics(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        statistics::actor(py, &self.inner.statistics())
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let py = other.py();
        let Ok(other) = other.cast::<Self>() else { return Ok(py.NotImplemented()) };
        let same = self.inner == other.get().inner;
        match op {
            CompareOp::Eq => Ok(same.into_pyobject(py)?.to_owned().into_any().unbind()),
            CompareOp::Ne => Ok((!same).into_pyobject(py)?.to_owned().into_any().unbind()),
            _ => Ok(py.NotImplemented()),
        }
    }

    fn __hash__(&self) -> u64 {
        self.inner.id().get()
    }

    fn __repr__(&self) -> String {
        let name = self.inner.name().map(|name| format!(" {name:?}")).unwrap_or_default();
        let state = if self.inner.is_alive() { "" } else { " stopped" };
        format!("<ActorRef {}{name}{state}>", self.inner.id())
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let text = format!(
            "{} can't be pickled: it belongs to this process; look it up by name in the other one",
            self.__repr__()
        );
        Err(error(py, "InvalidArgument", &text, &[]))
    }
}

/// Sends, and blocks this thread while the mailbox is full.
#[pyfunction]
#[pyo3(signature = (actor, message, priority = None))]
pub fn send_blocking(actor: &Bound<'_, ActorRef>, message: Py<PyAny>, priority: Option<&str>) -> PyResult<()> {
    let py = actor.py();
    let pending = actor.get().send(py, message, priority)?;
    if pending.bind(py).get().is_done() {
        return Ok(());
    }
    Pending::block(pending.bind(py)).map(drop)
}

/// A lane by its name.
pub fn priority(py: Python<'_>, name: Option<&str>) -> PyResult<Priority> {
    match name {
        None | Some("normal") => Ok(Priority::Normal),
        Some("high") => Ok(Priority::High),
        Some("low") => Ok(Priority::Low),
        Some(other) => {
            let text = format!("priority: {other:?} is not allowed: use \"high\", \"normal\" or \"low\"");
            Err(error(py, "InvalidArgument", &text, &[]))
        }
    }
}

/// A time in seconds; none is for ever.
pub fn seconds(py: Python<'_>, field: &str, value: Option<f64>) -> PyResult<Duration> {
    let Some(value) = value else { return Ok(Duration::MAX) };
    Duration::try_from_secs_f64(value).map_err(|_| {
        let text =
            format!("{field}: {value} is not allowed: give a number of seconds, 0 or more, or None for no limit");
        error(py, "InvalidArgument", &text, &[])
    })
}

pub type MessageMeta = Option<Box<Meta<Message>>>;
