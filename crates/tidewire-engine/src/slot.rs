//! The slot of one reply: its first end counts, and whoever waits for it is woken. `tests/loom_slot.rs` runs this file in all interleavings.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::actor::ActorId;
use crate::error::{AskError, DeadReason, Fault};
use crate::guard::wake_all;
use crate::short_mutex::ShortMutex;
use crate::sync::{AtomicBool, AtomicU8, Ordering};
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

/// Nobody has replied, and somebody waits.
const OPEN: u8 = 0;
/// The ask has ended.
const ENDED: u8 = 1;
/// Its time was up.
const EXPIRED: u8 = 2;
/// Nobody waits any more.
const CANCELLED: u8 = 3;

/// The place where one ask ends.
pub(crate) struct Slot<T> {
    pub actor: ActorId,
    pub deadline: Option<Instant>,
    after: Duration,
    /// Leaves `OPEN` once, under the lock; may be looked at without.
    stage: AtomicU8,
    /// Somebody ends the ask at its deadline.
    pub watched: AtomicBool,
    state: ShortMutex<State<T>>,
}

struct State<T> {
    value: Option<Result<T, AskError>>,
    waker: Option<Waker>,
    handled: bool,
    reply_gone: bool,
}

impl<T> Slot<T> {
    /// One in which nothing has come. Whoever waits does so at most for `after`.
    pub fn new(actor: ActorId, after: Duration) -> Self {
        Self {
            actor,
            deadline: Instant::now().checked_add(after),
            after,
            stage: AtomicU8::new(OPEN),
            watched: AtomicBool::new(false),
            state: ShortMutex::new(State { value: None, waker: None, handled: false, reply_gone: false }),
        }
    }

    /// Takes the result out, if the ask has ended.
    pub fn take(&self) -> Option<Result<T, AskError>> {
        self.state.lock().value.take()
    }

    /// The first end counts; answers whether this was it and somebody waits.
    pub fn complete(&self, value: Result<T, AskError>) -> bool {
        self.end(value, ENDED)
    }

    pub fn time_is_up(&self) {
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
    pub fn look_or_wait(&self, waker: &Waker) -> Option<Result<T, AskError>> {
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

    pub fn cancel(&self) {
        let gone = {
            let mut state = self.state.lock();
            if self.stage.load(Ordering::Relaxed) == OPEN {
                self.stage.store(CANCELLED, Ordering::Release);
            }
            (state.value.take(), state.waker.take())
        };
        drop(gone);
    }

    pub fn look(&self) -> Standing {
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
    pub fn reply_gone(&self) {
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
