//! Streams: durable ordered logs of events.

use std::sync::Arc;
use std::time::Duration;

use tidewire_backend::home::{Ack, Compact, ConsumerInfo, Full, Home, Purge, StreamInfo, StreamSettings};
use tidewire_engine::raw::clock;
use tidewire_proto::generated::errors::ErrorCode;

use super::consumer::{Consumer, ConsumerOptions};
use super::conventions::{answered, micros, patterns, texts_of};
use super::fetcher::Reads;
use super::message::Message;
use super::publish_queue::{PublishQueue, WAITING_MAX};
use super::publisher::Publisher;
use super::replay::{ReadOptions, Replay};
use crate::error::Error;
use crate::pending::Pending;
use crate::statistics::call_durations::SEND;

/// Messages of one batch, at most.
const BATCH_MAX: usize = 1_000;

/// Settings of a stream. Two are the same if all settings are equal.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    subjects: Vec<String>,
    settings: StreamSettings,
}

impl StreamOptions {
    /// A stream without limits that takes these subjects: patterns such as `orders.>`.
    pub fn new<T: Into<String>>(subjects: impl IntoIterator<Item = T>) -> Self {
        Self { subjects: texts_of(subjects), settings: StreamSettings::new("", Vec::new()) }
    }

    pub(crate) fn settings(self, name: &str) -> Result<StreamSettings, Error> {
        let subjects = patterns("subjects", &self.subjects)?;
        Ok(StreamSettings { name: name.to_owned(), subjects, ..self.settings })
    }
}

setters! {
    StreamOptions:
    /// Events older than this are forgotten. Without it none are.
    max_age(age: Duration) => settings.max_age_us = Some(micros(age));
    /// The bytes that its events may take on disk. No limit without it.
    max_bytes(bytes: u64) => settings.max_bytes = Some(bytes);
    /// How many events it may have. No limit without it.
    max_messages(messages: u64) => settings.max_messages = Some(messages);
    /// Behaviour at a limit: publishing is refused, as by default, or the oldest events are
    /// deleted.
    full(full: Full) => settings.full = full;
    /// For how long an [id](Message::id) is remembered; two minutes by default, zero for not at
    /// all.
    dedupe(time: Duration) => settings.dedupe_us = micros(time);
    /// Number of servers that store it; 1 by default.
    replicas(servers: u32) => settings.replicas = servers;
    /// Only the newest event of each key or subject stays; one that it replaces is read and
    /// delivered no more.
    compact(by: Compact) => settings.compact = Some(by);
}

/// A stream. Clones are the same stream, and share the order of their messages.
#[derive(Clone, derive_more::Debug)]
#[debug("Stream({name:?})")]
pub struct Stream {
    reads: Reads,
    name: Arc<str>,
    queue: PublishQueue,
}

