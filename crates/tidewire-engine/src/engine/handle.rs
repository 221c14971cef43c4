//! The engine handle: spawn, look up, publish and stop, for callers that do not own the engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidewire_proto::generated::limits;
use tidewire_proto::subject::{Pattern, Subject};
use tidewire_sync::Mutex;

use super::EngineHandle;
use crate::actor::future::{Inbox, Task};
use crate::actor::options::{Priority, SpawnOptions};
use crate::actor::{Actor, ActorRef, Context};
use crate::cell::ActorCell;
use crate::config::EngineConfig;
use crate::core::Core;
use crate::dead_letters::{DeadLetter, DeadLetters};
use crate::dispatch::starvation::Starvation;
use crate::dispatch::{Dispatcher, DispatcherKind};
use crate::error::{DeadReason, Fault, SpawnError, SubscribeError};
use crate::statistics::{DispatcherStatistics, Statistics};
use crate::subjects::publish::{Published, Subscription};
use crate::timers::timer::Timer;
use crate::typed::{FunctionOf, Typed};

impl<M: Send + 'static> ActorCell<M> {
    /// Its engine.
    pub fn engine(&self) -> EngineHandle {
        EngineHandle { core: Arc::clone(&self.core) }
    }
}

impl EngineHandle {
    /// Spawns an actor with default options. Its state is given as a value, so it can't be
    /// restarted.
    ///
    /// # Errors
    /// If the engine is shutting down or holds too many actors.
    pub fn spawn<A: Actor>(&self, actor: A) -> Result<ActorRef<A::Message>, SpawnError> {
        self.spawn_driver(SpawnOptions::new(), Box::new(Typed::new(actor)), None)
    }

    /// Spawns an actor whose state is made by `factory` on its dispatcher, at the start and at
    /// every restart.
    ///
    /// # Errors
    /// If the name is taken, the dispatcher unknown, an option out of range, or the engine is
    /// shutting down.
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

    /// Spawns an actor that is a future: it takes messages from its [`Inbox`] and may await between
    /// them.
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

    /// As [`spawn_task`](EngineHandle::spawn_task), for a future that is made once: what it has
    /// moved in need not be cloned.
    ///
    /// # Errors
    /// As for [`spawn_with`](EngineHandle::spawn_with). It can't be restarted.
    pub fn spawn_task_once<M, F, Fut>(&self, options: SpawnOptions, make: F) -> Result<ActorRef<M>, SpawnError>
    where
        M: Send + 'static,
        F: FnOnce(Inbox<M>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Fault>> + Send + 'static,
    {
        self.spawn_driver(options, Box::new(Task::once(make)), None)
    }

    /// The live actor with this name, if there is one and it takes messages of type `M`.
    pub fn lookup<M: Send + 'static>(&self, name: &str) -> Option<ActorRef<M>> {
        let cell = self.core.find_by_name(name)?;
        cell.as_any().downcast::<ActorCell<M>>().ok().map(|cell| ActorRef { cell })
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

    /// As [`subscribe`](EngineHandle::subscribe), sharing the messages with the other members of
    /// the queue group.
    ///
    /// # Errors
    /// As for [`subscribe`](EngineHandle::subscribe).
    pub fn subscribe_in<M: Send + 'static>(
        &self,
        pattern: &str,
        queue: Option<&str>,
        actor: &ActorRef<M>,
    ) -> Result<Subscription, SubscribeError> {
        self.add_subscription(pattern, queue, actor, false)
    }

