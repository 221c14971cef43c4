//! The reply slot of an ask, and the wait for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::actor::ActorId;
use crate::core::Core;
use crate::current;
use crate::deadlines::DeadlineKey;
use crate::error::{AskError, Fault};
use crate::slot::Slot;
pub use crate::slot::{AskEnd, Asked, Standing};
use crate::timers::Fire;

/// The place for one reply. Passing it on lets somebody else reply later.
///
/// Dropping it unused ends the ask with [`AskError::NoReply`], or with the handler's error if that failed.
pub struct Reply<T> {
    slot: Option<Arc<Slot<T>>>,
}

impl<T> Reply<T> {
    /// A place for a reply without an actor, and the wait for it, which has no deadline: for tests of handlers.
    ///
    /// ```
    /// # use tidewire_engine::Reply;
    /// fn double(n: u32, reply: Reply<u32>) {
    ///     reply.send(2 * n);
    /// }
    ///
    /// let (reply, doubled) = Reply::channel();
    /// double(21, reply);
    /// assert_eq!(doubled.wait()?, 42);
    /// # Ok::<(), tidewire_engine::AskError>(())
    /// ```
    pub fn channel() -> (Self, Pending<T>)
    where
        T: Send + 'static,
    {
        let (pending, reply, asked) = Pending::of(None, ActorId::NONE, Duration::MAX);
        // No engine says when the handler has returned: the reply itself ends the wait, used or not.
        asked.settle(AskEnd::Handled);
        (reply, pending)
    }

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
    /// None of a [`Reply::channel`], which needs no timer.
    core: Option<Arc<Core>>,
    watch: Option<DeadlineKey>,
    edge: Option<ActorId>,
    /// The result was taken out: nothing is left to cancel.
    over: bool,
}

impl<T: Send + 'static> Pending<T> {
    pub(crate) fn new(core: Arc<Core>, actor: ActorId, after: Duration) -> (Self, Reply<T>, Arc<dyn Asked>) {
        Self::of(Some(core), actor, after)
    }

    fn of(core: Option<Arc<Core>>, actor: ActorId, after: Duration) -> (Self, Reply<T>, Arc<dyn Asked>) {
        let slot = Arc::new(Slot::new(actor, after));
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
        if let Some(value) = self.slot.take() {
            return value;
        }
        self.join_ring()?;
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let deadline = self.slot.deadline;
        crate::dispatch::blocking(|| {
            loop {
                if let Some(value) = self.slot.look_or_wait(&waker) {
                    return self.counted(value);
                }
                match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
                    Some(Duration::ZERO) => self.slot.time_is_up(),
                    Some(left) => thread::park_timeout(left),
                    None => thread::park(),
                }
            }
        })
    }

    fn counted(&self, value: Result<T, AskError>) -> Result<T, AskError> {
        if let (Err(AskError::Timeout { .. }), Some(core)) = (&value, &self.core) {
            core.ask_timeouts.fetch_add(1, Ordering::Relaxed);
        }
        value
    }

    fn join_ring(&mut self) -> Result<(), AskError> {
        if self.edge.is_none()
            && let Some(core) = &self.core
            && let Some(asker) = current::handling(core)
        {
            core.rings.add(core, asker, self.slot.actor)?;
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
        }
        if self.watch.is_none()
            && let Some(core) = &self.core
        {
            // Also without a deadline: an actor that is abandoned finds here who waits for it.
            let deadline = self.slot.deadline.unwrap_or_else(|| Instant::now() + FOR_EVER);
            let fire: Arc<dyn Fire> = Arc::clone(&self.slot) as Arc<dyn Fire>;
            self.watch = Some(core.timers.watch(deadline, fire));
            self.slot.watched.store(true, Ordering::Relaxed);
        }
        Poll::Pending
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if let Some(core) = &self.core {
            if let Some(asker) = self.edge {
                core.rings.remove(asker, self.slot.actor);
            }
            if let Some(key) = self.watch {
                core.timers.unwatch(key);
            }
        }
        if !self.over {
            self.slot.cancel();
        }
    }
}

/// More than anybody waits, and an instant that far away can be counted with.
const FOR_EVER: Duration = Duration::from_secs(86_400 * 365 * 10);

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
