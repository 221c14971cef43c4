//! Actor cell: mailbox, driver, relations and end of one actor, as the engine sees them.
//!
//! Locks, in the order in which they may be held together: `work`, then one of `inbox` or `aside`.
//! No user code runs under `inbox` or `aside`; messages and wakers are dropped after them.

pub mod actor_run;
pub(crate) mod any_cell;
pub mod driver;
pub mod envelope;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use tidewire_sync::Mutex;

use crate::actor::id::{ActorId, ActorKey};
use crate::actor::options::{Mailbox, Priority, Supervision};
use crate::actor::signal::{Notice, Signal, StopReason};
use crate::cell::actor_run::{ActorRun, NextStep};
use crate::cell::any_cell::AnyCell;
use crate::cell::driver::{Activation, Driver};
use crate::cell::envelope::Envelope;
use crate::core::Core;
use crate::dispatch::{self, Dispatcher, Run as Runnable, Task};
use crate::error::{DeadReason, Refusal};
use crate::guard::{guarded, wake_all};
use crate::inbox::{AcceptState, BoxedQueue, Inbox, PushOutcome, Run};
use crate::short_mutex::ShortMutex;
use crate::statistics::stop_report::{EndReporter, Ledger, Report};
use crate::statistics::{Timings, is_sampled};

mod any;
mod dead_letter;

use dead_letter::OwedDeadLetters;

/// Lanes other than the normal one, or the engine, want attention.
pub(crate) const ATTEND_LANES: u8 = 1;
/// Senders wait for capacity.
pub(crate) const ATTEND_WAITERS: u8 = 2;
/// Somebody waits until there is nothing to do.
pub(crate) const ATTEND_REST: u8 = 4;
/// Capacity in envelopes that an idle mailbox keeps.
pub(crate) const KEEP: usize = 8;

/// Outcome of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It waits in the mailbox.
    Accepted,
    /// The mailbox was full, and its policy is to let new messages go.
    Dropped,
}

/// One actor. Shared by its references, run queues and relations.
///
/// The order of the fields keeps what the running actor writes for every message more than a cache
/// line away from what senders write: without that, each handled message would slow the next sender
/// down.
#[repr(C)]
pub struct ActorCell<M> {
    pub(crate) handled: AtomicU64,
    /// Taken from the inbox and not begun.
    pub(crate) in_hand: AtomicU32,
    pub(crate) thread: AtomicU32,
    pub(crate) attention: AtomicU8,
    work: Mutex<ActorRun<M>>,

    pub(crate) id: ActorId,
    pub(crate) core: Arc<Core>,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) name: Option<Arc<str>>,
    aside: Mutex<Option<Box<ColdState<M>>>>,

    pub(crate) inbox: ShortMutex<Inbox<M>>,
}

/// Rarely used state of an actor, allocated on first use.
pub(crate) struct ColdState<M> {
    pub parent: Option<Arc<dyn AnyCell>>,
    pub children: BTreeMap<ActorId, Arc<dyn AnyCell>>,
    pub watchers: Vec<Arc<dyn AnyCell>>,
    /// To be woken when there is nothing to do.
    pub idle_wakers: Vec<Waker>,
    pub ending: Option<Arc<EndReporter<M>>>,
    pub reason: Option<StopReason>,
    /// Returned messages go to the caller of `stop`; otherwise they become dead letters.
    pub returns: bool,
    pub report: Option<Report>,
    /// Report to deliver once the state of the actor is dropped.
    pub ends_with: Option<Report>,
    /// Nobody waits for the state to be dropped any more.
    pub hurries: bool,
    /// Its children are being stopped: it takes no more.
    pub refuses_children: bool,
    pub timings: Timings,
    pub failed: u64,
    /// Messages that were taken and became dead letters.
    pub dead: u64,
    /// It is abandoned, with messages in hand.
    pub owed: Option<OwedDeadLetters>,
    pub failed_outside: Option<String>,
    pub restarts: u64,
    pub subscriptions: Vec<u64>,
}

impl<M> Default for ColdState<M> {
    fn default() -> Self {
        Self {
            parent: None,
            children: BTreeMap::new(),
            watchers: Vec::new(),
            idle_wakers: Vec::new(),
            ending: None,
            reason: None,
            returns: false,
            report: None,
            ends_with: None,
            hurries: false,
            refuses_children: false,
            timings: Timings::default(),
            failed: 0,
            dead: 0,
            owed: None,
            failed_outside: None,
            restarts: 0,
            subscriptions: Vec::new(),
        }
    }
}

pub(crate) struct NewCell {
    pub id: ActorId,
    pub core: Arc<Core>,
    pub dispatcher: Arc<Dispatcher>,
    pub name: Option<Arc<str>>,
    pub mailbox: Mailbox,
    pub supervision: Supervision,
    pub parent: Option<Arc<dyn AnyCell>>,
}

