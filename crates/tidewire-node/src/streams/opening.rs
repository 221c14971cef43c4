//! A value that the first caller opens, and all callers share, such as a storage backend.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidewire_backend::home::{Answer, Home, HomeError, HomeResult};
use tidewire_engine::raw::Mutex;

use crate::inline_task::InlineTask;
use crate::pending::Wakers;

pub(crate) type OpeningFuture<T> = Pin<Box<dyn Future<Output = HomeResult<T>> + Send>>;

/// A value, or the way to open it. Concurrent callers share one attempt, which goes on if a caller
/// leaves. After a failure, the next caller begins another attempt.
pub(crate) struct Opening<T> {
    state: Mutex<State<T>>,
    wakers: Wakers,
    open: Box<dyn Fn() -> OpeningFuture<T> + Send + Sync>,
}

enum State<T> {
    Closed,
    Opening,
    Open(T),
    Failed(HomeError),
}

impl<T: Clone + Send + 'static> Opening<T> {
    pub fn new(open: impl Fn() -> OpeningFuture<T> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State::Closed), wakers: Wakers::default(), open: Box::new(open) })
    }

    /// An open value. It stays open.
    pub fn of(value: T) -> Arc<Self> {
        let open = Box::new(|| -> OpeningFuture<T> { Box::pin(std::future::pending()) });
        Arc::new(Self { state: Mutex::new(State::Open(value)), wakers: Wakers::default(), open })
    }

    /// The value, if it is open.
    pub fn now(&self) -> Option<T> {
        match &*self.state.lock() {
            State::Open(value) => Some(value.clone()),
            _ => None,
        }
    }

    /// The value, once it is open.
    pub fn get(self: &Arc<Self>) -> OpeningFuture<T> {
        let (opening, mut has_begun) = (Arc::clone(self), false);
        Box::pin(poll_fn(move |context| {
            let polled = opening.poll(context, has_begun);
            has_begun = true;
            polled
        }))
    }

    /// `has_begun`: this call has waited for an attempt already, and takes its error.
    fn poll(self: &Arc<Self>, context: &Context<'_>, has_begun: bool) -> Poll<HomeResult<T>> {
        let mut state = self.state.lock();
        match &*state {
            State::Open(value) => return Poll::Ready(Ok(value.clone())),
            State::Failed(error) if has_begun => return Poll::Ready(Err(error.clone())),
            State::Opening | State::Closed | State::Failed(_) => self.wakers.add(context.waker()),
        }
        if let State::Opening = std::mem::replace(&mut *state, State::Opening) {
            return Poll::Pending;
        }
        drop(state);
        let (opening, attempt) = (Arc::clone(self), (self.open)());
        InlineTask::spawn(Box::pin(async move {
            let opened = attempt.await.map_or_else(State::Failed, State::Open);
            *opening.state.lock() = opened;
            opening.wakers.wake();
        }));
        Poll::Pending
    }
}

/// A storage backend, or the way to open it. Concurrent calls share one attempt.
pub struct HomeSlot {
    opening: Arc<Opening<Arc<dyn Home>>>,
    /// The server of the slot closes the storage backend.
    is_owned: bool,
}

impl HomeSlot {
    /// The slot of an open storage backend. Its owner closes it.
    pub fn of(home: Arc<dyn Home>) -> Self {
        Self { opening: Opening::of(home), is_owned: false }
    }

    /// The slot of a storage backend that the first call opens, and its server closes.
    pub fn lazy(open: impl Fn() -> Answer<Arc<dyn Home>> + Send + Sync + 'static) -> Self {
        Self { opening: Opening::new(move || Box::pin(open())), is_owned: true }
    }

    /// The storage backend, if it is open.
    pub(crate) fn now(&self) -> Option<Arc<dyn Home>> {
        self.opening.now()
    }

    /// The storage backend, once it is open.
    pub(crate) fn opened(&self) -> OpeningFuture<Arc<dyn Home>> {
        self.opening.get()
    }

    /// Closes a storage backend that a call has opened.
    pub(super) fn close(&self) {
        if let Some(home) = self.now().filter(|_| self.is_owned) {
            home.close().then(drop);
        }
    }
}
