//! The engine: made, started, asked for actors, shut down.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use tidewire_proto::generated::limits;
use tidewire_proto::subject::{Pattern, Subject};
use tidewire_sync::Mutex;

use crate::actor::{Actor, ActorId, ActorRef, Context};
use crate::cell::{AnyCell, Cell, NewCell};
use crate::config::EngineConfig;
use crate::core::Core;
use crate::dead::DeadLetters;
use crate::dispatch::{Dispatcher, External, Place, Pool, PoolOptions, ThreadHooks};
use crate::driver::Driver;
use crate::ending::{Ledger, Stuck};
use crate::error::{DeadReason, EngineError, Fault, SpawnError, SubscribeError};
use crate::future::{Inbox, Task};
use crate::options::{Mailbox, OnFailure, Overflow, Priority, SpawnOptions};
use crate::reply::Unpark;
use crate::signal::StopReason;
use crate::statistics::{DispatcherStatistics, Statistics, Timings};
use crate::subjects::{Published, Subscription};
use crate::timers::Timer;
use crate::typed::{FunctionOf, Typed};

/// The name of the dispatcher that always exists.
pub const DEFAULT_DISPATCHER: &str = "default";

/// How to make an engine.
pub struct EngineBuilder {
    config: EngineConfig,
    hooks: Arc<ThreadHooks>,
    eager: bool,
    paused: bool,
    externals: Vec<(String, Arc<External>)>,
}

impl EngineBuilder {
    /// Uses a configuration that was loaded elsewhere.
    pub fn config(mut self, config: EngineConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the number of threads of the default dispatcher; 0 means one per core.
    pub fn threads(mut self, threads: usize) -> Self {
        self.config.dispatchers.entry(DEFAULT_DISPATCHER.to_owned()).or_default().threads = threads;
        self
    }

    /// Lets messages wait until [`Engine::start`] is called.
    pub fn paused(mut self, paused: bool) -> Self {
        self.paused = paused;
        self
    }

    /// Adds a dispatcher that is served by an event loop of the caller's.
    pub fn external(mut self, name: impl Into<String>, external: Arc<External>) -> Self {
        self.externals.push((name.into(), external));
        self
    }

    /// Wraps dispatcher threads, for hosts with a global lock. With `eager` off a further thread is woken only when the
    /// one that runs is stuck, because it could not run beside it.
    pub fn hooks(mut self, hooks: ThreadHooks, eager: bool) -> Self {
        self.hooks = Arc::new(hooks);
        self.eager = eager;
        self
    }

    /// Makes the engine, and starts it unless it is to be paused.
    ///
    /// # Errors
    /// If the configuration is wrong.
    pub fn build(self) -> Result<Engine, EngineError> {
        let mut pools = BTreeMap::new();
        let mut dispatchers = BTreeMap::new();
        let mut config = self.config;
        config.dispatchers.entry(DEFAULT_DISPATCHER.to_owned()).or_default();
        config.check()?;
        for name in config.dispatchers.keys() {
            let owner = config.owner(name).to_owned();
            let pool = pools.entry(owner.clone()).or_insert_with(|| {
                let settings = config.dispatchers.get(&owner).cloned().unwrap_or_default();
                Pool::new(PoolOptions {
                    name: format!("tidewire-{owner}"),
                    threads: threads(settings.threads),
                    spare_threads: settings.spare_threads,
                    spin: Duration::from_micros(config.spin_us),
                    stall: Duration::from_micros(config.stall_us),
                    eager: self.eager,
                    hooks: Arc::clone(&self.hooks),
                })
            });
            let throughput = config.dispatchers.get(name).map_or(1, |d| d.throughput) as u32;
            let place = Place::Threads(Arc::clone(pool));
            dispatchers.insert(name.clone(), Arc::new(Dispatcher { name: name.as_str().into(), throughput, place }));
        }
        for (name, external) in self.externals {
            let throughput = limits::THROUGHPUT.default as u32;
            let place = Place::External(external);
            dispatchers.insert(name.clone(), Arc::new(Dispatcher { name: name.as_str().into(), throughput, place }));
        }
        let pools = pools.into_values().collect();
        let core = Core::new(config, dispatchers);
        let inner = Inner { core: Arc::clone(&core), pools, shut: Mutex::new(None) };
        let engine = Engine { inner: Arc::new(inner), handle: EngineHandle { core } };
        if !self.paused {
            engine.start()?;
        }
        Ok(engine)
    }
}

/// A running engine. Clones are the same engine; it is shut down by [`shutdown`](Engine::shutdown), or, without waiting for
/// anything that waits, when the last clone is dropped.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
    handle: EngineHandle,
}

