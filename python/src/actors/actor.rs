//! References to actors.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::PyType;
use tidewire_engine::raw::{ActorKey, Change, Envelope, Meta, acting_as};
use tidewire_engine::{Refusal, Sent, Stop};

use crate::actors::current_actor;
use crate::actors::function::Handler;
use crate::actors::message::{Extra, Message};
use crate::actors::statistics;
use crate::arguments::{Drain, Priority, Stack, TimeoutArgument, not_an_actor};
use crate::errors::{self, error};
use crate::interpreter::PerProcessOwned;
use crate::interpreter::attach::attach;
use crate::pending::{Pending, generic};

/// A reference to an actor: compares and hashes by id, and does not keep the actor from stopping.
#[pyclass(frozen, weakref, module = "tidewire")]
pub struct ActorRef {
    pub inner: PerProcessOwned<tidewire_engine::ActorRef<Message>>,
}

impl ActorRef {
    pub fn new(inner: tidewire_engine::ActorRef<Message>) -> Self {
        Self { inner: PerProcessOwned::new(inner) }
    }

    /// A message with its sender, if it is sent from inside a handler.
    pub fn message(py: Python<'_>, object: Py<PyAny>) -> Message {
        Message::new(object, current_actor::actor(py), None)
    }

    fn offer(&self, py: Python<'_>, object: Py<PyAny>, priority: Option<Priority>) -> Result<bool, Refusal> {
        let message = Self::message(py, object);
        match self.inner.cell().push(Envelope::Plain(message), Priority::lane(priority)) {
            Ok(sent) => Ok(sent == tidewire_engine::Sent::Accepted),
            Err((refusal, envelope)) => {
                drop(envelope);
                Err(refusal)
            }
        }
    }

    /// True for an actor on the node's event loop, whose handlers may be coroutines.
    pub fn on_loop(&self) -> bool {
        &*self.inner.statistics().dispatcher == crate::actors::bridge::LOOP
    }

