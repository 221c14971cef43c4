//! The service `tidewire-streams`: offers the storage backend of a node to the nodes that join it,
//! in any language.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use tidewire_backend::home::pending_answer::{self, PendingAnswer};
use tidewire_backend::home::{Grant, Home, HomeError, HomeErrorKind};
use tidewire_engine::raw::Mutex;

use super::home_request::{Request, refused};
use super::home_slot::HomeSlot;
use super::opening::OpeningFuture;
use super::{ACQUIRE_WAIT_US, CALL, HOLD, SERVICE};
use crate::pending::Wakers;
use crate::services::failure::Failure;
use crate::services::service::{Method, Service};

/// How many calls may wait for events at once.
const CONCURRENCY: usize = 10_000;

/// Stop signal of the node: waiting calls end, and their callers retry elsewhere or later.
#[derive(Default)]
pub(crate) struct StopSignal {
    is_leaving: AtomicBool,
    wakers: Wakers,
    /// The waits that can be ended, by their tokens.
    waits: Mutex<HashMap<u64, Arc<Wait>>>,
}

/// End signal of one waiting call.
#[derive(Default)]
struct Wait {
    is_over: AtomicBool,
    wakers: Wakers,
}

/// The wait of a running call.
pub(super) struct LongPoll {
    leaving: Arc<StopSignal>,
    token: u64,
    wait: Arc<Wait>,
}

impl LongPoll {
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        self.wait.wakers.add(context.waker());
        if self.wait.is_over.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for LongPoll {
    fn drop(&mut self) {
        self.leaving.waits.lock().remove(&self.token);
    }
}

impl StopSignal {
    pub fn leave(&self) {
        self.is_leaving.store(true, Ordering::Release);
        self.wakers.wake();
    }

    pub(super) fn wait(self: &Arc<Self>, token: u64) -> LongPoll {
        let wait = Arc::<Wait>::default();
        // A call without a token cannot be ended.
        if token != 0 {
            self.waits.lock().insert(token, Arc::clone(&wait));
        }
        LongPoll { leaving: Arc::clone(self), token, wait }
    }

    /// Ends the wait of a call. True if there was one.
    pub(super) fn end_wait(&self, token: u64) -> bool {
        let Some(wait) = self.waits.lock().get(&token).map(Arc::clone) else { return false };
        wait.is_over.store(true, Ordering::Release);
        wait.wakers.wake();
        true
    }

    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<HomeError> {
        self.wakers.add(context.waker());
        if !self.is_leaving.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        let text = "the hub with the streams is stopping: ask again when it is back";
        Poll::Ready(HomeError::new(HomeErrorKind::Unreachable, text))
    }
}

/// The service of a storage backend.
pub(crate) fn service(home: Arc<HomeSlot>, leaving: &Arc<StopSignal>) -> Service {
    let (held, calls, ends) = (Arc::clone(&home), home, Arc::clone(leaving));
    let call = Method::answering(CALL, &["name", "args"], move |call: Request| match calls.now() {
        Some(home) => (call.0)(&home, &ends),
        None => {
            let (opened, ends) = (calls.opened(), Arc::clone(&ends));
            Ok(Box::pin(async move { (call.0)(&opened.await.map_err(refused)?, &ends)?.await }))
        }
    });
    let leaving = Arc::clone(leaving);
    let hold = Method::stream(HOLD, &["name", "holder", "ttl_us"], move |_, (name, holder, ttl_us)| HeldLease {
        opened: held.opened(),
        home: None,
        leaving: Arc::clone(&leaving),
        name,
        holder,
        ttl_us,
        pending: None,
        fence: None,
    });
    Service::new(SERVICE)
        .description("Streams, buckets and leases of this hub.")
        .concurrency(CONCURRENCY)
        .with(call)
        .with(hold)
}

/// Waits for a lease, yields its fence, and releases the lease when its reader closes this stream.
/// The end of a link means the end of the process behind it, long before the TTL ends.
///
/// A link that is declared dead by its heartbeat is different: its process may only be suspended,
/// and still believe in its lease. Such a process has not renewed the lease for a while, and the
/// TTL ends it.
struct HeldLease {
    opened: OpeningFuture<Arc<dyn Home>>,
    home: Option<Arc<dyn Home>>,
    leaving: Arc<StopSignal>,
    name: String,
    holder: String,
    ttl_us: u64,
    pending: Option<PendingAnswer<Grant>>,
    fence: Option<u64>,
}

impl Stream for HeldLease {
    type Item = Result<u64, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.fence.is_some() {
            return Poll::Pending;
        }
        loop {
            if let Poll::Ready(error) = this.leaving.poll(context) {
                return Poll::Ready(Some(Err(refused(error))));
            }
            let home = match &this.home {
                Some(home) => home,
                None => match std::task::ready!(this.opened.as_mut().poll(context)) {
                    Ok(home) => this.home.insert(home),
                    Err(error) => return Poll::Ready(Some(Err(refused(error)))),
                },
            };
            let pending = this.pending.get_or_insert_with(|| {
                pending_answer::acquire(home, &this.name, &this.holder, this.ttl_us, ACQUIRE_WAIT_US)
            });
            let answered = std::task::ready!(Pin::new(pending).poll(context));
            this.pending = None;
            match answered {
                Ok(grant) => {
                    this.fence = Some(grant.fence);
                    return Poll::Ready(Some(Ok(grant.fence)));
                }
                Err(error) if error.kind() == HomeErrorKind::LeaseHeld => {}
                Err(error) => return Poll::Ready(Some(Err(refused(error)))),
            }
        }
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        let (Some(fence), Some(home)) = (self.fence, self.home.take()) else { return };
        let (name, ttl_us) = (self.name.clone(), self.ttl_us);
        home.lease_info(&self.name).then(move |info| {
            let renewed = info.ok().flatten().filter(|info| info.fence == fence && info.remaining_us > ttl_us / 2);
            if renewed.is_some() {
                home.release(&name, fence).then(drop);
            }
        });
    }
}
