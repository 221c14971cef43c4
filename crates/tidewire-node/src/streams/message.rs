//! Messages to be published: a subject, a value, and options.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use tidewire_backend::home::NewMessage;
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::Subject;

use super::conventions::{micros, micros_at};
use crate::error::Error;
use crate::node::runner::Runner;
use crate::span::Span;
use crate::values;

/// The header that names the encoding of a value, and its values.
pub(super) const CONTENT: &str = "content-type";
pub(super) const VALUE: &str = "tidewire";
pub(super) const JSON: &str = "application/json";
/// Approximate size of a message besides its payload.
const AROUND_BYTES: usize = 64;

/// A message to be published. Publishing returns the error of an invalid message.
///
/// ```
/// use std::time::Duration;
/// use tidewire_node::streams::Message;
///
/// let message = Message::new("orders.created", &("tea", 2)).key("customer-7").id("order-42").ttl(Duration::from_secs(3600));
/// assert_eq!(format!("{message:?}"), "Message(orders.created)");
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("Message({})", _0.as_ref().map_or_else(|error| format!("{error:?}"), |message| message.subject.to_string()))]
pub struct Message(Result<NewMessage, Error>);

impl Message {
    /// A message with a value as it travels between nodes: any type of serde. Every language reads
    /// it.
    pub fn new<T: Serialize + ?Sized>(subject: &str, value: &T) -> Self {
        Self::written(subject, values::to_bytes(value), Some(VALUE))
    }

    /// A message with a value as JSON, for programs that know nothing of nodes.
    pub fn json<T: Serialize + ?Sized>(subject: &str, value: &T) -> Self {
        let written = serde_json::to_vec(value);
        Self::written(subject, written.map_err(|wrong| Error::invalid(format!("value: {wrong}"))), Some(JSON))
    }

    /// A message with bytes as they are.
    pub fn bytes(subject: &str, payload: impl Into<Vec<u8>>) -> Self {
        Self::written(subject, Ok(payload.into()), None)
    }

    fn written(subject: &str, payload: Result<Vec<u8>, Error>, content: Option<&str>) -> Self {
        let checked = Subject::new(subject).map_err(|wrong| Error::new(ErrorCode::InvalidSubject, wrong.to_string()));
        Self(checked.and_then(|subject| {
            let mut message = NewMessage::new(subject, payload?);
            message.headers.extend(content.map(|content| (CONTENT.to_owned(), content.to_owned())));
            Ok(message)
        }))
    }

    /// The key of the message, such as a customer; consumers with [`Order::Key`](super::Order::Key)
    /// handle one message of a key at a time. At most 256 bytes.
    pub fn key(self, key: impl Into<String>) -> Self {
        self.with(|message| message.key = Some(key.into()))
    }

    /// An idempotency key: a second message with it is not stored within the stream's
    /// [`dedupe`](super::StreamOptions::dedupe). At most 256 bytes.
    pub fn id(self, id: impl Into<String>) -> Self {
        self.with(|message| message.id = Some(id.into()))
    }

    /// Adds a header; all together have at most 64 KiB.
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|message| message.headers.push((name.into(), value.into())))
    }

    /// Delays its delivery, by the clock of this computer.
    pub fn delay(self, delay: Duration) -> Self {
        self.at(SystemTime::now() + delay)
    }

    /// It is delivered at this time.
    pub fn at(self, time: SystemTime) -> Self {
        self.with(|message| message.deliver_at_us = Some(micros_at(time)))
    }

    /// It is not delivered any more after this time, counted from when it is stored or becomes due.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|message| message.ttl_us = Some(micros(ttl)))
    }

    fn with(mut self, change: impl FnOnce(&mut NewMessage)) -> Self {
        if let Ok(message) = &mut self.0 {
            change(message);
        }
        self
    }

    /// The message for storage backends.
    pub(crate) fn checked(self) -> Result<NewMessage, Error> {
        self.0
    }

    /// The message for storage backends, with the span of its producer.
    pub(crate) fn traced(self, runner: Option<&Runner>) -> Result<NewMessage, Error> {
        let mut message = self.0?;
        let span = Span::producer(runner, message.subject.as_str(), &message.headers);
        if let Some(headers) = span.carried(&message.headers) {
            message.headers = headers;
        }
        Ok(message)
    }
}

/// Approximate size of a message in a call.
pub(super) fn size(message: &NewMessage) -> usize {
    let headers: usize = message.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    message.payload.len() + message.subject.as_str().len() + headers + AROUND_BYTES
}
