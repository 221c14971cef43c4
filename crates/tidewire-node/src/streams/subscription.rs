//! The durable subscription of a served instance: it fetches, handles and settles the events of one
//! consumer.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidewire_backend::home::pending_answer::{self, PendingAnswer};
use tidewire_backend::home::{self, Fetch, Home, HomeError, HomeErrorKind};
use tidewire_core::stream::subscription::{Delivery as Key, Options, Outcome, Subscription, Verdict};
use tidewire_engine::raw::Mutex;
use tidewire_proto::generated::errors::ErrorCode;

use super::consumer::Consumer;
use super::durable::{DurableHandler, Handled};
use super::event::{Delivery, Settler};
use super::{LONG_WAIT_US, PAGE, PAGE_BYTES, micros};
use crate::delay::Delay;
use crate::error::Error;
use crate::node::core::{Core, Runner};
use crate::node::options::Log;
use crate::pending::{ResultSlot, Wakers};
use crate::services::current_service::handling;
use crate::services::failure::Failure;
use crate::services::inbound_call::{Ended, InboundCallState};
use crate::services::instance::{Counts, ServiceInstance};

/// Pause before a retry at an unreachable storage backend: at first, and at most. A restored link
/// ends the pause.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Runs one durable handler, until its service stops and its fetched events have ended.
pub(crate) struct DurableSubscription {
    title: String,
    handler: DurableHandler,
    home: Arc<dyn Home>,
    runner: Arc<Runner>,
    /// Told when its consumer is there, or why not.
    pub opened: Arc<ResultSlot<()>>,
    /// Set when its consumer is there.
    place: Mutex<Option<ConsumerHandle>>,
    /// Protects fetched events. Nothing is called under it.
    state: Mutex<State>,
    /// Woken when there is something to do for the task that fetches.
    wakers: Wakers,
    is_leaving: AtomicBool,
    is_over: AtomicBool,
    log: Log,
}

/// Where its events are.
#[derive(Clone)]
struct ConsumerHandle {
    stream: Arc<str>,
    consumer: Arc<str>,
    settler: Arc<Settler>,
}

struct State {
    machine: Subscription,
    /// Those that wait for their handlers.
    deliveries: HashMap<Key, Arc<Delivery>>,
    /// Events with running handlers.
    running: HashMap<Key, Arc<InboundCallState>>,
    /// Tasks that handle deliveries, one after the other.
    tasks: u32,
    is_cut: bool,
    began: Instant,
}

impl State {
    fn now_us(&self) -> u64 {
        micros(self.began.elapsed())
    }

    fn begin(&mut self, now_us: u64) -> Option<(Arc<Delivery>, Arc<InboundCallState>)> {
        let key = self.machine.begin(now_us)?;
        let exchange = InboundCallState::new(0);
        if self.is_cut {
            exchange.end(Ended::Stopping);
        }
        self.running.insert(key, Arc::clone(&exchange));
        self.deliveries.remove(&key).map(|delivery| (delivery, exchange))
    }
}

/// State of the fetching task.
#[derive(Default)]
struct Fetching {
    pending: Option<PendingAnswer<Vec<home::Delivery>>>,
    /// The next time at which deliveries are extended.
    extend: Option<(u64, Delay)>,
    /// After a fetch that failed.
    pause: Option<Delay>,
    wait: Duration,
    /// True if there was no link to the hub at the last look.
    was_lost: bool,
    /// Reported count of events that were handled too late.
    stale: u64,
}

impl Fetching {
    /// Notes whether there is a link to the hub: one that is back ends the pause.
    fn link(&mut self, is_joined: bool) {
        if std::mem::replace(&mut self.was_lost, !is_joined) && is_joined {
            self.pause = None;
        }
    }
}

impl DurableSubscription {
    pub fn new(core: &Core, home: Arc<dyn Home>, service: &str, handler: DurableHandler) -> Result<Arc<Self>, Error> {
        let (_, settings) = handler.settings()?;
        let machine = Subscription::new(Options {
            concurrency: handler.concurrency,
            batch_max: settings.max_in_flight.min(PAGE),
            ack_wait_us: settings.ack_wait_us,
            hold_us: 0,
        });
        let state = State {
            machine,
            deliveries: HashMap::new(),
            running: HashMap::new(),
            tasks: 0,
            is_cut: false,
            began: Instant::now(),
        };
        Ok(Arc::new(Self {
            title: format!("{service}.{}", handler.consumer()),
            handler,
            home,
            runner: Arc::clone(&core.runner),
            opened: Arc::default(),
            place: Mutex::new(None),
            state: Mutex::new(state),
            wakers: Wakers::default(),
            is_leaving: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            log: Arc::clone(&core.log),
        }))
    }

