//! One reply to one ask: the place for it, and the waiting.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::actor::ActorId;
use crate::core::Core;
use crate::current;
use crate::deadlines::DeadlineKey;
use crate::error::{AskError, DeadReason, Fault};
use crate::guard::wake_all;
use crate::short_mutex::ShortMutex;
use crate::timers::Fire;

/// Where an ask stands when its message is about to be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Somebody waits for the reply.
    Live,
    /// Its deadline has passed.
    Expired,
    /// The asker has gone.
    Cancelled,
}

/// How the handling of an asked message ended, apart from the reply itself.
pub enum AskEnd {
    /// The handler returned.
    Handled,
    /// The handler failed.
    Failed(Fault),
    /// The message will not be handled.
    Dead {
        /// The actor that was asked.
        actor: ActorId,
        /// Why.
        reason: DeadReason,
    },
}

/// The side of an ask that the engine sees.
pub trait Asked: Send + Sync {
    /// Whether anybody still waits.
    fn standing(&self) -> Standing;
    /// Takes the end of the handling. Called at most once per delivery, outside of all locks of the engine.
    fn settle(&self, end: AskEnd);
}

/// The place for one reply. Passing it on lets somebody else reply later.
///
/// Dropping it unused ends the ask with [`AskError::NoReply`], or with the handler's error if that failed.
pub struct Reply<T> {
    slot: Option<Arc<Slot<T>>>,
}

impl<T> Reply<T> {
    /// Sends the reply. Answers false if nobody waits any more.
    pub fn send(mut self, value: T) -> bool {
        self.slot.take().is_some_and(|slot| slot.complete(Ok(value)))
    }

    /// Ends the ask with an error.
    pub fn fail(mut self, fault: Fault) -> bool {
        self.slot.take().is_some_and(|slot| slot.complete(Err(AskError::Failed(fault))))
    }

    /// Whether the asker has gone or its deadline has passed.
    pub fn is_cancelled(&self) -> bool {
        self.slot.as_ref().is_none_or(|slot| slot.look() != Standing::Live)
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.reply_gone();
        }
    }
}

/// An ask under way. Await it, or [`wait`](Pending::wait) for it in a plain thread; dropping it cancels the ask.
pub struct Pending<T> {
    slot: Arc<Slot<T>>,
    core: Arc<Core>,
    watch: Option<DeadlineKey>,
    edge: Option<ActorId>,
    /// The result was taken out: nothing is left to cancel.
    over: bool,
}

impl<T: Send + 'static> Pending<T> {
    pub(crate) fn new(core: Arc<Core>, actor: ActorId, after: Duration) -> (Self, Reply<T>, Arc<dyn Asked>) {
        let slot = Arc::new(Slot {
            actor,
            deadline: Instant::now().checked_add(after),
            after,
            stage: AtomicU8::new(OPEN),
            watched: AtomicBool::new(false),
            state: ShortMutex::new(State { value: None, waker: None, handled: false, reply_gone: false }),
        });
        let reply = Reply { slot: Some(Arc::clone(&slot)) };
        let asked: Arc<dyn Asked> = Arc::clone(&slot) as Arc<dyn Asked>;
        (Self { slot, core, watch: None, edge: None, over: false }, reply, asked)
    }

    pub(crate) fn end(&self, error: AskError) {
        self.slot.complete(Err(error));
    }

    /// Blocks this thread until the ask ends. On a dispatcher thread, a spare thread takes over its other actors.
    ///
    /// # Errors
    /// Every way an ask can end without a reply: see [`AskError`].
    pub fn wait(mut self) -> Result<T, AskError> {
        if let Some(value) = self.slot.state.lock().value.take() {
            return value;
        }
        self.join_ring()?;
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let deadline = self.slot.deadline;
        crate::dispatch::blocking(|| {
            loop {
                let before = {
                    let mut state = self.slot.state.lock();
                    if let Some(value) = state.value.take() {
                        drop(state);
                        return self.counted(value);
                    }
                    state.waker.replace(waker.clone())
                };
                drop(before);
                match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
                    Some(Duration::ZERO) => self.slot.time_is_up(),
                    Some(left) => thread::park_timeout(left),
                    None => thread::park(),
                }
            }
        })
    }

    fn counted(&self, value: Result<T, AskError>) -> Result<T, AskError> {
        if matches!(value, Err(AskError::Timeout { .. })) {
            self.core.ask_timeouts.fetch_add(1, Ordering::Relaxed);
        }
        value
    }

    fn join_ring(&mut self) -> Result<(), AskError> {
        if self.edge.is_none()
            && let Some(asker) = current::handling(&self.core)
        {
            self.core.rings.add(&self.core, asker, self.slot.actor)?;
            self.edge = Some(asker);
        }
        Ok(())
    }
}

