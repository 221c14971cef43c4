//! Pending operations: awaited on any runtime, or waited for on a blocking thread.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tidewire_engine::raw::{Mutex, blocking};

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

    pub(crate) fn ready(value: T) -> Self
    where
        T: Send + 'static,
    {
        Self::new(std::future::ready(Ok(value)))
    }

    pub(crate) fn failed(error: Error) -> Self
    where
        T: Send + 'static,
    {
        Self::new(std::future::ready(Err(error)))
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
    /// Runs a blocking operation on a new thread. Dropping the pending does not stop it.
    pub(crate) fn on_thread(name: &str, run: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Self {
        let slot = Arc::<ResultSlot<T>>::default();
        let result_slot = Arc::clone(&slot);
        let started = thread::Builder::new().name(name.to_owned()).spawn(move || result_slot.end(run()));
        match started {
            Ok(_) => Self::new(std::future::poll_fn(move |context| slot.poll(context))),
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

type Done<T> = Option<Result<T, Error>>;

/// The place of one result, which one task waits for.
pub(crate) struct ResultSlot<T> {
    state: Mutex<(Done<T>, Option<Waker>)>,
}

impl<T> Default for ResultSlot<T> {
    fn default() -> Self {
        Self { state: Mutex::new((None, None)) }
    }
}

impl<T> ResultSlot<T> {
    pub fn end(&self, result: Result<T, Error>) {
        let waker = {
            let mut state = self.state.lock();
            state.0 = Some(result);
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub fn poll(&self, context: &Context<'_>) -> Poll<Result<T, Error>> {
        let mut state = self.state.lock();
        match state.0.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
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

/// Tasks that wait for one event. Each is stored once.
#[derive(Default)]
pub(crate) struct Wakers(Mutex<Vec<Waker>>);

impl Wakers {
    pub fn add(&self, waker: &Waker) {
        let mut wakers = self.0.lock();
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    pub fn wake(&self) {
        let wakers = std::mem::take(&mut *self.0.lock());
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        Self::wake(&self);
    }
}