    /// The configured name of its consumer.
    pub fn name(&self) -> &str {
        self.handler.consumer()
    }

    /// Its consumer, to look at; None before that is there.
    pub fn consumer(&self) -> Option<Consumer> {
        let place = self.place.lock().clone()?;
        Some(Consumer::new(&self.home, &self.runner, &place.stream, &place.consumer, 1))
    }

    /// Finds its stream, makes or finds its consumer, and handles its events from then on.
    pub fn begin(self: &Arc<Self>, core: &Arc<Core>, host: &Arc<ServiceInstance>) {
        let (this, core, host) = (Arc::clone(self), Arc::downgrade(core), Arc::clone(host));
        let runner = Arc::clone(&self.runner);
        self.runner.spawn(Box::pin(async move {
            runner.beat();
            match this.open().await {
                Ok(place) => {
                    *this.place.lock() = Some(place.clone());
                    this.opened.end(Ok(()));
                    let mut fetching = Fetching::default();
                    poll_fn(|context| {
                        // A restored link ends the pause.
                        let is_joined = core.upgrade().is_none_or(|core| {
                            core.rejoined.add(context.waker());
                            core.link.joined().is_some()
                        });
                        fetching.link(is_joined);
                        this.poll(&host, &place, &mut fetching, context)
                    })
                    .await;
                    if let Err(error) = place.settler.flushed().await {
                        (this.log)(&format!(
                            "{}: what was said of events is not stored, they come again: {error}",
                            this.title
                        ));
                    }
                }
                Err(error) => this.opened.end(Err(error)),
            }
            this.is_over.store(true, Ordering::Release);
            runner.ended.wake();
        }));
    }

    async fn open(&self) -> Result<ConsumerHandle, Error> {
        let (stream, settings) = self.handler.settings()?;
        let stream = match stream {
            Some(stream) => stream,
            None => self.find().await?,
        };
        let info = self.home.create_consumer(&stream, settings).await?;
        let settler = Settler::new(&self.home, &stream, &info.settings.name);
        Ok(ConsumerHandle { stream: stream.into(), consumer: info.settings.name.into(), settler })
    }

    /// The one stream that takes its subjects.
    async fn find(&self) -> Result<String, Error> {
        let (pattern, title) = (self.handler.pattern()?, &self.title);
        let takes = |patterns: &[tidewire_proto::subject::Pattern]| patterns.iter().any(|one| one.overlaps(&pattern));
        let streams = self.home.list_streams().await?.into_iter();
        let mut names: Vec<_> =
            streams.filter(|info| takes(&info.settings.subjects)).map(|info| info.settings.name).collect();
        match names.len() {
            1 => Ok(names.remove(0)),
            0 => {
                let fix = "make one with Node::stream_with before it is served";
                Err(Error::new(ErrorCode::NotFound, format!("{title}: no stream takes {:?}: {fix}", pattern.as_str())))
            }
            _ => {
                let text = format!("{title}: the streams {} take {:?}", names.join(", "), pattern.as_str());
                Err(Error::invalid(format!("{text}: say which with DurableHandler::stream")))
            }
        }
    }

    /// Fetches nothing more. Fetched events are still handled.
    pub fn leave(&self) {
        self.is_leaving.store(true, Ordering::Release);
        self.state.lock().machine.drain();
        self.wakers.wake();
    }

    /// Cancels running handlers, and returns all fetched events.
    pub fn cut(&self) {
        let (back, running): (Vec<_>, Vec<_>) = {
            let state = &mut *self.state.lock();
            state.is_cut = true;
            let back = state.machine.cut();
            let back = back.into_iter().filter_map(|key| state.deliveries.remove(&key)).collect();
            (back, state.running.values().map(Arc::clone).collect())
        };
        back.iter().for_each(|delivery| delivery.release());
        running.iter().for_each(|exchange| exchange.end(Ended::Stopping));
        self.leave();
    }

