//! Durable subscriptions: the events of one consumer are fetched, handed to workers, and settled.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tidewire_backend::home::{self, Fault, Home, HomeError, Settlement};
use tidewire_core::stream::subscription::{Delivery as Key, Options, Outcome, Subscription, Verdict};
use tidewire_engine::EngineHandle;
use tidewire_engine::raw::{Mutex, clock};

use super::conventions::{PAGE, micros};
use super::errors::is_final;
use super::event::{Delivery, Settler};
use super::fetcher::outage::{OnOutage, Outage};
use super::fetcher::{Fetcher, Reads};
use crate::delay::Recurrence;
use crate::node::core::Node;
use crate::node::options::Log;
use crate::node::runner::Runner;
use crate::pending::{WakerEntry, Wakers};

/// How events are handled.
#[derive(Clone, Debug)]
pub struct SubscriptionOptions {
    /// The handler, for the log.
    pub title: String,
    /// How many events are handled at once.
    pub concurrency: u32,
    /// Deliveries of the consumer that may be in flight.
    pub max_in_flight: u32,
    /// The ack wait of the consumer.
    pub ack_wait_us: u64,
}

/// Runs the workers of a subscription.
pub trait DeliveryHandler: Send + Sync {
    /// Runs workers, each until it has no delivery left. Dropping one returns its delivery.
    fn start(&self, workers: Vec<DeliveryWorker>);
}

/// Deliveries of one consumer to one handler. It ends once it was [drained](Self::drain) and
/// nothing is left.
pub struct DurableSubscription {
    pub(super) options: SubscriptionOptions,
    pub(super) runner: Arc<Runner>,
    /// Called when the subscription may be idle.
    changed: Box<dyn Fn() + Send + Sync>,
    pub(super) log: Log,
    /// Set once its consumer is known.
    settler: OnceLock<Arc<Settler>>,
    /// Protects fetched events. Nothing is called under it.
    state: Mutex<State>,
    /// Woken when there is something to do for the task that fetches.
    wakers: Wakers,
    /// Woken when running handlers are to end.
    cuts: Wakers,
    fetched: AtomicU64,
    handled: AtomicU64,
    returned: AtomicU64,
}

struct State {
    machine: Subscription,
    /// Those that wait for their handlers.
    deliveries: HashMap<Key, Arc<Delivery>>,
    /// Workers that handle deliveries, one after the other.
    workers: u32,
    is_draining: bool,
    is_cut: bool,
    is_over: bool,
    began: Instant,
}

impl State {
    fn now_us(&self) -> u64 {
        micros(clock::since(self.began))
    }
}

/// State of the task that fetches.
struct Fetches {
    settler: Arc<Settler>,
    handler: Box<dyn DeliveryHandler>,
    fetcher: Fetcher<Vec<home::Delivery>>,
    extension: Recurrence,
    /// False from a fetch that brought events until everything is settled.
    was_idle: bool,
}

impl DurableSubscription {
    /// A subscription in a storage backend that another part of the process owns. The engine
    /// watches its times. It begins with [`begin`](Self::begin).
    pub fn of(
        engine: EngineHandle,
        options: SubscriptionOptions,
        changed: Box<dyn Fn() + Send + Sync>,
        log: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Arc<Self> {
        Self::new(Arc::new(Runner::inline(engine)), options, changed, Arc::from(log))
    }

    pub(crate) fn new(
        runner: Arc<Runner>,
        options: SubscriptionOptions,
        changed: Box<dyn Fn() + Send + Sync>,
        log: Log,
    ) -> Arc<Self> {
        let machine = Subscription::new(Options {
            concurrency: options.concurrency,
            batch_max: options.max_in_flight.min(PAGE),
            ack_wait_us: options.ack_wait_us,
        });
        let state = State {
            machine,
            deliveries: HashMap::new(),
            workers: 0,
            is_draining: false,
            is_cut: false,
            is_over: false,
            began: clock::now(),
        };
        Arc::new(Self {
            options,
            runner,
            changed,
            log,
            settler: OnceLock::new(),
            state: Mutex::new(state),
            wakers: Wakers::default(),
            cuts: Wakers::default(),
            fetched: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            returned: AtomicU64::new(0),
        })
    }

    /// Handles the events of a consumer from now on. `node` is the one whose hub has the storage
    /// backend, if a hub has it.
    pub fn begin(
        self: &Arc<Self>,
        home: Arc<dyn Home>,
        (stream, consumer): (&str, &str),
        node: Option<&Node>,
        handler: Box<dyn DeliveryHandler>,
    ) {
        let (log, late_log, title) = (Arc::clone(&self.log), Arc::clone(&self.log), self.options.title.clone());
        let late_title = title.clone();
        let notify: OnOutage = Arc::new(move |error| {
            if let Some(error) = error {
                log(&format!("{title}: its events can't be fetched, and it tries again: {error}"));
            }
        });
        let late = move |count| {
            let fix = "they were delivered again; allow more with ack_wait";
            late_log(&format!("{late_title}: {count} events were handled too late: {fix}"));
        };
        let reads = Reads::new(home, &self.runner);
        let reads = Reads { node: node.map(|node| Arc::downgrade(node.core())), on_outage: Some(notify), ..reads };
        let settler = Settler::new(&reads, stream, consumer, Box::new(late));
        let settler = Arc::clone(self.settler.get_or_init(|| settler));
        let fetcher = Fetcher::new(Outage::new(reads, |error| !is_final(error)));
        let mut fetches = Fetches { settler, handler, fetcher, extension: Recurrence::default(), was_idle: true };
        let this = Arc::clone(self);
        self.runner.spawn(Box::pin(async move {
            this.runner.beat();
            poll_fn(|context| this.poll(&mut fetches, context)).await;
            this.over();
        }));
    }

    /// Ends it before it has begun, or once nothing is left.
    pub(crate) fn over(&self) {
        self.state.lock().is_over = true;
        self.tell();
    }

    /// Fetches nothing more. Fetched events are still handled.
    pub fn drain(&self) {
        {
            let state = &mut *self.state.lock();
            state.is_draining = true;
            state.machine.drain();
        }
        self.wakers.wake();
    }

    /// Begins nothing more, interrupts running handlers, and returns all fetched events.
    pub fn cut(&self) {
        let back: Vec<_> = {
            let state = &mut *self.state.lock();
            state.is_cut = true;
            let back = state.machine.cut();
            back.into_iter().filter_map(|key| state.deliveries.remove(&key)).collect()
        };
        self.give_back(&back);
        self.cuts.wake();
        self.drain();
    }

    /// Drops everything: nobody waits for it any more.
    pub fn end(&self) {
        if let Some(settler) = self.settler.get() {
            settler.end();
        }
        self.over();
        self.wakers.wake();
    }

    /// True if nothing is queued, handled or to be settled.
    pub fn is_idle(&self) -> bool {
        self.state.lock().machine.counts() == (0, 0) && self.settler.get().is_none_or(|settler| settler.lane.is_idle())
    }

    /// True once it has ended, and everything is settled.
    pub fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.is_over && state.workers == 0
    }