    /// The operation of an ask. The message is sent before this returns.
    pub fn asking(
        &self,
        py: Python<'_>,
        object: Py<PyAny>,
        extra: Extra,
        timeout: Duration,
        priority: Option<Priority>,
    ) -> PyResult<Pending> {
        if !self.inner.is_started() && !self.on_loop() {
            let text = format!(
                "{} handles nothing, as its node was not started: enter its block, or call start(), before you ask",
                self.__repr__()
            );
            return Err(error(py, "InvalidArgument", &text, &[]));
        }
        let priority = Priority::lane(priority);
        let sender = current_actor::actor(py);
        let acting = sender.as_ref().and_then(|sender| crate::actors::current_actor::acting(py, sender));
        let make = |reply| Message::new(object, sender, Some(Box::new(Extra { reply: Some(reply), ..extra })));
        let pending = match acting {
            Some(actor) => tidewire_engine::raw::acting_as(actor, || self.inner.ask_with(make, timeout, priority)),
            None => self.inner.ask_with(make, timeout, priority),
        };
        let cell = Arc::clone(self.inner.cell());
        let operation = async move {
            let to_python = |error| attach(|py| errors::ask(py, error, cell.name(), || cell.hint()));
            Ok(pending.await.map_err(to_python)?.into_py())
        };
        Pending::owed(py, "ask", acting, Box::pin(operation))
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

    /// True while the actor takes messages.
    #[getter]
    fn alive(&self) -> bool {
        self.inner.mine().is_some_and(|mine| mine.is_alive())
    }

    /// Number of messages that were accepted and are not finished.
    #[getter]
    fn outstanding(&self) -> usize {
        self.inner.mine().map_or(0, |mine| mine.outstanding())
    }

    /// Sends a message without waiting. True if it was accepted, false if the mailbox is full and
    /// its policy drops new messages.
    ///
    /// Args:
    ///     message: Any object; it is handed over by reference.
    ///     priority: "urgent", "high", "normal" (the default) or "low".
    ///
    /// Raises:
    ///     MailboxFull: if the mailbox is full, and its policy is not to drop.
    ///     ActorStopped: if the actor takes no more messages.
    #[pyo3(signature = (message, priority = None))]
    fn tell(&self, py: Python<'_>, message: Py<PyAny>, priority: Option<Priority>) -> PyResult<bool> {
        self.inner.check(py)?;
        self.offer(py, message, priority).map_err(|refusal| errors::refusal(py, refusal, self.inner.name()))
    }

    /// As `tell`, but false instead of an error if the message was not accepted.
    #[pyo3(signature = (message, priority = None))]
    fn try_tell(&self, py: Python<'_>, message: Py<PyAny>, priority: Option<Priority>) -> PyResult<bool> {
        self.inner.check(py)?;
        Ok(self.offer(py, message, priority).unwrap_or(false))
    }

    /// Sends if the mailbox has capacity now. False if the sender would have to wait, or the
    /// mailbox has dropped the message.
    #[pyo3(signature = (message, priority = None))]
    fn try_send(&self, py: Python<'_>, message: Py<PyAny>, priority: Option<Priority>) -> PyResult<bool> {
        self.inner.check(py)?;
        match self.offer(py, message, priority) {
            Ok(accepted) => Ok(accepted),
            Err(Refusal::Full { .. }) if self.inner.cell().senders_wait() => Ok(false),
            Err(refusal) => Err(errors::refusal(py, refusal, self.inner.name())),
        }
    }

    /// Sends a message. Awaiting waits for capacity in a full mailbox, and gives True, or False if
    /// a mailbox that drops new messages has dropped it. A send that is cancelled while it waits
    /// has sent nothing.
    ///
    /// Raises:
    ///     MailboxFull: if the mailbox is full and its policy is to fail, or its own handler would
    ///         wait for itself.
    ///     ActorStopped: if the actor takes no more messages.
    #[pyo3(signature = (message, priority = None))]
    fn send(&self, py: Python<'_>, message: Py<PyAny>, priority: Option<Priority>) -> PyResult<Py<Pending>> {
        self.inner.check(py)?;
        let priority = Priority::lane(priority);
        let cell = self.inner.cell();
        let envelope = Envelope::Plain(Self::message(py, message));
        let envelope = match cell.push(envelope, priority) {
            Ok(sent) => return Pending::sent(py, sent == Sent::Accepted),
            Err((Refusal::Full { .. }, envelope)) if cell.senders_wait() => envelope,
            Err((refusal, _)) => return Err(errors::refusal(py, refusal, self.inner.name())),
        };
        if tidewire_engine::raw::current_actor() == Some(self.inner.cell().key()) {
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
                Ok(sent) => std::task::Poll::Ready(attach(|py| (sent == Sent::Accepted).into_py_any(py))),
                Err((Refusal::Full { .. }, envelope)) => {
                    waiting = Some(envelope);
                    std::task::Poll::Pending
                }
                Err((refusal, envelope)) => {
                    drop(envelope);
                    std::task::Poll::Ready(Err(attach(|py| errors::refusal(py, refusal, cell.name()))))
                }
            }
        });
        Py::new(py, Pending::owed(py, "send", None, Box::pin(operation))?)
    }

    /// Asks; awaiting gives what the handler returns. Cancelling it leaves nothing behind.
    ///
    /// Args:
    ///     message: Any object; it is handed over by reference.
    ///     timeout: Seconds until AskTimeout, None for no limit; the default is the configuration's
    ///         `ask_timeout_ms`.
    ///     priority: "urgent", "high", "normal" (the default) or "low".
    ///
    /// Raises:
    ///     AskTimeout: if no reply came in time.
    ///     AskCycle: if actors would wait for each other in a cycle.
    ///     ActorStopped: if the actor takes no more messages, or stopped before it replied.
    ///     NoReply: if the handler ended and nothing else holds its reply slot.
    ///     MailboxFull: if the mailbox is full.
    ///     BaseException: whatever the handler raised.
    #[pyo3(
        signature = (message, timeout = TimeoutArgument::Usual, priority = None),
        text_signature = "($self, message, timeout=30.0, priority=None)"
    )]
    pub fn ask(
        &self,
        py: Python<'_>,
        message: Py<PyAny>,
        timeout: TimeoutArgument,
        priority: Option<Priority>,
    ) -> PyResult<Pending> {
        let timeout = timeout.or(self.inner.checked(py)?.config().ask_timeout_ms);
        self.asking(py, message, Extra::default(), timeout, priority)
    }

    /// Stops the actor; awaiting gives the `tw.Ledger` of its messages. Every call gets the same.
    ///
    /// Args:
    ///     drain: Handle what was accepted; otherwise what waits is returned in the ledger.
    ///     timeout: Seconds after which the actor is abandoned and named in the ledger. The default
    ///         is the configuration's `stop_timeout_ms`.
    #[pyo3(
        signature = (drain = Drain(true), timeout = TimeoutArgument::Usual),
        text_signature = "($self, drain=True, timeout=30.0)"
    )]
    fn stop(&self, py: Python<'_>, drain: Drain, timeout: TimeoutArgument) -> PyResult<Pending> {
        let timeout = timeout.or(self.inner.checked(py)?.config().stop_timeout_ms);
        let mut stopping = self.inner.stop(Stop { drain: drain.0, timeout });
        let operation = async move {
            let ended = std::future::poll_fn(|cx| {
                let mut poll = || Pin::new(&mut stopping).poll(cx);
                match attach(in_coroutine) {
                    Some(actor) => acting_as(actor, poll),
                    None => poll(),
                }
            });
            let ended = ended.await;
            attach(|py| match ended {
                Ok(report) => statistics::ledger(py, report),
                Err(own) => Err(error(py, "AskCycle", &own.to_string(), &[])),
            })
        };
        Ok(Pending::new("stop", None, Box::pin(operation)))
    }

    /// Gives the actor another handler, in its place among the messages of this sender. With
    /// `stack`, `request_unbecome` brings back the one before.
    #[pyo3(signature = (handler, stack = Stack(true)), text_signature = "($self, handler, stack=True)")]
    fn request_become(&self, py: Python<'_>, handler: Bound<'_, PyAny>, stack: Stack) -> PyResult<()> {
        self.inner.check(py)?;
        let handler = Handler::inspect(&handler, "handler", self.on_loop())?;
        let change = Change::Become { handler: Box::new(handler), stack: stack.0 };
        self.inner.request(change).map(drop).map_err(|refusal| errors::refusal(py, refusal, self.inner.name()))
    }

    /// Brings back the handler before the last `request_become`, in its place among the messages of
    /// this sender.
    fn request_unbecome(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.check(py)?;
        self.inner
            .request(Change::Unbecome)
            .map(drop)
            .map_err(|refusal| errors::refusal(py, refusal, self.inner.name()))
    }

    /// Counters and times of the actor, as a dict.
    fn statistics(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        statistics::actor(py, &self.inner.checked(py)?.statistics())
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let py = other.py();
        let Ok(other) = other.cast::<Self>() else { return Ok(py.NotImplemented()) };
        let same = *self.inner == *other.get().inner;
        match op {
            CompareOp::Eq => Ok(same.into_pyobject(py)?.to_owned().into_any().unbind()),
            CompareOp::Ne => Ok((!same).into_pyobject(py)?.to_owned().into_any().unbind()),
            _ => Ok(py.NotImplemented()),
        }
    }

    fn __hash__(&self) -> u64 {
        self.inner.id().get()
    }

    pub fn __repr__(&self) -> String {
        let name = self.inner.name().map(|name| format!(" {name:?}")).unwrap_or_default();
        let state = if self.alive() { "" } else { " stopped" };
        format!("<ActorRef {}{name}{state}>", self.inner.id())
    }

    /// `ActorRef[Add, int]`: takes an `Add`, and replies an `int`. For type checkers alone.
    #[classmethod]
    fn __class_getitem__(cls: &Bound<'_, PyType>, item: Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        generic(cls, item)
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let text = format!(
            "{} can't be pickled: it belongs to this process; look it up by name in the other one",
            self.__repr__()
        );
        Err(error(py, "InvalidArgument", &text, &[]))
    }
}

