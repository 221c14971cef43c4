//! The task of the publisher: sends, takes acks, sends again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Message, StatusCode, Subscriber};
use futures_util::{FutureExt, StreamExt};
use tidewire_backend::home::{Ack, HomeErrorKind, HomeResult, NewMessage};
use tidewire_proto::generated::limits::NATS_IN_FLIGHT;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::clock;
use crate::connection::Connection;
use crate::message;
use crate::names;
use crate::stream_cache::{CachedStream, Streams};

use super::PublishBudget;
use super::batch::Batch;
use super::jobs::{Begun, Job};
use super::reply::AckReply;
use super::sent::{InFlight, Sent};

/// Interval of deadline checks, and pause before refused messages are resent.
const TICK: Duration = Duration::from_millis(25);
/// Acks that are taken before the next message is sent.
const ACKS_AT_ONCE: usize = 512;
/// Default limit of a server for one batch.
const BATCH_MESSAGES_MAX: usize = 1_000;

/// The call whose messages are being sent.
struct Current {
    call: u64,
    index: usize,
    stream: Arc<str>,
    known: Arc<CachedStream>,
    messages: std::vec::IntoIter<NewMessage>,
    /// Of a batch that is stored whole or not at all: its name, and how many messages it has.
    batch: Option<(String, usize)>,
}

pub(crate) struct Task {
    connection: Arc<Connection>,
    streams: Arc<Streams>,
    queue: mpsc::UnboundedReceiver<Job>,
    // Held so that its counters live as long as the messages.
    _waiting: Arc<PublishBudget>,
    acks: Subscriber,
    inbox: String,
    lost: watch::Receiver<u64>,
    calls: Begun,
    in_flight: InFlight,
    again: VecDeque<Sent>,
    current: Option<Current>,
    /// Calls whose stream is being looked up, or stores a batch with ids.
    parked: HashMap<String, VecDeque<Job>>,
    /// Calls whose stream was looked up.
    ready: VecDeque<Job>,
    /// Streams that are looked up because a publish had no responders.
    rechecked: HashSet<String>,
    /// Since when there is no connection.
    down_since: Option<Instant>,
    found: mpsc::UnboundedSender<(String, HomeResult<Arc<CachedStream>>)>,
    finds: mpsc::UnboundedReceiver<(String, HomeResult<Arc<CachedStream>>)>,
    /// Streams that store a batch with ids.
    batches: HashSet<String>,
    batch_ended: mpsc::UnboundedSender<String>,
    batch_ends: mpsc::UnboundedReceiver<String>,
    last_subject: (String, async_nats::Subject),
    unique: u64,
}

impl Task {
    pub async fn new(
        connection: Arc<Connection>,
        streams: Arc<Streams>,
        queue: mpsc::UnboundedReceiver<Job>,
        waiting: Arc<PublishBudget>,
    ) -> HomeResult<Self> {
        let inbox = connection.client.new_inbox();
        let acks = connection.client.subscribe(format!("{inbox}.*")).await;
        let acks = acks.map_err(|error| connection.away(&error.to_string()))?;
        let (found, finds) = mpsc::unbounded_channel();
        // At most one entry for each stream: the next batch of a stream waits for the last one.
        let (batch_ended, batch_ends) = mpsc::unbounded_channel();
        let lost = connection.losses();
        Ok(Self {
            connection,
            streams,
            queue,
            _waiting: waiting,
            acks,
            inbox,
            lost,
            calls: Begun::default(),
            in_flight: InFlight::default(),
            again: VecDeque::new(),
            current: None,
            parked: HashMap::new(),
            ready: VecDeque::new(),
            rechecked: HashSet::new(),
            down_since: None,
            found,
            finds,
            batches: HashSet::new(),
            batch_ended,
            batch_ends,
            last_subject: (String::new(), async_nats::Subject::from_static("")),
            unique: clock::now_us(),
        })
    }

