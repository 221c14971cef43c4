//! Durable subscriptions: the events of one consumer are fetched, handed to workers, and settled.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidewire_backend::home::pending_answer::{self, PendingAnswer};
use tidewire_backend::home::{self, Fault, Fetch, Home, HomeError, Settlement};
use tidewire_core::stream::subscription::{Delivery as Key, Options, Outcome, Subscription, Verdict};
use tidewire_engine::EngineHandle;
use tidewire_engine::raw::Mutex;

use super::errors::is_final;
use super::event::{Delivery, SettlementStore, Settler};
use super::{PAGE, PAGE_BYTES, micros};
use crate::delay::{Delay, Recurrence, RetryPause};
use crate::node::Node;
use crate::node::core::{Core, Runner};
use crate::node::options::Log;
use crate::pending::Wakers;

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
    /// How long one fetch waits at most.
    pub wait: Duration,
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
        micros(self.began.elapsed())
    }
}

/// State of the task that fetches.
struct Fetcher {
    settler: Arc<Settler>,
    handler: Box<dyn DeliveryHandler>,
    /// The node whose hub has the storage backend.
    node: Option<Weak<Core>>,
    pending: Option<PendingAnswer<Vec<home::Delivery>>>,
    extension: Recurrence,
    pause: Option<Delay>,
    retries: RetryPause,
    /// True if there was no link to the hub at the last look.
    was_lost: bool,
    /// False from a fetch that brought events until everything is settled.
    was_idle: bool,
    /// Reported count of events that were handled too late.
    stale: u64,
}

impl Fetcher {
    /// Looks at the link to the hub: a restored link ends the pause.
    fn look_at_link(&mut self, context: &Context<'_>) {
        let Some(core) = self.node.as_ref().and_then(Weak::upgrade) else { return };
        core.rejoined.add(context.waker());
        let is_joined = core.link.joined().is_some();
        if std::mem::replace(&mut self.was_lost, !is_joined) && is_joined {
            self.pause = None;
        }
    }
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
            began: Instant::now(),
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
        let node = node.map(|node| Arc::downgrade(node.core()));
        let settler = Settler::new(&home, stream, consumer, &self.runner, true);
        let settler = Arc::clone(self.settler.get_or_init(|| settler));
        let mut fetcher = Fetcher {
            settler,
            handler,
            node,
            pending: None,
            extension: Recurrence::default(),
            pause: None,
            retries: RetryPause::default(),
            was_lost: false,
            was_idle: true,
            stale: 0,
        };
        let this = Arc::clone(self);
        self.runner.spawn(Box::pin(async move {
            this.runner.beat();
            poll_fn(|context| this.poll(&mut fetcher, context)).await;
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
    pub(crate) fn poll_cut(&self, context: &Context<'_>) -> Poll<()> {
        self.cuts.add(context.waker());
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
    fn poll(self: &Arc<Self>, fetcher: &mut Fetcher, context: &mut Context<'_>) -> Poll<()> {
        self.wakers.add(context.waker());
        fetcher.look_at_link(context);
        self.troubles(fetcher);
        let fetches = self.poll_fetches(fetcher, context);
        let is_settled = fetcher.settler.lane.poll_idle(context).is_ready();
        let (is_idle, is_over) = {
            let state = self.state.lock();
            (is_settled && state.machine.counts() == (0, 0), state.is_over)
        };
        if is_over || (fetches.is_ready() && is_settled) {
            return Poll::Ready(());
        }
        if is_idle && !std::mem::replace(&mut fetcher.was_idle, true) {
            self.tell();
        }
        Poll::Pending
    }

    fn poll_fetches(self: &Arc<Self>, fetcher: &mut Fetcher, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let is_draining = self.state.lock().is_draining;
            if is_draining && fetcher.pending.take().is_some() {
                // Events on their way go back as the fetch is dropped.
                self.state.lock().machine.fetched(&[], 0);
            }
            self.extend(fetcher, context);
            if !is_draining && fetcher.pause.as_ref().is_some_and(|pause| !pause.is_over(context)) {
                return Poll::Pending;
            }
            fetcher.pause = None;
            if fetcher.pending.is_none() {
                let credit = {
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
                let wait_us = micros(self.options.wait);
                let fetch = Fetch { max_messages: credit, max_bytes: PAGE_BYTES, wait_us };
                let SettlementStore { home, stream, consumer, .. } = &*fetcher.settler.store;
                fetcher.pending = Some(pending_answer::fetch(home, stream, consumer, fetch));
            }
            let Some(pending) = &mut fetcher.pending else { continue };
            let Poll::Ready(fetched) = Pin::new(pending).poll(context) else { return Poll::Pending };
            fetcher.pending = None;
            match fetched {
                Ok(fetched) => {
                    fetcher.retries = RetryPause::default();
                    self.fetched(fetcher, fetched);
                }
                Err(error) => {
                    self.fetched(fetcher, Vec::new());
                    self.failed(fetcher, &error);
                }
            }
        }
    }

    /// Reports failures of settlements.
    fn troubles(&self, fetcher: &mut Fetcher) {
        let title = &self.options.title;
        if let Err(error) = fetcher.settler.check() {
            (self.log)(&format!("{title}: its settlements are not stored, and their events come again: {error}"));
        }
        let stale = fetcher.settler.stale();
        if stale > fetcher.stale {
            let fix = "they were delivered again; allow more with ack_wait";
            (self.log)(&format!("{title}: {} events were handled too late: {fix}", stale - fetcher.stale));
            fetcher.stale = stale;
        }
    }

    /// Queues fetched events, and starts workers for them.
    fn fetched(self: &Arc<Self>, fetcher: &mut Fetcher, fetched: Vec<home::Delivery>) {
        fetcher.was_idle &= fetched.is_empty();
        self.fetched.fetch_add(fetched.len() as u64, Ordering::Relaxed);
        let fetched: Vec<_> = fetched.into_iter().map(|raw| Arc::new(Delivery::new(raw, &fetcher.settler))).collect();
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
            fetcher.handler.start((0..workers).map(worker).collect());
        }
    }

    /// After a fetch that failed: it is made again after a while, unless that makes no sense.
    fn failed(&self, fetcher: &mut Fetcher, error: &HomeError) {
        let title = &self.options.title;
        if is_final(error) {
            if !self.state.lock().is_draining {
                (self.log)(&format!("{title}: it handles no more events: {error}"));
            }
            return self.drain();
        }
        if fetcher.retries.is_first() {
            (self.log)(&format!("{title}: its events can't be fetched, and it tries again: {error}"));
        }
        fetcher.pause = Some(fetcher.retries.begin(&self.runner));
    }

    /// Extends the ack wait of queued events, and schedules the next extension.
    fn extend(&self, fetcher: &mut Fetcher, context: &Context<'_>) {
        fetcher.extension.poll(&self.runner, context, || {
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
