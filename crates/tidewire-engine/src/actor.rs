//! Actors: the traits that their authors implement, and references to actors.

pub mod future;
pub mod id;
pub mod options;
pub mod probe;
pub mod signal;

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::actor::id::ActorId;
use crate::actor::options::{Priority, SpawnOptions};
use crate::actor::signal::{Signal, StopReason};
use crate::cell::any_cell::AnyCell;
use crate::cell::driver::Driver;
use crate::cell::envelope::{Change, Envelope, Meta};
use crate::cell::{ActorCell, Sent};
use crate::config::EngineConfig;
use crate::engine::EngineHandle;
use crate::error::{AskError, Fault, Refusal, SpawnError, TellError};
use crate::reply::{Pending, Reply, Unpark};
use crate::statistics::ActorStatistics;
use crate::statistics::stop_future::Stopping;
use crate::statistics::stop_report::{Ledger, Stop};
use crate::typed::Typed;
use crate::{current, dispatch};

/// State with a handler. One message is handled at a time.
///
/// The handler is a plain function: what waits in it holds a thread. An actor that awaits between
/// its messages is a future, which takes them from an inbox: [`EngineHandle::spawn_task`].
///
/// ```
/// use std::time::Duration;
/// use tidewire_engine::{Actor, Context, Engine, Fault, Reply};
///
/// enum Count { Add(u64), Get(Reply<u64>) }
///
/// #[derive(Default)]
/// struct Counter { total: u64 }
///
/// impl Actor for Counter {
///     type Message = Count;
///     fn receive(&mut self, message: Count, _: &mut Context<'_, Count>) -> Result<(), Fault> {
///         match message {
///             Count::Add(n) => self.total += n,
///             Count::Get(reply) => { reply.send(self.total); }
///         }
///         Ok(())
///     }
/// }
///
/// let engine = Engine::new()?;
/// let counter = engine.spawn(Counter::default())?;
/// counter.tell(Count::Add(2))?;
/// counter.tell(Count::Add(3))?;
/// assert_eq!(counter.ask(Count::Get, Duration::from_secs(1)).wait()?, 5);
/// engine.shutdown(Duration::from_secs(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Actor: Send + Sized + 'static {
    /// Type of the messages of this actor.
    type Message: Send + 'static;

    /// Runs before the first message.
    ///
    /// # Errors
    /// A failure stops the actor, or restarts it if that is its policy.
    fn started(&mut self, ctx: &mut Context<'_, Self::Message>) -> Result<(), Fault> {
        let _ = ctx;
        Ok(())
    }

    /// Handles one message.
    ///
    /// # Errors
    /// A failure dead-letters the message and goes to the supervision policy. A panic counts as a
    /// failure.
    fn receive(&mut self, message: Self::Message, ctx: &mut Context<'_, Self::Message>) -> Result<(), Fault>;

    /// Takes a notice about a watched actor.
    ///
    /// # Errors
    /// As for [`receive`](Actor::receive).
    fn signal(&mut self, signal: Signal, ctx: &mut Context<'_, Self::Message>) -> Result<(), Fault> {
        let _ = (signal, ctx);
        Ok(())
    }

    /// Runs after the last message.
    fn stopped(&mut self) {}

    /// Copy of a message, stored while it is handled, for redelivery and for dead letters. None
    /// stores nothing, and costs nothing.
    fn copy(message: &Self::Message) -> Option<Self::Message> {
        let _ = message;
        None
    }
}

/// A handler that `become` puts in the place of an actor's own.
pub type Behaviour<M> = Box<dyn FnMut(M, &mut Context<'_, M>) -> Result<(), Fault> + Send>;

/// Handle of a running handler to its engine and its actor.
pub struct Context<'a, M> {
    pub(crate) cell: &'a Arc<ActorCell<M>>,
    pub(crate) meta: Option<Box<Meta<M>>>,
    pub(crate) changes: Vec<BehaviourChange<M>>,
}

pub(crate) enum BehaviourChange<M> {
    Become(Behaviour<M>, bool),
    Unbecome,
}

