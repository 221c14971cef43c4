//! Pipelined publisher: a window of messages in flight, and errors that name the message.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use tidewire_backend::home::{Ack, Home, NewMessage};
use tidewire_engine::raw::Mutex;
use tidewire_proto::generated::errors::ErrorCode;

use super::batcher::{Batcher, Flush, Results, each};
use super::message::{Message, size};
use crate::error::Error;
use crate::node::runner::Runner;
use crate::pending::Pending;

const WINDOW_MAX: usize = 100_000;
/// Limit of the stored failures: the first ones tell the cause, and a full list would be unbounded.
const FAILURES_MAX: usize = 1_000;

/// Publishes without waiting for one ack before the next, in order: messages that arrive while a
/// batch is stored form the next batch. Made by [`Stream::publisher`](super::Stream::publisher).
///
/// [`flush`](Publisher::flush) it before dropping it: messages are stored all the same, but
/// failures go unnoticed.
///
/// ```
/// # use tidewire_node::streams::{Message, StreamOptions};
/// # use tidewire_node::{Error, Node};
/// async fn import(node: &Node, prices: &[(String, f64)]) -> Result<u64, Error> {
///     let stream = node.stream_with("prices", StreamOptions::new(["prices.>"])).await?;
///     let out = stream.publisher(1_000)?;
///     for (number, price) in prices.iter().enumerate() {
///         out.publish(Message::new("prices.eu", price).id(format!("import-7-{number}"))).await?;
///     }
///     out.flush().await?;
///     Ok(out.acked())
/// }
/// ```
#[derive(derive_more::Debug)]
#[debug("Publisher({:?}, {} acked)", self.record.stream, self.acked())]
pub struct Publisher {
    lane: Arc<Batcher<NewMessage, Option<String>, Ack>>,
    record: Arc<Record>,
    /// The node whose spans its messages have; None outside of nodes.
    runner: Option<Arc<Runner>>,
}

/// A message that was not stored, or of which that is not known.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NotStored {
    /// Which message of the publisher it was, from 0.
    pub number: u64,
    /// Its [id](Message::id).
    pub id: Option<String>,
    /// Why. With `home_unavailable` it may have been stored: publish it again with the same id.
    pub error: Error,
}

/// Outcomes of the messages of one publisher.
struct Record {
    stream: String,
    state: Mutex<PublishOutcome>,
}

#[derive(Default)]
struct PublishOutcome {
    ended: u64,
    acked: u64,
    last: Option<Ack>,
    /// Failures that no caller has seen yet.
    failed: u64,
    failures: Vec<NotStored>,
    /// Failures that the last caller has seen.
    reported: Vec<NotStored>,
}

impl Publisher {
    /// A publisher for a stream of a storage backend, as [`Stream::publisher`] makes one. Without a
    /// flush policy, a first message is sent at once.
    ///
    /// [`Stream::publisher`]: super::Stream::publisher
    ///
    /// # Errors
    /// [`Error`] with `invalid_argument` if the window is not 1 to 100,000 messages.
    pub fn new(home: &Arc<dyn Home>, stream: &str, window: usize, flush: Option<Flush>) -> Result<Self, Error> {
        if !(1..=WINDOW_MAX).contains(&window) {
            return Err(Error::invalid(format!("window: {window} is not allowed: give 1 to {WINDOW_MAX} messages")));
        }
        let record = Arc::new(Record { stream: stream.to_owned(), state: Mutex::default() });
        let (home, name, noted) = (Arc::clone(home), stream.to_owned(), Arc::clone(&record));
        let store = move |messages| home.publish(&name, messages, false);
        Ok(Self {
            lane: Batcher::new(window, store, move |ids, results| noted.note(ids, results), flush),
            record,
            runner: None,
        })
    }

    /// The publisher of a node.
    pub(super) fn with_spans_of(self, runner: &Arc<Runner>) -> Self {
        Self { runner: Some(Arc::clone(runner)), ..self }
    }

    /// Publishes a message: done when the window has capacity, not when the message is stored. If
    /// the window has capacity already, the message is on its way when this returns.
    ///
    /// # Errors
    /// Awaiting it fails with `publish_failed` if earlier messages were not stored;
    /// [`failures`](Publisher::failures) lists them. It fails with `invalid_argument` or
    /// `invalid_subject` if a part of the message is not allowed. The message was not published
    /// then.
    ///
    /// # Cancel safety
    /// If it is dropped while it waits for capacity, it has published nothing.
    pub fn publish(&self, message: Message) -> Pending<()> {
        match message.traced(self.runner.as_deref()).and_then(|message| self.begin(message)) {
            Ok(begun) => begun.unwrap_or_else(|| Pending::ready(())),
            Err(error) => Pending::failed(error),
        }
    }

    /// The same. Returns None if the window has capacity already.
    ///
    /// # Errors
    /// As for [`publish`](Publisher::publish).
    pub fn begin(&self, message: NewMessage) -> Result<Option<Pending<()>>, Error> {
        self.record.check()?;
        let (bytes, id) = (size(&message), message.id.clone());
        Ok(self.lane.put(message, bytes, id))
    }

    /// Waits until everything that was published is stored.
    ///
    /// # Errors
    /// Awaiting it fails with `publish_failed` if something of it was not, or that is not known:
    /// the text has the first, and [`failures`](Publisher::failures) lists them.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub fn flush(&self) -> Pending<()> {
        let (lane, record) = (Arc::clone(&self.lane), Arc::clone(&self.record));
        Pending::new(poll_fn(move |context| lane.poll_idle(context).map(|()| record.check())))
    }

    /// The messages that the last error of this publisher was about, in their order; at most the
    /// first 1,000 of them.
    pub fn failures(&self) -> Vec<NotStored> {
        self.record.state.lock().reported.clone()
    }

    /// How many messages are stored.
    pub fn acked(&self) -> u64 {
        self.record.state.lock().acked
    }

    /// The ack of the newest message that is stored.
    pub fn last(&self) -> Option<Ack> {
        self.record.state.lock().last
    }
}

impl Record {
    fn note(&self, ids: Vec<Option<String>>, results: Results<Ack>) {
        let mut state = self.state.lock();
        for (id, result) in each(ids, results) {
            match result {
                Ok(ack) => (state.acked, state.last) = (state.acked + 1, Some(ack)),
                Err(error) => state.fail(id, error.into()),
            }
            state.ended += 1;
        }
    }

    /// Reports failures once.
    fn check(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        let Some(first) = state.failures.first() else { return Ok(()) };
        let text = format!("stream {:?}: {} messages were not stored: {first}", self.stream, state.failed);
        state.reported = std::mem::take(&mut state.failures);
        state.failed = 0;
        Err(Error::new(ErrorCode::PublishFailed, text))
    }
}

impl PublishOutcome {
    fn fail(&mut self, id: Option<String>, error: Error) {
        self.failed += 1;
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(NotStored { number: self.ended, id, error });
        }
    }
}

impl fmt::Display for NotStored {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.id.as_ref().map_or_else(String::new, |id| format!(" (id {id:?})"));
        write!(out, "message {}{named}: {}: {}", self.number, self.error.code().name(), self.error)
    }
}
