//! Timers: one thread that sleeps until the next deadline of a timing wheel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as TaskContext, Poll, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use tidewire_core::wheel::{Key, Wheel};

use crate::cell::Cell;
use crate::core::Core;
use crate::deadlines::{DeadlineKey, Deadlines, Taken};
use crate::envelope::Envelope;
use crate::error::{DeadReason, Refusal};
use crate::options::Priority;
use crate::short_mutex::ShortMutex;

/// What happens at a deadline. Called on the timer thread, outside of its lock.
pub trait Fire: Send + Sync {
    /// The time has come.
    fn fire(self: Arc<Self>);
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

    /// Lets `fire` happen at `at`, or as soon as possible after it.
    pub fn insert(self: &Arc<Self>, at: Instant, fire: Arc<dyn Fire>) -> TimerKey {
        let micros = self.micros(at);
        let (key, sleeper) = {
            let mut state = self.state.lock();
            let key = state.wheel.insert(micros, fire);
            (key, self.sleeper(&mut state, micros))
        };
        self.rouse(sleeper);
        key
    }

    /// As [`insert`](Timers::insert), for something that is usually taken back long before its time. It must be taken back
    /// by [`unwatch`](Timers::unwatch) in the end, whether it has fired or not.
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
        if let Taken::InWheel(key) = self.deadlines.remove(key) {
            self.remove(key);
        }
    }

    /// Takes a timer out. It answers with what would have happened, if it has not begun to.
    pub fn remove(&self, key: TimerKey) -> Option<Arc<dyn Fire>> {
        self.state.lock().wheel.remove(key)
    }

    /// How many timers and watches there are.
    pub fn len(&self) -> usize {
        let watches = self.deadlines.len();
        self.state.lock().wheel.len() + watches
    }

    /// Ends the thread and drops all timers.
    pub fn end(&self) {
        let (thread, wheel) = {
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
        drop(wheel);
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
            // What was inserted before this line knew of no thread to wake.
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
            self.deadlines.move_due(now, |at, fire| self.state.lock().wheel.insert(at, fire));
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
            due.drain(..).for_each(Fire::fire);
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

/// What an insertion has to do about the timer thread.
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
pub enum TimerOutcome {
    /// Its message was accepted.
    Delivered,
    /// It was cancelled.
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
    node: Arc<dyn Alarm>,
}

impl Timer {
    pub(crate) fn once<M: Send + 'static>(
        core: &Arc<Core>,
        delay: Duration,
        cell: &Arc<Cell<M>>,
        message: M,
        priority: Priority,
    ) -> Self {
        Self::arm(core, delay, cell, What::Once(Some(message)), None, priority)
    }

    pub(crate) fn every<M: Clone + Send + 'static>(
        core: &Arc<Core>,
        delay: Duration,
        every: Duration,
        cell: &Arc<Cell<M>>,
        message: M,
        priority: Priority,
    ) -> Self {
        let every = every.max(Duration::from_micros(1));
        Self::arm(core, delay, cell, What::Every(message, M::clone), Some(every), priority)
    }

    /// Prevents the next delivery. Answers true if, and only if, it did; a repeating timer ends with it.
    pub fn cancel(&self) -> bool {
        self.node.cancel()
    }

    /// The outcome, once there is one. A repeating timer has one when it ends.
    pub fn outcome(&self) -> Option<TimerOutcome> {
        self.node.outcome()
    }

    /// Waits for the outcome without blocking a thread. Dropping the future loses nothing.
    pub fn finished(&self) -> impl Future<Output = TimerOutcome> + use<> {
        let node = Arc::clone(&self.node);
        std::future::poll_fn(move |cx: &mut TaskContext<'_>| node.poll(cx.waker()))
    }

    fn arm<M: Send + 'static>(
        core: &Arc<Core>,
        delay: Duration,
        cell: &Arc<Cell<M>>,
        what: What<M>,
        every: Option<Duration>,
        priority: Priority,
    ) -> Self {
        let due = Instant::now().checked_add(delay);
        let node = Arc::new(Node {
            cell: Arc::clone(cell),
            state: ShortMutex::new(NodeState { what, key: None, due, outcome: None, wakers: Vec::new() }),
            every,
            priority,
        });
        if let Some(due) = due {
            // The key is stored under the node's lock, so that a timer that fires at once waits for it.
            let mut state = node.state.lock();
            state.key = Some(core.timers.insert(due, Arc::clone(&node) as Arc<dyn Fire>));
        }
        Self { node }
    }
}

trait Alarm: Send + Sync {
    fn cancel(&self) -> bool;
    fn outcome(&self) -> Option<TimerOutcome>;
    fn poll(&self, waker: &Waker) -> Poll<TimerOutcome>;
}

struct Node<M> {
    cell: Arc<Cell<M>>,
    state: ShortMutex<NodeState<M>>,
    every: Option<Duration>,
    priority: Priority,
}

struct NodeState<M> {
    what: What<M>,
    key: Option<TimerKey>,
    due: Option<Instant>,
    outcome: Option<TimerOutcome>,
    wakers: Vec<Waker>,
}

enum What<M> {
    Once(Option<M>),
    Every(M, fn(&M) -> M),
    Over,
}

impl<M> What<M> {
    fn message(&mut self) -> Option<M> {
        match self {
            Self::Once(message) => message.take(),
            Self::Every(message, copy) => Some(copy(message)),
            Self::Over => None,
        }
    }
}

impl<M: Send + 'static> Node<M> {
    fn end(&self, outcome: TimerOutcome) {
        let (what, wakers) = {
            let mut state = self.state.lock();
            state.outcome = Some(outcome);
            (std::mem::replace(&mut state.what, What::Over), std::mem::take(&mut state.wakers))
        };
        drop(what);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Sets the next beat of a repeating timer; beats that were missed are skipped.
    fn again(self: &Arc<Self>, every: Duration) {
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
        state.key = next.map(|next| self.cell.core.timers.insert(next, Arc::clone(self) as Arc<dyn Fire>));
    }
}

impl<M: Send + 'static> Fire for Node<M> {
    fn fire(self: Arc<Self>) {
        let message = self.state.lock().what.message();
        let Some(message) = message else { return };
        let outcome = match self.cell.push(Envelope::Plain(message), self.priority) {
            Ok(_) => TimerOutcome::Delivered,
            Err((Refusal::Stopped { .. }, _)) => TimerOutcome::NoTarget,
            Err((Refusal::Full { .. }, envelope)) => {
                self.cell.bury_refused(envelope, DeadReason::MailboxFull);
                TimerOutcome::MailboxFull
            }
        };
        match self.every {
            Some(every) if outcome != TimerOutcome::NoTarget => {
                self.again(every);
            }
            _ => self.end(outcome),
        }
    }
}

impl<M: Send + 'static> Alarm for Node<M> {
    fn cancel(&self) -> bool {
        let mut state = self.state.lock();
        if state.outcome.is_some() {
            return false;
        }
        let taken = state.key.and_then(|key| self.cell.core.timers.remove(key));
        let never = state.due.is_none();
        if taken.is_none() && !never && self.every.is_none() {
            return false;
        }
        state.outcome = Some(TimerOutcome::Cancelled);
        let what = std::mem::replace(&mut state.what, What::Over);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        drop(what);
        wakers.into_iter().for_each(Waker::wake);
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