    /// Numbers of fetched, handled and returned deliveries. A failed one is returned.
    pub fn counts(&self) -> [u64; 3] {
        [&self.fetched, &self.handled, &self.returned].map(|count| count.load(Ordering::Relaxed))
    }

    /// Ready once running handlers are to end.
    pub(crate) fn poll_cut(&self, entry: &mut WakerEntry, context: &Context<'_>) -> Poll<()> {
        self.cuts.keep(entry, context.waker());
        if self.state.lock().is_cut { Poll::Ready(()) } else { Poll::Pending }
    }

    fn tell(&self) {
        self.runner.ended.wake();
        (self.changed)();
    }

    fn give_back(&self, deliveries: &[Arc<Delivery>]) {
        self.returned.fetch_add(deliveries.len() as u64, Ordering::Relaxed);
        deliveries.iter().for_each(|delivery| delivery.conclude(Settlement::Release));
    }

    /// Fetches and extends. Ready once it has drained, and everything is settled.
    fn poll(self: &Arc<Self>, fetches: &mut Fetches, context: &mut Context<'_>) -> Poll<()> {
        self.wakers.add(context.waker());
        self.troubles(fetches);
        let has_drained = self.poll_fetches(fetches, context);
        let is_settled = fetches.settler.lane.poll_idle(context).is_ready();
        let (is_idle, is_over) = {
            let state = self.state.lock();
            (is_settled && state.machine.counts() == (0, 0), state.is_over)
        };
        if is_over || (has_drained.is_ready() && is_settled) {
            return Poll::Ready(());
        }
        if is_idle && !std::mem::replace(&mut fetches.was_idle, true) {
            self.tell();
        }
        Poll::Pending
    }

