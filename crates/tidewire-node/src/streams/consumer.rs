//! Consumers: named cursors over a stream, whose events are settled.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tidewire_backend::home::{self, ConsumerInfo, ConsumerSettings, Home, HomeResult, Order, Settlement, Start};
use tidewire_core::stream::fetch_pacer::FetchPacer;
use tidewire_engine::raw::clock;
use tidewire_proto::generated::limits;

use super::conventions::{PAGE, answered, micros, patterns, texts_of};
use super::event::{DeadEvent, Delivery, Settler};
use super::fetcher::{Fetcher, Reader, Reads, Timeout};
use crate::error::Error;
use crate::names;
use crate::node::options::within;
use crate::pending::{Pending, wait};

/// Idle time after which a broadcast consumer is deleted.
const INACTIVE_US: u64 = 3_600_000_000;

/// Settings of a consumer. Two are the same if all settings but the start are equal.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    filter: Vec<String>,
    settings: ConsumerSettings,
    is_broadcast: bool,
}

impl ConsumerOptions {
    /// A consumer of messages that are published from now on: 30 s for an ack, five deliveries,
    /// 1,000 in flight.
    #[expect(clippy::new_without_default, reason = "where it begins is said")]
    pub fn new() -> Self {
        Self { filter: Vec::new(), settings: ConsumerSettings::new(""), is_broadcast: false }
    }

    /// The same from the oldest event on.
    pub fn all() -> Self {
        Self::new().start(Start::All)
    }

    /// Which subjects: patterns. All without it.
    pub fn filter<T: Into<String>>(mut self, patterns: impl IntoIterator<Item = T>) -> Self {
        self.filter = texts_of(patterns);
        self
    }

    /// A separate cursor for each program: it gets all events, and is deleted an hour after its
    /// last use. Without this option, all users of one name share its events, and the cursor is
    /// stored.
    pub fn broadcast(mut self) -> Self {
        self.is_broadcast = true;
        self.settings.inactive_us = INACTIVE_US;
        self
    }

    pub(super) fn settings(self, name: &str) -> Result<ConsumerSettings, Error> {
        within(&limits::CONSUMER_IN_FLIGHT, "max_in_flight", self.settings.max_in_flight.into())?;
        let name = if self.is_broadcast { format!("{name}-{}", names::random_hex(6)) } else { name.to_owned() };
        Ok(ConsumerSettings { name, filter: patterns("filter", &self.filter)?, ..self.settings })
    }
}

setters! {
    ConsumerOptions:
    /// Where it begins when it is made.
    start(start: Start) => settings.start = start;
    /// How long a delivery may take that is not settled; then it counts as failed.
    ack_wait(time: Duration) => settings.ack_wait_us = micros(time);
    /// After so many failed deliveries an event is a dead letter; 0 for never.
    max_deliver(deliveries: u32) => settings.max_deliver = deliveries;
    /// The delays before the second, third, ... delivery of one that failed; the last for all
    /// further ones. By default 100 ms, 1 s, 10 s.
    backoff(delays: impl IntoIterator<Item = Duration>) => settings.backoff_us = delays.into_iter().map(micros).collect();
    /// How many deliveries may be out at once, over all who take; the limit `consumer_in_flight`
    /// bounds it.
    max_in_flight(deliveries: u32) => settings.max_in_flight = deliveries;
    /// With [`Order::Key`] an event waits until all earlier ones of its key are acked or dead: a
    /// key that fails holds back itself only.
    order(order: Order) => settings.order = order;
}

/// A consumer of a stream: a `futures_core::Stream` for any runtime, or read by
/// [`next`](Consumer::next) and [`next_blocking`](Consumer::next_blocking).
///
/// Events are fetched in batches. Batches grow while events are handled quickly, and shrink to one
/// event while they are not. Dropping it returns fetched events that were not taken, and another
/// consumer gets them at once. [`close`](Consumer::close) also waits until all acks are stored.
pub struct Consumer {
    home: Arc<dyn Home>,
    stream: Arc<str>,
    name: Arc<str>,
    settler: Arc<Settler>,
    /// Attempts to store settlements that outages have ended until the last look.
    failures: u64,
    ready: VecDeque<Delivery>,
    pace: FetchPacer,
    began: Instant,
    fetcher: Fetcher<Vec<home::Delivery>>,
}

