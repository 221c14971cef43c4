//! Messages on subjects: published ones, and requests with their replies.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidewire_link::{Call, Named, Published, Refused};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{Fields, PublishHead};

use crate::calls::reply_slot::{CallOutcome, Payload, ReplySlot};
use crate::error::Error;
use crate::services::context::{ORIGIN, USER};
use crate::services::failure::Failure;
use crate::values::{self, Blob};

/// A message on a subject: a published one, or a request, which [`reply`](Message::reply) answers.
///
/// A request that is dropped without a reply fails with `no_reply`.
#[derive(derive_more::Debug)]
#[debug("Message({subject:?} of {:?}, {} bytes)", self.node(), self.bytes())]
pub struct Message {
    subject: String,
    headers: BTreeMap<String, String>,
    /// User named by a gateway.
    user: Option<String>,
    from: Arc<Named>,
    payload: Arc<Payload>,
    answer: Option<Answer>,
}

/// Where the answer to a request goes.
pub(super) enum Answer {
    Link(Call),
    Here(Arc<ReplySlot>),
}

impl Message {
    pub(crate) fn called(call: Call) -> Self {
        let head = call.head();
        let (subject, headers, from) = (head.subject.to_owned(), texts(&head.fields), call.from.clone());
        let payload = Arc::new(Payload::from(call.message.payload().to_vec()));
        Self::new(subject, headers, from, payload, Some(Answer::Link(call)))
    }

    pub(crate) fn published(subject: String, published: Published) -> Self {
        let headers = PublishHead::parse(published.message.head()).map(|head| texts(&head.fields)).unwrap_or_default();
        let (from, payload) = (published.from, Arc::new(Payload::from(published.message)));
        Self::new(subject, headers, from, payload, None)
    }

    pub(super) fn new(
        subject: String,
        mut headers: BTreeMap<String, String>,
        from: Arc<Named>,
        payload: Arc<Payload>,
        answer: Option<Answer>,
    ) -> Self {
        headers.remove(ORIGIN);
        let user = headers.remove(USER);
        Self { subject, headers, user, from, payload, answer }
    }

    /// Subject of the message.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The name of the node that sent it.
    pub fn node(&self) -> &str {
        &self.from.name
    }

    /// The user on whose behalf it was sent: the user of the token that the sender gave to the
    /// gateway of the hub, or with which the sending node joined. None without a login.
    pub fn user(&self) -> Option<&str> {
        let user = self.user.as_deref().unwrap_or(&self.from.user);
        Some(user).filter(|user| !user.is_empty())
    }

    /// Headers that the sender added to the message.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.headers
    }

    /// Reads the value of the message.
    ///
    /// # Errors
    /// [`Error`] with the code `invalid_argument` and the path of the part that does not fit the
    /// type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        values::read(&self.subject, self.payload.bytes())
    }

    /// True if the sender waits for a reply.
    pub fn is_request(&self) -> bool {
        self.answer.is_some()
    }

    /// Answers a request. A published message needs no reply: nothing happens.
    ///
    /// # Errors
    /// [`Error`] if the value can't be sent; the request fails with `no_reply` then.
    pub fn reply<T: Serialize + ?Sized>(mut self, value: &T) -> Result<(), Error> {
        let blob = values::write("the reply", value)?;
        self.answered(blob).map_err(|refused| Error::refused("the reply", &refused))
    }

    /// Answers a request as far as that is possible.
    pub(crate) fn answer(mut self, blob: Blob) {
        // The link reports a reply that cannot be sent to the caller.
        let _ = self.answered(blob);
    }

    fn answered(&mut self, mut blob: Blob) -> Result<(), Refused> {
        match self.answer.take() {
            Some(Answer::Link(call)) => {
                let flusher = call.flusher();
                let sent = call.reply(blob.sending());
                flusher.flush();
                sent.or_else(|refused| if refused == Refused::Over { Ok(()) } else { Err(refused) })
            }
            Some(Answer::Here(place)) => {
                place.outcome.end(CallOutcome::Replied(blob.into_bytes().into()));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Answers a request with an error. For a published message nothing happens.
    pub fn fail(mut self, failure: impl Into<Failure>) {
        let (code, blob) = failure.into().payload();
        self.failed(code, blob);
    }

    pub(crate) fn refuse(mut self, code: ErrorCode, text: &str) {
        self.failed(code, Blob::new(text.as_bytes().to_vec(), Vec::new()));
    }

    fn failed(&mut self, code: ErrorCode, mut blob: Blob) {
        match self.answer.take() {
            Some(Answer::Link(call)) => {
                let flusher = call.flusher();
                call.fail(code, blob.sending());
                flusher.flush();
            }
            Some(Answer::Here(place)) => {
                place.outcome.end(CallOutcome::Failed(code.number(), Some(blob.into_bytes().into())))
            }
            None => {}
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.payload.bytes().len()
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if self.is_request() {
            self.failed(ErrorCode::NoReply, Blob::new(b"the subscriber did not answer".to_vec(), Vec::new()));
        }
    }
}

pub(super) fn texts(fields: &Fields<'_>) -> BTreeMap<String, String> {
    let text = |(name, value): (&str, &[u8])| (name.to_owned(), String::from_utf8_lossy(value).into_owned());
    fields.iter().map(text).collect()
}