impl<'a, M: Send + 'static> Context<'a, M> {
    pub(crate) fn new(cell: &'a Arc<ActorCell<M>>) -> Self {
        Self { cell, meta: None, changes: Vec::new() }
    }

    /// This actor.
    pub fn me(&self) -> ActorRef<M> {
        ActorRef { cell: Arc::clone(self.cell) }
    }

    /// This actor's id.
    pub fn id(&self) -> ActorId {
        self.cell.id
    }

    /// The actor that asked, if the present message is an ask from inside a handler.
    pub fn sender(&self) -> Option<ActorId> {
        self.meta.as_ref().and_then(|meta| meta.sender)
    }

    /// How often the present message was handed out before: 0 the first time.
    pub fn failures(&self) -> u32 {
        self.meta.as_ref().map_or(0, |meta| meta.failures)
    }

    /// The engine, for spawning, publishing and timers.
    pub fn engine(&self) -> EngineHandle {
        EngineHandle { core: Arc::clone(&self.cell.core) }
    }

    /// Handles messages with `behaviour` from the next one on. With `stack`,
    /// [`unbecome`](Context::unbecome) returns to the present one.
    pub fn become_<F>(&mut self, behaviour: F, stack: bool)
    where
        F: FnMut(M, &mut Context<'_, M>) -> Result<(), Fault> + Send + 'static,
    {
        self.changes.push(BehaviourChange::Become(Box::new(behaviour), stack));
    }

    /// Goes back to the behaviour below from the next message on. At the base nothing happens.
    pub fn unbecome(&mut self) {
        self.changes.push(BehaviourChange::Unbecome);
    }

    /// Stops this actor after the present message; what was accepted is still handled.
    pub fn stop(&mut self) {
        self.cell.close(true, false, StopReason::Stopped);
    }

    /// Spawns an actor that stops with this one.
    ///
    /// # Errors
    /// As for [`EngineHandle::spawn_with`], and if this actor is stopping.
    pub fn spawn_child<A, F>(&mut self, options: SpawnOptions, factory: F) -> Result<ActorRef<A::Message>, SpawnError>
    where
        A: Actor,
        F: FnMut() -> A + Send + 'static,
    {
        let driver = Typed::with_factory(factory);
        self.engine().spawn_driver(options, Box::new(driver), Some(Arc::clone(self.cell) as Arc<dyn AnyCell>))
    }

    /// Asks for a notice when `other` terminates, or at once if it has.
    pub fn watch<N: Send + 'static>(&mut self, other: &ActorRef<N>) {
        other.cell.watched_by(Arc::clone(self.cell) as Arc<dyn AnyCell>);
    }

    /// Takes [`watch`](Context::watch) back.
    pub fn unwatch<N: Send + 'static>(&mut self, other: &ActorRef<N>) {
        other.cell.unwatched_by(self.cell.id);
    }
}

/// A reference to an actor that takes messages of type `M`. Cheap to clone, compare and hash; it
/// does not keep the actor from stopping.
pub struct ActorRef<M> {
    pub(crate) cell: Arc<ActorCell<M>>,
}