/// What can be asked of an engine from inside an actor too. It keeps the engine's memory, not its threads, alive.
#[derive(Clone)]
pub struct EngineHandle {
    pub(crate) core: Arc<Core>,
}

struct Inner {
    core: Arc<Core>,
    pools: Vec<Arc<Pool>>,
    shut: Mutex<Option<ShutdownReport>>,
}

/// How a shutdown ended.
#[derive(Clone, Debug, Default)]
pub struct ShutdownReport {
    /// The sum over all actors that were alive.
    pub ledger: Ledger,
    /// How many actors that were.
    pub actors: usize,
    /// Actors that were stuck in their handlers.
    pub stuck: Vec<Stuck>,
    /// Threads that could not end because of them.
    pub threads: Vec<String>,
}

impl Engine {
    /// An engine with the default configuration, started.
    ///
    /// # Errors
    /// If the system gives no threads.
    pub fn new() -> Result<Self, EngineError> {
        Self::builder().build()
    }

    /// An engine with settings of the caller's.
    pub fn builder() -> EngineBuilder {
        EngineBuilder {
            config: EngineConfig::default(),
            hooks: Arc::default(),
            eager: true,
            paused: false,
            externals: Vec::new(),
        }
    }

    /// Starts a paused engine. What was told before is handled now.
    ///
    /// # Errors
    /// If it has been started already.
    pub fn start(&self) -> Result<(), EngineError> {
        if !self.inner.core.set_started() {
            return Err(EngineError::AlreadyStarted);
        }
        self.inner.pools.iter().for_each(Pool::start);
        Ok(())
    }

    /// Stops all actors, children before their parents, handling what they had accepted; then ends all threads.
    ///
    /// Never takes longer than `timeout` plus the time of a few thread switches: what is stuck then is named in the
    /// report. A second call answers with the report of the first.
    pub fn shutdown(&self, timeout: Duration) -> ShutdownReport {
        let deadline =
            Instant::now().checked_add(timeout).unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400 * 365));
        self.inner.shutdown(true, deadline)
    }

    /// [`shutdown`](Engine::shutdown) on a thread of its own, for callers that must not block. It goes on if the future is dropped.
    pub fn begin_shutdown(&self, timeout: Duration) -> impl Future<Output = ShutdownReport> + Send + use<> {
        let place: Arc<Mutex<(Option<ShutdownReport>, Option<Waker>)>> = Arc::default();
        let engine = self.clone();
        let done = Arc::clone(&place);
        let work = move || {
            let report = engine.shutdown(timeout);
            drop(engine);
            let waker = {
                let mut place = done.lock();
                place.0 = Some(report);
                place.1.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        };
        if thread::Builder::new().name("tidewire-shutdown".into()).spawn(work).is_err() {
            let report = self.shutdown(timeout);
            place.lock().0 = Some(report);
        }
        std::future::poll_fn(move |cx| {
            let mut place = place.lock();
            match place.0.take() {
                Some(report) => std::task::Poll::Ready(report),
                None => {
                    place.1 = Some(cx.waker().clone());
                    std::task::Poll::Pending
                }
            }
        })
    }

    /// A handle for use inside actors.
    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }
}

impl std::ops::Deref for Engine {
    type Target = EngineHandle;

    fn deref(&self) -> &EngineHandle {
        &self.handle
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({} actors, {} dispatchers)", self.core.alive(), self.core.dispatchers.read().len())
    }
}

