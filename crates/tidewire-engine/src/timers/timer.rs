//! A message to be sent later, once or again and again.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

use tidewire_sync::clock;

use crate::actor::options::Priority;
use crate::cell::ActorCell;
use crate::cell::envelope::Envelope;
use crate::core::Core;
use crate::error::{DeadReason, Refusal};
use crate::guard::wake_all;
use crate::short_mutex::ShortMutex;
use crate::timers::{Fire, TimerKey};

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
        let due = clock::now().checked_add(delay);
        let node = Node::spare();
        {
            // The key is stored under the node's lock, so that a timer that fires at once waits for
            // it.
            let mut state = node.state.lock();
            let cell = Some(Arc::clone(cell));
            *state = NodeState { cell, what, every, priority, due, ..NodeState::over() };
            node.has_ended.store(false, Ordering::Relaxed);
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
    has_ended: AtomicBool,
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
            Arc::new(Self { state: ShortMutex::new(NodeState::over()), has_ended: AtomicBool::new(true) })
        })
    }

    fn end(&self, outcome: TimerOutcome) {
        let (cell, what, wakers) = {
            let mut state = self.state.lock();
            if state.outcome.is_some() {
                return;
            }
            state.outcome = Some(outcome);
            self.has_ended.store(true, Ordering::Relaxed);
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
        let now = clock::now();
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
                let message = make();
                self.keep(What::Made(make));
                message
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
        self.has_ended.load(Ordering::Relaxed)
    }

    fn cancel(&self) -> bool {
        let mut state = self.state.lock();
        if state.outcome.is_some() {
            return false;
        }
        let removed = match (&state.cell, state.key) {
            (Some(cell), Some(key)) => cell.core.timers.remove(key),
            _ => None,
        };
        let never = state.due.is_none();
        if removed.is_none() && !never && state.every.is_none() {
            return false;
        }
        state.outcome = Some(TimerOutcome::Cancelled);
        self.has_ended.store(true, Ordering::Relaxed);
        let cell = state.cell.take();
        let what = std::mem::replace(&mut state.what, What::Over);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        drop((what, cell));
        wake_all(wakers);
        removed.is_some() || never
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
