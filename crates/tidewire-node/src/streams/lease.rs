//! Leases: mutual exclusion for a time, with fencing tokens.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_core::Stream as _;
use tidewire_backend::home::pending_answer::{self, PendingAnswer};
use tidewire_backend::home::{Answer, Grant, Home, HomeErrorKind, HomeResult, answer};
use tidewire_core::stream::lease_holder::LeaseHolder;
use tidewire_engine::EngineHandle;
use tidewire_engine::raw::{Mutex, clock};
use tidewire_proto::generated::errors::ErrorCode;

use super::conventions::{ACQUIRE_WAIT_US, HOLD, SERVICE, micros};
use super::errors;
use super::remote_home::own_or_hub;
use crate::calls::client::Client;
use crate::calls::item_stream::Items;
use crate::delay::Delay;
use crate::error::Error;
use crate::node::core::Core;
use crate::node::runner::Runner;
use crate::pending::{Pending, Signal, Wakers};

const TTL: std::ops::RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(86_400);

/// How a lease is taken.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    ttl: Duration,
    timeout: Option<Duration>,
    holder: Option<String>,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(5), timeout: None, holder: None }
    }
}

setters! {
    LeaseOptions:
    /// After which time it is free if this process dies; 50 ms to 24 h, and 5 s by default. It is
    /// renewed every third of it.
    ttl(ttl: Duration) => ttl = ttl;
    /// How long to wait for it. Without it, for as long as it takes.
    timeout(timeout: Duration) => timeout = Some(timeout);
    /// Name of the holder, for people; the name of the node by default.
    holder(holder: impl Into<String>) => holder = Some(holder.into());
}

/// A lease that this process holds. A background task renews the lease until it is
/// [released](Lease::release) or dropped, which also releases it.
///
/// After a failed renewal, [`is_held`](Lease::is_held) is false before the TTL ends, by this
/// process's own clock. Check it before work that must not happen twice, or pass the
/// [`fence`](Lease::fence) to stores that can compare it.
///
/// ```
/// # use tidewire_node::{Error, Node};
/// async fn nightly(node: &Node) -> Result<(), Error> {
///     let lease = node.lease("nightly").await?;
///     println!("nobody else runs this: {}", lease.fence()?);
///     lease.release().await
/// }
/// ```
#[derive(derive_more::Debug)]
#[must_use = "dropping a lease gives it back"]
#[debug("Lease({:?}{})", self.state.name, if self.is_held() { ", held" } else { "" })]
pub struct Lease {
    state: Arc<LeaseState>,
}

/// State shared by a lease and its renewal task.
struct LeaseState {
    home: Arc<dyn Home>,
    name: String,
    /// Decides when to renew it and until when it is believed.
    tenure: Mutex<LeaseHolder>,
    began: Instant,
    ended: Signal,
    /// Set once the storage backend has confirmed the release.
    released: Signal,
    /// Woken when it is released or lost.
    wakers: Wakers,
}

/// Acquires a lease of the storage backend of a node.
pub(crate) fn acquire(core: &Arc<Core>, name: &str, mut options: LeaseOptions) -> Pending<Lease> {
    let (home, runner) = (own_or_hub(core), Arc::clone(&core.runner));
    let hub = core.home.is_none().then(|| Client::new(Arc::clone(core), SERVICE));
    options.holder.get_or_insert_with(|| core.name.clone());
    begin(home, runner, hub, name, options)
}