impl EngineHandle {
    /// Spawns an actor with default options. Its state is given as a value, so it can't be restarted.
    ///
    /// # Errors
    /// If the engine is shutting down or holds too many actors.
    pub fn spawn<A: Actor>(&self, actor: A) -> Result<ActorRef<A::Message>, SpawnError> {
        self.spawn_driver(SpawnOptions::new(), Box::new(Typed::new(actor)), None)
    }

    /// Spawns an actor whose state is made by `factory` on its dispatcher, at the start and at every restart.
    ///
    /// # Errors
    /// If the name is taken, the dispatcher unknown, an option out of range, or the engine is shutting down.
    pub fn spawn_with<A, F>(&self, options: SpawnOptions, factory: F) -> Result<ActorRef<A::Message>, SpawnError>
    where
        A: Actor,
        F: FnMut() -> A + Send + 'static,
    {
        self.spawn_driver(options, Box::new(Typed::with_factory(factory)), None)
    }

    /// Spawns an actor made of one function, with default options.
    ///
    /// ```
    /// # use tidewire_engine::{Engine, Stop};
    /// # use std::time::Duration;
    /// let engine = Engine::new()?;
    /// let printer = engine.spawn_fn(|text: String, _| { println!("{text}"); Ok(()) })?;
    /// printer.tell("hello".into())?;
    /// assert_eq!(printer.stop(Stop::drain(Duration::from_secs(1))).wait()?.ledger.handled, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`spawn`](EngineHandle::spawn).
    pub fn spawn_fn<M, F>(&self, function: F) -> Result<ActorRef<M>, SpawnError>
    where
        M: Send + 'static,
        F: FnMut(M, &mut Context<'_, M>) -> Result<(), Fault> + Send + 'static,
    {
        self.spawn_fn_with(SpawnOptions::new(), function)
    }

    /// Spawns an actor made of one function.
    ///
    /// # Errors
    /// As for [`spawn_with`](EngineHandle::spawn_with). A function can't be restarted.
    pub fn spawn_fn_with<M, F>(&self, options: SpawnOptions, function: F) -> Result<ActorRef<M>, SpawnError>
    where
        M: Send + 'static,
        F: FnMut(M, &mut Context<'_, M>) -> Result<(), Fault> + Send + 'static,
    {
        self.spawn_driver(options, Box::new(Typed::new(FunctionOf::new(function)).without_start()), None)
    }

    /// Spawns an actor that is a future: it takes messages from its [`Inbox`] and may await between them.
    ///
    /// ```
    /// # use tidewire_engine::{Engine, SpawnOptions, Inbox, Stop};
    /// # use std::time::Duration;
    /// let engine = Engine::new()?;
    /// let adder = engine.spawn_task(SpawnOptions::new(), |mut inbox: Inbox<u64>| async move {
    ///     let mut total = 0;
    ///     while let Some(n) = inbox.recv().await { total += n; }
    ///     assert_eq!(total, 5);
    ///     Ok(())
    /// })?;
    /// adder.tell(2)?;
    /// adder.tell(3)?;
    /// assert_eq!(adder.stop(Stop::drain(Duration::from_secs(1))).wait()?.ledger.handled, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`spawn_with`](EngineHandle::spawn_with).
    pub fn spawn_task<M, F, Fut>(&self, options: SpawnOptions, make: F) -> Result<ActorRef<M>, SpawnError>
    where
        M: Send + 'static,
        F: FnMut(Inbox<M>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Fault>> + Send + 'static,
    {
        self.spawn_driver(options, Box::new(Task::new(make)), None)
    }

    /// The live actor with this name, if there is one and it takes messages of type `M`.
    pub fn lookup<M: Send + 'static>(&self, name: &str) -> Option<ActorRef<M>> {
        let cell = self.core.find_by_name(name)?;
        cell.as_any().downcast::<Cell<M>>().ok().map(|cell| ActorRef { cell })
    }

    /// Delivers messages that are published on subjects matching `pattern` to an actor.
    ///
    /// # Errors
    /// If the pattern is malformed, the actor has stopped, or there are too many subscriptions.
    pub fn subscribe<M: Clone + Send + 'static>(
        &self,
        pattern: &str,
        actor: &ActorRef<M>,
    ) -> Result<Subscription, SubscribeError> {
        self.subscribe_in(pattern, None, actor)
    }

    /// Looks whether a pattern is one, before anything is made that needs it.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn check_pattern(&self, pattern: &str) -> Result<(), SubscribeError> {
        Ok(Pattern::new(pattern).map(drop)?)
    }