    fn poll_fetches(self: &Arc<Self>, fetches: &mut Fetches, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let is_draining = self.state.lock().is_draining;
            if is_draining && fetches.fetcher.is_fetching() {
                fetches.fetcher.cancel();
                // Events on their way go back as the fetch is dropped.
                self.state.lock().machine.fetched(&[], 0);
            }
            self.extend(fetches, context);
            let mut credit = 0;
            if !fetches.fetcher.is_fetching() {
                if !is_draining && !fetches.fetcher.outage.is_due(context) {
                    return Poll::Pending;
                }
                credit = {
                    let state = &mut *self.state.lock();
                    if state.machine.is_over() && state.workers == 0 {
                        return Poll::Ready(());
                    }
                    let now_us = state.now_us();
                    state.machine.credit(now_us)
                };
                if credit == 0 {
                    return Poll::Pending;
                }
            }
            let store = &fetches.settler.store;
            match ready!(fetches.fetcher.poll_once(context, None, |wait_us| store.fetch(credit, wait_us))) {
                Ok(fetched) => self.fetched(fetches, fetched.unwrap_or_default()),
                Err(error) => {
                    self.fetched(fetches, Vec::new());
                    self.failed(fetches, &error);
                }
            }
        }
    }

    /// Reports failures of settlements.
    fn troubles(&self, fetches: &mut Fetches) {
        let title = &self.options.title;
        if let Err(error) = fetches.settler.check() {
            (self.log)(&format!("{title}: its settlements are not stored, and their events come again: {error}"));
        }
    }

    /// Queues fetched events, and starts workers for them.
    fn fetched(self: &Arc<Self>, fetches: &mut Fetches, fetched: Vec<home::Delivery>) {
        fetches.was_idle &= fetched.is_empty();
        self.fetched.fetch_add(fetched.len() as u64, Ordering::Relaxed);
        let fetched: Vec<_> = fetched.into_iter().map(|raw| Arc::new(Delivery::new(raw, &fetches.settler))).collect();
        let (workers, back) = {
            let state = &mut *self.state.lock();
            let now_us = state.now_us();
            let keys: Vec<_> = fetched.iter().map(|delivery| delivery.key()).collect();
            let back = state.machine.fetched(&keys, now_us);
            state.deliveries.extend(keys.into_iter().zip(fetched));
            let queued = u32::try_from(state.machine.counts().0).unwrap_or(u32::MAX);
            let workers = queued.min(self.options.concurrency.saturating_sub(state.workers));
            state.workers += workers;
            (workers, back.into_iter().filter_map(|key| state.deliveries.remove(&key)).collect::<Vec<_>>())
        };
        self.give_back(&back);
        if workers > 0 {
            let worker = |_| DeliveryWorker { subscription: Arc::clone(self), delivery: None, has_left: false };
            fetches.handler.start((0..workers).map(worker).collect());
        }
    }

    /// After a fetch that failed: it is made again after a while, unless that makes no sense.
    fn failed(&self, fetches: &mut Fetches, error: &HomeError) {
        if fetches.fetcher.outage.outlasts(error) {
            return;
        }
        if !self.state.lock().is_draining {
            (self.log)(&format!("{}: it handles no more events: {error}", self.options.title));
        }
        self.drain();
    }

    /// Extends the ack wait of queued events, and schedules the next extension.
    fn extend(&self, fetches: &mut Fetches, context: &Context<'_>) {
        fetches.extension.poll(&self.runner, context, || {
            let (due, wait) = {
                let state = &mut *self.state.lock();
                let now_us = state.now_us();
                let due = state.machine.extend(now_us);
                let due: Vec<_> = due.iter().filter_map(|key| state.deliveries.get(key)).map(Arc::clone).collect();
                (due, state.machine.next_deadline_us().map(|at_us| at_us.saturating_sub(now_us)))
            };
            due.iter().for_each(|delivery| delivery.conclude(Settlement::Working));
            wait.map(Duration::from_micros)
        });
    }
}

impl fmt::Debug for DurableSubscription {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DurableSubscription({})", self.options.title)
    }
}

/// Takes the deliveries of a subscription, one after the other.
#[derive(Debug)]
pub struct DeliveryWorker {
    subscription: Arc<DurableSubscription>,
    delivery: Option<Arc<Delivery>>,
    has_left: bool,
}

impl DeliveryWorker {
    /// Takes the next delivery to handle. None: the worker is done, and the next fetch starts one.
    pub fn begin(&mut self) -> Option<Arc<Delivery>> {
        let (delivery, is_last) = {
            let state = &mut *self.subscription.state.lock();
            let key = if self.has_left { None } else { state.machine.begin() };
            if key.is_none() && !std::mem::replace(&mut self.has_left, true) {
                state.workers -= 1;
            }
            (key.and_then(|key| state.deliveries.remove(&key)), state.machine.counts().0 == 0)
        };
        self.delivery.clone_from(&delivery);
        // With the last one queued, free workers need another fetch.
        if is_last && (delivery.is_none() || self.subscription.options.concurrency > 1) {
            self.subscription.wakers.wake();
        }
        delivery
    }

    /// Settles the delivery whose handler has ended.
    pub fn end(&mut self, outcome: Outcome, fault: Option<Fault>) {
        let Some(delivery) = self.delivery.take() else { return };
        let outcome = if delivery.is_settled.load(Ordering::Acquire) { Outcome::Settled } else { outcome };
        let subscription = &self.subscription;
        let count = match outcome {
            Outcome::Returned | Outcome::Settled => &subscription.handled,
            Outcome::Raised | Outcome::Interrupted => &subscription.returned,
        };
        count.fetch_add(1, Ordering::Relaxed);
        let verdict = subscription.state.lock().machine.ended(delivery.key(), outcome);
        match verdict {
            Verdict::Ack => delivery.conclude(Settlement::Ack),
            Verdict::Fail => delivery.conclude(Settlement::Nak { delay_us: None, fault }),
            Verdict::GiveBack => delivery.conclude(Settlement::Release),
            Verdict::Nothing => {}
        }
    }
}

impl Drop for DeliveryWorker {
    fn drop(&mut self) {
        self.end(Outcome::Interrupted, None);
        if !self.has_left {
            self.subscription.state.lock().workers -= 1;
            self.subscription.wakers.wake();
        }
    }
}
