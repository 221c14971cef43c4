//! The worker of one command of a served instance: it fetches tokens, runs commands, and stores
//! their reports and their ends.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidewire_backend::home::pending_answer::{self, PendingAnswer};
use tidewire_backend::home::{Delivery, Fetch, HomeError, HomeErrorKind, HomeResult, Settle, Settlement};
use tidewire_core::stream::command_slots::{CommandSlots, Token};
use tidewire_engine::EngineHandle;
use tidewire_engine::raw::{Mutex, clock};
use tidewire_proto::generated::limits::COMMAND_LEASE_MS;

use super::attempt::{Attempt, AttemptEnd, Interruption};
use super::record::{CommandRecord, QUEUE};
use super::store::{Begun, CommandStore, PRIORITIES, TokenEnd};
use crate::delay::{Delay, Recurrence, RetryPause};
use crate::node::options::Log;
use crate::node::runner::Runner;
use crate::pending::{WakerEntry, Wakers};
use crate::streams::conventions::LONG_WAIT;
use crate::streams::is_final;
use crate::streams::lease::{Lease, LeaseOptions};
use crate::values;

const FETCH_BYTES: u32 = 4 << 20;
/// Number of attempts at a storage backend that is away.
const TRIES_MAX: u32 = 300;
/// Pause of a token that finds no place, or whose command could not be run.
const CROWDED_US: u64 = 1_000_000;
/// Number of commands after which their tokens are removed from the queue.
const TIDY_EVERY: u64 = 256;
const LEASE: Duration = Duration::from_millis(COMMAND_LEASE_MS.default);

/// How commands are run.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// The name of the service.
    pub service: String,
    /// The name of the command.
    pub command: String,
    /// The node of the worker.
    pub node: String,
    /// How long an attempt may take.
    pub timeout: Option<Duration>,
    /// How often a failed or lost attempt is tried again.
    pub retries: u32,
    /// True if only one command of a key runs at a time.
    pub is_exclusive: bool,
    /// How many run at once.
    pub concurrency: usize,
    /// How long the record stays after the end.
    pub keep: Duration,
}

/// The end of an attempt.
pub type AttemptFuture = Pin<Box<dyn Future<Output = AttemptEnd> + Send>>;

/// Runs the attempts of one command.
pub trait CommandHandler: Send + Sync {
    /// Runs an attempt. The future ends soon once the attempt is [interrupted](Attempt::why).
    fn run(&self, attempt: &Arc<Attempt>) -> AttemptFuture;
}

/// A worker. It ends once it was [drained](Self::drain) and nothing is left.
#[derive(derive_more::Debug)]
#[debug("CommandWorker({title})")]
pub struct CommandWorker {
    options: WorkerOptions,
    title: String,
    store: Arc<CommandStore>,
    runner: Arc<Runner>,
    handler: Box<dyn CommandHandler>,
    /// Called when the worker may be idle.
    changed: Box<dyn Fn() + Send + Sync>,
    log: Log,
    /// Protects tokens and attempts. Nothing is called under it.
    state: Mutex<State>,
    /// Woken when there is something to do for the task that fetches.
    wakers: Wakers,
    /// Woken when the worker drains or ends.
    stops: Wakers,
    fetched: AtomicU64,
    handled: AtomicU64,
    returned: AtomicU64,
}

struct State {
    slots: CommandSlots,
    consumers: Vec<String>,
    /// The ids of the commands by the sequences of their tokens.
    ids: HashMap<u64, String>,
    attempts: HashMap<u64, Arc<Attempt>>,
    /// Numbers of running tasks, and of settlements under way.
    tasks: usize,
    settlements: usize,
    is_away: bool,
    is_draining: bool,
    is_cut: bool,
    has_ended: bool,
    began: Instant,
}

impl State {
    fn now_us(&self) -> u64 {
        clock::since(self.began).as_micros() as u64
    }
}

/// Fetches under way by queue, and the waits of the task that fetches.
struct Fetches {
    queues: [Option<PendingAnswer<Vec<Delivery>>>; PRIORITIES.len()],
    extension: Recurrence,
    pause: Option<Delay>,
    retries: RetryPause,
}

