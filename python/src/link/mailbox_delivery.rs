//! Delivery of inbound publications to one mailbox, with backpressure.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Wake, Waker};

use pyo3::prelude::*;
use pyo3::types::PyString;
use tidewire_engine::raw::{ActorCell, Envelope, Mutex};
use tidewire_engine::{ActorRef, DeadReason, EngineHandle, Priority, Refusal};
use tidewire_node::raw::Published;
use tidewire_proto::generated::limits;
use tidewire_proto::wire::PublishHead;

use crate::actors::message::Message;
use crate::link::inbound::headers;

const BYTES_MAX: usize = limits::SUBSCRIPTION_BYTES.default as usize;

/// Delivers messages to an actor whose senders wait while its mailbox is full. The reading thread
/// delivers without the interpreter and without the event loop. The value of a message is read
/// where it is handled.
///
/// Messages that find the mailbox full wait here, in order, up to `subscription_bytes`.
pub struct MailboxDelivery {
    cell: Arc<ActorCell<Message>>,
    engine: EngineHandle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Published>,
    bytes: usize,
    /// A thread moves messages to the mailbox. It holds no lock meanwhile: what it wakes may want
    /// the interpreter.
    moving: bool,
    /// The mailbox may have capacity again.
    again: bool,
    /// Number of earlier messages that the event loop has not handed over yet.
    behind: usize,
}

impl MailboxDelivery {
    /// None: the actor has another overflow policy, which needs the interpreter to drop messages.
    pub fn into_mailbox(cell: &Arc<ActorCell<Message>>, engine: EngineHandle) -> Option<Arc<Self>> {
        let make = || Arc::new(Self { cell: Arc::clone(cell), engine, state: Mutex::default() });
        cell.senders_wait().then(make)
    }

    /// Takes a message.
    ///
    /// # Errors
    /// The message, if it has to go by the event loop: the actor has stopped, or an earlier message
    /// takes that route.
    pub fn take(self: &Arc<Self>, message: Published) -> Result<(), Published> {
        self.offer(message, false)
    }

    /// Takes a message that came by the event loop.
    ///
    /// # Errors
    /// The message, if the actor has stopped.
    pub fn take_late(self: &Arc<Self>, message: Published) -> Result<(), Published> {
        self.offer(message, true)
    }

    /// Counts a message for this actor that goes by the event loop.
    pub fn goes_behind(&self) {
        self.state.lock().behind += 1;
    }

    /// Counts such a message as handed over.
    pub fn has_passed(&self) {
        self.state.lock().behind -= 1;
    }

    fn offer(self: &Arc<Self>, message: Published, is_late: bool) -> Result<(), Published> {
        let mut state = self.state.lock();
        if state.behind > 0 && !is_late {
            return Err(message);
        }
        if state.moving || !state.waiting.is_empty() {
            // The moving thread, or a wake-up by free capacity, processes the message.
            let refused = state.add(message);
            drop(state);
            if let Some(message) = refused {
                self.give_up(message, DeadReason::MailboxFull, "subscription_bytes is exceeded");
            }
            return Ok(());
        }
        state.moving = true;
        drop(state);
        match self.cell.push(Envelope::Plain(Message::publication(message)), Priority::Normal) {
            Ok(_) => self.moved(None),
            Err((Refusal::Full { .. }, envelope)) => self.moved(published(envelope)),
            Err((_, envelope)) => {
                self.moved(None);
                return published(envelope).map_or(Ok(()), Err);
            }
        }
        Ok(())
    }

    /// Ends the move of one message. `refused` is the message that found the mailbox full.
    fn moved(self: &Arc<Self>, refused: Option<Published>) {
        let mut state = self.state.lock();
        refused.into_iter().for_each(|message| state.put_back(message));
        state.moving = false;
        if !state.waiting.is_empty() {
            drop(state);
            self.move_on();
        }
    }

    /// Moves queued messages to the mailbox, as far as it has capacity.
    fn move_on(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.again = true;
        if state.moving {
            return;
        }
        state.moving = true;
        while std::mem::take(&mut state.again) {
            while let Some(message) = state.take() {
                drop(state);
                let refused = self.push(message);
                state = self.state.lock();
                if let Some(message) = refused {
                    state.put_back(message);
                    break;
                }
            }
        }
        state.moving = false;
    }

    /// Gives one to the mailbox. Some: it is full, and free capacity wakes this delivery.
    fn push(self: &Arc<Self>, message: Published) -> Option<Published> {
        let envelope = Envelope::Plain(Message::publication(message));
        let (refusal, envelope) =
            self.cell.push_or_wait(envelope, Priority::Normal, &Waker::from(Arc::clone(self))).err()?;
        let message = published(envelope)?;
        if matches!(refusal, Refusal::Full { .. }) {
            return Some(message);
        }
        self.give_up(message, DeadReason::Stopped, &refusal.to_string());
        None
    }

    fn give_up(&self, message: Published, reason: DeadReason, why: &str) {
        let actor = ActorRef::from_cell(Arc::clone(&self.cell));
        self.engine.give_up(&actor, Message::publication(message), reason, Some(why));
    }
}

impl State {
    /// Some: so many bytes wait that there is no capacity for it.
    fn add(&mut self, message: Published) -> Option<Published> {
        let bytes = message.message.payload().len();
        if self.bytes > 0 && self.bytes + bytes > BYTES_MAX {
            return Some(message);
        }
        self.bytes += bytes;
        self.waiting.push_back(message);
        None
    }

    fn take(&mut self) -> Option<Published> {
        let message = self.waiting.pop_front()?;
        self.bytes -= message.message.payload().len();
        Some(message)
    }

    fn put_back(&mut self, message: Published) {
        self.bytes += message.message.payload().len();
        self.waiting.push_front(message);
    }
}

impl Wake for MailboxDelivery {
    fn wake(self: Arc<Self>) {
        self.move_on();
    }
}

/// The publication in an envelope that a mailbox did not take.
fn published(envelope: Envelope<Message>) -> Option<Published> {
    envelope.into_message().and_then(Message::into_published)
}

/// A publication of another node, read.
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