    /// True once it has ended.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Fetches and extends. Ready when it has left, and nothing is left.
    fn poll(
        self: &Arc<Self>,
        host: &Arc<ServiceInstance>,
        place: &ConsumerHandle,
        fetching: &mut Fetching,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        self.wakers.add(context.waker());
        self.troubles(place, fetching);
        loop {
            let is_leaving = self.is_leaving.load(Ordering::Acquire);
            if is_leaving && fetching.pending.take().is_some() {
                // Events on their way go back as the fetch is dropped.
                self.state.lock().machine.fetched(&[], 0);
            }
            self.extend(fetching, context);
            if !is_leaving && fetching.pause.as_ref().is_some_and(|pause| !pause.is_over(context)) {
                return Poll::Pending;
            }
            fetching.pause = None;
            if fetching.pending.is_none() {
                let credit = {
                    let state = &mut *self.state.lock();
                    if state.machine.is_over() && state.tasks == 0 {
                        return Poll::Ready(());
                    }
                    let now_us = state.now_us();
                    state.machine.credit(now_us)
                };
                if credit == 0 {
                    return Poll::Pending;
                }
                let fetch = Fetch { max_messages: credit, max_bytes: PAGE_BYTES, wait_us: LONG_WAIT_US };
                fetching.pending = Some(pending_answer::fetch(&self.home, &place.stream, &place.consumer, fetch));
            }
            let Some(pending) = &mut fetching.pending else { continue };
            let Poll::Ready(fetched) = Pin::new(pending).poll(context) else { return Poll::Pending };
            fetching.pending = None;
            match fetched {
                Ok(fetched) => {
                    fetching.wait = Duration::ZERO;
                    self.fetched(host, place, fetched);
                }
                Err(error) => {
                    self.fetched(host, place, Vec::new());
                    self.failed(fetching, &error);
                }
            }
        }
    }

    /// Reports failures of settlements.
    fn troubles(&self, place: &ConsumerHandle, fetching: &mut Fetching) {
        if let Err(error) = place.settler.check() {
            (self.log)(&format!("{}: what was said of events is not stored, and they come again: {error}", self.title));
        }
        let stale = place.settler.stale();
        if stale > fetching.stale {
            let fix = "they were delivered again; allow more with ConsumerOptions::ack_wait";
            (self.log)(&format!("{}: {} events were handled too late: {fix}", self.title, stale - fetching.stale));
            fetching.stale = stale;
        }
    }

    /// Queues fetched events, and starts tasks to handle them.
    fn fetched(self: &Arc<Self>, host: &Arc<ServiceInstance>, place: &ConsumerHandle, fetched: Vec<home::Delivery>) {
        let fetched: Vec<_> = fetched.into_iter().map(|raw| Arc::new(Delivery::new(raw, &place.settler))).collect();
        let (tasks, back) = {
            let state = &mut *self.state.lock();
            let now_us = state.now_us();
            let keys: Vec<_> = fetched.iter().map(|delivery| delivery.key()).collect();
            let back = state.machine.fetched(&keys, now_us);
            state.deliveries.extend(keys.into_iter().zip(fetched));
            let queued = u32::try_from(state.machine.counts().0).unwrap_or(u32::MAX);
            let tasks = queued.min(self.handler.concurrency.saturating_sub(state.tasks));
            state.tasks += tasks;
            (tasks, back.into_iter().filter_map(|key| state.deliveries.remove(&key)).collect::<Vec<_>>())
        };
        back.iter().for_each(|delivery| delivery.release());
        for _ in 0..tasks {
            let (mut at_work, host) =
                (DeliveryWorker { subscription: Arc::clone(self), has_left: false }, Arc::clone(host));
            self.runner.spawn(Box::pin(async move {
                at_work.subscription.runner.beat();
                while let Some((delivery, exchange)) = at_work.next() {
                    at_work.subscription.handle(&host, &delivery, &exchange).await;
                }
            }));
        }
    }

    /// After a fetch that failed: it is made again after a while, unless that makes no sense.
    fn failed(&self, fetching: &mut Fetching, error: &HomeError) {
        use HomeErrorKind::{Closed, Denied, Differs, Invalid, NotFound, Unsupported};
        if matches!(error.kind(), Invalid | Denied | NotFound | Differs | Unsupported | Closed) {
            if !self.is_leaving.load(Ordering::Acquire) {
                (self.log)(&format!("{}: it handles no more events: {error}", self.title));
            }
            return self.leave();
        }
        if fetching.wait.is_zero() {
            (self.log)(&format!("{}: its events can't be fetched, and it tries again: {error}", self.title));
        }
        fetching.wait = (fetching.wait * 2).clamp(FIRST_WAIT, LONGEST_WAIT);
        fetching.pause = Some(Delay::begin(&self.runner, fetching.wait));
    }

