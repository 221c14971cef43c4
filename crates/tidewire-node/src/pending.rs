//! Pending operations: awaited on any runtime, or waited for on a blocking thread.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tidewire_engine::raw::{Fire, Mutex, blocking};

use crate::error::Error;

/// A running operation: `.await` it on any runtime, or [`wait`](Pending::wait) for it on a plain
/// thread.
#[derive(derive_more::Debug)]
#[must_use = "nothing is known of it before it is awaited or waited for"]
#[debug("Pending")]
pub struct Pending<T>(Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>);

impl<T> Pending<T> {
    pub(crate) fn new(future: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self(Box::pin(future))
    }

    /// Blocks this thread until the operation is done.
    ///
    /// # Errors
    /// The same as awaiting the operation.
    pub fn wait(self) -> Result<T, Error> {
        wait(self)
    }
}

impl<T: Send + 'static> Pending<T> {
    pub(crate) fn ready(value: T) -> Self {
        Self::new(std::future::ready(Ok(value)))
    }

    pub(crate) fn failed(error: Error) -> Self {
        Self::new(std::future::ready(Err(error)))
    }

    /// Runs a blocking operation on a new thread. Dropping the pending does not stop it.
    pub(crate) fn on_thread(name: &str, run: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Self {
        let slot = Arc::<ResultSlot<T>>::default();
        let result_slot = Arc::clone(&slot);
        let started = thread::Builder::new().name(name.to_owned()).spawn(move || result_slot.end(run()));
        match started {
            Ok(_) => Self::new(poll_fn(move |context| slot.poll(context))),
            Err(error) => {
                let text = format!("threads: the system gives none: {error}");
                Self::failed(Error::new(tidewire_proto::generated::errors::ErrorCode::LimitExceeded, text))
            }
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

/// Slot for one value, which one task waits for.
pub struct ValueSlot<T>(Mutex<(Option<T>, Option<Waker>)>);

pub(crate) type ResultSlot<T> = ValueSlot<Result<T, Error>>;

impl<T> Default for ValueSlot<T> {
    fn default() -> Self {
        Self(Mutex::new((None, None)))
    }
}

impl<T> ValueSlot<T> {
    /// Fills the slot. The first value counts.
    pub fn end(&self, value: T) {
        self.fill(|slot| *slot = slot.take().or(Some(value)));
    }

    /// Fills the slot. The last value counts.
    pub fn replace(&self, value: T) {
        self.fill(|slot| *slot = Some(value));
    }

    fn fill(&self, fill: impl FnOnce(&mut Option<T>)) {
        let waker = {
            let mut state = self.0.lock();
            fill(&mut state.0);
            state.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// True while a task waits for the value.
    pub fn is_awaited(&self) -> bool {
        self.0.lock().1.is_some()
    }

    /// Looks at the value, and leaves it there.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&T) -> Option<R>) -> Option<R> {
        self.0.lock().0.as_ref().and_then(look)
    }

    /// Ready with the value, which is taken out.
    pub fn poll(&self, context: &Context<'_>) -> Poll<T> {
        let mut state = self.0.lock();
        let value = state.0.take();
        if value.is_none() {
            state.1 = Some(context.waker().clone());
        }
        value.map_or(Poll::Pending, Poll::Ready)
    }
}

/// Waits for a future on this thread. A handler that does so lets another thread run in its place.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
        blocking(thread::park);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Tasks that wait for one event. Each is stored once, and none is dropped under the lock.
#[derive(Default)]
pub(crate) struct Wakers(Arc<Mutex<StoredWakers>>);

#[derive(Default)]
struct StoredWakers {
    wakers: Vec<Waker>,
    entries: BTreeMap<u64, Waker>,
    last: u64,
}

/// The waker of one wait, until that is dropped.
#[derive(Default)]
pub(crate) struct WakerEntry(Option<(Arc<Mutex<StoredWakers>>, u64)>);

impl Drop for WakerEntry {
    fn drop(&mut self) {
        if let Some((stored, number)) = self.0.take() {
            let waker = stored.lock().entries.remove(&number);
            drop(waker);
        }
    }
}

impl Wakers {
    /// Stores a waker until the event.
    pub fn add(&self, waker: &Waker) {
        let wakers = &mut self.0.lock().wakers;
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    /// Stores a waker until the event or the end of its wait. For events that outlive many waits.
    pub fn keep(&self, entry: &mut WakerEntry, waker: &Waker) {
        let before = {
            let stored = &mut *self.0.lock();
            let (_, number) = entry.0.get_or_insert_with(|| {
                stored.last += 1;
                (Arc::clone(&self.0), stored.last)
            });
            stored.entries.insert(*number, waker.clone())
        };
        drop(before);
    }

    /// Waits for a value. The function looks for it now, and whenever the tasks are woken.
    pub async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        let mut entry = WakerEntry::default();
        poll_fn(|context| {
            self.keep(&mut entry, context.waker());
            look().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    pub fn wake(&self) {
        let (wakers, entries) = {
            let stored = &mut *self.0.lock();
            (std::mem::take(&mut stored.wakers), std::mem::take(&mut stored.entries))
        };
        wakers.into_iter().chain(entries.into_values()).for_each(Waker::wake);
    }
}

/// Event that happens once, with the tasks that wait for it.
#[derive(Default)]
pub(crate) struct Signal {
    is_set: AtomicBool,
    wakers: Wakers,
}

impl Signal {
    pub fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.wakers.wake();
    }

    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    pub fn poll(&self, context: &Context<'_>) -> Poll<()> {
        self.wakers.add(context.waker());
        if self.is_set() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// As `poll`, for an event that outlives many waits.
    pub fn keep(&self, entry: &mut WakerEntry, context: &Context<'_>) -> Poll<()> {
        self.wakers.keep(entry, context.waker());
        if self.is_set() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The result of a future; None if the event comes first.
    pub async fn unless<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let (mut future, mut entry) = (pin!(future), WakerEntry::default());
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Pending => self.keep(&mut entry, context).map(|()| None),
            ready => ready.map(Some),
        })
        .await
    }
}

impl Fire for Signal {
    fn fire(self: Arc<Self>) {
        self.set();
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        Self::wake(&self);
    }
}