impl Consumer {
    /// A consumer that exists in a storage backend that another part of the process owns, with the
    /// limit of its deliveries in flight. `late` is notified of acks that came too late.
    pub fn of(
        reads: &Reads,
        stream: &str,
        name: &str,
        max_in_flight: u32,
        late: impl Fn(u64) + Send + Sync + 'static,
    ) -> Self {
        Self {
            home: Arc::clone(&reads.home),
            stream: stream.into(),
            name: name.into(),
            settler: Settler::new(reads, stream, name, Box::new(late)),
            failures: 0,
            ready: VecDeque::new(),
            pace: FetchPacer::new(max_in_flight.min(PAGE)),
            began: clock::now(),
            fetcher: reads.fetcher(),
        }
    }

    /// Its name; a broadcast consumer has one of its own.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// `not_found` if the consumer or its stream was deleted. `home_unavailable` if the storage
    /// backend cannot be reached, or acks could not be stored: their events are redelivered, and
    /// the caller may retry. A wait whose link is lost continues when the link is back, for up to
    /// 10 minutes.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped: the next call returns events on their way.
    pub async fn next(&mut self) -> Result<Delivery, Error> {
        loop {
            if let Some(delivery) = poll_fn(|context| self.poll(context, None)).await? {
                return Ok(delivery);
            }
        }
    }

    /// Waits for the next event for so long at most. None: there was none.
    ///
    /// # Errors
    /// As for [`next`](Consumer::next).
    ///
    /// # Cancel safety
    /// As for `next`.
    pub async fn next_within(&mut self, time: Duration) -> Result<Option<Delivery>, Error> {
        let mut timeout = Timeout::after(time);
        poll_fn(|context| self.poll(context, Some(&mut timeout))).await
    }

    /// Blocks this thread until the next event is there.
    ///
    /// # Errors
    /// As for [`next`](Consumer::next).
    pub fn next_blocking(&mut self) -> Result<Delivery, Error> {
        wait(self.next())
    }

    /// Blocks this thread for so long at most. None: there was no event.
    ///
    /// # Errors
    /// As for [`next`](Consumer::next).
    pub fn next_blocking_within(&mut self, time: Duration) -> Result<Option<Delivery>, Error> {
        wait(self.next_within(time))
    }