/// Acquires a lease, and begins to renew it. A lease of a hub is tied to the link: the hub gives it
/// to another holder as soon as it sees that this process is gone. An attempt that waits for nobody
/// is tied to the TTL alone.
fn begin(
    home: Arc<dyn Home>,
    runner: Arc<Runner>,
    hub: Option<Client>,
    name: &str,
    options: LeaseOptions,
) -> Pending<Lease> {
    if !TTL.contains(&options.ttl) {
        let text = format!("ttl: {:?} is not allowed: give 50 ms to 24 h", options.ttl);
        return Pending::failed(Error::invalid(text));
    }
    let (name, holder) = (name.to_owned(), options.holder.unwrap_or_default());
    let (ttl_us, until) = (micros(options.ttl), options.timeout.map(|timeout| clock::now() + timeout));
    let left_us = move || {
        let left = until.map_or(ACQUIRE_WAIT_US, |until| micros(until.saturating_duration_since(clock::now())));
        left.min(ACQUIRE_WAIT_US)
    };
    let waits = options.timeout != Some(Duration::ZERO);
    let mut request = match hub.filter(|_| waits) {
        Some(hub) => LeaseRequest::OverLink(Box::new(hub.stream(HOLD, &(&name, &holder, ttl_us)))),
        None => LeaseRequest::Home(pending_answer::acquire(&home, &name, &holder, ttl_us, left_us())),
    };
    Pending::new(async move {
        let (fence, stream) = loop {
            match request {
                LeaseRequest::OverLink(mut stream) => {
                    let end = until.map(|until| Delay::begin(&runner, until.saturating_duration_since(clock::now())));
                    let fence = granted(&mut stream, end.as_ref(), &name).await?;
                    break (fence, Some(stream));
                }
                LeaseRequest::Home(answer) => match answer.await {
                    Ok(grant) => break (grant.fence, None),
                    Err(error) if error.kind() == HomeErrorKind::LeaseHeld && left_us() > 0 => {
                        request = LeaseRequest::Home(pending_answer::acquire(&home, &name, &holder, ttl_us, left_us()));
                    }
                    Err(error) => return Err(error.into()),
                },
            }
        };
        let (tenure, began) = (Mutex::new(LeaseHolder::new(ttl_us)), clock::now());
        tenure.lock().granted(fence, 0);
        let state = LeaseState {
            home,
            name,
            tenure,
            began,
            ended: Signal::default(),
            released: Signal::default(),
            wakers: Wakers::default(),
        };
        // Dropping the lease releases it from here on. The age of the grant is unknown: the first
        // renewal tells from when on the lease is held.
        let lease = Lease { state: Arc::new(state) };
        let begun_us = lease.state.now_us();
        lease.state.home.renew(&lease.state.name, fence).await?;
        lease.state.tenure.lock().renewed(begun_us);
        let (state, timers) = (Arc::clone(&lease.state), Arc::clone(&runner));
        runner.aside(Box::pin(async move { state.keep(&timers).await }));
        if let Some(stream) = stream {
            let state = Arc::clone(&lease.state);
            runner.aside(Box::pin(async move { state.hold(stream).await }));
        }
        Ok(lease)
    })
}

enum LeaseRequest {
    Home(PendingAnswer<Grant>),
    /// The hub holds it for as long as this stream is read.
    OverLink(Box<Items<u64>>),
}

/// The fence of a lease that the hub holds, once it does.
async fn granted(stream: &mut Items<u64>, end: Option<&Delay>, name: &str) -> Result<u64, Error> {
    let first = poll_fn(|context| match Pin::new(&mut *stream).poll_next(context) {
        Poll::Ready(first) => Poll::Ready(Some(first)),
        Poll::Pending if end.is_some_and(|end| end.is_over(context)) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    });
    match first.await {
        Some(Some(Ok(fence))) => Ok(fence),
        Some(Some(Err(error))) => Err(errors::of_call(&error).into()),
        Some(None) => {
            let text = format!("lease {name:?}: the hub is stopping: ask again when it is back");
            Err(Error::new(ErrorCode::HomeUnavailable, text))
        }
        None => {
            let text = format!("lease {name:?}: somebody else has held it all the time: wait for longer");
            Err(Error::new(ErrorCode::LeaseHeld, text))
        }
    }
}

impl Lease {
    /// Acquires a lease of a storage backend that another part of the process owns. The engine
    /// watches the times of the lease.
    ///
    /// # Errors
    /// As for [`Node::lease_with`](crate::Node::lease_with).
    ///
    /// # Cancel safety
    /// As for [`Node::lease_with`](crate::Node::lease_with).
    pub fn acquire(home: Arc<dyn Home>, engine: EngineHandle, name: &str, options: LeaseOptions) -> Pending<Self> {
        Self::acquire_by(&home, &Arc::new(Runner::inline(engine)), name, options)
    }

    pub(crate) fn acquire_by(
        home: &Arc<dyn Home>,
        runner: &Arc<Runner>,
        name: &str,
        options: LeaseOptions,
    ) -> Pending<Self> {
        begin(Arc::clone(home), Arc::clone(runner), None, name, options)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The fencing token: greater than that of everybody who held it before.
    ///
    /// # Errors
    /// [`Error`] with `lease_lost` if it is not held for sure any more.
    pub fn fence(&self) -> Result<u64, Error> {
        self.state.fence().ok_or_else(|| {
            let text =
                format!("lease {:?}: it is no longer held: stop the protected work; another may hold it", self.name());
            Error::new(ErrorCode::LeaseLost, text)
        })
    }

    /// True if the lease is certainly held, by the clock of this process, counted from before the
    /// request.
    pub fn is_held(&self) -> bool {
        self.state.fence().is_some()
    }

    /// Waits until it is not held for sure any more.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub async fn lost(&self) {
        self.state.wakers.until(|| (!self.is_held()).then_some(())).await;
    }

