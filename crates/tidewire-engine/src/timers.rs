//! Timers: one thread that sleeps until the next deadline of a timing wheel.

pub mod clock;
pub mod deadlines;
pub mod watch;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context as TaskContext, Poll, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use tidewire_core::wheel::{Key, Wheel};

use crate::actor::ActorId;
use crate::actor::options::Priority;
use crate::cell::ActorCell;
use crate::cell::envelope::Envelope;
use crate::core::Core;
use crate::error::{DeadReason, Refusal};
use crate::guard::{guarded, wake_all};
use crate::short_mutex::ShortMutex;
use crate::timers::deadlines::{CancelOutcome, DeadlineKey, Deadlines};

/// Action at a deadline. Called on the timer thread, outside of its lock.
pub trait Fire: Send + Sync {
    /// The time has come.
    fn fire(self: Arc<Self>);

    /// Notifies a waiter that the actor is abandoned. Called on any thread, outside of all locks.
    fn abandoned(&self, _actor: ActorId) {}
    /// The engine ends before it: the time never comes.
    fn never(self: Arc<Self>) {}

    /// State of the deadline since its insertion. For watched deadlines, the call runs under locks
    /// of the engine.
    #[doc(hidden)]
    fn due(&self) -> Due {
        Due::AsSaid
    }

    /// True while somebody waits for the deadline.
    #[doc(hidden)]
    fn waits(&self) -> bool {
        true
    }
}

/// State of a deadline since its insertion.
pub enum Due {
    /// It is as it was.
    AsSaid,
    /// It is later, or earlier.
    Later(Instant),
    /// Nothing is to happen any more.
    Never,
}

pub(crate) type TimerKey = Key;

/// The timers of one engine.
pub(crate) struct Timers {
    start: Instant,
    state: ShortMutex<State>,
    deadlines: Deadlines,
    /// Until when the thread sleeps, in microseconds; 0 while it is awake.
    asleep_until: AtomicU64,
}

struct State {
    wheel: Wheel<Arc<dyn Fire>>,
    thread: Option<JoinHandle<()>>,
    hiring: bool,
    ended: bool,
}

impl Timers {
    pub fn new() -> Arc<Self> {
        let state = State { wheel: Wheel::new(), thread: None, hiring: false, ended: false };
        Arc::new(Self {
            start: Instant::now(),
            state: ShortMutex::new(state),
            deadlines: Deadlines::new(),
            asleep_until: AtomicU64::new(u64::MAX),
        })
    }

    /// Lets `fire` happen at `at`, or as soon as possible after it. None: the engine has ended, and
    /// nothing happens any more.
    pub fn insert(self: &Arc<Self>, at: Instant, fire: Arc<dyn Fire>) -> Option<TimerKey> {
        let micros = self.micros(at);
        let (key, sleeper) = {
            let mut state = self.state.lock();
            if state.ended {
                return None;
            }
            let key = state.wheel.insert(micros, fire);
            (key, self.sleeper(&mut state, micros))
        };
        self.rouse(sleeper);
        Some(key)
    }

    /// As [`insert`](Timers::insert), for something that is usually taken back long before its
    /// time. It must be taken back by [`unwatch`](Timers::unwatch) in the end, whether it has fired
    /// or not.
    #[inline]
    pub fn watch(self: &Arc<Self>, at: Instant, fire: Arc<dyn Fire>) -> DeadlineKey {
        let micros = self.micros(at);
        let key = self.deadlines.insert(micros, fire);
        if micros < self.asleep_until.load(Ordering::Relaxed) {
            let sleeper = self.sleeper(&mut self.state.lock(), micros);
            self.rouse(sleeper);
        }
        key
    }

    /// Ends a watch.
    #[inline]
    pub fn unwatch(&self, key: DeadlineKey) {
        if let CancelOutcome::InWheel(key) = self.deadlines.remove(key) {
            self.remove(key);
        }
    }

    /// Tells all who wait for an actor, until a deadline, that it is abandoned.
    pub fn abandoned(&self, actor: ActorId) {
        let (mut waiting, in_wheel) = self.deadlines.all();
        {
            let state = self.state.lock();
            waiting.extend(in_wheel.into_iter().filter_map(|key| state.wheel.get(key).cloned()));
        }
        waiting.iter().for_each(|one| one.abandoned(actor));
    }

    /// Takes a timer out. It answers with what would have happened, if it has not begun to.
    pub fn remove(&self, key: TimerKey) -> Option<Arc<dyn Fire>> {
        self.state.lock().wheel.remove(key)
    }

    /// How many timers and watches there are.
    pub fn len(&self) -> usize {
        let watches = self.deadlines.waiting();
        self.state.lock().wheel.len() + watches
    }