    /// The next event. Ready with none: the timeout is over.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        timeout: Option<&mut Timeout>,
    ) -> Poll<Result<Option<Delivery>, Error>> {
        self.poll_ready(context, timeout).map_ok(|_| self.ready.pop_front()).map_err(Error::from)
    }

    /// The next event, if it is here.
    pub fn take(&mut self) -> Option<Delivery> {
        // A hub that was started again delivers its events anew.
        let failures = self.settler.failures();
        if std::mem::replace(&mut self.failures, failures) != failures && self.fetcher.outage.reads.node.is_some() {
            self.give_back();
        }
        self.ready.pop_front()
    }

    /// True if no event is here, and everything that was settled is stored.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.settler.lane.is_idle()
    }

    /// Acks that came too late since it was made: their events were delivered again.
    pub fn stale(&self) -> u64 {
        self.settler.stale()
    }

    /// Waits until everything that was settled is stored.
    ///
    /// # Errors
    /// Awaiting it fails with `home_unavailable` if that was not possible: the events come again.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub fn flush(&self) -> Pending<()> {
        self.flush_within(None)
    }

    /// The same for so long at most, without an error at the end of that time.
    ///
    /// # Errors
    /// As for [`flush`](Consumer::flush).
    pub fn flush_within(&self, time: Option<Duration>) -> Pending<()> {
        self.settler.flushed(time)
    }

    /// Returns fetched events that were not taken, and waits until all settlements are stored. A
    /// returned event does not count as a delivery, except on NATS, which counts what it sends.
    ///
    /// # Errors
    /// As for [`flush`](Consumer::flush).
    ///
    /// # Cancel safety
    /// If it is dropped, that happens all the same.
    pub fn close(self) -> Pending<()> {
        let settler = Arc::clone(&self.settler);
        drop(self);
        settler.flushed(None)
    }

    /// The state of the consumer: lag, deliveries in flight, waiting events.
    ///
    /// # Errors
    /// Awaiting it fails with `not_found` if it was deleted.
    pub fn info(&self) -> Pending<ConsumerInfo> {
        answered(self.home.consumer_info(&self.stream, &self.name))
    }

    /// Pauses delivery for all clients until it is resumed. Deliveries in flight may be settled.
    ///
    /// # Errors
    /// As for [`info`](Consumer::info), and with `unsupported` if the storage backend cannot pause.
    pub fn pause(&self) -> Pending<()> {
        answered(self.home.pause(&self.stream, &self.name, None))
    }

    /// Goes on with delivering.
    ///
    /// # Errors
    /// As for [`pause`](Consumer::pause).
    pub fn resume(&self) -> Pending<()> {
        answered(self.home.resume(&self.stream, &self.name))
    }

    /// Continues at another position, forward or back. Deliveries in flight are forgotten.
    ///
    /// # Errors
    /// As for [`pause`](Consumer::pause).
    pub fn seek(&mut self, start: Start) -> Pending<()> {
        self.ready.clear();
        self.fetcher.cancel();
        answered(self.home.seek(&self.stream, &self.name, start))
    }

    /// Dead letters in order, from a sequence on, at most so many.
    ///
    /// # Errors
    /// As for [`info`](Consumer::info).
    pub fn dead_letters(&self, from: u64, most: u32) -> Pending<Vec<DeadEvent>> {
        let letters = self.home.dead_letters(&self.stream, &self.name, from, most);
        Pending::new(async move { Ok(letters.await?.into_iter().map(DeadEvent::new).collect()) })
    }

    /// Redelivers dead letters. Returns how many there were.
    ///
    /// # Errors
    /// As for [`info`](Consumer::info).
    pub fn requeue(&self, sequences: impl IntoIterator<Item = u64>) -> Pending<u64> {
        answered(self.home.requeue(&self.stream, &self.name, sequences.into_iter().collect()))
    }

    /// Deletes dead letters. Returns how many there were.
    ///
    /// # Errors
    /// As for [`info`](Consumer::info).
    pub fn drop_dead(&self, sequences: impl IntoIterator<Item = u64>) -> Pending<u64> {
        answered(self.home.drop_dead(&self.stream, &self.name, sequences.into_iter().collect()))
    }

    /// Deletes it with its dead letters. A client that waits for its events gets `not_found`.
    ///
    /// # Errors
    /// As for [`info`](Consumer::info).
    pub fn delete(&self) -> Pending<()> {
        answered(self.home.delete_consumer(&self.stream, &self.name))
    }
}

impl futures_core::Stream for Consumer {
    type Item = Result<Delivery, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(next) = std::task::ready!(self.poll(context, None)).transpose() {
                return Poll::Ready(Some(next));
            }
        }
    }
}

impl Reader for Consumer {
    fn poll_ready(&mut self, context: &Context<'_>, mut timeout: Option<&mut Timeout>) -> Poll<HomeResult<bool>> {
        self.settler.check()?;
        while self.ready.is_empty() {
            let (pace, began, store) = (&mut self.pace, self.began, &self.settler.store);
            let begin = |wait_us| store.fetch(pace.next(micros(clock::since(began))), wait_us);
            let Some(fetched) = ready!(self.fetcher.poll(context, &mut timeout, begin))? else { break };
            self.pace.fetched(fetched.len(), micros(clock::since(self.began)));
            self.ready.extend(fetched.into_iter().map(|raw| Delivery::new(raw, &self.settler)));
            if timeout.as_ref().is_some_and(|timeout| timeout.is_past()) {
                break;
            }
        }
        Poll::Ready(Ok(!self.ready.is_empty()))
    }

    fn give_back(&mut self) {
        self.fetcher.cancel();
        self.ready.drain(..).for_each(|delivery| delivery.conclude(Settlement::Release));
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Consumer({:?} of {:?})", self.name, self.stream)
    }
}
