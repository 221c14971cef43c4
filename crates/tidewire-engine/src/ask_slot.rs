//! Reply slot of one ask: the first result ends the ask and wakes its waiter. `tests/loom_slot.rs`
//! runs this file in all interleavings.

use std::sync::Weak;
use std::task::Waker;
use std::time::Duration;

use crate::actor::id::ActorId;
use crate::core::Core;
use crate::error::{AskError, DeadReason, Fault};
use crate::guard::wake_all;
use crate::short_mutex::ShortMutex;
use crate::sync::{Arc, AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use crate::timers::clock;
use crate::timers::{Due, Fire};

/// Where an ask stands when its message is about to be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskState {
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
pub trait AskHandle: Send + Sync {
    /// State of the ask: live while somebody waits.
    fn standing(&self) -> AskState;
    /// Takes the end of the handling. Called at most once per delivery, outside of all locks of the
    /// engine.
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

/// The handling has ended.
const HANDLED: u8 = 1;
/// The place for the reply is gone, unused.
const UNANSWERED: u8 = 2;

/// Reply slot of an ask, reused by later asks.
///
/// Between two asks the slot is idle, with its deadline still registered in the engine: to insert a
/// deadline and to cancel it would cost more than all else here. The timers ask the slot for its
/// current deadline ([`Fire::due`]). Only a slot that nobody else can reach is used again
/// ([`is_free`](AskSlot::is_free)), so that no late reply ends the wrong ask.
pub(crate) struct AskSlot<T> {
    /// The engine of the actor; none of a reply without an actor.
    pub home: Weak<Core>,
    actor: AtomicU64,
    deadline: AtomicU64,
    after: AtomicU64,
    /// Leaves `OPEN` once for each ask, under the lock; reads need no lock.
    stage: AtomicU8,
    /// Records which of `HANDLED` and `UNANSWERED` has happened.
    without: AtomicU8,
    /// Somebody ends the ask at its deadline.
    watched: AtomicBool,
    state: ShortMutex<State<T>>,
}

struct State<T> {
    value: Option<Result<T, AskError>>,
    waker: Option<Waker>,
    /// Registered deadline of the slot.
    watched_until: u64,
    /// The deadline has moved on to the timing wheel, which fires at that time.
    in_wheel: bool,
}

/// State of a slot as its waiter sees it.
pub(crate) enum SlotView<T> {
    /// The ask has ended. `stays` says that the slot is not in the timing wheel.
    Ended { value: Result<T, AskError>, stays: bool },
    /// The ask goes on, and its end wakes the waker. `watched` says that the timers end it at its
    /// deadline.
    Waits { watched: bool },
}

impl<T> AskSlot<T> {
    /// One for a first ask, which [begins](AskSlot::begin) it.
    pub fn new(home: Weak<Core>) -> Self {
        Self {
            home,
            actor: AtomicU64::new(0),
            deadline: AtomicU64::new(clock::NEVER),
            after: AtomicU64::new(clock::NEVER),
            stage: AtomicU8::new(ENDED),
            without: AtomicU8::new(0),
            watched: AtomicBool::new(false),
            state: ShortMutex::new(State { value: None, waker: None, watched_until: clock::NEVER, in_wheel: false }),
        }
    }

    /// Begins an ask whose asker waits at most for `after`, until `deadline`. The caller must be
    /// the only owner of the slot.
    pub fn begin(&self, actor: ActorId, after: Duration, deadline: u64) {
        self.actor.store(actor.get(), Ordering::Relaxed);
        self.after.store(clock::nanos(after), Ordering::Relaxed);
        self.deadline.store(deadline, Ordering::Relaxed);
        self.without.store(0, Ordering::Relaxed);
        // A thread that sees the open stage also sees all writes above.
        self.stage.store(OPEN, Ordering::Release);
    }

    /// The actor that is asked.
    pub fn actor(&self) -> ActorId {
        ActorId::new(self.actor.load(Ordering::Relaxed))
    }

    /// Until when its asker waits.
    pub fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Relaxed)
    }

    fn after(&self) -> Duration {
        Duration::from_nanos(self.after.load(Ordering::Relaxed))
    }

    /// To be called before the slot is put among the deadlines of the engine.
    pub fn is_to_be_watched(&self) {
        self.state.lock().watched_until = self.deadline();
        self.watched.store(true, Ordering::Release);
    }

    /// True if only the caller and the deadlines of the engine have this slot. Its ask must be over
    /// and its deadline must still be registered (`stays`).
    pub fn is_free(slot: &Arc<Self>) -> bool {
        // The deadlines announce their release of the slot before they do so. Without that
        // announcement, they hold one of the two references. Every other holder has released the
        // slot for the last time before this goes on.
        Arc::strong_count(slot) == 2 && {
            fence(Ordering::Acquire);
            slot.watched.load(Ordering::Relaxed)
        }
    }

    /// Takes the result out, if the ask has ended.
    pub fn take(&self) -> Option<Result<T, AskError>> {
        self.state.lock().value.take()
    }

    /// Ends the ask; only the first end counts. Returns true if this was the first and somebody
    /// waits.
    pub fn complete(&self, value: Result<T, AskError>) -> bool {
        self.end(value, ENDED)
    }

    pub fn time_is_up(&self) {
        self.end(Err(AskError::Timeout { actor: self.actor(), after: self.after(), starved: None }), EXPIRED);
    }

    fn end(&self, value: Result<T, AskError>, stage: u8) -> bool {
        self.end_if(value, stage, || true)
    }

    fn end_if(&self, value: Result<T, AskError>, stage: u8, meant: impl FnOnce() -> bool) -> bool {
        let waker = {
            let mut state = self.state.lock();
            if self.stage.load(Ordering::Acquire) != OPEN || !meant() {
                // A late reply is dropped after the lock is released.
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
    pub fn look_or_wait(&self, waker: &Waker) -> SlotView<T> {
        let mut waker = (self.stage.load(Ordering::Acquire) == OPEN).then(|| waker.clone());
        let mut state = self.state.lock();
        match state.value.take() {
            Some(value) => {
                let stays = !state.in_wheel;
                drop(state);
                // The remaining wakers are dropped after the lock is released.
                drop(waker);
                SlotView::Ended { value, stays }
            }
            None => {
                std::mem::swap(&mut state.waker, &mut waker);
                let until = state.watched_until;
                drop(state);
                SlotView::Waits { watched: until <= self.deadline() && self.watched.load(Ordering::Relaxed) }
            }
        }
    }

    pub fn cancel(&self) {
        let discarded = {
            let mut state = self.state.lock();
            if self.stage.load(Ordering::Relaxed) == OPEN {
                self.stage.store(CANCELLED, Ordering::Release);
            }
            (state.value.take(), state.waker.take())
        };
        drop(discarded);
    }

    pub fn state_now(&self) -> AskState {
        // An asker whose time was up has gone for that reason.
        let deadline = self.deadline();
        if deadline != clock::NEVER && clock::now() >= deadline { AskState::Expired } else { self.stage() }
    }

    fn stage(&self) -> AskState {
        match self.stage.load(Ordering::Acquire) {
            EXPIRED => AskState::Expired,
            CANCELLED => AskState::Cancelled,
            _ => AskState::Live,
        }
    }

    /// The place for the reply was dropped: the end of the handling decides, if it is still to
    /// come.
    pub fn reply_gone(&self) {
        self.ends_without(UNANSWERED);
    }

    /// Ends the ask if neither a reply nor an error of its handler will.
    fn ends_without(&self, what: u8) {
        if self.without.fetch_or(what, Ordering::AcqRel) | what == HANDLED | UNANSWERED {
            self.complete(Err(AskError::NoReply { actor: self.actor() }));
        }
    }
}

impl<T: Send + 'static> AskHandle for AskSlot<T> {
    fn standing(&self) -> AskState {
        // A watched deadline ends the ask when it comes. Without a watch, the clock has to be read.
        if self.watched.load(Ordering::Relaxed) { self.stage() } else { self.state_now() }
    }

    fn settle(&self, end: AskEnd) {
        let error = match end {
            AskEnd::Handled if self.stage.load(Ordering::Acquire) != OPEN => return,
            AskEnd::Handled => return self.ends_without(HANDLED),
            AskEnd::Failed(fault) => AskError::Failed(fault),
            AskEnd::Dead { reason: DeadReason::Expired, .. } => {
                AskError::Timeout { actor: self.actor(), after: self.after(), starved: None }
            }
            AskEnd::Dead { actor, reason } => AskError::Lost { actor, reason },
        };
        self.complete(Err(error));
    }
}

impl<T: Send + 'static> Fire for AskSlot<T> {
    fn fire(self: std::sync::Arc<Self>) {
        self.time_is_up();
    }

    fn abandoned(&self, actor: ActorId) {
        // It may have been used again meanwhile.
        let lost = Err(AskError::Lost { actor, reason: DeadReason::Abandoned });
        self.end_if(lost, ENDED, || self.actor() == actor);
    }

    fn due(&self) -> Due {
        let mut state = self.state.lock();
        if self.stage.load(Ordering::Acquire) != OPEN {
            // Nobody uses it again who doesn't see this.
            self.watched.store(false, Ordering::Release);
            return Due::Never;
        }
        let deadline = self.deadline();
        if state.watched_until == deadline {
            state.in_wheel = true;
            return Due::AsSaid;
        }
        state.watched_until = deadline;
        Due::Later(clock::instant(deadline))
    }

    fn waits(&self) -> bool {
        self.stage.load(Ordering::Relaxed) == OPEN
    }
}