impl CommandWorker {
    /// A worker over a storage backend that another part of the process owns. The engine watches
    /// its times. It begins with [`open`](Self::open).
    pub fn of(
        store: Arc<CommandStore>,
        engine: EngineHandle,
        options: WorkerOptions,
        handler: Box<dyn CommandHandler>,
        changed: Box<dyn Fn() + Send + Sync>,
        log: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Arc<Self> {
        Self::new(store, Arc::new(Runner::inline(engine)), options, handler, changed, Arc::from(log))
    }

    /// A worker that begins with [`open`](Self::open).
    pub(crate) fn new(
        store: Arc<CommandStore>,
        runner: Arc<Runner>,
        options: WorkerOptions,
        handler: Box<dyn CommandHandler>,
        changed: Box<dyn Fn() + Send + Sync>,
        log: Log,
    ) -> Arc<Self> {
        let state = State {
            slots: CommandSlots::new(options.concurrency, PRIORITIES.len(), LEASE.as_micros() as u64),
            consumers: Vec::new(),
            ids: HashMap::new(),
            attempts: HashMap::new(),
            tasks: 0,
            settlements: 0,
            is_away: false,
            is_draining: false,
            is_cut: false,
            has_ended: false,
            began: clock::now(),
        };
        Arc::new(Self {
            title: format!("{}.{}", options.service, options.command),
            options,
            store,
            runner,
            handler,
            changed,
            log,
            state: Mutex::new(state),
            wakers: Wakers::default(),
            stops: Wakers::default(),
            fetched: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            returned: AtomicU64::new(0),
        })
    }

    /// Makes the queues, if they are not there, and begins.
    ///
    /// # Errors
    /// Those of the storage backend.
    pub async fn open(self: &Arc<Self>) -> HomeResult<()> {
        let mut consumers = Vec::new();
        for priority in PRIORITIES {
            consumers.push(self.store.consumer(&self.options.service, &self.options.command, priority).await?);
        }
        self.state.lock().consumers = consumers;
        let (worker, queues) = (Arc::clone(self), Default::default());
        let mut fetches =
            Fetches { queues, extension: Recurrence::default(), pause: None, retries: RetryPause::default() };
        self.spawn(async move { poll_fn(|context| worker.poll(&mut fetches, context)).await });
        Ok(())
    }

    /// Begins nothing more. Running commands end; a command that waits for its key returns to its
    /// queue.
    pub fn drain(self: &Arc<Self>) {
        let back = {
            let state = &mut *self.state.lock();
            state.is_draining = true;
            state.slots.drain()
        };
        back.into_iter().for_each(|token| self.give_back(token));
        self.stops.wake();
        self.wake();
    }

    /// Begins nothing more, interrupts running commands, and returns all to their queues.
    pub fn cut(self: &Arc<Self>) {
        let attempts: Vec<_> = {
            let state = &mut *self.state.lock();
            state.is_cut = true;
            state.attempts.values().map(Arc::clone).collect()
        };
        attempts.iter().for_each(|attempt| attempt.interrupt(Interruption::Cut));
        self.drain();
    }

    /// Drops all tasks: nobody waits for the worker any more.
    pub fn end(&self) {
        self.state.lock().has_ended = true;
        self.stops.wake();
        self.wake();
    }

    /// True if no command is under way, and nothing is to be settled.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.slots.held() == 0 && state.settlements == 0
    }

