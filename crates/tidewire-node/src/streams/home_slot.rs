//! Slot of a storage backend that is open, or that the first call opens.

use std::sync::Arc;

use tidewire_backend::home::{Answer, Home};

use super::opening::{Opening, OpeningFuture};

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
