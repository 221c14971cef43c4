//! `handle_batch`: one call that handles all messages gathered in the mailbox.

use pyo3::prelude::*;
use pyo3::types::PyList;
use tidewire_engine::raw::{Activation, Envelope};

use crate::actors::actor::{ActorRef, MessageMeta};
use crate::actors::function::{Function, logged, unreadable};
use crate::actors::message::Message;
use crate::errors;
use crate::interpreter::py_ref::PyRef;

type DrainedMessages = Vec<(Message, MessageMeta)>;

impl Function {
    /// One call of `handle_batch`, or of the behaviour above it. Returns true to go on.
    pub fn step(
        &mut self,
        py: Python<'_>,
        me: &PyRef<ActorRef>,
        batch: &Py<PyAny>,
        turn: &mut Activation<'_, Message>,
    ) -> bool {
        if self.at_base() {
            return self.handle_batch(py, me, batch, turn);
        }
        turn.take().is_some_and(|envelope| self.handle(py, me, envelope, turn))
    }

    fn handle_batch(
        &mut self,
        py: Python<'_>,
        me: &PyRef<ActorRef>,
        batch: &Py<PyAny>,
        turn: &mut Activation<'_, Message>,
    ) -> bool {
        let (messages, next) = gather(turn);
        let messages = readable(py, me, messages, turn);
        if let Err(error) = self.node.back(py, call(py, batch, &messages)) {
            // Messages that are delivered again come before what was sent after them.
            if let Some(next) = next {
                turn.put_back(next);
            }
            return self.fail_all(py, me, messages, turn, &error);
        }
        messages.into_iter().for_each(|(_, meta)| turn.handled(meta));
        next.is_some_and(|next| self.handle(py, me, next, turn))
    }

    /// The message that the call failed on is unknown, so that each of them has failed.
    fn fail_all(
        &self,
        py: Python<'_>,
        me: &PyRef<ActorRef>,
        messages: DrainedMessages,
        turn: &mut Activation<'_, Message>,
        error: &PyErr,
    ) -> bool {
        drop(logged(py, me, "handle_batch", error.clone_ref(py), false));
        let (again, failed): (DrainedMessages, DrainedMessages) =
            messages.into_iter().partition(|(_, meta)| self.is_delivered_again(meta));
        // Redelivered messages return to the front of the queue one by one, the last one first.
        let mut go_on = true;
        for (message, meta) in failed.into_iter().chain(again.into_iter().rev()) {
            go_on &= turn.failed(Some(message), meta, errors::fault(error.clone_ref(py)));
        }
        go_on
    }
}

/// Takes what waits, up to an ask or a change of behaviour, which are handled by themselves.
fn gather(turn: &mut Activation<'_, Message>) -> (DrainedMessages, Option<Envelope<Message>>) {
    let mut messages = Vec::new();
    while let Some(envelope) = turn.take() {
        if envelope.ask().is_some() {
            return (messages, Some(envelope));
        }
        match envelope.split() {
            (Some(message), meta) => messages.push((message, meta)),
            (None, meta) => return (messages, meta.map(Envelope::With)),
        }
    }
    (messages, None)
}

/// The readable messages. Unreadable ones are logged and not handled.
fn readable(
    py: Python<'_>,
    me: &PyRef<ActorRef>,
    messages: DrainedMessages,
    turn: &mut Activation<'_, Message>,
) -> DrainedMessages {
    let mut open = Vec::with_capacity(messages.len());
    for (mut message, meta) in messages {
        match message.open(py) {
            Ok(()) => open.push((message, meta)),
            Err(error) => {
                unreadable(py, me, error);
                turn.handled(meta);
            }
        }
    }
    open
}

fn call(py: Python<'_>, batch: &Py<PyAny>, messages: &DrainedMessages) -> PyResult<()> {
    if messages.is_empty() {
        return Ok(());
    }
    let list = PyList::new(py, messages.iter().map(|(message, _)| message.object(py)))?;
    batch.call1(py, (list,)).map(drop)
}
