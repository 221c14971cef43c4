//! Events of a stream, and deliveries of them, which are settled.

use std::fmt;
use std::future::poll_fn;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use serde::de::value::BytesDeserializer;
use tidewire_backend::home::{self, Answer, Fault, Home, HomeResult, Settle, Settlement, Teller, answer};
use tidewire_engine::raw::Mutex;
use tidewire_proto::generated::errors::ErrorCode;

use super::batcher::{Batcher, Results};
use super::errors::is_final;
use super::message::{CONTENT, JSON, VALUE};
use super::{answered, micros, time_of};
use crate::delay::RetryPause;
use crate::error::Error;
use crate::inline_task::InlineTask;
use crate::node::core::Runner;
use crate::pending::{Pending, Wakers};
use crate::values;

/// Settlements that are not stored yet; one more waits for capacity.
const SETTLED_MAX: usize = 10_000;
/// Approximate size of a settlement without a text, in a call.
const SETTLE_BYTES: usize = 32;

/// An event of a stream.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("Event({} on {})", self.0.sequence, self.0.subject)]
pub struct Event(home::Event);

impl Event {
    pub(super) fn new(event: home::Event) -> Self {
        Self(event)
    }

    /// Where it was published.
    pub fn subject(&self) -> &str {
        self.0.subject.as_str()
    }

    /// Its place in the stream, from 1.
    pub fn sequence(&self) -> u64 {
        self.0.sequence
    }

    /// When it was stored.
    pub fn time(&self) -> SystemTime {
        time_of(self.0.time_us)
    }

    /// The key of the message.
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    /// Its idempotency key.
    pub fn id(&self) -> Option<&str> {
        self.0.id.as_deref()
    }

    /// Names and values, the type of the content among them.
    pub fn headers(&self) -> &[(String, String)] {
        &self.0.headers
    }

    /// The encoded message.
    pub fn payload(&self) -> &[u8] {
        &self.0.payload
    }

    /// The message: a value that travels, JSON, or bytes ([`values::Bytes`](crate::values::Bytes))
    /// if no header names the format. Each call decodes the payload again.
    ///
    /// # Errors
    /// [`Error`] with the code `invalid_argument` and the path of the part that does not fit the
    /// type, or `wire_error` if the payload is broken.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let title = || format!("event {} of {:?}", self.0.sequence, self.subject());
        let given = self.0.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(CONTENT));
        // Other programs add parameters, such as a charset.
        let content = given.and_then(|(_, content)| content.split(';').next()).unwrap_or_default().trim();
        match content {
            _ if content.eq_ignore_ascii_case(VALUE) => values::read(&title(), &self.0.payload),
            _ if content.eq_ignore_ascii_case(JSON) => {
                serde_json::from_slice(&self.0.payload).map_err(|wrong| Error::invalid(format!("{}: {wrong}", title())))
            }
            _ => T::deserialize(BytesDeserializer::<serde::de::value::Error>::new(&self.0.payload))
                .map_err(|wrong| Error::invalid(format!("{}: {wrong}: read it as values::Bytes", title()))),
        }
    }
}

impl AsRef<home::Event> for Event {
    fn as_ref(&self) -> &home::Event {
        &self.0
    }
}

/// One delivery attempt of an event, to be settled: [`ack`](Delivery::ack) it after handling.
///
/// A delivery that is dropped without settlement is redelivered after the consumer's ack wait.
/// Settlements are stored in batches in the background. A settlement that is lost with the process
/// is no loss: the event is redelivered.
#[derive(derive_more::Debug)]
#[debug("Delivery({delivery} of {event:?})")]
pub struct Delivery {
    event: Event,
    delivery: u32,
    ticket: u64,
    settler: Arc<Settler>,
    pub(super) is_settled: AtomicBool,
}

impl Delivery {
    pub(super) fn new(raw: home::Delivery, settler: &Arc<Settler>) -> Self {
        let home::Delivery { event, delivery, ticket } = raw;
        Self { event: Event(event), delivery, ticket, settler: Arc::clone(settler), is_settled: AtomicBool::new(false) }
    }

    /// Which attempt it is, from 1.
    pub fn delivery(&self) -> u32 {
        self.delivery
    }

    /// The event, which outlives the delivery.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Acknowledges the delivery: the event is not delivered again. The ack is on its way when this
    /// returns. Awaiting it only waits for capacity in the settlement queue.
    /// [`settle`](Delivery::settle) waits until it is stored.
    ///
    /// # Errors
    /// Awaiting it fails with `stale_delivery` if it was settled before. The next call on the
    /// consumer returns the error of an ack that cannot be stored.
    ///
    /// # Cancel safety
    /// If it is dropped, it is settled all the same, unless 10,000 others wait to be stored. The
    /// same holds for every settlement.
    pub fn ack(&self) -> Pending<()> {
        self.settle_soon(Settlement::Ack)
    }

