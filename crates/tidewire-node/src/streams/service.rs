//! The service `tidewire-streams`: offers the storage backend of a node to the nodes that join it,
//! in any language.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use tidewire_backend::home::{Home, HomeErrorKind, HomeResult, pending_answer};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::grammar::{ACT, CALL, LOOK, READ};

use super::conventions::{ACQUIRE_WAIT_US, HOLD, SERVICE};
use super::home_request::{HomeCall, Request, refused};
use super::mirrors;
use super::opening::{HomeSlot, OpeningFuture};
use crate::node::stop_signal::StopSignal;
use crate::services::failure::Failure;
use crate::services::method::ReplyFuture;
use crate::services::service::{Method, Service};

/// How many calls may wait for events at once.
const CONCURRENCY: usize = 10_000;

/// The service of a storage backend.
pub(crate) fn service(home: Arc<HomeSlot>, leaving: &Arc<StopSignal>) -> Service {
    let (slot, mirrors) = (Arc::clone(&home), mirrors::methods(&home, leaving));
    let leaving = Arc::clone(leaving);
    let calls = [CALL, LOOK, READ, ACT].map(|method| {
        let (calls, ends) = (Arc::clone(&home), Arc::clone(&leaving));
        Method::answering(method, &["name", "args"], move |Request(own, call)| {
            if method != CALL && method != own {
                let text = format!("name: {SERVICE}.{method} does not take this call: make it by {SERVICE}.{own}");
                return Err(Failure::of(ErrorCode::Unauthorized, text));
            }
            with_home(&calls, &ends, call)
        })
    });
    let hold = Method::stream(HOLD, &["name", "holder", "ttl_us"], move |_, (name, holder, ttl_us)| {
        let wait = acquired(slot.opened(), (String::clone(&name), holder), ttl_us);
        let leaving = Arc::clone(&leaving);
        let acquisition: Acquisition = Box::pin(async move { leaving.until(wait).await });
        HeldLease { acquisition: Some(acquisition), lease: None, name, ttl_us }
    });
    let service = Service::new(SERVICE).inline().description("Streams, buckets and leases of this hub.").with(hold);
    calls.into_iter().chain(mirrors).fold(service.concurrency(CONCURRENCY), Service::with)
}

/// Makes a call once the storage backend is open.
pub(super) fn with_home(
    home: &Arc<HomeSlot>,
    leaving: &Arc<StopSignal>,
    call: HomeCall,
) -> Result<ReplyFuture, Failure> {
    if let Some(home) = home.now() {
        return call(&home, leaving);
    }
    let (opened, leaving) = (home.opened(), Arc::clone(leaving));
    Ok(Box::pin(async move { call(&opened.await.map_err(refused)?, &leaving)?.await }))
}

/// Waits for a lease, yields its fence, and releases the lease when its reader closes this stream.
/// The end of a link means the end of the process behind it, long before the TTL ends.
///
/// A link that is declared dead by its heartbeat is different: its process may only be suspended,
/// and still believe in its lease. Such a process has not renewed the lease for a while, and the
/// TTL ends it.
struct HeldLease {
    acquisition: Option<Acquisition>,
    lease: Option<(Arc<dyn Home>, u64)>,
    name: String,
    ttl_us: u64,
}

/// The wait for a lease: the storage backend with the lease, and its fence.
type Acquisition = Pin<Box<dyn Future<Output = HomeResult<(Arc<dyn Home>, u64)>> + Send>>;

async fn acquired(
    opened: OpeningFuture<Arc<dyn Home>>,
    (name, holder): (String, String),
    ttl_us: u64,
) -> HomeResult<(Arc<dyn Home>, u64)> {
    let home = opened.await?;
    loop {
        match pending_answer::acquire(&home, &name, &holder, ttl_us, ACQUIRE_WAIT_US).await {
            Err(error) if error.kind() == HomeErrorKind::LeaseHeld => {}
            grant => return grant.map(|grant| (home, grant.fence)),
        }
    }
}

impl Stream for HeldLease {
    type Item = Result<u64, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(acquisition) = &mut self.acquisition else { return Poll::Pending };
        let acquired = std::task::ready!(acquisition.as_mut().poll(context));
        self.acquisition = None;
        Poll::Ready(Some(acquired.map(|lease| self.lease.insert(lease).1).map_err(refused)))
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        let Some((home, fence)) = self.lease.take() else { return };
        let (name, ttl_us) = (self.name.clone(), self.ttl_us);
        home.lease_info(&self.name).then(move |info| {
            let renewed = info.ok().flatten().filter(|info| info.fence == fence && info.remaining_us > ttl_us / 2);
            if renewed.is_some() {
                home.release(&name, fence).then(drop);
            }
        });
    }
}