    /// True if the worker was drained, and nothing is left.
    pub fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.tasks == 0 && state.settlements == 0 && (state.has_ended || state.is_draining)
    }

    /// Numbers of fetched tokens, of those whose commands are over, and of those that returned to
    /// their queues.
    pub fn counts(&self) -> [u64; 3] {
        [&self.fetched, &self.handled, &self.returned].map(|count| count.load(Ordering::Relaxed))
    }

    fn wake(&self) {
        self.wakers.wake();
        self.runner.ended.wake();
        (self.changed)();
    }

    /// Runs a task until it is done, or the worker has ended.
    fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        self.state.lock().tasks += 1;
        let (guard, mut task) = (TaskGuard(Arc::clone(self)), Box::pin(task));
        self.runner.spawn(Box::pin(async move {
            guard.0.runner.beat();
            let mut entry = WakerEntry::default();
            poll_fn(|context| {
                guard.0.stops.keep(&mut entry, context.waker());
                if guard.0.state.lock().has_ended { Poll::Ready(()) } else { task.as_mut().poll(context) }
            })
            .await;
        }));
    }

    /// Begins commands, fetches and extends tokens. Ready once the worker has drained.
    fn poll(self: &Arc<Self>, fetches: &mut Fetches, context: &mut Context<'_>) -> Poll<()> {
        self.wakers.add(context.waker());
        loop {
            let (tokens, is_draining) = {
                let state = &mut *self.state.lock();
                (std::iter::from_fn(|| state.slots.begin()).collect::<Vec<_>>(), state.is_draining)
            };
            tokens.into_iter().for_each(|token| self.begin(token));
            if is_draining {
                // Tokens on their way return to their queues as the fetches are dropped.
                fetches.queues = Default::default();
                fetches.pause = None;
            }
            self.extend(fetches, context);
            if fetches.pause.as_ref().is_some_and(|pause| !pause.is_over(context)) {
                return Poll::Pending;
            }
            fetches.pause = None;
            let fetches_due = self.state.lock().slots.fetches();
            for fetch in fetches_due {
                let wait_us = if fetch.waits { LONG_WAIT.as_micros() as u64 } else { 0 };
                let request = Fetch { max_messages: fetch.count, max_bytes: FETCH_BYTES, wait_us };
                let consumer = self.consumer(fetch.queue);
                fetches.queues[fetch.queue] = Some(pending_answer::fetch(self.store.home(), QUEUE, &consumer, request));
            }
            let mut has_fetched = false;
            for queue in 0..PRIORITIES.len() {
                let Some(pending) = &mut fetches.queues[queue] else { continue };
                let Poll::Ready(found) = Pin::new(pending).poll(context) else { continue };
                fetches.queues[queue] = None;
                has_fetched = true;
                match found {
                    Ok(found) => {
                        fetches.retries = RetryPause::default();
                        self.state.lock().is_away = false;
                        self.fetched(queue, &found);
                    }
                    Err(error) => {
                        self.fetched(queue, &[]);
                        self.failed(&error);
                        fetches.pause = Some(fetches.retries.begin(&self.runner));
                    }
                }
            }
            if is_draining && self.state.lock().slots.held() == 0 {
                return Poll::Ready(());
            }
            if !has_fetched {
                return Poll::Pending;
            }
        }
    }

    fn consumer(&self, queue: usize) -> String {
        self.state.lock().consumers[queue].clone()
    }

    fn fetched(self: &Arc<Self>, queue: usize, found: &[Delivery]) {
        self.fetched.fetch_add(found.len() as u64, Ordering::Relaxed);
        let back = {
            let state = &mut *self.state.lock();
            for Delivery { event, .. } in found {
                // A token that cannot be read belongs to no command, and is acked.
                let id = values::from_bytes(&event.payload).unwrap_or_default();
                state.ids.insert(event.sequence, id);
            }
            let tokens: Vec<_> = found.iter().map(|one| (one.event.sequence, one.ticket)).collect();
            let now_us = state.now_us();
            state.slots.fetched(queue, &tokens, now_us)
        };
        back.into_iter().for_each(|token| self.give_back(token));
    }

    fn give_back(self: &Arc<Self>, token: Token) {
        self.state.lock().ids.remove(&token.1);
        self.returned.fetch_add(1, Ordering::Relaxed);
        self.settle(token, Settlement::Release);
    }

    /// Extends the tokens, and schedules the next extension.
    fn extend(self: &Arc<Self>, fetches: &mut Fetches, context: &Context<'_>) {
        fetches.extension.poll(&self.runner, context, || {
            let (due, wait) = {
                let state = &mut *self.state.lock();
                let now_us = state.now_us();
                let due = state.slots.extend(now_us);
                (due, state.slots.next_deadline_us().map(|at_us| at_us.saturating_sub(now_us)))
            };
            due.into_iter().for_each(|token| self.settle(token, Settlement::Working));
            wait.map(Duration::from_micros)
        });
    }

    fn settle(self: &Arc<Self>, (queue, sequence, ticket): Token, how: Settlement) {
        let extends = how == Settlement::Working;
        self.state.lock().settlements += 1;
        let settled = vec![Settle { sequence, ticket, how }];
        let worker = Arc::clone(self);
        self.store.home().settle(QUEUE, &self.consumer(queue), settled).then(move |settled| {
            // A token that could not be settled comes again after its lease; the record says what
            // has become of its command.
            let is_lost = settled.is_ok_and(|all| all.iter().any(Result::is_err));
            let attempt = {
                let state = &mut *worker.state.lock();
                state.settlements -= 1;
                state.attempts.get(&sequence).filter(|_| extends && is_lost).map(Arc::clone)
            };
            attempt.into_iter().for_each(|attempt| attempt.interrupt(Interruption::Lost));
            worker.wake();
        });
    }

    fn begin(self: &Arc<Self>, token: Token) {
        let id = self.state.lock().ids.get(&token.1).cloned().unwrap_or_default();
        let worker = Arc::clone(self);
        self.spawn(async move {
            let settlement = worker.process(token, &id).await.unwrap_or_else(|error| {
                (worker.log)(&format!("{}: command {id}: {error}", worker.title));
                Some(Settlement::Nak { delay_us: Some(CROWDED_US), fault: None })
            });
            let count = if settlement == Some(Settlement::Ack) { &worker.handled } else { &worker.returned };
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            let tidies = settlement == Some(Settlement::Ack) && number.is_multiple_of(TIDY_EVERY);
            {
                let state = &mut *worker.state.lock();
                state.ids.remove(&token.1);
                state.slots.ended(token.1);
            }
            settlement.into_iter().for_each(|how| worker.settle(token, how));
            worker.wake();
            if tidies {
                // Tokens that stay cost their bytes alone.
                drop(worker.store.tidy().await);
            }
        });
    }

    /// Processes a token. Returns its settlement; None: another worker has it.
    async fn process(self: &Arc<Self>, token: Token, id: &str) -> HomeResult<Option<Settlement>> {
        if id.is_empty() {
            return Ok(Some(Settlement::Ack));
        }
        let mut lease = None;
        if self.options.is_exclusive {
            let record = match self.with_retries(|| self.store.record(id)).await {
                Ok((record, _)) => record,
                Err(error) if error.kind() == HomeErrorKind::NotFound => return Ok(Some(Settlement::Ack)),
                Err(error) => return Err(error),
            };
            if let Some(key) = record.key.as_ref().filter(|_| !record.is_over()) {
                lease = match self.lease(token, id, key).await? {
                    Ok(lease) => Some(lease),
                    Err(settlement) => return Ok(Some(settlement)),
                };
            }
        }
        let WorkerOptions { node, retries, keep, .. } = &self.options;
        let keep_us = keep.as_micros() as u64;
        let begin = self.with_retries(|| self.store.begin(id, token.1, node, *retries, keep_us)).await?;
        let Begun::Run(record, revision) = begin else { return Ok(Some(Settlement::Ack)) };
        let end = self.attempt(token, *record, revision, lease.as_ref()).await?;
        if let Some(lease) = lease {
            // A lease that cannot be released ends with its TTL.
            drop(lease.release().await);
        }
        Ok(match end {
            TokenEnd::Ack => Some(Settlement::Ack),
            TokenEnd::Again(0) => Some(Settlement::Release),
            TokenEnd::Again(delay_us) => Some(Settlement::Nak { delay_us: Some(delay_us), fault: None }),
            TokenEnd::Stale => None,
        })
    }

    /// Takes the lease of a key, or returns the settlement of the token.
    async fn lease(self: &Arc<Self>, token: Token, id: &str, key: &str) -> HomeResult<Result<Lease, Settlement>> {
        let name = format!("command.{}.{}", self.title, super::store::hash(&[key.as_bytes()]));
        let options = LeaseOptions::default().holder(format!("{}/{id}", self.options.node)).ttl(LEASE);
        let acquire = |options| Lease::acquire_by(self.store.home(), &self.runner, &name, options);
        match acquire(options.clone().timeout(Duration::ZERO)).await.map_err(HomeError::from) {
            Ok(lease) => return Ok(Ok(lease)),
            Err(error) if error.kind() != HomeErrorKind::LeaseHeld => return Err(error),
            Err(_) => {}
        }
        if !self.state.lock().slots.park(token.1) {
            return Ok(Err(Settlement::Nak { delay_us: Some(CROWDED_US), fault: None }));
        }
        self.wake();
        let mut waits = pin!(acquire(options));
        let mut entry = WakerEntry::default();
        let lease = poll_fn(|context| {
            self.stops.keep(&mut entry, context.waker());
            if self.state.lock().is_draining { Poll::Ready(None) } else { waits.as_mut().poll(context).map(Some) }
        });
        let Some(lease) = lease.await else { return Ok(Err(Settlement::Release)) };
        let lease = lease?;
        let has_place = self.state.lock().slots.unpark(token.1);
        Ok(if has_place { Ok(lease) } else { Err(Settlement::Release) })
    }

    /// Runs an attempt, and stores its end.
    async fn attempt(
        self: &Arc<Self>,
        token: Token,
        record: CommandRecord,
        revision: u64,
        lease: Option<&Lease>,
    ) -> HomeResult<TokenEnd> {
        let attempt = Arc::new(Attempt::new(record, Arc::clone(&self.store), Arc::clone(&self.runner)));
        let is_cut = {
            let state = &mut *self.state.lock();
            state.attempts.insert(token.1, Arc::clone(&attempt));
            state.is_cut
        };
        if is_cut {
            attempt.interrupt(Interruption::Cut);
        }
        let end = self.guarded(&attempt, revision, lease).await;
        self.state.lock().attempts.remove(&token.1);
        attempt.stored().await;
        let (id, number, report) = (attempt.id(), attempt.number(), attempt.newest());
        self.with_retries(|| self.store.end(id, number, end.clone(), report.clone())).await
    }

    /// Runs the handler of an attempt. Meanwhile a cancelled command, a lost lease and the timeout
    /// interrupt the attempt.
    async fn guarded(&self, attempt: &Arc<Attempt>, revision: u64, lease: Option<&Lease>) -> AttemptEnd {
        let mut end = self.handler.run(attempt);
        let (id, number) = (attempt.id(), attempt.number());
        let cancelled = async {
            match self.with_retries(|| self.store.interrupted(id, number, revision)).await {
                Ok(true) => Interruption::Cancelled,
                Ok(false) => Interruption::Lost,
                // The end of the attempt is refused for the same reason, and logs it.
                Err(_) => std::future::pending().await,
            }
        };
        let lost = async {
            match lease {
                Some(lease) => lease.lost().await,
                None => std::future::pending().await,
            }
        };
        let (mut cancelled, mut lost) = (pin!(cancelled), pin!(lost));
        let late = self.options.timeout.map(|timeout| Delay::begin(&self.runner, timeout));
        poll_fn(|context| {
            if let Poll::Ready(end) = end.as_mut().poll(context) {
                return Poll::Ready(end);
            }
            if attempt.why().is_none() {
                let why = if let Poll::Ready(why) = cancelled.as_mut().poll(context) {
                    Some(why)
                } else if lost.as_mut().poll(context).is_ready() {
                    Some(Interruption::Lost)
                } else {
                    late.as_ref().filter(|late| late.is_over(context)).map(|_| Interruption::Timeout)
                };
                if let Some(why) = why {
                    attempt.interrupt(why);
                    return end.as_mut().poll(context);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Calls the storage backend, with retries while it is away; the token is held meanwhile.
    async fn with_retries<T, F: Future<Output = HomeResult<T>>>(&self, call: impl Fn() -> F) -> HomeResult<T> {
        let mut retries = RetryPause::default();
        for _ in 0..TRIES_MAX {
            match call().await {
                Err(error) if !is_final(&error) => self.failed(&error),
                result => {
                    self.state.lock().is_away = false;
                    return result;
                }
            }
            let pause = retries.begin(&self.runner);
            poll_fn(|context| if pause.is_over(context) { Poll::Ready(()) } else { Poll::Pending }).await;
        }
        call().await
    }

    /// After a call that failed: an outage is logged once, and a final error ends the worker.
    fn failed(&self, error: &HomeError) {
        let (is_new, is_cut) = {
            let state = &mut *self.state.lock();
            if is_final(error) {
                state.is_draining = true;
                // Their tokens return after their lease.
                state.slots.drain();
            }
            (!std::mem::replace(&mut state.is_away, true), state.is_cut)
        };
        match is_final(error) {
            true if !is_cut => (self.log)(&format!("{}: it does no more commands: {error}", self.title)),
            false if is_new => {
                let text = "its storage backend can't be reached, and it tries again";
                (self.log)(&format!("{}: {text}: {error}", self.title));
            }
            _ => {}
        }
    }
}

/// Counts a task, until it has ended or was dropped.
struct TaskGuard(Arc<CommandWorker>);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.state.lock().tasks -= 1;
        self.0.wake();
    }
}