impl<M: Send + 'static> ActorCell<M> {
    pub(crate) fn new(new: NewCell, driver: Box<dyn Driver<M>>) -> Arc<Self> {
        let mut inbox = Inbox::new(new.mailbox.capacity as u32, new.mailbox.overflow, Run::Idle);
        let starts = driver.wants_start();
        if starts {
            inbox.notify(Notice::Start);
        }
        let aside = new.parent.map(|parent| Box::new(ColdState { parent: Some(parent), ..ColdState::default() }));
        Arc::new(Self {
            id: new.id,
            core: new.core,
            dispatcher: new.dispatcher,
            name: new.name,
            attention: AtomicU8::new(if starts { ATTEND_LANES } else { 0 }),
            in_hand: AtomicU32::new(0),
            thread: AtomicU32::new(0),
            handled: AtomicU64::new(0),
            inbox: ShortMutex::new(inbox),
            work: Mutex::new(ActorRun::new(driver, new.supervision, new.id)),
            aside: Mutex::new(aside),
        })
    }

    /// Lets a new actor run if its start hook wants to.
    pub(crate) fn launch(self: &Arc<Self>) {
        if self.attention.load(Ordering::Relaxed) != 0 {
            self.schedule();
        }
    }

    /// Offers a message to the mailbox.
    ///
    /// # Errors
    /// If the mailbox is full or closed. The envelope comes back.
    #[inline]
    pub fn push(self: &Arc<Self>, envelope: Envelope<M>, priority: Priority) -> Result<Sent, (Refusal, Envelope<M>)> {
        let pushed = {
            let mut inbox = self.inbox.lock();
            if priority != Priority::Normal {
                self.attention.fetch_or(ATTEND_LANES, Ordering::Relaxed);
            }
            inbox.push(envelope, priority, || self.in_hand.load(Ordering::Relaxed))
        };
        match pushed {
            PushOutcome::Accepted { wake } => {
                if wake {
                    self.schedule();
                }
                Ok(Sent::Accepted)
            }
            other => self.pushed(other),
        }
    }

    #[cold]
    fn pushed(self: &Arc<Self>, pushed: PushOutcome<M>) -> Result<Sent, (Refusal, Envelope<M>)> {
        match pushed {
            PushOutcome::Accepted { wake } => {
                if wake {
                    self.schedule();
                }
                Ok(Sent::Accepted)
            }
            PushOutcome::Evicted { wake, old } => {
                let sent = self.pushed(PushOutcome::Accepted { wake });
                self.dead_letter(old, DeadReason::Dropped, None);
                sent
            }
            PushOutcome::Dropped(envelope) => {
                self.dead_letter(envelope, DeadReason::Dropped, None);
                Ok(Sent::Dropped)
            }
            PushOutcome::Full(envelope) => {
                let capacity = self.inbox.lock().capacity() as usize;
                Err((Refusal::Full { actor: self.id, capacity }, envelope))
            }
            PushOutcome::Stopped(envelope) => Err((Refusal::Stopped { actor: self.id }, envelope)),
        }
    }

    /// Offers a message; if the mailbox is full and its senders wait, `waker` is woken once there
    /// is capacity.
    ///
    /// # Errors
    /// As for [`push`](ActorCell::push); `Full` means that `waker` was registered, if the policy is
    /// to wait.
    pub fn push_or_wait(
        self: &Arc<Self>,
        envelope: Envelope<M>,
        priority: Priority,
        waker: &Waker,
    ) -> Result<Sent, (Refusal, Envelope<M>)> {
        let pushed = {
            let mut inbox = self.inbox.lock();
            if priority != Priority::Normal {
                self.attention.fetch_or(ATTEND_LANES, Ordering::Relaxed);
            }
            let pushed = inbox.push(envelope, priority, || self.in_hand.load(Ordering::Relaxed));
            if matches!(pushed, PushOutcome::Full(_)) && inbox.senders_wait() {
                inbox.wait(waker.clone());
                self.attention.fetch_or(ATTEND_WAITERS, Ordering::Relaxed);
            }
            pushed
        };
        self.pushed(pushed)
    }

    /// True if senders to this actor wait for capacity.
    pub fn senders_wait(&self) -> bool {
        self.inbox.lock().senders_wait()
    }

    /// Gives a binding the actor's desk between turns, while its handler awaits something outside:
    /// to take the next message or to report the end of one.
    pub fn outside<R>(self: &Arc<Self>, visit: impl FnOnce(&mut Activation<'_, M>) -> R) -> R {
        self.work.lock().outside(self, visit)
    }

    /// True if a binding times the message of the current handler call: as often as turns are
    /// timed.
    pub fn is_timed(&self) -> bool {
        is_sampled(self.handled.load(Ordering::Relaxed))
    }

    /// Its id.
    pub fn id(&self) -> ActorId {
        self.id
    }

    /// Key of the actor, unique across engines.
    pub fn key(&self) -> ActorKey {
        ActorKey { engine: self.core.number, id: self.id }
    }

    /// Its name.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }

    /// How many messages it has accepted and not finished.
    pub fn outstanding(&self) -> usize {
        let in_hand = self.in_hand.load(Ordering::Relaxed);
        let inbox = self.inbox.lock();
        (inbox.waiting() + in_hand) as usize + usize::from(inbox.run != Run::Idle)
    }

    /// True while the actor accepts messages.
    pub fn is_open(&self) -> bool {
        self.inbox.lock().state == AcceptState::Open
    }

    /// Lets an actor run again whose handler waited for something outside.
    pub fn resume(self: &Arc<Self>) {
        if self.is_to_run_again() {
            self.schedule();
        }
    }

    /// As [`resume`](Self::resume), by a reference that is not needed any more: the run queue takes
    /// it.
    pub(crate) fn resume_by(self: Arc<Self>) {
        if self.is_to_run_again() {
            dispatch::schedule(self);
        }
    }

    /// Marks it as active; answers whether it must be put on a run queue.
    fn is_to_run_again(&self) -> bool {
        let mut inbox = self.inbox.lock();
        let active = inbox.run == Run::Active;
        if active {
            inbox.resumed = true;
        } else {
            inbox.run = Run::Active;
        }
        !active
    }

    /// As [`resume`](Self::resume), where nothing has failed: an actor with nothing to do stays
    /// idle.
    pub fn resume_unless_idle(self: &Arc<Self>) {
        let idle = {
            let inbox = self.inbox.lock();
            inbox.run == Run::Idle && inbox.waiting() == 0 && inbox.is_quiet()
        };
        if idle {
            self.report_idle();
        } else {
            self.resume();
        }
    }

    /// Wakes the waiters for the idle state. Called after a check under the inbox lock.
    #[inline]
    pub(crate) fn report_idle(&self) {
        if self.attention.load(Ordering::Relaxed) & ATTEND_REST != 0 {
            self.wake_resters();
        }
    }

    #[cold]
    fn wake_resters(&self) {
        self.attention.fetch_and(!ATTEND_REST, Ordering::Relaxed);
        let woken = self.with_aside(|aside| std::mem::take(&mut aside.idle_wakers));
        wake_all(woken);
    }

    /// Puts a message back in order behind a change, or asks for a change of behaviour.
    pub(crate) fn schedule(self: &Arc<Self>) {
        self.dispatcher.schedule(Arc::clone(self) as Task);
    }

    pub(crate) fn wake_senders(&self, woken: Option<BoxedQueue<Waker>>) {
        if let Some(woken) = woken {
            self.attention.fetch_and(!ATTEND_WAITERS, Ordering::Relaxed);
            wake_all(*woken);
        }
    }

    pub(crate) fn admit_waiters(&self) {
        let woken = self.inbox.lock().woken(0);
        self.wake_senders(woken);
    }

    /// Closes the mailbox. Answers where the end will be reported.
    pub(crate) fn close(self: &Arc<Self>, drain: bool, returns: bool, reason: StopReason) -> Arc<EndReporter<M>> {
        let ending = self.with_aside(|aside| {
            aside.reason.get_or_insert(reason);
            aside.returns |= returns;
            Arc::clone(aside.ending.get_or_insert_with(|| EndReporter::new(aside.report.clone())))
        });
        let (wake, woken) = {
            let mut inbox = self.inbox.lock();
            inbox.state = match (inbox.state, drain) {
                (AcceptState::Open, true) => AcceptState::Draining,
                (AcceptState::Open | AcceptState::Draining, false) => AcceptState::Closing,
                (state, _) => state,
            };
            if inbox.state == AcceptState::Closing {
                self.attention.fetch_or(ATTEND_LANES, Ordering::Relaxed);
            }
            let closed = inbox.state == AcceptState::Closed;
            if inbox.run == Run::Active {
                inbox.resumed = true;
            }
            let wake = !closed && inbox.run != Run::Active;
            if wake {
                inbox.run = Run::Active;
            }
            (wake, inbox.woken(0))
        };
        self.wake_senders(woken);
        if wake {
            self.schedule();
        }
        ending
    }

    pub(crate) fn record_queueing(&self, time: Duration) {
        self.with_aside(|aside| aside.timings.queueing.record(time.as_nanos().try_into().unwrap_or(u64::MAX)));
    }

    /// Remembers a subscription, so that it ends with the actor. False if the actor takes no more
    /// messages.
    pub(crate) fn add_subscription(&self, id: u64) -> bool {
        let open = self.is_open();
        if open {
            self.with_aside(|aside| aside.subscriptions.push(id));
        }
        open
    }

    pub(crate) fn remove_subscription(&self, id: u64) {
        self.with_aside(|aside| aside.subscriptions.retain(|other| *other != id));
    }

    pub(crate) fn subscriptions(&self) -> Vec<u64> {
        self.aside.lock().as_ref().map_or_else(Vec::new, |aside| aside.subscriptions.clone())
    }

    /// Adds a watcher, or tells it at once if this actor has terminated.
    pub(crate) fn watched_by(&self, watcher: Arc<dyn AnyCell>) {
        let ended = self.with_aside(|aside| match (&aside.report, &aside.reason) {
            (Some(_), reason) => Some(reason.clone().unwrap_or(StopReason::Stopped)),
            (None, _) => {
                if !aside.watchers.iter().any(|other| other.id() == watcher.id()) {
                    aside.watchers.push(Arc::clone(&watcher));
                }
                None
            }
        });
        if let Some(reason) = ended {
            watcher.notify(Notice::Signal(self.terminated(reason)));
        }
    }

    pub(crate) fn unwatched_by(&self, watcher: ActorId) {
        self.with_aside(|aside| aside.watchers.retain(|other| other.id() != watcher));
    }

    /// The ledger when `returned` messages go back to the caller of `stop`, and `given_up` more are
    /// dead-lettered.
    pub(crate) fn ledger(&self, inbox: &Inbox<M>, dead: u64, returned: u64, given_up: u64) -> Ledger {
        let dead_lettered = dead + inbox.evicted + given_up;
        Ledger { accepted: inbox.accepted, handled: self.handled.load(Ordering::Relaxed), returned, dead_lettered }
    }

    fn terminated(&self, reason: StopReason) -> Signal {
        Signal::Terminated { actor: self.id, name: self.name.clone(), reason }
    }

    pub(crate) fn with_aside<R>(&self, visit: impl FnOnce(&mut ColdState<M>) -> R) -> R {
        visit(self.aside.lock().get_or_insert_default())
    }

    /// Reports the end to everybody who wants to know. The first report counts.
    pub(crate) fn end(&self, report: Report, returned: Vec<M>) {
        let first = self.with_aside(|aside| {
            if aside.report.is_some() {
                return None;
            }
            aside.report = Some(report.clone());
            aside.reason = Some(report.reason.clone());
            Some((aside.ending.clone(), aside.parent.take(), std::mem::take(&mut aside.watchers)))
        });
        let Some((ending, parent, watchers)) = first else { return };
        for id in self.subscriptions() {
            self.core.subjects.remove(id);
        }
        self.core.forget(self.id, self.name.as_deref());
        self.report_idle();
        for watcher in watchers {
            watcher.notify(Notice::Signal(self.terminated(report.reason.clone())));
        }
        if let Some(parent) = parent {
            parent.child_gone(self.id);
        }
        match ending {
            Some(ending) => ending.complete(report, returned),
            None => drop(returned),
        }
    }
}