    /// As [`subscribe_in`](EngineHandle::subscribe_in), for an actor that only listens:
    /// [`responder`](EngineHandle::responder) does not find it by this subscription.
    ///
    /// # Errors
    /// As for [`subscribe`](EngineHandle::subscribe).
    pub fn listen_in<M: Send + 'static>(
        &self,
        pattern: &str,
        queue: Option<&str>,
        actor: &ActorRef<M>,
    ) -> Result<Subscription, SubscribeError> {
        self.add_subscription(pattern, queue, actor, true)
    }

    fn add_subscription<M: Send + 'static>(
        &self,
        pattern: &str,
        queue: Option<&str>,
        actor: &ActorRef<M>,
        listens: bool,
    ) -> Result<Subscription, SubscribeError> {
        let pattern = Pattern::new(pattern)?;
        let limit = usize::try_from(limits::SUBSCRIPTIONS.default).unwrap_or(usize::MAX);
        let id = self.core.subjects.add(&pattern, queue, &actor.cell, listens, limit)?;
        Ok(Subscription { id, core: Arc::clone(&self.core), pattern })
    }

    /// Sets the subscriptions of an actor to exactly these patterns, and answers those now in
    /// force. Patterns that stay are not interrupted.
    ///
    /// # Errors
    /// If a pattern is malformed; nothing is changed then.
    pub fn set_subscriptions<M: Send + 'static>(
        &self,
        patterns: &[&str],
        actor: &ActorRef<M>,
    ) -> Result<Vec<String>, SubscribeError> {
        let patterns: Vec<Pattern> = patterns.iter().map(|pattern| Pattern::new(pattern)).collect::<Result<_, _>>()?;
        let present = self.core.subjects.patterns(&actor.cell.subscriptions());
        for (id, pattern) in &present {
            if !patterns.iter().any(|new| new.as_str() == pattern) {
                self.core.subjects.remove(*id);
                actor.cell.remove_subscription(*id);
            }
        }
        for pattern in &patterns {
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

    /// An actor that answers requests on `subject`: one of the subscribers that match now and don't
    /// only listen, in turn.
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

    /// As [`every`](EngineHandle::every), with a message that is made anew for each time: for those
    /// that can't be cloned.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidewire_engine::Engine;
    /// let engine = Engine::new()?;
    /// let (sender, beats) = std::sync::mpsc::channel();
    /// let clock = engine.spawn_fn(move |beat: Box<u32>, _| Ok(sender.send(beat)?))?;
    /// let mut last = 0;
    /// let timer = engine.every_with(Duration::from_millis(1), &clock, move || { last += 1; Box::new(last) });
    /// assert_eq!((*beats.recv()?, *beats.recv()?), (1, 2));
    /// timer.cancel();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn every_with<M, F>(&self, period: Duration, actor: &ActorRef<M>, make: F) -> Timer
    where
        M: Send + 'static,
        F: FnMut() -> M + Send + 'static,
    {
        Timer::every_made(&self.core, period, &actor.cell, make)
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

    /// Adds a dead letter for a message that no mailbox has: one that was to be delivered later, or
    /// to be tried again.
    pub fn give_up<M: Send + 'static>(&self, actor: &ActorRef<M>, message: M, reason: DeadReason, error: Option<&str>) {
        actor.cell.record(Some(message), reason, error, None);
    }

    /// Adds a dead letter for a message to a receiver outside of this engine, which is called
    /// `name`. Its actor is a number that no actor has; to requeue the letter fails.
    pub fn lost<M: Send + 'static>(&self, name: &str, message: M, reason: DeadReason, error: Option<&str>) {
        self.core.dead.add(DeadLetter {
            number: 0,
            actor: self.core.next_id(),
            name: Some(Arc::from(name)),
            reason,
            error: error.map(Arc::from),
            detail: None,
            at: std::time::SystemTime::now(),
            message: Some(Arc::new(Mutex::new(Some(Box::new(message))))),
            cell: None,
        });
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
        let dispatchers: Vec<_> = self.core.dispatchers.read().values().cloned().collect();
        let dispatchers = dispatchers.iter().map(|d| dispatcher_statistics(&self.core, d, &actors)).collect();
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

    /// The dispatcher that has had no free thread for longest, and for how long, as seen by calls
    /// of this.
    pub fn starvation(&self) -> Option<(Starvation, Duration)> {
        let dispatchers: Vec<_> = self.core.dispatchers.read().values().cloned().collect();
        let stalled = |dispatcher: &Arc<Dispatcher>| match &dispatcher.place {
            DispatcherKind::Threads(pool) => pool.stalled_for(),
            DispatcherKind::External(_) => Duration::ZERO,
        };
        let longest = dispatchers.iter().map(|one| (one, stalled(one))).max_by_key(|(_, time)| *time);
        let (dispatcher, time) = longest.filter(|(_, time)| !time.is_zero())?;
        Some((self.core.starvation(dispatcher, None)?, time))
    }
}

fn dispatcher_statistics(
    core: &Core,
    dispatcher: &Dispatcher,
    actors: &[crate::statistics::ActorStatistics],
) -> DispatcherStatistics {
    let (threads, threads_max, asleep) = match &dispatcher.place {
        DispatcherKind::Threads(pool) => {
            (pool.threads_alive(), pool.options.threads + pool.options.spare_threads, pool.sleepers.count())
        }
        DispatcherKind::External(_) => (0, 0, 0),
    };
    let mut sum = DispatcherStatistics {
        name: dispatcher.name.clone(),
        threads,
        threads_max,
        asleep,
        starved: core.starvation(dispatcher, None),
        throughput: dispatcher.throughput as usize,
        ..DispatcherStatistics::default()
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