    /// Reports a failure: the event is redelivered after the consumer's backoff, or becomes a dead
    /// letter after the last delivery.
    ///
    /// # Errors
    /// As for [`ack`](Delivery::ack).
    pub fn nak(&self) -> Pending<()> {
        self.settle_soon(Settlement::Nak { delay_us: None, fault: None })
    }

    /// As [`nak`](Delivery::nak), with a delay instead of the consumer's backoff.
    ///
    /// # Errors
    /// As for [`ack`](Delivery::ack).
    pub fn nak_after(&self, delay: Duration) -> Pending<()> {
        self.settle_soon(Settlement::Nak { delay_us: Some(micros(delay)), fault: None })
    }

    /// As [`nak`](Delivery::nak), with the error, which the dead letter has.
    ///
    /// # Errors
    /// As for [`ack`](Delivery::ack).
    pub fn fail(&self, error: impl fmt::Display) -> Pending<()> {
        let fault = Some(Fault { error: error.to_string(), traceback: String::new() });
        self.settle_soon(Settlement::Nak { delay_us: None, fault })
    }

    /// Says that it can't be handled: it is a dead letter at once.
    ///
    /// # Errors
    /// As for [`ack`](Delivery::ack).
    pub fn term(&self, reason: impl Into<String>) -> Pending<()> {
        self.settle_soon(Settlement::Term { reason: reason.into(), fault: None })
    }

    /// Reports progress: the ack wait restarts.
    ///
    /// # Errors
    /// Awaiting it fails with `stale_delivery` if the ack wait was over, or the delivery was
    /// settled before.
    pub fn working(&self) -> Pending<()> {
        self.settle(Settlement::Working)
    }

    /// Settles the delivery, and waits until the settlement is stored.
    ///
    /// # Errors
    /// Awaiting it fails with `stale_delivery` if the delivery was settled before, or redelivered
    /// since; with `home_unavailable` if the storage backend cannot be reached.
    pub fn settle(&self, how: Settlement) -> Pending<()> {
        if let Err(error) = self.mark(&how) {
            return Pending::failed(error);
        }
        let (teller, stored) = answer();
        let (item, lane) = (self.settled(how), &self.settler.lane);
        let put = lane.put(item, SETTLE_BYTES, Some(teller));
        Pending::new(async move {
            if let Some(put) = put {
                put.await?;
            }
            answered(stored).await
        })
    }

    /// Settles the delivery in the background, as [`ack`](Delivery::ack) does.
    ///
    /// # Errors
    /// As for [`ack`](Delivery::ack).
    pub fn settle_soon(&self, how: Settlement) -> Pending<()> {
        match self.mark(&how) {
            Ok(()) => {
                let put = self.settler.lane.put(self.settled(how), SETTLE_BYTES, None);
                put.unwrap_or_else(|| Pending::ready(()))
            }
            Err(error) => Pending::failed(error),
        }
    }

    /// Settles or extends a delivery for its handler. The deliveries in flight bound the queue.
    pub(super) fn conclude(&self, how: Settlement) {
        if self.mark(&how).is_ok() {
            self.settler.lane.push(self.settled(how), SETTLE_BYTES, None);
        }
    }

    /// Key of the delivery in the state machine of a subscription.
    pub(super) fn key(&self) -> (u64, u64) {
        (self.event.sequence(), self.ticket)
    }

    fn mark(&self, how: &Settlement) -> Result<(), Error> {
        let was_settled = match how {
            Settlement::Working => self.is_settled.load(Ordering::Acquire),
            _ => self.is_settled.swap(true, Ordering::AcqRel),
        };
        if was_settled {
            let which = format!("event {}: delivery {}", self.event.sequence(), self.delivery);
            return Err(Error::new(ErrorCode::StaleDelivery, format!("{which} was settled before: settle it once")));
        }
        Ok(())
    }

    fn settled(&self, how: Settlement) -> Settle {
        Settle { sequence: self.event.sequence(), ticket: self.ticket, how }
    }
}

