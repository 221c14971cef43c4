//! What other nodes publish, on its way into one mailbox.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Wake, Waker};

use pyo3::prelude::*;
use pyo3::types::PyString;
use tidewire_engine::raw::{ActorCell, Envelope, Mutex};
use tidewire_engine::{ActorRef, DeadReason, EngineHandle, Priority, Refusal};
use tidewire_link::Published;
use tidewire_proto::generated::limits;
use tidewire_proto::wire::PublishHead;

use crate::link::inbound::headers;
use crate::message::Message;

const BYTES_MAX: usize = limits::SUBSCRIPTION_BYTES.default as usize;

/// Gives messages to an actor whose senders wait while its mailbox is full, on whichever thread reads them: without the
/// interpreter and without the event loop. The value of a message is read where it is handled.
///
/// What finds the mailbox full waits here, in order, up to `subscription_bytes`.
pub struct Inflow {
    cell: Arc<ActorCell<Message>>,
    engine: EngineHandle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Message, usize)>,
    bytes: usize,
    /// A thread moves what waits to the mailbox. It holds no lock meanwhile: what it wakes may want the interpreter.
    moving: bool,
    /// There may be room again.
    again: bool,
    /// What came before, and is still on its way to the event loop.
    behind: usize,
}

impl Inflow {
    /// None: the overflow policy of the actor is another one, and needs the interpreter for what it lets go.
    pub fn into_mailbox(cell: &Arc<ActorCell<Message>>, engine: EngineHandle) -> Option<Arc<Self>> {
        let make = || Arc::new(Self { cell: Arc::clone(cell), engine, state: Mutex::default() });
        cell.senders_wait().then(make)
    }

    /// Takes a message.
    ///
    /// # Errors
    /// The message, if it has to go by the event loop: the actor has stopped, or something that came before is on that way.
    pub fn take(self: &Arc<Self>, message: Published) -> Result<(), Published> {
        if self.state.lock().behind > 0 { Err(message) } else { self.take_now(message) }
    }

    /// Does the same for what has come by the event loop.
    ///
    /// # Errors
    /// The message, if the actor has stopped.
    pub fn take_now(self: &Arc<Self>, message: Published) -> Result<(), Published> {
        if !self.cell.is_open() {
            return Err(message);
        }
        let bytes = message.message.payload().len();
        let message = Message::came(message);
        let mut state = self.state.lock();
        if state.bytes > 0 && state.bytes + bytes > BYTES_MAX {
            drop(state);
            self.give_up(message, DeadReason::MailboxFull, "subscription_bytes is exceeded");
            return Ok(());
        }
        state.bytes += bytes;
        state.waiting.push_back((message, bytes));
        drop(state);
        self.move_on();
        Ok(())
    }

    /// Something for this actor goes by the event loop.
    pub fn goes_behind(&self) {
        self.state.lock().behind += 1;
    }

    /// It has been handed over.
    pub fn has_passed(&self) {
        self.state.lock().behind -= 1;
    }

    /// Moves what waits to the mailbox, as far as there is room.
    fn move_on(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.again = true;
        if state.moving {
            return;
        }
        state.moving = true;
        while std::mem::take(&mut state.again) {
            while let Some((message, bytes)) = state.waiting.pop_front() {
                drop(state);
                let refused = self.push(message);
                state = self.state.lock();
                match refused {
                    None => state.bytes -= bytes,
                    Some(message) => {
                        state.waiting.push_front((message, bytes));
                        break;
                    }
                }
            }
        }
        state.moving = false;
    }

    /// Gives one to the mailbox. Some: it is full, and this is woken when there is room.
    fn push(self: &Arc<Self>, message: Message) -> Option<Message> {
        let pushed = match self.cell.push(Envelope::Plain(message), Priority::Normal) {
            Err((Refusal::Full { .. }, envelope)) => {
                self.cell.push_or_wait(envelope, Priority::Normal, &Waker::from(Arc::clone(self)))
            }
            pushed => pushed,
        };
        let (refusal, envelope) = pushed.err()?;
        let message = envelope.into_message()?;
        if matches!(refusal, Refusal::Full { .. }) {
            return Some(message);
        }
        self.give_up(message, DeadReason::Stopped, &refusal.to_string());
        None
    }

    fn give_up(&self, message: Message, reason: DeadReason, why: &str) {
        self.engine.give_up(&ActorRef::from_cell(Arc::clone(&self.cell)), message, reason, Some(why));
    }
}

impl Wake for Inflow {
    fn wake(self: Arc<Self>) {
        self.move_on();
    }
}

/// What has been published elsewhere, read.
pub struct Publication {
    pub value: Py<PyAny>,
    pub subject: Py<PyAny>,
    pub headers: Option<Py<PyAny>>,
}

impl Publication {
    /// To be done once: a long payload is used up.
    pub fn of(py: Python<'_>, published: &mut Published) -> PyResult<Self> {
        let is_long = crate::values::is_long(published.message.payload().len());
        let value = if is_long {
            crate::values::use_up(py, published.message.take_payload(), None)?
        } else {
            crate::values::decode(py, published.message.payload(), None)?
        };
        let head = PublishHead::parse(published.message.head()).unwrap_or_default();
        let subject = PyString::new(py, head.subject).into_any().unbind();
        Ok(Self { value: value.unbind(), subject, headers: headers(py, &head.fields)? })
    }
}