impl<M: Send + 'static> ActorRef<M> {
    /// Its id.
    pub fn id(&self) -> ActorId {
        self.cell.id
    }

    /// Its name.
    pub fn name(&self) -> Option<&str> {
        self.cell.name.as_deref()
    }

    /// True if the actor belongs to that engine.
    pub fn lives_in(&self, engine: &EngineHandle) -> bool {
        Arc::ptr_eq(&self.cell.core, &engine.core)
    }

    /// True once the engine of the actor has been started: until then its messages wait.
    pub fn is_started(&self) -> bool {
        self.cell.core.is_started()
    }

    /// True while the actor accepts messages.
    pub fn is_alive(&self) -> bool {
        self.cell.is_open()
    }

    /// Sends a message without ever blocking.
    ///
    /// # Errors
    /// If the mailbox is full and its policy is to wait or to fail, or the actor takes no more
    /// messages.
    #[inline]
    pub fn tell(&self, message: M) -> Result<Sent, TellError<M>> {
        self.tell_with(message, Priority::Normal)
    }

    /// Sends a message in a lane of the caller's choice.
    ///
    /// # Errors
    /// As for [`tell`](ActorRef::tell).
    #[inline]
    pub fn tell_with(&self, message: M, priority: Priority) -> Result<Sent, TellError<M>> {
        self.cell.push(Envelope::Plain(message), priority).map_err(refused)
    }

    /// Sends a message, and waits for capacity if the mailbox is full and its policy is to wait.
    ///
    /// # Errors
    /// If the policy is to fail, or the actor takes no more messages.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has sent nothing.
    pub fn send(&self, message: M) -> impl Future<Output = Result<Sent, TellError<M>>> + Send + use<M> {
        let cell = Arc::clone(&self.cell);
        let mut message = Some(message);
        poll_fn(move |cx| match message.take() {
            None => Poll::Pending,
            Some(next) => match cell.push_or_wait(Envelope::Plain(next), Priority::Normal, cx.waker()) {
                Ok(sent) => Poll::Ready(Ok(sent)),
                Err((Refusal::Full { .. }, envelope)) if cell.senders_wait() => {
                    message = envelope.into_message();
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(refused(error))),
            },
        })
    }

    /// Sends a message, blocking this thread while the mailbox is full and its policy is to wait.
    ///
    /// # Errors
    /// As for [`send`](ActorRef::send). Inside the actor's own handler a full mailbox is an error,
    /// because waiting could never end.
    pub fn send_blocking(&self, message: M) -> Result<Sent, TellError<M>> {
        let mut message = match self.tell(message) {
            Err(error) if error.is_full() && self.cell.senders_wait() && current::actor() != Some(self.cell.key()) => {
                error.into_message()
            }
            other => return other,
        };
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        dispatch::blocking(|| {
            loop {
                match self.cell.push_or_wait(Envelope::Plain(message), Priority::Normal, &waker).map_err(refused) {
                    Err(error) if error.is_full() => message = error.into_message(),
                    other => return other,
                }
                thread::park();
            }
        })
    }

    /// The configuration of its engine.
    pub fn config(&self) -> &EngineConfig {
        &self.cell.core.config
    }

    /// Number of accepted messages that are not finished: the waiting ones and the one in progress.
    pub fn outstanding(&self) -> usize {
        self.cell.outstanding()
    }

    /// Sends a message with a place for a reply. The message is sent before this returns; the
    /// result can be awaited or waited for.
    pub fn ask<T, F>(&self, make: F, timeout: Duration) -> Pending<T>
    where
        T: Send + 'static,
        F: FnOnce(Reply<T>) -> M,
    {
        self.ask_with(make, timeout, Priority::Normal)
    }

    /// As [`ask`](ActorRef::ask), in a lane of choice.
    pub fn ask_with<T, F>(&self, make: F, timeout: Duration, priority: Priority) -> Pending<T>
    where
        T: Send + 'static,
        F: FnOnce(Reply<T>) -> M,
    {
        let (pending, reply, handle) = Pending::new(&self.cell.core, self.id(), timeout);
        let meta = Meta { ask: Some(handle), sender: current::actor_of(self.cell.core.number), ..Meta::default() };
        let envelope = Envelope::with(make(reply), meta);
        match self.cell.push(envelope, priority) {
            Ok(Sent::Accepted | Sent::Dropped) => {}
            Err((refusal, envelope)) => {
                pending.end(AskError::Refused(refusal));
                drop(envelope);
            }
        }
        pending
    }

    /// Asks the actor to handle messages with `behaviour`, in order with the other messages of this
    /// sender.
    ///
    /// # Errors
    /// If the mailbox is full or closed.
    pub fn request_become<F>(&self, behaviour: F, stack: bool) -> Result<Sent, Refusal>
    where
        F: FnMut(M, &mut Context<'_, M>) -> Result<(), Fault> + Send + 'static,
    {
        let behaviour: Behaviour<M> = Box::new(behaviour);
        self.request(Change::Become { handler: Box::new(behaviour), stack })
    }

    /// Asks the actor to go back to the behaviour below, in order with the other messages of this
    /// sender.
    ///
    /// # Errors
    /// If the mailbox is full or closed.
    pub fn request_unbecome(&self) -> Result<Sent, Refusal> {
        self.request(Change::Unbecome)
    }

    /// Stops the actor. Its mailbox is closed when this returns; the result tells how it ended.
    pub fn stop(&self, stop: Stop) -> Stopping<M> {
        Stopping::new(&self.cell, stop)
    }

    /// Closes the mailbox and lets the actor end when it has handled what it accepted, without
    /// waiting and without a time limit.
    pub fn stop_quietly(&self) {
        self.cell.close(true, false, StopReason::Stopped);
    }

    /// Counters and times of this actor.
    pub fn statistics(&self) -> ActorStatistics {
        self.cell.statistics()
    }

    /// The ledger, once the actor has terminated.
    pub fn ledger(&self) -> Option<Ledger> {
        self.cell.report().map(|report| report.ledger)
    }

    /// Why the actor terminated, once it has.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.cell.report().map(|report| report.reason)
    }

    /// The actor as bindings see it.
    pub fn cell(&self) -> &Arc<ActorCell<M>> {
        &self.cell
    }

    /// The reference to an actor that a binding holds.
    pub fn from_cell(cell: Arc<ActorCell<M>>) -> Self {
        Self { cell }
    }

    /// Asks for a notice to `watcher` when this actor terminates, or at once if it has.
    pub fn notify_end<N: Send + 'static>(&self, watcher: &ActorRef<N>) {
        self.cell.watched_by(Arc::clone(&watcher.cell) as Arc<dyn AnyCell>);
    }

    /// Takes [`notify_end`](ActorRef::notify_end) back.
    pub fn unwatch<N: Send + 'static>(&self, watcher: &ActorRef<N>) {
        self.cell.unwatched_by(watcher.id());
    }

    /// Asks for a change of behaviour whose handler is of the type that the actor's driver takes.
    ///
    /// # Errors
    /// If the mailbox is full or closed.
    pub fn request(&self, change: Change) -> Result<Sent, Refusal> {
        self.cell.push(Envelope::change(change), Priority::Normal).map_err(|(refusal, _)| refusal)
    }
}

