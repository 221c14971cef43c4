//! Slot of a storage backend that is open, or that the first call opens.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidewire_backend::home::{Answer, Home, HomeError, HomeResult};
use tidewire_engine::raw::Mutex;

use crate::pending::Wakers;

type Open = Box<dyn Fn() -> Answer<Arc<dyn Home>> + Send + Sync>;
pub(super) type HomeFuture = Pin<Box<dyn Future<Output = HomeResult<Arc<dyn Home>>> + Send>>;

/// A storage backend, or the way to open it. Concurrent calls share one attempt.
pub struct HomeSlot {
    state: Mutex<SlotState>,
    wakers: Wakers,
    open: Option<Open>,
}

enum SlotState {
    Closed,
    Opening,
    Open(Arc<dyn Home>),
    /// The last attempt failed. The next call begins another one.
    Failed(HomeError),
}

impl HomeSlot {
    /// The slot of an open storage backend. Its owner closes it.
    pub fn of(home: Arc<dyn Home>) -> Self {
        Self { state: Mutex::new(SlotState::Open(home)), wakers: Wakers::default(), open: None }
    }

    /// The slot of a storage backend that the first call opens, and its server closes.
    pub fn lazy(open: impl Fn() -> Answer<Arc<dyn Home>> + Send + Sync + 'static) -> Self {
        Self { state: Mutex::new(SlotState::Closed), wakers: Wakers::default(), open: Some(Box::new(open)) }
    }

    /// The storage backend, if it is open.
    pub(super) fn now(&self) -> Option<Arc<dyn Home>> {
        match &*self.state.lock() {
            SlotState::Open(home) => Some(Arc::clone(home)),
            _ => None,
        }
    }

    /// The storage backend, once it is open.
    pub(super) fn opened(self: &Arc<Self>) -> HomeFuture {
        let (slot, mut has_begun) = (Arc::clone(self), false);
        Box::pin(poll_fn(move |context| {
            let polled = slot.poll(context, has_begun);
            has_begun = true;
            polled
        }))
    }

    /// Closes a storage backend that a call has opened.
    pub(super) fn close(&self) {
        let home = self.now().filter(|_| self.open.is_some());
        if let Some(home) = home {
            home.close().then(drop);
        }
    }

    /// `has_begun`: this call has waited for an attempt already, and takes its error.
    fn poll(self: &Arc<Self>, context: &Context<'_>, has_begun: bool) -> Poll<HomeResult<Arc<dyn Home>>> {
        self.wakers.add(context.waker());
        let mut state = self.state.lock();
        match &*state {
            SlotState::Open(home) => return Poll::Ready(Ok(Arc::clone(home))),
            SlotState::Failed(error) if has_begun => return Poll::Ready(Err(error.clone())),
            SlotState::Opening => return Poll::Pending,
            SlotState::Closed | SlotState::Failed(_) => *state = SlotState::Opening,
        }
        drop(state);
        if let Some(open) = &self.open {
            let slot = Arc::clone(self);
            open().then(move |opened| {
                *slot.state.lock() = opened.map_or_else(SlotState::Failed, SlotState::Open);
                slot.wakers.wake();
            });
        }
        Poll::Pending
    }
}