impl Stream {
    pub(crate) fn new(reads: Reads, name: &str) -> Self {
        let queue = PublishQueue::new(Arc::clone(&reads.home), name, None);
        Self { reads, name: name.into(), queue }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same stream, whose consumers and replays wait outages of the storage backend out, in
    /// place of failing. Acks of an outage are stored after it. `notify` gets the error of an
    /// outage when the wait begins, and None when it is over.
    pub fn on_outage(&self, notify: impl Fn(Option<&Error>) + Send + Sync + 'static) -> Self {
        Self { reads: self.reads.on_outage(notify), ..self.clone() }
    }

    pub(super) fn home(&self) -> &dyn Home {
        &*self.reads.home
    }

    /// Stores a message. The message is on its way when this returns. Messages that follow before
    /// it is stored go with it or behind it, so that many share one sync. The ack tells which
    /// failures the message survives; a delayed message gets another sequence when it is due.
    ///
    /// # Errors
    /// Awaiting it fails with `stream_full` if the stream is at its limit and refuses, and with
    /// `not_found` if the stream was deleted. It fails with `invalid_argument` or `invalid_subject`
    /// if a part of the message is not allowed, and with `limit_exceeded` if 10,000 messages wait
    /// for their acks. After `home_unavailable` the outcome is unknown: publish it again with the
    /// same [id](Message::id).
    ///
    /// # Cancel safety
    /// If it is dropped, the message is stored all the same.
    pub fn publish(&self, message: Message) -> Pending<Ack> {
        match message.traced(Some(&self.reads.runner)).map(|message| self.queue.offer(message)) {
            Ok(Some(ack)) => self.measured(answered(ack)),
            Ok(None) => {
                let fix = "await some before the next, or use a publisher";
                let text = format!("stream {:?}: {WAITING_MAX} messages wait for their acks already: {fix}", self.name);
                Pending::failed(Error::new(ErrorCode::LimitExceeded, text))
            }
            Err(error) => Pending::failed(error),
        }
    }

    /// Counts the time until a message is stored, if somebody looks at it.
    fn measured(&self, ack: Pending<Ack>) -> Pending<Ack> {
        if self.reads.runner.durations.is_none() {
            return ack;
        }
        let (runner, name, begun) = (Arc::clone(&self.reads.runner), Arc::clone(&self.name), clock::now());
        Pending::new(async move {
            let stored = ack.await;
            if let Some(durations) = &runner.durations {
                durations.record(SEND, &name, stored.as_ref().err().map_or("", Error::kind), clock::since(begun));
            }
            stored
        })
    }

    /// A publisher with a window of so many messages in flight: 1 to 100,000.
    ///
    /// # Errors
    /// [`Error`] with `invalid_argument` if the window is out of range.
    pub fn publisher(&self, window: usize) -> Result<Publisher, Error> {
        let publisher = Publisher::new(&self.reads.home, &self.name, window, None)?;
        Ok(publisher.with_spans_of(&self.reads.runner))
    }

    /// Stores up to 1,000 messages together, all or none. Returns their acks in the order of the
    /// messages.
    ///
    /// # Errors
    /// Awaiting it fails with `publish_failed` if one was refused, which is named: nothing was
    /// stored then. It fails with `unsupported` if the storage backend has no batches. After
    /// `home_unavailable` the outcome is unknown.
    ///
    /// # Cancel safety
    /// If it is dropped, the messages may have been stored.
    pub fn batch(&self, messages: impl IntoIterator<Item = Message>) -> Pending<Vec<Ack>> {
        let checked: Result<Vec<_>, Error> =
            messages.into_iter().map(|message| message.traced(Some(&self.reads.runner))).collect();
        let messages = match checked {
            Ok(messages) => messages,
            Err(error) => return Pending::failed(error),
        };
        let title = format!("stream {:?}", self.name);
        if messages.len() > BATCH_MAX {
            let fix = "store several batches, or use a publisher";
            return Pending::failed(Error::invalid(format!(
                "{title}: a batch has at most {BATCH_MAX} messages: {fix}"
            )));
        }
        if messages.is_empty() {
            return Pending::ready(Vec::new());
        }
        let stored = self.reads.home.publish(&self.name, messages, true);
        Pending::new(async move {
            let mut acks = Vec::new();
            for (number, result) in stored.await?.into_iter().enumerate() {
                acks.push(result.map_err(|error| {
                    let text = format!("{title}: nothing of the batch was stored: message {number}: {error}");
                    Error::new(ErrorCode::PublishFailed, text)
                })?);
            }
            Ok(acks)
        })
    }

    /// Makes a consumer, or finds the one of this name. Several may take events from one consumer,
    /// in one process or many: each event goes to one of them.
    ///
    /// # Errors
    /// Awaiting it fails with `settings_differ` if it exists with other settings,
    /// `invalid_argument` if one is not allowed, `not_found` if the stream was deleted.
    ///
    /// # Cancel safety
    /// If it is dropped, the consumer may have been made.
    pub fn consumer(&self, name: &str, options: ConsumerOptions) -> Pending<Consumer> {
        let settings = match options.settings(name) {
            Ok(settings) => settings,
            Err(error) => return Pending::failed(error),
        };
        let most = settings.max_in_flight;
        let creation = self.reads.home.create_consumer(&self.name, settings);
        let (reads, stream) = (self.reads.clone(), Arc::clone(&self.name));
        Pending::new(async move {
            let info = creation.await?;
            Ok(Consumer::of(&reads, &stream, &info.settings.name, most, |_| ()))
        })
    }

    /// Reads its events without stored state: a replay.
    pub fn read(&self, options: ReadOptions) -> Replay {
        Replay::of(&self.reads, &self.name, options)
    }

    /// The state of the stream.
    ///
    /// # Errors
    /// Awaiting it fails with `not_found` if it was deleted.
    pub fn info(&self) -> Pending<StreamInfo> {
        answered(self.reads.home.stream_info(&self.name))
    }

    /// The state of its consumers, by name: depth, lag, deliveries in flight, dead letters.
    ///
    /// # Errors
    /// As for [`info`](Stream::info).
    pub fn consumers(&self) -> Pending<Vec<ConsumerInfo>> {
        answered(self.reads.home.list_consumers(&self.name))
    }

    /// Removes all events. Returns how many. Sequences are never used again.
    ///
    /// # Errors
    /// As for [`info`](Stream::info).
    ///
    /// # Cancel safety
    /// If it is dropped, it happens all the same, as does every purge.
    pub fn purge(&self) -> Pending<u64> {
        self.purged(Purge::default())
    }

    /// Removes events before a sequence. Returns how many.
    ///
    /// # Errors
    /// As for [`info`](Stream::info).
    pub fn purge_before(&self, sequence: u64) -> Pending<u64> {
        self.purged(Purge { before: Some(sequence), ..Purge::default() })
    }

    /// Removes all but the newest so many events. Returns how many.
    ///
    /// # Errors
    /// As for [`info`](Stream::info).
    pub fn purge_keep(&self, newest: u64) -> Pending<u64> {
        self.purged(Purge { keep: Some(newest), ..Purge::default() })
    }

    /// Removes events of some subjects. Returns how many.
    ///
    /// # Errors
    /// As for [`info`](Stream::info), and with `unsupported` if the storage backend removes whole
    /// files only.
    pub fn purge_subjects(&self, pattern: &str) -> Pending<u64> {
        match crate::names::pattern(pattern) {
            Ok(filter) => self.purged(Purge { filter: Some(filter), ..Purge::default() }),
            Err(error) => Pending::failed(error),
        }
    }

    fn purged(&self, purge: Purge) -> Pending<u64> {
        answered(self.reads.home.purge(&self.name, purge))
    }

    /// Deletes it with its consumers and dead letters.
    ///
    /// # Errors
    /// As for [`info`](Stream::info).
    ///
    /// # Cancel safety
    /// If it is dropped, the stream may have been deleted.
    pub fn delete(&self) -> Pending<()> {
        answered(self.reads.home.delete_stream(&self.name))
    }
}