    pub async fn run(mut self) {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.send_what_may_be_sent().await;
            let idle = self.current.is_none() && self.again.is_empty() && self.ready.is_empty();
            tokio::select! {
                ack = self.acks.next() => match ack {
                    Some(ack) => self.take_acks(ack),
                    None => return,
                },
                job = self.queue.recv(), if idle => match job {
                    Some(job) => self.begin(job),
                    None => return,
                },
                Some((stream, known)) = self.finds.recv() => self.found(&stream, known),
                Some(stream) = self.batch_ends.recv() => self.end_batch(&stream),
                Ok(()) = self.lost.changed() => self.lose(),
                _ = tick.tick() => self.tick().await,
            }
        }
    }

    /// Sends refused messages, then the current call, then the next ones, as long as the limit
    /// allows.
    async fn send_what_may_be_sent(&mut self) {
        while self.connection.is_up() && self.in_flight.len() < NATS_IN_FLIGHT.max as usize {
            if !self.again.is_empty() {
                // The tick sends it: the server that refused needs some time.
                return;
            }
            if self.current.is_none() {
                match self.ready.pop_front().map_or_else(|| self.queue.try_recv(), Ok) {
                    Ok(job) => self.begin(job),
                    Err(_) => return,
                }
                continue;
            }
            self.send_next().await;
            if let Some(Some(ack)) = self.acks.next().now_or_never() {
                self.take_acks(ack);
            }
        }
    }

    /// Begins a call, if its stream is known.
    fn begin(&mut self, job: Job) {
        if self.parked.contains_key(&job.stream) || self.batches.contains(&job.stream) {
            self.parked.entry(job.stream.clone()).or_default().push_back(job);
            return;
        }
        match self.streams.get(&job.stream) {
            Some(known) if job.looked || fits(&known, &job) => self.open(job, known),
            _ => {
                self.look_up(&job.stream);
                self.parked.entry(job.stream.clone()).or_default().push_back(job);
            }
        }
    }

    /// Looks up a stream in a separate task.
    fn look_up(&self, stream: &str) {
        let (connection, streams, found) =
            (Arc::clone(&self.connection), Arc::clone(&self.streams), self.found.clone());
        let stream = stream.to_owned();
        tokio::spawn(async move {
            let known = streams.refresh(&connection, &stream).await;
            drop(found.send((stream, known)));
        });
    }

    fn look_up_again(&mut self, stream: &str) {
        if !self.parked.contains_key(stream) && self.rechecked.insert(stream.to_owned()) {
            self.look_up(stream);
        }
    }

    /// A stream was looked up: its calls go on, or fail.
    fn found(&mut self, stream: &str, known: HomeResult<Arc<CachedStream>>) {
        self.rechecked.remove(stream);
        let parked = if self.batches.contains(stream) { None } else { self.parked.remove(stream) };
        let parked = parked.unwrap_or_default();
        match known {
            Ok(_) => self.ready.extend(parked.into_iter().map(Job::looked)),
            Err(error) => {
                parked.into_iter().for_each(|job| job.fail(error.clone()));
                if error.kind() == HomeErrorKind::NotFound {
                    let (affected, others): (VecDeque<_>, _) =
                        std::mem::take(&mut self.again).into_iter().partition(|sent| *sent.stream == *stream);
                    self.again = others;
                    affected.iter().for_each(|sent| self.finish(sent, Err(error.clone())));
                }
            }
        }
    }

    fn open(&mut self, job: Job, known: Arc<CachedStream>) {
        let (stream, whole, count) = (Arc::<str>::from(&*job.stream), job.whole, job.count);
        if whole && let Err(error) = self.batch_allowed(&known, &job) {
            job.fail(error);
            return;
        }
        if whole && let Err(error) = self.batch_fits(&known, &job) {
            job.refuse(&error);
            return;
        }
        if whole && known.dedupe && job.messages.as_slice().iter().any(|message| message.id.is_some()) {
            self.begin_batch(job, known);
            return;
        }
        let (call, messages) = self.calls.begin(job);
        let batch = whole.then(|| (self.connection.client.new_inbox().replace('.', "-"), count));
        self.current = Some(Current { call, index: 0, stream, known, messages, batch });
    }

    /// Stores a batch with ids, beside calls to other streams.
    fn begin_batch(&mut self, job: Job, known: Arc<CachedStream>) {
        let (connection, streams, ended) =
            (Arc::clone(&self.connection), Arc::clone(&self.streams), self.batch_ended.clone());
        self.batches.insert(job.stream.clone());
        tokio::spawn(async move {
            let messages = job.messages.as_slice();
            let batch = Batch { connection: &connection, stream: &job.stream, known: &known, messages };
            let stored = batch.publish().await;
            let stream = job.stream.clone();
            match stored {
                Ok(acks) => job.finish(acks),
                Err(error) => {
                    streams.forget(&stream);
                    job.refuse(&error);
                }
            }
            drop(ended.send(stream));
        });
    }

    fn end_batch(&mut self, stream: &str) {
        self.batches.remove(stream);
        self.ready.extend(self.parked.remove(stream).unwrap_or_default());
    }

    /// A batch is stored as a whole or not at all: detectable errors are refused before anything is
    /// sent.
    fn batch_allowed(&self, known: &CachedStream, job: &Job) -> HomeResult<()> {
        let refuse = |kind, words: &str| Err(self.connection.error(kind, words));
        if !known.batches {
            let words = "whole: the stream takes no batches: create it anew on nats-server 2.12 or newer";
            return refuse(HomeErrorKind::Unsupported, words);
        }
        if job.count > BATCH_MESSAGES_MAX {
            let words = format!("messages: {} are too many for one batch: put at most 1,000 into it", job.count);
            return refuse(HomeErrorKind::Invalid, &words);
        }
        Ok(())
    }

    fn batch_fits(&self, known: &CachedStream, job: &Job) -> HomeResult<()> {
        for message in job.messages.as_slice() {
            self.check(known, &job.stream, message)?;
            message::headers(message, known.dedupe)?;
            if message.deliver_at_us.is_some() {
                let words = "deliver_at: a message of a batch can't be delayed: publish it by itself";
                return Err(self.connection.error(HomeErrorKind::Unsupported, words));
            }
        }
        Ok(())
    }

    async fn send_next(&mut self) {
        let Some(current) = &mut self.current else { return };
        let Some(message) = current.messages.next() else {
            self.current = None;
            return;
        };
        let (call, index) = (current.call, current.index);
        current.index += 1;
        let (stream, known, batch) = (Arc::clone(&current.stream), Arc::clone(&current.known), current.batch.clone());
        match self.prepare(call, index, stream, known, message, batch) {
            Ok(sent) => self.send(sent).await,
            Err(error) => self.calls.finish(call, index, Err(error)),
        }
    }

    /// The message as it is sent.
    fn prepare(
        &mut self,
        call: u64,
        index: usize,
        stream: Arc<str>,
        known: Arc<CachedStream>,
        message: NewMessage,
        batch: Option<(String, usize)>,
    ) -> HomeResult<Sent> {
        self.check(&known, &stream, &message)?;
        let mut headers = message::headers(&message, known.dedupe)?;
        let mut subject = self.subject(message.subject.as_str());
        if let Some(at_us) = message.deliver_at_us {
            let map = headers.get_or_insert_default();
            map.insert("Nats-Schedule", format!("@at {}", clock::written(at_us)).as_str());
            map.insert("Nats-Schedule-Target", message.subject.as_str());
            if let Some(ttl_us) = message.ttl_us {
                map.insert("Nats-Schedule-TTL", clock::ttl_header(ttl_us).as_str());
            }
            if let Some(id) = &message.id {
                map.insert(names::ID, id.as_str());
            }
            self.unique += 1;
            let name = self.inbox.rsplit('.').next().unwrap_or_default();
            subject = names::delayed(&stream, format_args!("{name}.{}", self.unique)).into();
        }
        let last = batch.as_ref().is_some_and(|(_, count)| index + 1 == *count);
        if let Some((name, _)) = &batch {
            let map = headers.get_or_insert_default();
            map.insert("Nats-Batch-Id", name.as_str());
            map.insert("Nats-Batch-Sequence", (index + 1).to_string().as_str());
            if last {
                map.insert("Nats-Batch-Commit", "1");
            }
        }
        let now = Instant::now();
        Ok(Sent {
            call,
            index,
            stream,
            once: known.dedupe && message.id.is_some() && batch.is_none(),
            known,
            subject,
            headers,
            payload: message.payload,
            since: now,
            until: now + self.connection.settings.request_timeout,
            batch: batch.as_ref().map_or(1, |(_, count)| if last { *count } else { 0 }),
        })
    }

    /// The subject as the driver takes it. Most messages go where the one before went.
    fn subject(&mut self, text: &str) -> async_nats::Subject {
        if self.last_subject.0 != text {
            self.last_subject = (text.to_owned(), text.to_owned().into());
        }
        self.last_subject.1.clone()
    }

    fn check(&self, known: &CachedStream, stream: &str, message: &NewMessage) -> HomeResult<()> {
        let refuse = |kind, words: String| Err(self.connection.error(kind, &words));
        if !known.takes(message.subject.as_str()) {
            return Err(known.takes_not(&self.connection, stream, message.subject.as_str()));
        }
        let (length, most) = (message.payload.len(), self.connection.client.max_payload());
        if length > most {
            let words = format!(
                "payload: {length} bytes are too long: send at most {most}, or raise max_payload of the servers"
            );
            return refuse(HomeErrorKind::TooLarge, words);
        }
        if message.ttl_us.is_some() && !known.ttls {
            let words = format!("ttl: stream {stream:?} was made without times to live: allow_msg_ttl enables them");
            return refuse(HomeErrorKind::Unsupported, words);
        }
        if message.deliver_at_us.is_some() && !known.delays {
            let words = format!(
                "deliver_at: stream {stream:?} has no schedules: make it with full=\"drop_old\" or without limits, on nats-server 2.12 or newer"
            );
            return refuse(HomeErrorKind::Unsupported, words);
        }
        Ok(())
    }

    async fn send(&mut self, mut sent: Sent) {
        sent.until = Instant::now() + self.connection.settings.request_timeout;
        let (subject, payload) = (sent.subject.clone(), sent.payload.clone());
        // Only the last message of a batch is answered; the server answers the others when they are
        // wrong.
        let number = self.in_flight.number();
        let reply = format!("{}.{number}", self.inbox);
        let client = &self.connection.client;
        let done = match &sent.headers {
            Some(headers) => client.publish_with_reply_and_headers(subject, reply, headers.clone(), payload).await,
            None => client.publish_with_reply(subject, reply, payload).await,
        };
        match done {
            Ok(()) if sent.batch == 0 => (),
            Ok(()) => self.in_flight.insert(number, sent),
            Err(error) => {
                let words = format!("the message can't be sent ({error}): make it smaller, or try again");
                self.finish(&sent, Err(self.connection.error(HomeErrorKind::Invalid, &words)));
            }
        }
    }

    fn take_acks(&mut self, first: Message) {
        self.take_ack(first);
        for _ in 0..ACKS_AT_ONCE {
            match self.acks.next().now_or_never() {
                Some(Some(ack)) => self.take_ack(ack),
                _ => return,
            }
        }
    }

    fn take_ack(&mut self, message: Message) {
        let number = message.subject.rsplit('.').next().and_then(|number| number.parse().ok());
        let Some(sent) = number.and_then(|number| self.in_flight.take(number)) else { return };
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            // The message had no responders: the stream has no leader for the moment, or is gone.
            self.look_up_again(&sent.stream);
            self.send_again(sent);
            return;
        }
        let ack = match AckReply::read(&self.connection, &message.payload) {
            Ok(ack) => ack,
            Err(error) => {
                self.finish(&sent, Err(error));
                return;
            }
        };
        match &ack.error {
            Some(refusal) if [10_008, 10_009, 10_167].contains(&refusal.err_code) => self.send_again(sent),
            Some(refusal) => self.finish(&sent, Err(refusal.error(&self.connection, &sent.stream))),
            None => match ack.of_stream(&self.connection, &sent.stream, &sent.subject) {
                Ok(sequence) => self.finish_stored(&sent, sequence, ack.duplicate),
                Err(error) => {
                    self.streams.forget(&sent.stream);
                    self.finish(&sent, Err(error));
                }
            },
        }
    }

    fn finish_stored(&mut self, sent: &Sent, sequence: u64, duplicate: bool) {
        let durability = sent.known.durability;
        for back in 0..sent.batch as u64 {
            let ack = Ack { sequence: sequence.saturating_sub(back), durability, duplicate };
            self.calls.finish(sent.call, sent.index - back as usize, Ok(ack));
        }
    }

    fn finish(&mut self, sent: &Sent, result: HomeResult<Ack>) {
        for back in 0..sent.batch.max(1) {
            self.calls.finish(sent.call, sent.index - back, result.clone());
        }
    }

    /// Queues a message to be resent, or fails it.
    fn send_again(&mut self, sent: Sent) {
        if sent.batch > 1 {
            // The messages before it are not here any more.
            let words = "the batch was not stored: publish it again";
            self.finish(&sent, Err(self.connection.error(HomeErrorKind::Unreachable, words)));
        } else if sent.since.elapsed() >= self.connection.settings.publish_timeout {
            self.finish(&sent, Err(self.connection.away("no leader of the stream has taken the message")));
        } else {
            self.again.push_back(sent);
        }
    }

    /// The connection was lost: the outcome of messages in flight is unknown.
    fn lose(&mut self) {
        for sent in self.in_flight.all() {
            self.unsure(sent, "the connection was lost");
        }
    }

    fn unsure(&mut self, sent: Sent, why: &str) {
        if sent.once {
            self.send_again(sent);
            return;
        }
        let words =
            format!("{why} before the ack, so that it may be stored: publish with an id, which may be sent twice");
        self.finish(&sent, Err(self.connection.error(HomeErrorKind::Unreachable, &words)));
    }

    /// Checks deadlines, and resends refused messages.
    async fn tick(&mut self) {
        let now = Instant::now();
        for sent in self.in_flight.late(now) {
            self.unsure(sent, "no ack came in time");
        }
        if self.connection.is_up() {
            self.down_since = None;
            let mut again: Vec<_> = std::mem::take(&mut self.again).into();
            again.sort_by_key(|sent| (sent.call, sent.index));
            for sent in again {
                self.send(sent).await;
            }
        } else if now - *self.down_since.get_or_insert(now) >= self.connection.settings.publish_timeout {
            self.give_up();
        }
    }

    /// Fails waiting messages after a long loss of the connection.
    fn give_up(&mut self) {
        let error = self.connection.away("the connection was not made again");
        for sent in std::mem::take(&mut self.again) {
            self.finish(&sent, Err(error.clone()));
        }
        if let Some(current) = self.current.take() {
            for index in current.index..current.index + current.messages.len() {
                self.calls.finish(current.call, index, Err(error.clone()));
            }
        }
        let parked = std::mem::take(&mut self.parked).into_values().flatten();
        for job in self.ready.drain(..).chain(parked) {
            job.fail(error.clone());
        }
        while let Ok(job) = self.queue.try_recv() {
            job.fail(error.clone());
        }
    }
}

/// True if a call can be sent as far as is known. Streams change: one that seems not to fit is
/// looked up before it is refused.
fn fits(known: &CachedStream, job: &Job) -> bool {
    job.messages.as_slice().iter().all(|message| known.takes(message.subject.as_str()))
}