    /// As [`subscribe`](EngineHandle::subscribe), sharing the messages with the other members of the queue group.
    ///
    /// # Errors
    /// As for [`subscribe`](EngineHandle::subscribe).
    pub fn subscribe_in<M: Send + 'static>(
        &self,
        pattern: &str,
        queue: Option<&str>,
        actor: &ActorRef<M>,
    ) -> Result<Subscription, SubscribeError> {
        let pattern = Pattern::new(pattern)?;
        let limit = usize::try_from(limits::SUBSCRIPTIONS.default).unwrap_or(usize::MAX);
        let id = self.core.subjects.add(&pattern, queue, &actor.cell, limit)?;
        Ok(Subscription { id, core: Arc::clone(&self.core), pattern })
    }

    /// Sets the subscriptions of an actor to exactly these patterns, and answers those now in force.
    /// Patterns that stay are not interrupted.
    ///
    /// # Errors
    /// If a pattern is malformed; nothing is changed then.
    pub fn set_subscriptions<M: Send + 'static>(
        &self,
        patterns: &[&str],
        actor: &ActorRef<M>,
    ) -> Result<Vec<String>, SubscribeError> {
        let wanted: Vec<Pattern> = patterns.iter().map(|pattern| Pattern::new(pattern)).collect::<Result<_, _>>()?;
        let present = self.core.subjects.patterns(&actor.cell.subscriptions());
        for (id, pattern) in &present {
            if !wanted.iter().any(|wanted| wanted.as_str() == pattern) {
                self.core.subjects.remove(*id);
                actor.cell.remove_subscription(*id);
            }
        }
        for pattern in &wanted {
            if !present.iter().any(|(_, present)| present == pattern.as_str()) {
                self.subscribe_in(pattern.as_str(), None, actor)?;
            }
        }
        Ok(self.subscriptions(actor))
    }

    /// Ends the subscriptions of an actor to this pattern, and answers those still in force.
    pub fn unsubscribe<M: Send + 'static>(&self, pattern: &str, actor: &ActorRef<M>) -> Vec<String> {
        for (id, present) in self.core.subjects.patterns(&actor.cell.subscriptions()) {
            if present == pattern {
                self.core.subjects.remove(id);
                actor.cell.remove_subscription(id);
            }
        }
        self.subscriptions(actor)
    }

    /// Ends all subscriptions of an actor, and answers how many there were.
    pub fn unsubscribe_all<M: Send + 'static>(&self, actor: &ActorRef<M>) -> usize {
        let ids = actor.cell.subscriptions();
        ids.into_iter()
            .filter(|id| {
                actor.cell.remove_subscription(*id);
                self.core.subjects.remove(*id)
            })
            .count()
    }

    /// The patterns that an actor is subscribed to, sorted.
    pub fn subscriptions<M: Send + 'static>(&self, actor: &ActorRef<M>) -> Vec<String> {
        let present = self.core.subjects.patterns(&actor.cell.subscriptions());
        let mut patterns: Vec<String> = present.into_iter().map(|(_, pattern)| pattern).collect();
        patterns.sort_unstable();
        patterns
    }

    /// Delivers a message to every subscription that matches now.
    ///
    /// # Errors
    /// If the subject is malformed.
    pub fn publish<M: Clone + Send + 'static>(&self, subject: &str, message: M) -> Result<Published, SubscribeError> {
        Ok(self.core.subjects.publish(&Subject::new(subject)?, message))
    }

    /// An actor that answers requests on `subject`: one of the subscribers that match now, in turn.
    ///
    /// # Errors
    /// If the subject is malformed.
    pub fn responder<M: Send + 'static>(&self, subject: &str) -> Result<Option<ActorRef<M>>, SubscribeError> {
        Ok(self.core.subjects.one(&Subject::new(subject)?).map(|cell| ActorRef { cell }))
    }

    /// Tells an actor something after a delay.
    pub fn schedule<M: Send + 'static>(&self, delay: Duration, actor: &ActorRef<M>, message: M) -> Timer {
        self.schedule_with(delay, actor, message, Priority::Normal)
    }

    /// As [`schedule`](EngineHandle::schedule), in a lane of choice.
    pub fn schedule_with<M: Send + 'static>(
        &self,
        delay: Duration,
        actor: &ActorRef<M>,
        message: M,
        priority: Priority,
    ) -> Timer {
        Timer::once(&self.core, delay, &actor.cell, message, priority)
    }

    /// Tells an actor something again and again, first after one period.
    pub fn every<M: Clone + Send + 'static>(&self, period: Duration, actor: &ActorRef<M>, message: M) -> Timer {
        self.every_after(period, period, actor, message)
    }

    /// As [`every`](EngineHandle::every), with a delay of its own before the first time.
    pub fn every_after<M: Clone + Send + 'static>(
        &self,
        delay: Duration,
        period: Duration,
        actor: &ActorRef<M>,
        message: M,
    ) -> Timer {
        self.every_after_with(delay, period, actor, message, Priority::Normal)
    }

    /// As [`every_after`](EngineHandle::every_after), in a lane of choice.
    pub fn every_after_with<M: Clone + Send + 'static>(
        &self,
        delay: Duration,
        period: Duration,
        actor: &ActorRef<M>,
        message: M,
        priority: Priority,
    ) -> Timer {
        Timer::every(&self.core, delay, period, &actor.cell, message, priority)
    }

    /// Adds a dead letter for a message that no mailbox has: one that was to be delivered later, or to be tried again.
    pub fn give_up<M: Send + 'static>(&self, actor: &ActorRef<M>, message: M, reason: DeadReason, error: Option<&str>) {
        actor.cell.record_dead(Some(message), reason, error);
    }

    /// Messages that were given up.
    pub fn dead_letters(&self) -> &DeadLetters {
        &self.core.dead
    }

    /// How many actors are alive.
    pub fn actors(&self) -> usize {
        self.core.alive()
    }

    /// The configuration in force.
    pub fn config(&self) -> &EngineConfig {
        &self.core.config
    }

    /// Counters and times of everything. The cost grows with the number of actors.
    pub fn statistics(&self) -> Statistics {
        let actors: Vec<_> = self.core.all().into_iter().map(|cell| cell.statistics()).collect();
        let dispatchers = self.core.dispatchers.read().values().map(|d| dispatcher_statistics(d, &actors)).collect();
        Statistics {
            dispatchers,
            actors,
            timers: self.core.timers.len(),
            ask_timeouts: self.core.ask_timeouts.load(Ordering::Relaxed),
            subscriptions: self.core.subjects.len(),
            waiting_for_others: self.core.rings.len(),
            dead_letters: self.core.dead.counts(),
            dead_letters_let_go: self.core.dead.let_go(),
        }
    }
}