impl<M: Send + 'static> ActorCell<M> {
    /// The reason of its event loop for not running it, if there is one.
    pub fn hint(&self) -> Option<String> {
        match &self.dispatcher.place {
            crate::dispatch::DispatcherKind::Threads(_) => None,
            crate::dispatch::DispatcherKind::External(external) => external.hint(),
        }
    }

    /// Recovers from a panic outside of the handlers, in a drop: the actor goes on with its
    /// remaining messages.
    #[cold]
    fn go_on(self: &Arc<Self>) {
        if self.inbox.lock().run == Run::Active {
            self.schedule();
        }
    }
}

impl<M: Send + 'static> Runnable for ActorCell<M> {
    fn run(self: Arc<Self>) {
        let entered = crate::current::enter(self.key());
        self.thread.store(crate::dispatch::threads::number(), Ordering::Relaxed);
        let mut work = self.work.lock();
        let mut after = None;
        guarded(|| after = Some(work.go(&self)));
        drop(work);
        drop(entered);
        match after {
            Some(NextStep::Rest) => {}
            Some(NextStep::Requeue) => dispatch::schedule(self),
            None => self.go_on(),
        }
    }

    fn actor(&self) -> ActorId {
        self.id
    }

    fn dispatcher(&self) -> &Arc<Dispatcher> {
        &self.dispatcher
    }

    fn discard(self: Arc<Self>) {
        // The thread that queued the actor runs it no more, or is about to release it.
        let mut work = self.work.lock();
        if self.inbox.lock().state == AcceptState::Closed {
            work.bury_hand_of_abandoned(&self);
        }
    }
}