impl<T: Send + 'static> Future for Pending<T> {
    type Output = Result<T, AskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        assert!(!self.over, "an ask was polled again after it had ended");
        if let Some(value) = self.slot.look_or_wait(cx.waker()) {
            self.over = true;
            return Poll::Ready(self.counted(value));
        }
        if self.watch.is_none() {
            self.join_ring()?;
            // Also without a deadline: an actor that is abandoned finds here who waits for it.
            let deadline = self.slot.deadline.unwrap_or_else(|| Instant::now() + FOR_EVER);
            let fire: Arc<dyn Fire> = Arc::clone(&self.slot) as Arc<dyn Fire>;
            self.watch = Some(self.core.timers.watch(deadline, fire));
            self.slot.watched.store(true, Ordering::Relaxed);
        }
        Poll::Pending
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if let Some(asker) = self.edge {
            self.core.rings.remove(asker, self.slot.actor);
        }
        if let Some(key) = self.watch {
            self.core.timers.unwatch(key);
        }
        if !self.over {
            self.slot.cancel();
        }
    }
}

/// More than anybody waits, and an instant that far away can be counted with.
const FOR_EVER: Duration = Duration::from_secs(86_400 * 365 * 10);

/// Nobody has replied, and somebody waits.
const OPEN: u8 = 0;
/// The ask has ended.
const ENDED: u8 = 1;
/// Its time was up.
const EXPIRED: u8 = 2;
/// Nobody waits any more.
const CANCELLED: u8 = 3;

struct Slot<T> {
    actor: ActorId,
    deadline: Option<Instant>,
    after: Duration,
    /// Leaves `OPEN` once, under the lock; may be looked at without.
    stage: AtomicU8,
    /// Somebody ends the ask at its deadline.
    watched: AtomicBool,
    state: ShortMutex<State<T>>,
}

struct State<T> {
    value: Option<Result<T, AskError>>,
    waker: Option<Waker>,
    handled: bool,
    reply_gone: bool,
}

impl<T> Slot<T> {
    /// The first end counts; answers whether this was it and somebody waits.
    fn complete(&self, value: Result<T, AskError>) -> bool {
        self.end(value, ENDED)
    }

    fn time_is_up(&self) {
        self.end(Err(AskError::Timeout { actor: self.actor, after: self.after }), EXPIRED);
    }

    fn end(&self, value: Result<T, AskError>, stage: u8) -> bool {
        let waker = {
            let mut state = self.state.lock();
            if self.stage.load(Ordering::Relaxed) != OPEN {
                // What comes too late is dropped after the lock.
                drop(state);
                return false;
            }
            self.stage.store(stage, Ordering::Release);
            state.value = Some(value);
            state.waker.take()
        };
        wake_all(waker);
        true
    }

    /// The result, if the ask has ended; else `waker` is woken when it does.
    fn look_or_wait(&self, waker: &Waker) -> Option<Result<T, AskError>> {
        let mut waker = (self.stage.load(Ordering::Acquire) == OPEN).then(|| waker.clone());
        let mut state = self.state.lock();
        let value = state.value.take();
        if value.is_none() {
            std::mem::swap(&mut state.waker, &mut waker);
        }
        drop(state);
        // What is left of the wakers is dropped after the lock.
        value
    }

    fn cancel(&self) {
        let gone = {
            let mut state = self.state.lock();
            if self.stage.load(Ordering::Relaxed) == OPEN {
                self.stage.store(CANCELLED, Ordering::Release);
            }
            (state.value.take(), state.waker.take())
        };
        drop(gone);
    }

    fn look(&self) -> Standing {
        // An asker whose time was up has gone for that reason.
        if self.deadline.is_some_and(|at| Instant::now() >= at) { Standing::Expired } else { self.stage() }
    }

    fn stage(&self) -> Standing {
        match self.stage.load(Ordering::Acquire) {
            EXPIRED => Standing::Expired,
            CANCELLED => Standing::Cancelled,
            _ => Standing::Live,
        }
    }

    /// The place for the reply was dropped: the end of the handling decides, if it is still to come.
    fn reply_gone(&self) {
        let handled = {
            let mut state = self.state.lock();
            state.reply_gone = true;
            state.handled
        };
        if handled {
            self.complete(Err(AskError::NoReply { actor: self.actor }));
        }
    }
}

impl<T: Send + 'static> Asked for Slot<T> {
    fn standing(&self) -> Standing {
        // Whoever watches the deadline ends the ask when it comes; without a watch, the clock has to be read.
        if self.watched.load(Ordering::Relaxed) { self.stage() } else { self.look() }
    }

    fn settle(&self, end: AskEnd) {
        let error = match end {
            AskEnd::Handled if self.stage.load(Ordering::Acquire) != OPEN => return,
            AskEnd::Handled => {
                let mut state = self.state.lock();
                state.handled = true;
                if !state.reply_gone || state.value.is_some() {
                    return;
                }
                AskError::NoReply { actor: self.actor }
            }
            AskEnd::Failed(fault) => AskError::Failed(fault),
            AskEnd::Dead { reason: DeadReason::Expired, .. } => {
                AskError::Timeout { actor: self.actor, after: self.after }
            }
            AskEnd::Dead { actor, reason } => AskError::Lost { actor, reason },
        };
        self.complete(Err(error));
    }
}

impl<T: Send + 'static> Fire for Slot<T> {
    fn fire(self: Arc<Self>) {
        self.time_is_up();
    }

    fn abandoned(&self, actor: ActorId) {
        if self.actor == actor {
            self.complete(Err(AskError::Lost { actor, reason: DeadReason::Abandoned }));
        }
    }
}

/// Wakes a thread that is parked.
pub(crate) struct Unpark(pub Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}