impl Inner {
    fn shutdown(&self, drain: bool, deadline: Instant) -> ShutdownReport {
        let mut shut = self.shut.lock();
        if let Some(report) = &*shut {
            return report.clone();
        }
        self.core.set_stopping();
        let actors = self.core.all();
        for cell in actors.iter().filter(|cell| !cell.has_parent()) {
            Arc::clone(cell).begin_stop(drain, StopReason::Shutdown);
            if !self.core.is_started() {
                Arc::clone(cell).run_inline();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        crate::dispatch::blocking(|| {
            for cell in &actors {
                while Arc::clone(cell).on_end(waker.clone()) {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() || crate::current::actor() == Some(cell.id()) {
                        Arc::clone(cell).abandon();
                    } else {
                        thread::park_timeout(left);
                    }
                }
            }
        });
        let mut report = ShutdownReport { actors: actors.len(), ..ShutdownReport::default() };
        for end in actors.iter().filter_map(|cell| cell.report()) {
            report.ledger += end.ledger;
            report.stuck.extend(end.stuck);
        }
        self.core.timers.end();
        let grace = deadline.max(Instant::now() + GRACE);
        for pool in &self.pools {
            // Threads whose actors were all abandoned need no more time than it takes to notice.
            let until = if report.stuck.is_empty() { grace } else { Instant::now() + GRACE };
            report.threads.extend(pool.end(until).into_iter().map(|stuck| stuck.thread));
        }
        *shut = Some(report.clone());
        report
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shutdown(false, Instant::now() + GRACE);
    }
}

/// How long threads have to end once their actors have.
const GRACE: Duration = Duration::from_millis(100);

pub(crate) fn spawn<M: Send + 'static>(
    core: &Arc<Core>,
    options: SpawnOptions,
    driver: Box<dyn Driver<M>>,
    parent: Option<Arc<dyn AnyCell>>,
) -> Result<Arc<Cell<M>>, SpawnError> {
    options.check()?;
    if core.is_stopping() {
        return Err(SpawnError::EngineStopped);
    }
    if options.supervision.on_failure == OnFailure::Restart && !driver.can_restart() {
        return Err(SpawnError::NeedsFactory);
    }
    let limit = usize::try_from(limits::ACTORS.default).unwrap_or(usize::MAX);
    if core.alive() >= limit {
        return Err(SpawnError::TooMany { limit });
    }
    let dispatcher = find_dispatcher(core, options.dispatcher.as_deref().unwrap_or(DEFAULT_DISPATCHER))?;
    let name: Option<Arc<str>> = options.name.map(Arc::from);
    if let Some(name) = &name {
        core.reserve(name)?;
    }
    let default = Mailbox { capacity: core.config.mailbox_capacity, overflow: Overflow::Wait };
    let new = NewCell {
        id: core.next_id(),
        core: Arc::clone(core),
        dispatcher,
        name: name.clone(),
        mailbox: options.mailbox.unwrap_or(default),
        supervision: options.supervision,
        parent: parent.clone(),
    };
    let cell = Cell::new(new, driver);
    if let Some(parent) = parent
        && !parent.clone().adopt(Arc::clone(&cell) as Arc<dyn AnyCell>)
    {
        if let Some(name) = &name {
            core.release(name);
        }
        return Err(SpawnError::ParentStopped { parent: parent.id() });
    }
    core.add(Arc::clone(&cell) as Arc<dyn AnyCell>);
    cell.launch();
    Ok(cell)
}

fn find_dispatcher(core: &Core, name: &str) -> Result<Arc<Dispatcher>, SpawnError> {
    let dispatchers = core.dispatchers.read();
    dispatchers.get(name).cloned().ok_or_else(|| SpawnError::UnknownDispatcher {
        name: name.to_owned(),
        known: dispatchers.keys().cloned().collect(),
    })
}

fn dispatcher_statistics(
    dispatcher: &Dispatcher,
    actors: &[crate::statistics::ActorStatistics],
) -> DispatcherStatistics {
    let (threads, asleep) = match &dispatcher.place {
        Place::Threads(pool) => (pool.threads_alive(), pool.sleepers.count()),
        Place::External(_) => (0, 0),
    };
    let mut sum = DispatcherStatistics {
        name: dispatcher.name.clone(),
        threads,
        asleep,
        throughput: dispatcher.throughput as usize,
        actors: 0,
        accepted: 0,
        handled: 0,
        failed: 0,
        dropped: 0,
        depth: 0,
        timings: Timings::default(),
    };
    for actor in actors.iter().filter(|actor| actor.dispatcher == dispatcher.name) {
        sum.actors += 1;
        sum.accepted += actor.accepted;
        sum.handled += actor.handled;
        sum.failed += actor.failed;
        sum.dropped += actor.dropped;
        sum.depth += actor.depth;
        sum.timings.queueing.merge(&actor.timings.queueing);
        sum.timings.handling.merge(&actor.timings.handling);
    }
    sum
}

fn threads(configured: usize) -> usize {
    if configured > 0 { configured } else { thread::available_parallelism().map_or(1, usize::from) }
}

impl EngineHandle {
    /// The live actor with this id, whatever it is told: its statistics.
    pub fn statistics_of(&self, id: ActorId) -> Option<crate::statistics::ActorStatistics> {
        self.core.find(id).map(|cell| cell.statistics())
    }
}