    /// Ends the thread and all timers.
    pub fn end(&self) {
        let (thread, mut wheel) = {
            let mut state = self.state.lock();
            state.ended = true;
            (state.thread.take(), std::mem::replace(&mut state.wheel, Wheel::new()))
        };
        if let Some(thread) = thread {
            thread.thread().unpark();
            if thread.thread().id() != thread::current().id() {
                // A panic on that thread was reported when it happened.
                let _ = thread.join();
            }
        }
        while let Some((_, fire)) = wheel.poll(u64::MAX) {
            guarded(|| fire.never());
        }
    }

    /// Microseconds since the start, rounded up so that nothing fires early.
    fn micros(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.start);
        since.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(since.subsec_nanos().div_ceil(1000)))
    }

    /// Starts the thread. Engines without timers have none.
    fn hire(self: &Arc<Self>) {
        let timers = Arc::clone(self);
        let hired = thread::Builder::new().name("tidewire-timers".into()).spawn(move || timers.run());
        let mut state = self.state.lock();
        // Without a thread the next insertion tries again.
        state.hiring = false;
        let Ok(thread) = hired else { return };
        let ended = state.ended;
        if !ended {
            // Insertions before this line knew of no thread to wake.
            thread.thread().unpark();
            state.thread = Some(thread);
            return;
        }
        drop(state);
        // The thread sees the end by itself.
        drop(thread);
    }

    fn run(&self) {
        let mut due = Vec::new();
        loop {
            let now = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.deadlines.move_due(now, |at| self.micros(at), |at, fire| self.state.lock().wheel.insert(at, fire));
            let until = {
                let mut state = self.state.lock();
                if state.ended {
                    return;
                }
                while due.len() < BURST
                    && let Some((_, fire)) = state.wheel.poll(now)
                {
                    due.push(fire);
                }
                let until = if due.is_empty() { state.wheel.next_deadline().unwrap_or(u64::MAX) } else { 0 };
                self.asleep_until.store(until, Ordering::Relaxed);
                until
            };
            if due.is_empty() {
                self.sleep(until);
            }
            due.drain(..).for_each(|fire| _ = guarded(|| fire.fire()));
        }
    }

    /// Sleeps until the next deadline, or until an earlier one is inserted.
    fn sleep(&self, wheel: u64) {
        // An insertion that this does not see yet has seen what `run` wrote, and wakes this thread.
        let until = self.deadlines.earliest().min(wheel);
        self.asleep_until.store(until, Ordering::Relaxed);
        if until == u64::MAX {
            return thread::park();
        }
        if let Some(until) = self.start.checked_add(Duration::from_micros(until)) {
            thread::park_timeout(until.saturating_duration_since(Instant::now()));
        }
    }

    fn rouse(self: &Arc<Self>, sleeper: Sleeper) {
        match sleeper {
            Sleeper::Sleeps => {}
            Sleeper::Wakes(thread) => thread.unpark(),
            Sleeper::Missing => self.hire(),
        }
    }

    /// Looks whether the thread has to wake earlier than it would, for something at `micros`.
    fn sleeper(&self, state: &mut State, micros: u64) -> Sleeper {
        let Some(thread) = &state.thread else {
            let missing = !state.ended && !std::mem::replace(&mut state.hiring, true);
            return if missing { Sleeper::Missing } else { Sleeper::Sleeps };
        };
        if micros >= self.asleep_until.load(Ordering::Relaxed) {
            return Sleeper::Sleeps;
        }
        self.asleep_until.store(0, Ordering::Relaxed);
        Sleeper::Wakes(thread.thread().clone())
    }
}

/// Most timers that fire before newer ones are looked at.
const BURST: usize = 1024;

/// Duty of an insertion towards the timer thread.
enum Sleeper {
    /// It is awake, or wakes early enough.
    Sleeps,
    /// It must be woken.
    Wakes(Thread),
    /// There is none yet, and this insertion is to start it.
    Missing,
}

/// How a timer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimerOutcome {
    /// Its message was accepted.
    Delivered,
    /// It was cancelled, or its engine has ended before its time.
    Cancelled,
    /// Its target had stopped.
    NoTarget,
    /// The mailbox of its target was full.
    MailboxFull,
}

impl TimerOutcome {
    /// The outcome as one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Cancelled => "cancelled",
            Self::NoTarget => "no_target",
            Self::MailboxFull => "mailbox_full",
        }
    }
}

/// A scheduled message. Dropping this handle does not cancel it.
#[derive(Clone)]
pub struct Timer {
    /// Some until it is dropped.
    node: Option<Arc<dyn Alarm>>,
}