impl Deref for Delivery {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

type SettleCallback = Option<Teller<()>>;

/// Stores the settlements of one consumer.
pub(super) struct Settler {
    pub lane: Arc<Batcher<Settle, SettleCallback, ()>>,
    troubles: Arc<SettleFailures>,
    pub store: Arc<SettlementStore>,
}

/// The calls that store settlements.
pub(super) struct SettlementStore {
    pub home: Arc<dyn Home>,
    pub stream: String,
    pub consumer: String,
    runner: Arc<Runner>,
    /// False: an outage is waited out.
    has_ended: AtomicBool,
    stops: Wakers,
}

/// Failures of settlements in the background.
#[derive(Default)]
struct SettleFailures {
    /// Returned to the next caller.
    error: Mutex<Option<Error>>,
    stale: AtomicU64,
}

impl Settler {
    /// A settler that waits an outage out, or reports it.
    pub fn new(
        home: &Arc<dyn Home>,
        stream: &str,
        consumer: &str,
        runner: &Arc<Runner>,
        is_patient: bool,
    ) -> Arc<Self> {
        let store = Arc::new(SettlementStore {
            home: Arc::clone(home),
            stream: stream.to_owned(),
            consumer: consumer.to_owned(),
            runner: Arc::clone(runner),
            has_ended: AtomicBool::new(!is_patient),
            stops: Wakers::default(),
        });
        let troubles = Arc::<SettleFailures>::default();
        let (noted, stores) = (Arc::clone(&troubles), Arc::clone(&store));
        let store_batch = move |settled| stores.store(settled);
        let lane =
            Batcher::new(SETTLED_MAX, store_batch, move |callbacks, results| noted.note(callbacks, results), None);
        Arc::new(Self { lane, troubles, store })
    }

    /// Gives up what an outage holds back.
    pub fn end(&self) {
        self.store.has_ended.store(true, Ordering::Release);
        self.store.stops.wake();
    }

    /// Fails once after acks that could not be stored.
    pub fn check(&self) -> Result<(), Error> {
        self.troubles.error.lock().take().map_or(Ok(()), Err)
    }

    pub fn stale(&self) -> u64 {
        self.troubles.stale.load(Ordering::Relaxed)
    }

    /// Waits until everything is stored.
    pub fn flushed(self: &Arc<Self>) -> Pending<()> {
        let settler = Arc::clone(self);
        Pending::new(poll_fn(move |context| settler.lane.poll_idle(context).map(|()| settler.check())))
    }
}

impl SettlementStore {
    fn store(self: &Arc<Self>, settled: Vec<Settle>) -> Answer<Vec<HomeResult<()>>> {
        let (teller, stored) = answer();
        let this = Arc::clone(self);
        InlineTask::spawn(Box::pin(async move { drop(teller.tell(this.attempts(settled).await)) }));
        stored
    }

    async fn attempts(&self, settled: Vec<Settle>) -> HomeResult<Vec<HomeResult<()>>> {
        let mut pauses = RetryPause::default();
        loop {
            let result = self.home.settle(&self.stream, &self.consumer, settled.clone()).await;
            let is_passing = result.as_ref().is_err_and(|error| !is_final(error));
            if !is_passing || self.has_ended.load(Ordering::Acquire) {
                return result;
            }
            let pause = pauses.begin(&self.runner);
            poll_fn(|context| {
                self.stops.add(context.waker());
                let is_over = pause.is_over(context) || self.has_ended.load(Ordering::Acquire);
                if is_over { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }
}

impl SettleFailures {
    fn note(&self, callbacks: Vec<SettleCallback>, results: Results<()>) {
        match results {
            Ok(results) => {
                for (callback, result) in callbacks.into_iter().zip(results) {
                    match callback {
                        Some(callback) => drop(callback.tell(result)),
                        None => drop(result.map_err(|_| self.stale.fetch_add(1, Ordering::Relaxed))),
                    }
                }
            }
            Err(error) => {
                for callback in callbacks.into_iter().flatten() {
                    drop(callback.tell(Err(error.clone())));
                }
                *self.error.lock() = Some(error.into());
            }
        }
    }
}

/// A dead letter of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadEvent {
    /// The event; None if the stream does not have it any more.
    pub event: Option<Event>,
    /// Its place in the stream.
    pub sequence: u64,
    /// How often it was delivered.
    pub deliveries: u32,
    /// Time at which the consumer gave it up.
    pub time: SystemTime,
    /// `max_deliver`, or the reason passed to [`term`](Delivery::term).
    pub reason: String,
    /// The last error of the handler, in one line.
    pub error: String,
    /// The traceback of the error; may be empty.
    pub traceback: String,
}

impl DeadEvent {
    pub(super) fn new(letter: home::DeadLetter) -> Self {
        let home::DeadLetter { event, sequence, deliveries, dead_at_us, reason, fault } = letter;
        let (event, time) = (event.map(Event), time_of(dead_at_us));
        Self { event, sequence, deliveries, time, reason, error: fault.error, traceback: fault.traceback }
    }
}
