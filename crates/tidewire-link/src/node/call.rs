//! Inbound call of a node, and the methods that answer it.

use std::sync::{Arc, Weak};
use std::time::Instant;

use tidewire_core::link::assembly::Message;
use tidewire_core::link::flush_policy::Batch;
use tidewire_core::link::session::{Named, OutgoingPayload, Refused, Session};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{CallHead, Flags};

use super::{CallKey, ReplyWaiter, Shared};

/// A call for this node. Dropping it unanswered fails it.
pub struct Call {
    pub(super) link: Arc<Shared>,
    pub(super) key: CallKey,
    /// Its head and payload.
    pub message: Message,
    /// The calling node.
    pub from: Arc<Named>,
    /// Until when the caller waits.
    pub deadline: Option<Instant>,
    pub(super) answered: bool,
}

impl Call {
    /// Head of the call: its target and its fields.
    pub fn head(&self) -> CallHead<'_> {
        // It was checked when it came in.
        CallHead::parse(self.message.head()).unwrap_or_default()
    }

    /// Names the call on its link.
    pub fn key(&self) -> CallKey {
        self.key
    }

    /// True while the caller waits for the answer.
    pub fn is_open(&self) -> bool {
        self.act(|session, id| session.is_open(id)).unwrap_or(false)
    }

    /// True while other exchanges are open on the link: then a frame may wait for others to share
    /// its write.
    pub fn has_company(&self) -> bool {
        self.link.state.lock().session.open_exchanges().1 > 1
    }

    /// Sends the answer. The frame waits for [`Flusher::flush`].
    ///
    /// # Errors
    /// [`Refused`] if the answer can't be sent; the caller is notified, unless it is gone.
    pub fn reply(mut self, payload: OutgoingPayload<'_>) -> Result<(), Refused> {
        self.answered = true;
        let lane = self.message.flags.lane() as u8;
        let payload = self.link.readied(payload);
        let sent = self.act(|session, id| session.reply(id, Flags::NORMAL.in_lane(lane), payload));
        let sent = sent.unwrap_or(Err(Refused::Over));
        if let Err(refused) = &sent {
            let text = refused.to_string();
            let code = if matches!(refused, Refused::TooLong { .. }) {
                ErrorCode::PayloadTooLarge
            } else {
                ErrorCode::LimitExceeded
            };
            let _ = self.act(|session, id| session.fail(id, code, OutgoingPayload::Short(text.as_bytes())));
        }
        self.link.answered(self.key);
        sent
    }

    /// Fails. The frame waits for [`Flusher::flush`].
    pub fn fail(mut self, code: ErrorCode, payload: OutgoingPayload<'_>) {
        self.answered = true;
        let payload = self.link.packed(payload);
        let _ = self.act(|session, id| session.fail(id, code, payload));
        self.link.answered(self.key);
    }

    /// Sends one item of the answer. The frame waits for [`Flusher::flush`].
    ///
    /// # Errors
    /// [`Refused`] if it can't be sent.
    pub fn item(&self, payload: OutgoingPayload<'_>) -> Result<(), Refused> {
        let payload = self.link.readied(payload);
        let sent = self.act(|session, id| session.answer_item(id, Flags::NORMAL, payload));
        sent.unwrap_or(Err(Refused::Over))
    }

    /// Sends no more items, which ends the call. The frame waits for [`Flusher::flush`].
    pub fn over(mut self) {
        self.answered = true;
        self.act(|session, id| session.answer_over(id));
        self.link.answered(self.key);
    }

    /// Takes so many further items from the caller.
    pub fn want_input(&self, items: u32) {
        self.act(|session, id| session.want_input(id, items));
        self.link.flush();
    }

    /// Says that the handler is still at work.
    pub fn alive(&self) {
        self.act(|session, id| session.alive(id));
        self.link.flush();
    }

    /// A link to flush once several answers are written.
    pub fn flusher(&self) -> Flusher {
        Flusher { link: Arc::downgrade(&self.link), batch: self.link.greeting.batch }
    }

    /// True if an answer of this length may be compressed when it is sent, which takes time.
    pub fn compresses(&self, payload: usize) -> bool {
        self.link.compresses(payload)
    }

    /// The longest payload that this node takes and sends.
    pub fn payload_bytes(&self) -> usize {
        self.link.greeting.payload_bytes
    }

    /// None: the link of the call was lost.
    fn act<T>(&self, act: impl FnOnce(&mut Session<Arc<dyn ReplyWaiter>>, u64) -> T) -> Option<T> {
        self.link.with(self.key, |session| act(session, self.key.id))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.answered {
            let text = b"the handler ended without an answer";
            let _ = self.act(|session, id| session.fail(id, ErrorCode::NoReply, OutgoingPayload::Short(text)));
            self.link.answered(self.key);
            self.link.flush();
        }
    }
}

/// Handle that flushes the outbox of a link.
#[derive(Clone)]
pub struct Flusher {
    pub(super) link: Weak<Shared>,
    pub(super) batch: Batch,
}

impl Flusher {
    /// Address of the link in this process, unique while a flusher of the link exists.
    pub fn address(&self) -> usize {
        self.link.as_ptr() as usize
    }

    /// How much is written although more might follow.
    pub fn batch(&self) -> Batch {
        self.batch
    }

    /// Stops receiving until [`listen_again`](Self::listen_again), as the handlers are behind.
    pub fn pause(&self) {
        if let Some(link) = self.link.upgrade() {
            link.pause();
        }
    }

    /// Resumes receiving.
    pub fn listen_again(&self) {
        if let Some(link) = self.link.upgrade() {
            link.listen_again();
        }
    }

    /// Flushes the outbox, as far as the socket takes bytes; the rest follows by itself.
    pub fn flush(&self) {
        if let Some(link) = self.link.upgrade() {
            link.flush();
        }
    }

    /// Has the thread of the links flush the outbox: for a thread that has no time for it, and
    /// mostly more to send soon.
    pub fn flush_soon(&self) {
        if let Some(link) = self.link.upgrade() {
            link.flush_soon();
        }
    }
}