thread_local! {
    /// The node of a timer that is over, for the next one of its type. Where many timers wait, the
    /// allocator's pages are full: it would take one from the system for each node, and give it
    /// back (decision 5).
    static SPARE: std::cell::Cell<Option<Arc<dyn Alarm>>> = const { std::cell::Cell::new(None) };
}

impl Drop for Timer {
    fn drop(&mut self) {
        let Some(node) = self.node.take() else { return };
        if Arc::strong_count(&node) == 1 && node.is_over() {
            // Without a place for it, as at the end of a thread, it is dropped.
            let _ = SPARE.try_with(|spare| spare.set(Some(node)));
        }
    }
}

impl Timer {
    pub(crate) fn once<M: Send + 'static>(
        core: &Arc<Core>,
        delay: Duration,
        cell: &Arc<ActorCell<M>>,
        message: M,
        priority: Priority,
    ) -> Self {
        Self::arm(core, delay, cell, What::Once(message), None, priority)
    }

    pub(crate) fn every<M: Clone + Send + 'static>(
        core: &Arc<Core>,
        delay: Duration,
        every: Duration,
        cell: &Arc<ActorCell<M>>,
        message: M,
        priority: Priority,
    ) -> Self {
        let every = every.max(Duration::from_micros(1));
        Self::arm(core, delay, cell, What::Every(message, M::clone), Some(every), priority)
    }

    pub(crate) fn every_made<M: Send + 'static>(
        core: &Arc<Core>,
        period: Duration,
        cell: &Arc<ActorCell<M>>,
        make: impl FnMut() -> M + Send + 'static,
    ) -> Self {
        let period = period.max(Duration::from_micros(1));
        Self::arm(core, period, cell, What::Made(Box::new(make)), Some(period), Priority::Normal)
    }

    /// Prevents the next delivery. Answers true if, and only if, it did; a repeating timer ends
    /// with it.
    pub fn cancel(&self) -> bool {
        self.alarm().cancel()
    }

    /// The outcome, once there is one. A repeating timer has one when it ends.
    pub fn outcome(&self) -> Option<TimerOutcome> {
        self.alarm().outcome()
    }

    /// Waits for the outcome without blocking a thread. Dropping the future loses nothing.
    pub fn finished(&self) -> impl Future<Output = TimerOutcome> + use<> {
        let node = Arc::clone(self.alarm());
        std::future::poll_fn(move |cx: &mut TaskContext<'_>| node.poll(cx.waker()))
    }

    fn arm<M: Send + 'static>(
        core: &Arc<Core>,
        delay: Duration,
        cell: &Arc<ActorCell<M>>,
        what: What<M>,
        every: Option<Duration>,
        priority: Priority,
    ) -> Self {
        let due = Instant::now().checked_add(delay);
        let node = Node::spare();
        {
            // The key is stored under the node's lock, so that a timer that fires at once waits for
            // it.
            let mut state = node.state.lock();
            let cell = Some(Arc::clone(cell));
            *state = NodeState { cell, what, every, priority, due, ..NodeState::over() };
            node.over.store(false, Ordering::Relaxed);
            let key = due.map(|due| core.timers.insert(due, Arc::clone(&node) as Arc<dyn Fire>));
            state.key = key.flatten();
            if key == Some(None) {
                drop(state);
                node.end(TimerOutcome::Cancelled);
            }
        }
        Self { node: Some(node) }
    }

    fn alarm(&self) -> &Arc<dyn Alarm> {
        match &self.node {
            Some(node) => node,
            None => unreachable!("the node is taken out only where the handle goes itself"),
        }
    }
}

trait Alarm: Any + Send + Sync {
    /// True if the timer has an outcome, so that nothing happens to it any more.
    fn is_over(&self) -> bool;
    fn cancel(&self) -> bool;
    fn outcome(&self) -> Option<TimerOutcome>;
    fn poll(&self, waker: &Waker) -> Poll<TimerOutcome>;
}

struct Node<M> {
    state: ShortMutex<NodeState<M>>,
    over: AtomicBool,
}

struct NodeState<M> {
    /// The target, until there is an outcome.
    cell: Option<Arc<ActorCell<M>>>,
    what: What<M>,
    every: Option<Duration>,
    priority: Priority,
    key: Option<TimerKey>,
    due: Option<Instant>,
    outcome: Option<TimerOutcome>,
    wakers: Vec<Waker>,
}

enum What<M> {
    Once(M),
    Every(M, fn(&M) -> M),
    Made(Box<dyn FnMut() -> M + Send>),
    /// There is an outcome, or the message is being copied.
    Over,
}

impl<M> NodeState<M> {
    fn over() -> Self {
        let (what, priority) = (What::Over, Priority::Normal);
        Self { cell: None, what, every: None, priority, key: None, due: None, outcome: None, wakers: Vec::new() }
    }
}

