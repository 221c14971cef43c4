//! Events of a stream, and deliveries of them, which are settled.

use std::fmt;
use std::future::poll_fn;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use serde::de::value::BytesDeserializer;
use tidewire_backend::home::pending_answer::{self, PendingAnswer};
use tidewire_backend::home::{self, Answer, Fault, Fetch, HomeError, HomeResult, Settle, Settlement, Teller, answer};
use tidewire_engine::raw::Mutex;
use tidewire_proto::generated::errors::ErrorCode;

use super::batcher::{Batcher, Results};
use super::conventions::{PAGE_BYTES, answered, micros, time_of};
use super::errors::is_final;
use super::fetcher::Reads;
use super::message::{CONTENT, JSON, VALUE};
use crate::delay::{Delay, RetryPause};
use crate::error::Error;
use crate::inline_task::InlineTask;
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
        let header = self.0.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(CONTENT));
        // Other programs add parameters, such as a charset.
        let content = header.and_then(|(_, content)| content.split(';').next()).unwrap_or_default().trim();
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
    pub(super) is_settled: Arc<AtomicBool>,
}

impl Delivery {
    pub(super) fn new(raw: home::Delivery, settler: &Arc<Settler>) -> Self {
        let home::Delivery { event, delivery, ticket } = raw;
        Self { event: Event(event), delivery, ticket, settler: Arc::clone(settler), is_settled: Arc::default() }
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
    ///
    /// # Cancel safety
    /// If it fails or is dropped, the delivery can be settled again.
    pub fn settle(&self, how: Settlement) -> Pending<()> {
        if let Err(error) = self.mark(&how) {
            return Pending::failed(error);
        }
        let is_end = !matches!(how, Settlement::Working);
        let (teller, stored) = answer();
        let (item, lane) = (self.settled(how), &self.settler.lane);
        let put = lane.put(item, SETTLE_BYTES, Some(teller));
        let mut unsettled = is_end.then(|| Unsettled(Arc::clone(&self.is_settled), false));
        Pending::new(async move {
            if let Some(put) = put {
                put.await?;
            }
            answered(stored).await?;
            unsettled.iter_mut().for_each(|end| end.1 = true);
            Ok(())
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
            // Nobody misses the result of a release: the event may have gone to another already.
            let note = matches!(how, Settlement::Release).then(|| answer().0);
            self.settler.lane.push(self.settled(how), SETTLE_BYTES, note);
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

/// A settlement under way, and true once it is stored: else the delivery can be settled again.
struct Unsettled(Arc<AtomicBool>, bool);

impl Drop for Unsettled {
    fn drop(&mut self) {
        self.0.store(self.1, Ordering::Release);
    }
}

type SettleCallback = Option<Teller<()>>;

/// Stores the settlements of one consumer.
pub(super) struct Settler {
    pub lane: Arc<Batcher<Settle, SettleCallback, ()>>,
    pub store: Arc<SettlementStore>,
}

/// The calls of a consumer that fetch, and that store settlements.
pub(super) struct SettlementStore {
    reads: Reads,
    stream: String,
    consumer: String,
    /// Notified of acks that came too late.
    late: Box<dyn Fn(u64) + Send + Sync>,
    state: Mutex<SettleState>,
    wakers: Wakers,
}

struct SettleState {
    /// True: an outage is waited out, and not reported.
    is_patient: bool,
    /// An attempt is to be made now that an outage has delayed.
    is_requested: bool,
    /// Attempts that an outage has ended, and the error of the last one.
    failures: (u64, Option<HomeError>),
    /// Of settlements in the background. Returned to the next caller.
    error: Option<HomeError>,
    stale: u64,
}

impl Settler {
    pub fn new(reads: &Reads, stream: &str, consumer: &str, late: Box<dyn Fn(u64) + Send + Sync>) -> Arc<Self> {
        let (is_patient, failures) = (reads.on_outage.is_some(), (0, None));
        let state = SettleState { is_patient, is_requested: false, failures, error: None, stale: 0 };
        let (stream, consumer) = (stream.to_owned(), consumer.to_owned());
        let (state, wakers) = (Mutex::new(state), Wakers::default());
        let store = Arc::new(SettlementStore { reads: reads.clone(), stream, consumer, late, state, wakers });
        let (stores, notes) = (Arc::clone(&store), Arc::clone(&store));
        let store_batch = move |settled| stores.store(settled);
        let ended = move |callbacks, results| notes.note(callbacks, results);
        Arc::new(Self { lane: Batcher::new(SETTLED_MAX, store_batch, ended, None), store })
    }

    /// Gives up what an outage holds back.
    pub fn end(&self) {
        self.store.state.lock().is_patient = false;
        self.store.wakers.wake();
    }

    /// Fails once after acks that could not be stored.
    pub fn check(&self) -> HomeResult<()> {
        self.store.state.lock().error.take().map_or(Ok(()), Err)
    }

    pub fn stale(&self) -> u64 {
        self.store.state.lock().stale
    }

    /// Number of attempts that an outage has ended.
    pub fn failures(&self) -> u64 {
        self.store.state.lock().failures.0
    }

    /// Waits until everything is stored, for so long at most. Fails if an outage ends the next
    /// attempt.
    pub fn flushed(self: &Arc<Self>, within: Option<Duration>) -> Pending<()> {
        let delay = within.map(|time| Delay::begin(&self.store.reads.runner, time));
        let (settler, known) = (Arc::clone(self), self.failures());
        self.store.state.lock().is_requested = true;
        self.store.wakers.wake();
        Pending::new(poll_fn(move |context| {
            settler.store.wakers.add(context.waker());
            let is_late = delay.as_ref().is_some_and(|delay| delay.is_over(context));
            if settler.lane.poll_idle(context).is_ready() || is_late {
                return Poll::Ready(settler.check().map_err(Error::from));
            }
            match &settler.store.state.lock().failures {
                (count, Some(error)) if *count > known => Poll::Ready(Err(error.clone().into())),
                _ => Poll::Pending,
            }
        }))
    }
}

impl SettlementStore {
    /// Fetches at most so many deliveries, and waits for the first one.
    pub fn fetch(&self, max_messages: u32, wait_us: u64) -> PendingAnswer<Vec<home::Delivery>> {
        let fetch = Fetch { max_messages, max_bytes: PAGE_BYTES, wait_us };
        pending_answer::fetch(&self.reads.home, &self.stream, &self.consumer, fetch)
    }

    fn store(self: &Arc<Self>, settled: Vec<Settle>) -> Answer<Vec<HomeResult<()>>> {
        let (teller, stored) = answer();
        let this = Arc::clone(self);
        InlineTask::spawn(Box::pin(async move { drop(teller.tell(this.attempts(settled).await)) }));
        stored
    }

    async fn attempts(&self, settled: Vec<Settle>) -> HomeResult<Vec<HomeResult<()>>> {
        let mut pauses = RetryPause::default();
        loop {
            let result = self.reads.home.settle(&self.stream, &self.consumer, settled.clone()).await;
            match result {
                Err(error) if !is_final(&error) && self.state.lock().is_patient => {
                    let failures = &mut self.state.lock().failures;
                    *failures = (failures.0 + 1, Some(error));
                }
                result => return result,
            }
            self.wakers.wake();
            let pause = pauses.begin(&self.reads.runner);
            poll_fn(|context| {
                self.wakers.add(context.waker());
                let state = &mut *self.state.lock();
                let is_due = std::mem::take(&mut state.is_requested) || !state.is_patient || pause.is_over(context);
                if is_due { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }

    fn note(&self, callbacks: Vec<SettleCallback>, results: Results<()>) {
        let mut late = 0;
        match results {
            Ok(results) => {
                for (callback, result) in callbacks.into_iter().zip(results) {
                    match callback {
                        Some(callback) => drop(callback.tell(result)),
                        None => late += u64::from(result.is_err()),
                    }
                }
            }
            Err(error) => {
                for callback in callbacks.into_iter().flatten() {
                    drop(callback.tell(Err(error.clone())));
                }
                self.state.lock().error = Some(error);
            }
        }
        if late > 0 {
            self.state.lock().stale += late;
            (self.late)(late);
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