impl EngineHandle {
    /// Spawns an actor with a driver of the caller's; with a parent, as its child.
    ///
    /// # Errors
    /// As for [`spawn_with`](EngineHandle::spawn_with).
    pub fn spawn_raw<M: Send + 'static>(
        &self,
        options: SpawnOptions,
        driver: Box<dyn Driver<M>>,
        parent: Option<&ActorRef<M>>,
    ) -> Result<ActorRef<M>, SpawnError> {
        self.spawn_driver(options, driver, parent.map(|parent| Arc::clone(&parent.cell) as Arc<dyn AnyCell>))
    }

    pub(crate) fn spawn_driver<M: Send + 'static>(
        &self,
        options: SpawnOptions,
        driver: Box<dyn Driver<M>>,
        parent: Option<Arc<dyn AnyCell>>,
    ) -> Result<ActorRef<M>, SpawnError> {
        crate::engine::spawn(&self.core, options, driver, parent).map(|cell| ActorRef { cell })
    }
}

fn refused<M>((reason, envelope): (Refusal, Envelope<M>)) -> TellError<M> {
    match envelope.into_message() {
        Some(message) => TellError::new(reason, message),
        None => unreachable!("a refused message comes back in its envelope"),
    }
}

impl<M> Clone for ActorRef<M> {
    fn clone(&self) -> Self {
        Self { cell: Arc::clone(&self.cell) }
    }
}

impl<M> PartialEq for ActorRef<M> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cell, &other.cell)
    }
}

impl<M> Eq for ActorRef<M> {}

impl<M> std::hash::Hash for ActorRef<M> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.cell.id.hash(state);
    }
}

impl<M> fmt::Debug for ActorRef<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cell.name {
            Some(name) => write!(f, "ActorRef({} {name:?})", self.cell.id),
            None => write!(f, "ActorRef({})", self.cell.id),
        }
    }
}