/// The actor in whose coroutine this code runs: in the very task of the handler, as one that the
/// handler has started does not keep it from returning.
fn in_coroutine(py: Python<'_>) -> Option<ActorKey> {
    let runs = crate::actors::bridge::runs_coroutines()
        && crate::actors::current_actor::in_task_of_handlers(py).unwrap_or(false);
    current_actor::actor(py).filter(|_| runs).map(|actor| actor.bind(py).get().inner.cell().key())
}

/// The actor in whose handler this code runs: on this thread, or in the very task of a coroutine
/// that handles a message.
pub fn handling(py: Python<'_>) -> Option<crate::interpreter::py_ref::PyRef<ActorRef>> {
    current_actor::on_thread(py).or_else(|| {
        let actor = current_actor::actor(py)?;
        crate::actors::current_actor::in_task_of_handlers(py).unwrap_or(false).then_some(actor)
    })
}

/// Sends, and blocks this thread while the mailbox is full.
#[pyfunction]
#[pyo3(signature = (actor, message, priority = None))]
pub fn send_blocking(
    py: Python<'_>,
    actor: Actor<'_, '_>,
    message: Py<PyAny>,
    priority: Option<Priority>,
) -> PyResult<Py<PyAny>> {
    let pending = actor.0.get().send(py, message, priority)?;
    if pending.bind(py).get().is_done() {
        return pending.get().outcome(py);
    }
    Pending::block(pending.bind(py))
}

pub type MessageMeta = Option<Box<Meta<Message>>>;

/// An actor that a call is about.
pub struct Actor<'a, 'py>(pub Borrowed<'a, 'py, ActorRef>);

impl<'a, 'py> FromPyObject<'a, 'py> for Actor<'a, 'py> {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        value.cast().map(Self).map_err(|_| not_an_actor(&value, "actor"))
    }
}

/// The actor that is to be watched, or no more.
pub struct Other<'a, 'py>(pub Borrowed<'a, 'py, ActorRef>);

impl<'a, 'py> FromPyObject<'a, 'py> for Other<'a, 'py> {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        value.cast().map(Self).map_err(|_| not_an_actor(&value, "other"))
    }
}
