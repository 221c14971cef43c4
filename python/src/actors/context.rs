//! The handler context: what a handler sees besides its message.

use std::sync::Arc;

use pyo3::prelude::*;
use tidewire_engine::Reply;
use tidewire_engine::raw::Change;
use tidewire_engine::raw::Mutex;
use tidewire_node::raw::Named;

use crate::actors::actor::{ActorRef, Other};
use crate::actors::function::Handler;
use crate::actors::message::{Extra, Message};
use crate::arguments::Stack;
use crate::errors::error;
use crate::interpreter::py_ref::PyRef;

/// The second argument of handlers that take one: this actor, the sender, the place for a reply.
#[pyclass(frozen, weakref, module = "tidewire")]
pub struct Context {
    me: PyRef<ActorRef>,
    node: PyRef<PyAny>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    reply: Option<Reply<PyRef<PyAny>>>,
    is_ask: bool,
    sender: Option<PyRef<ActorRef>>,
    subject: Option<PyRef<PyAny>>,
    headers: Option<PyRef<PyAny>>,
    origin: Option<Arc<Named>>,
    failures: u32,
    changes: Vec<Change>,
}

impl Context {
    pub fn new(
        me: PyRef<ActorRef>,
        node: PyRef<PyAny>,
        sender: Option<PyRef<ActorRef>>,
        extra: Option<Extra>,
        failures: u32,
    ) -> Self {
        let extra = extra.unwrap_or_default();
        let state = State {
            is_ask: extra.reply.is_some(),
            reply: extra.reply,
            sender,
            subject: extra.subject,
            headers: extra.headers,
            origin: extra.origin,
            failures,
            changes: Vec::new(),
        };
        Self { me, node, state: Mutex::new(state) }
    }

    /// The message that its handler failed on, with all that came with it, for a redelivery. A
    /// handler that has replied leaves no reply to give back.
    pub fn take_back(&self, py: Python<'_>, object: PyRef<PyAny>) -> Message {
        let mut state = self.state.lock();
        let sender = state.sender.as_ref().map(|sender| sender.clone_ref(py));
        let subject = state.subject.as_ref().map(|subject| subject.clone_ref(py));
        let headers = state.headers.as_ref().map(|headers| headers.clone_ref(py));
        let (reply, origin) = (state.reply.take(), state.origin.clone());
        let bare = reply.is_none() && subject.is_none() && headers.is_none() && origin.is_none();
        let extra = Extra { reply, subject, headers, origin, ..Extra::default() };
        Message::new(object, sender, (!bare).then(|| Box::new(extra)))
    }

    /// Gives the returned value to the asker, unless the handler has replied already.
    pub fn returned(&self, value: Py<PyAny>) {
        let reply = self.state.lock().reply.take();
        if let Some(reply) = reply {
            reply.send(value.into());
        }
    }

    /// The changes of behaviour that the handler asked for.
    pub fn take_changes(&self) -> Vec<Change> {
        std::mem::take(&mut self.state.lock().changes)
    }
}

#[pymethods]
impl Context {
    /// This actor.
    #[getter]
    fn me(&self, py: Python<'_>) -> PyRef<ActorRef> {
        self.me.clone_ref(py)
    }

    /// The actor in whose handler the message was sent, or None.
    #[getter]
    fn sender(&self, py: Python<'_>) -> Option<PyRef<ActorRef>> {
        self.state.lock().sender.as_ref().map(|sender| sender.clone_ref(py))
    }

    /// The subject that the message was published on, or None.
    #[getter]
    fn subject(&self, py: Python<'_>) -> Option<PyRef<PyAny>> {
        self.state.lock().subject.as_ref().map(|subject| subject.clone_ref(py))
    }

    /// The headers that the message was published with, or None.
    #[getter]
    fn headers(&self, py: Python<'_>) -> Option<PyRef<PyAny>> {
        self.state.lock().headers.as_ref().map(|headers| headers.clone_ref(py))
    }

    /// The name of the other node that published the message or asks, or None for one of this node.
    #[getter]
    fn origin(&self) -> Option<String> {
        self.state.lock().origin.as_ref().map(|origin| origin.name.clone())
    }

    /// Which attempt at this message this is, from 1.
    #[getter]
    fn delivery(&self) -> u32 {
        self.state.lock().failures + 1
    }

    /// True once the asker has gone or its deadline has passed.
    #[getter]
    fn cancelled(&self) -> bool {
        self.state.lock().reply.as_ref().is_some_and(Reply::is_cancelled)
    }

    /// True for an ask: the sender waits, or has waited, for a reply.
    #[getter]
    fn asked(&self) -> bool {
        self.state.lock().is_ask
    }

    /// The node that this actor lives in.
    #[getter]
    fn node(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let node = self.node.call0(py)?;
        if node.is_none(py) {
            return Err(error(py, "NodeStopped", "the node of this actor is gone", &[]));
        }
        Ok(node)
    }

    /// Replies before the handler returns, whose return value is then not used. Returns true if an
    /// asker waited.
    fn reply(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<bool> {
        let (reply, is_ask) = {
            let mut state = self.state.lock();
            (state.reply.take(), state.is_ask)
        };
        match reply {
            Some(reply) => Ok(reply.send(value.into())),
            None if is_ask => Err(error(py, "InvalidArgument", "reply: this message has been replied to already", &[])),
            None => Ok(false),
        }
    }

    #[pyo3(
        name = "become",
        signature = (handler, stack = Stack(true)),
        text_signature = "($self, handler, stack=True)"
    )]
    fn become_(&self, handler: Bound<'_, PyAny>, stack: Stack) -> PyResult<()> {
        let handler = Handler::inspect(&handler, "handler", self.me.get().on_loop())?;
        self.state.lock().changes.push(Change::Become { handler: Box::new(handler), stack: stack.0 });
        Ok(())
    }

    fn unbecome(&self) {
        self.state.lock().changes.push(Change::Unbecome);
    }

    /// Spawns a child: an actor that stops with this one.
    #[pyo3(signature = (target, *args, **options))]
    fn spawn(
        &self,
        py: Python<'_>,
        target: Py<PyAny>,
        args: Bound<'_, pyo3::types::PyTuple>,
        options: Option<Bound<'_, pyo3::types::PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let node = self.node(py)?;
        let call = (self.me.clone_ref(py), target, args, options);
        node.call_method1(py, "_spawn_child", call)
    }

    /// Stops this actor after the present message; what it has accepted is still handled.
    fn stop(&self, py: Python<'_>) {
        self.me.bind(py).get().inner.stop_quietly();
    }

    /// Asks for a `tw.Terminated` message when `other` stops, or at once if it has.
    fn watch(&self, py: Python<'_>, other: Other<'_, '_>) {
        other.0.get().inner.notify_end(&self.me.bind(py).get().inner);
    }

    fn unwatch(&self, py: Python<'_>, other: Other<'_, '_>) {
        other.0.get().inner.unwatch(&self.me.bind(py).get().inner);
    }

    /// `ctx.self`, which Rust has no name for, is `ctx.me`.
    fn __getattr__(&self, py: Python<'_>, name: &str) -> PyResult<PyRef<ActorRef>> {
        if name == "self" {
            return Ok(self.me.clone_ref(py));
        }
        Err(pyo3::exceptions::PyAttributeError::new_err(format!("a context has no attribute {name:?}")))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<Context of {}>", self.me.bind(py).repr()?))
    }
}