    /// Extends the ack wait of queued events, and schedules the next extension.
    fn extend(&self, fetching: &mut Fetching, context: &Context<'_>) {
        loop {
            let (now_us, due, next_us) = {
                let state = &mut *self.state.lock();
                let now_us = state.now_us();
                let due = state.machine.extend(now_us);
                let due: Vec<_> = due.iter().filter_map(|key| state.deliveries.get(key)).map(Arc::clone).collect();
                (now_us, due, state.machine.next_deadline_us())
            };
            due.iter().for_each(|delivery| delivery.extend());
            let Some(next_us) = next_us else { return fetching.extend = None };
            if fetching.extend.as_ref().is_none_or(|(at_us, _)| *at_us != next_us) {
                let wait = Duration::from_micros(next_us.saturating_sub(now_us));
                fetching.extend = Some((next_us, Delay::begin(&self.runner, wait)));
            }
            if fetching.extend.as_ref().is_some_and(|(_, pause)| !pause.is_over(context)) {
                return;
            }
            fetching.extend = None;
        }
    }

    /// Handles one delivery, and settles it.
    async fn handle(&self, host: &ServiceInstance, delivery: &Arc<Delivery>, exchange: &InboundCallState) {
        Counts::add(&host.counts.events);
        let begun = handling(host, || {
            let begin = || (self.handler.handles)(Arc::clone(delivery));
            catch_unwind(AssertUnwindSafe(begin)).unwrap_or_else(|panic| Err(Failure::of_panic(&*panic)))
        });
        let done = match begun {
            Ok(handled) => run(host, handled, exchange).await,
            Err(failure) => Some(Err(failure)),
        };
        if let Some(Err(failure)) = &done {
            Counts::add(&host.counts.event_errors);
            let (sequence, subject) = (delivery.sequence(), delivery.subject());
            (self.log)(&format!("{}: event {sequence} on {subject:?} failed: {failure:?}", self.title));
        }
        let outcome = match &done {
            _ if delivery.is_settled() => Outcome::Settled,
            None => Outcome::Interrupted,
            Some(Ok(())) => Outcome::Returned,
            Some(Err(_)) => Outcome::Raised,
        };
        let verdict = {
            let mut state = self.state.lock();
            state.running.remove(&delivery.key());
            state.machine.ended(delivery.key(), outcome)
        };
        // Settlements wait for capacity. The settler reports one that cannot be stored, and the
        // event is redelivered.
        match (verdict, done) {
            (Verdict::Ack, _) => drop(delivery.ack().await),
            (Verdict::Fail, Some(Err(failure))) => drop(delivery.fail(failure.line()).await),
            (Verdict::Fail, _) => drop(delivery.nak().await),
            (Verdict::GiveBack, _) => delivery.release(),
            (Verdict::Nothing, _) => {}
        }
    }
}

/// Runs a handler. None: it was cut.
async fn run(host: &ServiceInstance, mut handled: Handled, exchange: &InboundCallState) -> Option<Result<(), Failure>> {
    poll_fn(|context| {
        if exchange.poll_ended(context).is_ready() {
            return Poll::Ready(None);
        }
        match handling(host, || catch_unwind(AssertUnwindSafe(|| handled.as_mut().poll(context)))) {
            Ok(polled) => polled.map(Some),
            Err(panic) => Poll::Ready(Some(Err(Failure::of_panic(&*panic)))),
        }
    })
    .await
}

/// A task that handles deliveries, one after the other.
struct DeliveryWorker {
    subscription: Arc<DurableSubscription>,
    has_left: bool,
}

impl DeliveryWorker {
    /// The next delivery to handle. None: the task ends, and the next fetch starts another.
    fn next(&mut self) -> Option<(Arc<Delivery>, Arc<InboundCallState>)> {
        let next = {
            let state = &mut *self.subscription.state.lock();
            let now_us = state.now_us();
            state.begin(now_us).or_else(|| {
                state.tasks -= 1;
                self.has_left = true;
                None
            })
        };
        if next.is_none() {
            self.subscription.wakers.wake();
        }
        next
    }
}

impl Drop for DeliveryWorker {
    fn drop(&mut self) {
        // The node ends, and runs no tasks any more.
        if !self.has_left {
            self.subscription.state.lock().tasks -= 1;
        }
    }
}
