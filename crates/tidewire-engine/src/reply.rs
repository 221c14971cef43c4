//! Reply handle of an ask, and the future that waits for the reply.

pub mod slot_cache;
pub mod wait_graph;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::actor::id::ActorId;
use crate::ask_slot::{AskEnd, AskHandle, AskSlot, AskState, SlotView};
use crate::core::Core;
use crate::current;
use crate::error::{AskError, Fault};
use crate::timers::Fire;
use crate::timers::clock;
use crate::timers::deadlines::DeadlineKey;

/// The place for one reply. Passing it on lets somebody else reply later.
///
/// Dropping it unused ends the ask with [`AskError::NoReply`], or with the handler's error if that
/// failed.
pub struct Reply<T> {
    slot: Option<Arc<AskSlot<T>>>,
}

impl<T> Reply<T> {
    /// A place for a reply without an actor, and the wait for it, which has no deadline: for tests
    /// of handlers.
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
        let (pending, reply, handle) =
            Pending::of(Arc::new(AskSlot::new(Weak::new())), None, ActorId::NONE, Duration::MAX);
        // No engine says when the handler has returned: the reply itself ends the wait, used or
        // not.
        handle.settle(AskEnd::Handled);
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

    /// True if the asker has gone or its deadline has passed.
    pub fn is_cancelled(&self) -> bool {
        self.slot.as_ref().is_none_or(|slot| slot.state_now() != AskState::Live)
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.reply_gone();
        }
    }
}

/// An ask under way. Await it, or [`wait`](Pending::wait) for it in a plain thread; dropping it
/// cancels the ask.
pub struct Pending<T> {
    /// None once a future has given its result: nothing is left to cancel.
    slot: Option<Arc<AskSlot<T>>>,
    /// Its place among the deadlines of the engine.
    watch: Option<DeadlineKey>,
    edge: Option<Edge>,
    polled: bool,
}

/// Wait edge: an actor that waits in its handler for another actor.
struct Edge {
    asker: ActorId,
    target: ActorId,
    core: Arc<Core>,
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.core.rings.remove(self.asker, self.target);
    }
}

impl<T: Send + 'static> Pending<T> {
    pub(crate) fn new(core: &Arc<Core>, actor: ActorId, after: Duration) -> (Self, Reply<T>, Arc<dyn AskHandle>) {
        let (slot, watch) = match slot_cache::take(core) {
            Some((slot, key)) => (slot, Some(key)),
            None => (Arc::new(AskSlot::new(Arc::downgrade(core))), None),
        };
        Self::of(slot, watch, actor, after)
    }

    fn of(
        slot: Arc<AskSlot<T>>,
        watch: Option<DeadlineKey>,
        actor: ActorId,
        after: Duration,
    ) -> (Self, Reply<T>, Arc<dyn AskHandle>) {
        slot.begin(actor, after, clock::after(after));
        let reply = Reply { slot: Some(Arc::clone(&slot)) };
        let handle: Arc<dyn AskHandle> = Arc::clone(&slot) as Arc<dyn AskHandle>;
        (Self { slot: Some(slot), watch, edge: None, polled: false }, reply, handle)
    }

    pub(crate) fn end(&self, error: AskError) {
        if let Some(slot) = &self.slot {
            slot.complete(Err(error));
        }
    }

    /// Blocks this thread until the ask ends. On a dispatcher thread, a spare thread takes over its
    /// other actors.
    ///
    /// # Errors
    /// Every end of an ask without a reply: see [`AskError`].
    pub fn wait(mut self) -> Result<T, AskError> {
        let slot = self.slot.as_ref().expect(OVER);
        if let Some(value) = slot.take() {
            return value;
        }
        if self.edge.is_none() {
            self.edge = edge(slot)?;
        }
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let deadline = (slot.deadline() != clock::NEVER).then(|| clock::instant(slot.deadline()));
        crate::dispatch::blocking(|| {
            loop {
                if let SlotView::Ended { value, .. } = slot.look_or_wait(&waker) {
                    return counted(slot, value);
                }
                match deadline.map(|at| at.saturating_duration_since(tidewire_sync::clock::now())) {
                    Some(Duration::ZERO) => slot.time_is_up(),
                    Some(left) => thread::park_timeout(left),
                    None => thread::park(),
                }
            }
        })
    }
}

const OVER: &str = "an ask was polled again after it had ended";

/// Notes that the handler in which this thread is waits for the actor that was asked.
fn edge<T>(slot: &AskSlot<T>) -> Result<Option<Edge>, AskError> {
    if !current::is_handling() {
        return Ok(None);
    }
    let Some(core) = slot.home.upgrade() else { return Ok(None) };
    let Some(asker) = current::handling(core.number) else { return Ok(None) };
    let target = slot.actor();
    if let Err(ring) = core.rings.add(asker, target) {
        return Err(AskError::Cycle { path: ring.into_iter().map(|id| core.title(id)).collect() });
    }
    Ok(Some(Edge { asker, target, core }))
}

fn counted<T>(slot: &AskSlot<T>, mut value: Result<T, AskError>) -> Result<T, AskError> {
    if let Err(AskError::Timeout { actor, after, starved }) = &mut value
        && let Some(core) = slot.home.upgrade()
    {
        core.ask_timeouts.fetch_add(1, Ordering::Relaxed);
        let since = tidewire_sync::clock::now().checked_sub(*after);
        *starved = core.find(*actor).and_then(|cell| core.starvation(cell.place(), since)).map(Box::new);
    }
    value
}

/// Puts a slot among the deadlines of its engine; another place that it has there ends.
#[cold]
fn watch<T: Send + 'static>(slot: &Arc<AskSlot<T>>, old: Option<DeadlineKey>) -> Option<DeadlineKey> {
    let core = slot.home.upgrade()?;
    if let Some(old) = old {
        core.timers.unwatch(old);
    }
    slot.is_to_be_watched();
    // Also without a deadline: an actor that is abandoned finds here who waits for it.
    let fire: Arc<dyn Fire> = Arc::clone(slot) as Arc<dyn Fire>;
    Some(core.timers.watch(clock::instant(slot.deadline()), fire))
}

fn unwatch<T>(slot: &AskSlot<T>, key: Option<DeadlineKey>) {
    if let Some(key) = key
        && let Some(core) = slot.home.upgrade()
    {
        core.timers.unwatch(key);
    }
}

impl<T: Send + 'static> Future for Pending<T> {
    type Output = Result<T, AskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let slot = this.slot.as_ref().expect(OVER);
        let (value, stays) = match slot.look_or_wait(cx.waker()) {
            SlotView::Ended { value, stays } => (counted(slot, value), stays),
            SlotView::Waits { watched } => {
                if !this.polled {
                    this.edge = edge(slot)?;
                    this.polled = true;
                    if !watched {
                        this.watch = watch(slot, this.watch.take());
                    }
                }
                return Poll::Pending;
            }
        };
        if let Some(slot) = this.slot.take() {
            match this.watch.take() {
                Some(key) if stays && AskSlot::is_free(&slot) => slot_cache::keep(slot, key),
                key => unwatch(&slot, key),
            }
        }
        Poll::Ready(value)
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            unwatch(&slot, self.watch.take());
            slot.cancel();
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