    /// Releases the lease: the next waiter gets it at once.
    ///
    /// # Errors
    /// Awaiting it fails with `lease_lost` if the lease was lost before: the protected work may
    /// have run twice. With `home_unavailable` if the storage backend cannot be reached: the lease
    /// is free when its TTL ends.
    ///
    /// # Cancel safety
    /// If it is dropped, the lease is released all the same.
    pub fn release(self) -> Pending<()> {
        self.give_back()
    }

    /// As [`release`](Self::release), of one that others look at, too.
    ///
    /// # Errors
    /// As for `release`.
    ///
    /// # Cancel safety
    /// As for `release`.
    pub fn give_back(&self) -> Pending<()> {
        let (was_held, state) = (self.is_held(), Arc::clone(&self.state));
        let Some(fence) = state.end() else { return Pending::failed(lost(&state.name)) };
        let released = state.release(fence);
        Pending::new(async move {
            let released = released.await?;
            if was_held && released { Ok(()) } else { Err(lost(&state.name)) }
        })
    }
}

fn lost(name: &str) -> Error {
    let text = format!("lease {name:?}: it was lost before its release: the protected work may have run twice");
    Error::new(ErrorCode::LeaseLost, text)
}

impl LeaseState {
    fn now_us(&self) -> u64 {
        micros(clock::since(self.began))
    }

    fn fence(&self) -> Option<u64> {
        self.tenure.lock().fence(self.now_us())
    }

    /// Ends the renewal. Returns the fence, if the lease was not lost.
    fn end(&self) -> Option<u64> {
        let fence = self.tenure.lock().end();
        if fence.is_none() && !self.ended.is_set() {
            // A lease that was lost has no release to wait for.
            self.released.set();
        }
        self.ended.set();
        self.wakers.wake();
        fence
    }

    /// Releases the lease at its storage backend, which receives the release before the end of the
    /// holding stream.
    fn release(self: &Arc<Self>, fence: u64) -> Answer<bool> {
        let (state, (teller, answer)) = (Arc::clone(self), answer());
        self.home.release(&self.name, fence).then(move |released| {
            state.released.set();
            drop(teller.tell(released));
        });
        answer
    }

    /// Holds it over the link. After the end of the link, the hub may have granted it to another
    /// holder.
    async fn hold(&self, mut stream: Box<Items<u64>>) {
        self.released.unless(poll_fn(|context| Pin::new(&mut stream).poll_next(context))).await;
        self.tenure.lock().end();
        self.wakers.wake();
    }

    /// Renews it until it is lost or released.
    async fn keep(&self, runner: &Runner) {
        loop {
            let tenure = self.tenure.lock().clone();
            let (Some(fence), Some((renew_us, until_us))) = (tenure.newest(), tenure.times_us()) else { break };
            if self.now_us() >= until_us {
                break;
            }
            self.sleep(runner, renew_us.min(until_us)).await;
            if self.ended.is_set() {
                return;
            }
            let begun_us = self.now_us();
            match self.renewed(runner, fence, until_us).await {
                Some(Ok(())) => self.tenure.lock().renewed(begun_us),
                Some(Err(HomeErrorKind::LeaseLost)) => drop(self.tenure.lock().end()),
                // The storage backend may return before the TTL ends.
                _ => self.tenure.lock().failed(self.now_us()),
            }
        }
        self.wakers.wake();
    }

    /// Sleeps until a time, or until it is over.
    async fn sleep(&self, runner: &Runner, until_us: u64) {
        let pause = Delay::begin(runner, Duration::from_micros(until_us.saturating_sub(self.now_us())));
        poll_fn(|context| if pause.is_over(context) { Poll::Ready(()) } else { self.ended.poll(context) }).await;
    }

    /// Renews it. None: there was no answer in time.
    async fn renewed(&self, runner: &Runner, fence: u64, until_us: u64) -> Option<Result<(), HomeErrorKind>> {
        let mut renewal = self.home.renew(&self.name, fence);
        let end = Delay::begin(runner, Duration::from_micros(until_us.saturating_sub(self.now_us())));
        let ended = poll_fn(|context| end.limit(Pin::new(&mut renewal).poll(context), context));
        let kind = |result: HomeResult<_>| result.map(drop).map_err(|error| error.kind());
        ended.await.map(kind)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(fence) = self.state.end() {
            // The TTL ends a lease whose release does not arrive.
            self.state.release(fence).then(drop);
        }
    }
}