impl<M: Send + 'static> Node<M> {
    /// A node that nobody else has: the one that this thread keeps, or a new one.
    fn spare() -> Arc<Self> {
        let cached = SPARE.try_with(std::cell::Cell::take).ok().flatten();
        let cached = cached.and_then(|cached| (cached as Arc<dyn Any + Send + Sync>).downcast().ok());
        cached.unwrap_or_else(|| {
            Arc::new(Self { state: ShortMutex::new(NodeState::over()), over: AtomicBool::new(true) })
        })
    }

    fn end(&self, outcome: TimerOutcome) {
        let (cell, what, wakers) = {
            let mut state = self.state.lock();
            if state.outcome.is_some() {
                return;
            }
            state.outcome = Some(outcome);
            self.over.store(true, Ordering::Relaxed);
            (state.cell.take(), std::mem::replace(&mut state.what, What::Over), std::mem::take(&mut state.wakers))
        };
        drop((what, cell));
        wake_all(wakers);
    }

    /// Puts the message of a repeating timer back, unless the timer was cancelled meanwhile.
    fn keep(&self, what: What<M>) {
        let mut state = self.state.lock();
        if state.outcome.is_none() {
            state.what = what;
            return;
        }
        drop(state);
        drop(what);
    }

    /// Sets the next beat of a repeating timer; beats that were missed are skipped.
    fn again(self: &Arc<Self>, cell: &ActorCell<M>, every: Duration) {
        let now = Instant::now();
        let mut state = self.state.lock();
        // A cancel that came while this beat was delivered has left its mark.
        if state.outcome.is_some() {
            return;
        }
        let due = state.due.unwrap_or(now);
        let late = now.saturating_duration_since(due).as_nanos() / every.as_nanos();
        let beats = u32::try_from(late + 1).unwrap_or(u32::MAX);
        let next = due.checked_add(every.saturating_mul(beats));
        state.due = next;
        let key = next.map(|next| cell.core.timers.insert(next, Arc::clone(self) as Arc<dyn Fire>));
        state.key = key.flatten();
        if key == Some(None) {
            drop(state);
            self.end(TimerOutcome::Cancelled);
        }
    }
}

impl<M: Send + 'static> Fire for Node<M> {
    fn fire(self: Arc<Self>) {
        let (what, cell, priority, every) = {
            let mut state = self.state.lock();
            let what = std::mem::replace(&mut state.what, What::Over);
            (what, state.cell.clone(), state.priority, state.every)
        };
        // A copy runs code of the user, which may wait for a thread that cancels the timer: no
        // thread may spin for it.
        let message = match what {
            What::Once(message) => message,
            What::Every(message, copy) => {
                let copied = copy(&message);
                self.keep(What::Every(message, copy));
                copied
            }
            What::Made(mut make) => {
                let made = make();
                self.keep(What::Made(make));
                made
            }
            What::Over => return,
        };
        let Some(cell) = cell else { return };
        let outcome = match cell.push(Envelope::Plain(message), priority) {
            Ok(_) => TimerOutcome::Delivered,
            Err((Refusal::Stopped { .. }, _)) => TimerOutcome::NoTarget,
            Err((Refusal::Full { .. }, envelope)) => {
                cell.bury_refused(envelope, DeadReason::MailboxFull);
                TimerOutcome::MailboxFull
            }
        };
        match every {
            Some(every) if outcome != TimerOutcome::NoTarget => {
                self.again(&cell, every);
            }
            _ => self.end(outcome),
        }
    }

    fn never(self: Arc<Self>) {
        self.end(TimerOutcome::Cancelled);
    }
}

impl<M: Send + 'static> Alarm for Node<M> {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn cancel(&self) -> bool {
        let mut state = self.state.lock();
        if state.outcome.is_some() {
            return false;
        }
        let taken = match (&state.cell, state.key) {
            (Some(cell), Some(key)) => cell.core.timers.remove(key),
            _ => None,
        };
        let never = state.due.is_none();
        if taken.is_none() && !never && state.every.is_none() {
            return false;
        }
        state.outcome = Some(TimerOutcome::Cancelled);
        self.over.store(true, Ordering::Relaxed);
        let cell = state.cell.take();
        let what = std::mem::replace(&mut state.what, What::Over);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        drop((what, cell));
        wake_all(wakers);
        taken.is_some() || never
    }

    fn outcome(&self) -> Option<TimerOutcome> {
        self.state.lock().outcome
    }

    fn poll(&self, waker: &Waker) -> Poll<TimerOutcome> {
        let mut state = self.state.lock();
        match state.outcome {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                if !state.wakers.iter().any(|known| known.will_wake(waker)) {
                    state.wakers.push(waker.clone());
                }
                Poll::Pending
            }
        }
    }
}
