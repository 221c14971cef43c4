//! Single active services: one instance of a name is active, the holder of a lease. The others
//! stand by, and queue calls until one is active.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use futures_core::Stream;
use tidewire_core::rpc::STANDBY;
use tidewire_engine::raw::{Mutex, clock};
use tidewire_proto::generated::errors::ErrorCode;

use crate::calls::client::Client;
use crate::delay::RetryPause;
use crate::discovery::MethodInfo;
use crate::error::Error;
use crate::names;
use crate::node::core::{Core, Standby};
use crate::node::runner::Runner;
use crate::pending::{Pending, Signal, Wakers};
use crate::services::context::{Context, Fence};
use crate::services::failure::Failure;
use crate::services::instance::ServiceStatistics;
use crate::services::method::{EncodedItems, MethodHandler, ReplyFuture, ReplyStream, result};
use crate::services::serve::{Served, serve};
use crate::services::service::Service;
use crate::streams::{self, Lease, LeaseOptions};
use crate::values::{self, Blob, Value};

/// One instance of a service of which one is active at a time, as the one who serves it holds it.
/// Dropping this ends nothing.
#[derive(derive_more::Debug)]
#[debug("Single({:?}, {:?}, {})", inner.name, inner.instance, if self.is_active() { "active" } else { "on standby" })]
pub struct SingleActive {
    inner: Arc<Inner>,
    standby: Served,
}

/// State that the standby task shares with its handles.
struct Inner {
    name: String,
    instance: String,
    runner: Arc<Runner>,
    active: Mutex<Option<Active>>,
    /// Woken when it becomes active, or has ended.
    wakers: Wakers,
    leaving: Signal,
    ended: Signal,
}

struct Active {
    lease: Arc<Lease>,
    served: Served,
    preference: HolderPreference,
}

/// Calls of this node prefer its own instance while that holds the lease.
struct HolderPreference {
    core: Weak<Core>,
    service: String,
    instance: String,
}

impl HolderPreference {
    fn new(core: &Arc<Core>, service: &str, instance: &str) -> Self {
        core.directory.note_holder(service, instance, true);
        Self { core: Arc::downgrade(core), service: service.to_owned(), instance: instance.to_owned() }
    }
}

impl Drop for HolderPreference {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            core.directory.note_holder(&self.service, &self.instance, false);
        }
    }
}

/// Serves a service, when and as long as this instance is the active one.
pub(crate) fn serve_single(core: &Arc<Core>, mut service: Service, options: LeaseOptions) -> Pending<SingleActive> {
    let checked = core.check().and_then(|()| service.check());
    if let Err(error) = checked {
        return Pending::failed(error);
    }
    let name = service.info.name.clone();
    let instance = service.instance.take().unwrap_or_else(|| format!("{name}-{}", names::random_hex(4)));
    service.instance = Some(instance.clone());
    let standby = serve(core, standby(core, &service, &instance));
    let inner = Arc::new(Inner {
        name,
        instance,
        runner: Arc::clone(&core.runner),
        active: Mutex::new(None),
        wakers: Wakers::default(),
        leaving: Signal::default(),
        ended: Signal::default(),
    });
    let core = Arc::downgrade(core);
    Pending::new(async move {
        let standby = standby.await?;
        let shared = Arc::clone(&inner);
        if let Some(core) = core.upgrade() {
            core.singles.lock().push(Arc::<Inner>::downgrade(&inner));
        }
        let (runner, ends) = (Arc::clone(&inner.runner), StandbyGuard(Arc::clone(&inner)));
        runner.aside(Box::pin(async move {
            shared.run(&core, &service, &options).await;
            drop(ends);
        }));
        Ok(SingleActive { inner, standby })
    })
}

/// Marks the end of the standby task, also after a panic.
struct StandbyGuard(Arc<Inner>);

impl Drop for StandbyGuard {
    fn drop(&mut self) {
        self.0.ended.set();
        self.0.wakers.wake();
    }
}

impl SingleActive {
    /// The id of the instance.
    pub fn instance(&self) -> &str {
        &self.inner.instance
    }

    /// True if this instance is certainly the active one, by the clock of this process.
    pub fn is_active(&self) -> bool {
        self.fence().is_ok()
    }

    /// The fencing token: greater than that of every instance that was active before. Give it to
    /// stores that can compare it; handlers have it from [`Context::fence`].
    ///
    /// # Errors
    /// [`Error`] with `lease_lost` if this instance is not active.
    pub fn fence(&self) -> Result<u64, Error> {
        let lease = self.inner.active.lock().as_ref().map(|active| Arc::clone(&active.lease));
        lease.map_or_else(|| Err(self.inner.idle()), |lease| lease.fence())
    }

    /// Waits until this instance is the active one. Returns its fence.
    ///
    /// # Errors
    /// Awaiting it fails with `lease_lost` if it was stopped.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub async fn active(&self) -> Result<u64, Error> {
        let look = || Some(self.fence()).filter(|fence| fence.is_ok() || self.inner.ended.is_set());
        self.inner.wakers.until(look).await
    }

    /// Statistics of the calls since this instance became active. On standby: of the calls that it
    /// queued until another instance was active.
    pub fn statistics(&self) -> ServiceStatistics {
        let active = self.inner.active.lock().as_ref().map(|active| active.served.statistics());
        active.unwrap_or_else(|| self.standby.statistics())
    }

    /// Stops this instance. An active instance finishes its accepted calls, and then another takes
    /// over at once.
    ///
    /// # Errors
    /// `AskCycle` if a handler of the service awaits it. `home_unavailable` if the lease could not
    /// be released: another instance takes over when the TTL ends.
    ///
    /// # Cancel safety
    /// If it is dropped, it takes no more calls.
    pub fn stop(self, timeout: Duration) -> Pending<ServiceStatistics> {
        self.inner.leave();
        Pending::new(async move {
            let until = clock::now() + timeout;
            let last = self.inner.finish(timeout).await?;
            let counts = self.standby.stop(until.saturating_duration_since(clock::now())).await?;
            Ok(last.unwrap_or(counts))
        })
    }
}

impl Standby for Inner {
    fn leave(&self) {
        self.leaving.set();
    }

    fn end(self: Arc<Self>, timeout: Duration) -> Pending<()> {
        Pending::new(async move { self.finish(timeout).await.map(drop) })
    }
}

impl Inner {
    /// Waits until the standby has ended; an active instance finishes its calls and releases its
    /// lease.
    async fn finish(&self, timeout: Duration) -> Result<Option<ServiceStatistics>, Error> {
        self.leave();
        poll_fn(|context| self.ended.poll(context)).await;
        let Some(Active { lease, served, preference }) = self.active.lock().take() else { return Ok(None) };
        drop(preference);
        let counts = served.stop(timeout).await;
        lease.give_back().await?;
        counts.map(Some)
    }

    /// Acquires the lease, is active while the lease is held, and starts over when it is lost.
    async fn run(&self, core: &Weak<Core>, service: &Service, options: &LeaseOptions) {
        let mut retries = RetryPause::default();
        while !self.leaving.is_set() {
            let Some(core) = core.upgrade() else { return };
            let holder = format!("{}/{}", core.name, self.instance);
            let acquired = streams::acquire(&core, &format!("active.{}", self.name), options.clone().holder(holder));
            let result = match self.leaving.unless(acquired).await {
                None => return,
                Some(Err(error)) => Err(error),
                Some(Ok(lease)) => self.begin(&core, service, Arc::new(lease)).await,
            };
            match result {
                Ok(lease) => {
                    retries = RetryPause::default();
                    let fence = lease.fence().unwrap_or_default();
                    (core.changes)(&format!(
                        "{:?}: the instance {:?} is active, with fence {fence}",
                        self.name, self.instance
                    ));
                    if self.leaving.unless(lease.lost()).await.is_none() {
                        return;
                    }
                    (core.log)(&format!(
                        "{:?}: the instance {:?} has lost its lease, and is not active any more",
                        self.name, self.instance
                    ));
                    let active = self.active.lock().take();
                    if let Some(Active { served, preference, .. }) = active {
                        drop(preference);
                        drop(served.stop(Duration::ZERO).await);
                    }
                }
                Err(error) => {
                    if retries.is_first() {
                        (core.log)(&format!(
                            "{:?}: the instance {:?} can't become active, and tries again: {error}",
                            self.name, self.instance
                        ));
                    }
                    let pause = retries.begin(&self.runner);
                    self.leaving.unless(core.pause(pause)).await;
                }
            }
        }
    }

    /// Serves it under a lease.
    async fn begin(&self, core: &Arc<Core>, service: &Service, lease: Arc<Lease>) -> Result<Arc<Lease>, Error> {
        let served = serve(core, guarded(service, &lease)).await?;
        let preference = HolderPreference::new(core, &self.name, &self.instance);
        *self.active.lock() = Some(Active { lease: Arc::clone(&lease), served, preference });
        self.wakers.wake();
        Ok(lease)
    }

    fn idle(&self) -> Error {
        let text =
            format!("{}: the instance {:?} is not active: another is, or it was stopped", self.name, self.instance);
        Error::new(ErrorCode::LeaseLost, text)
    }
}

/// The service with handlers that answer only while a lease is held.
fn guarded(service: &Service, lease: &Arc<Lease>) -> Service {
    let mut guarded = service.clone();
    let fence_lease = Arc::clone(lease);
    let fence: Arc<Fence> = Arc::new(move || fence_lease.fence());
    for (_, handling) in &mut guarded.methods {
        *handling = match handling.clone() {
            MethodHandler::Once(answers) => {
                let (lease, fence) = (Arc::clone(lease), Arc::clone(&fence));
                MethodHandler::Once(Arc::new(move |context: Context, input: &[u8]| {
                    begins(&lease)?;
                    let answering = answers(context.under(&fence), input)?;
                    let lease = Arc::clone(&lease);
                    let answering: ReplyFuture = Box::pin(async move {
                        let answer = answering.await;
                        ends(&lease)?;
                        answer
                    });
                    Ok(answering)
                }))
            }
            MethodHandler::Stream(streams) => {
                let (lease, fence) = (Arc::clone(lease), Arc::clone(&fence));
                MethodHandler::Stream(Arc::new(move |context: Context, input: &[u8]| {
                    begins(&lease)?;
                    let items = streams(context.under(&fence), input)?;
                    let items: ReplyStream = Box::pin(LeasedItems { lease: Arc::clone(&lease), items });
                    Ok(items)
                }))
            }
        };
    }
    guarded
}

fn begins(lease: &Lease) -> Result<(), Failure> {
    if lease.is_held() {
        return Ok(());
    }
    let text = format!("{}: this instance is not active any more: another has the call", lease.name());
    Err(Failure::refusal(ErrorCode::NodeStopped, text))
}

fn ends(lease: &Lease) -> Result<(), Failure> {
    if lease.is_held() {
        return Ok(());
    }
    let what = "this instance lost its lease while it was at the call, and does not answer";
    let text = format!("{}: {what}: whether it was handled is not known", lease.name());
    Err(Failure::of(ErrorCode::LeaseLost, text))
}

/// Items that are yielded only while a lease is held.
struct LeasedItems {
    lease: Arc<Lease>,
    items: ReplyStream,
}

impl Stream for LeasedItems {
    type Item = <ReplyStream as Stream>::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<Option<Self::Item>> {
        let next = std::task::ready!(self.items.as_mut().poll_next(context));
        Poll::Ready(match (next, ends(&self.lease)) {
            (Some(Ok(_)), Err(lost)) => Some(Err(lost)),
            (next, _) => next,
        })
    }
}

/// The standby instance: its methods wait for an active instance, and call it.
fn standby(core: &Arc<Core>, service: &Service, instance: &str) -> Service {
    let mut standby = service.clone();
    (standby.events, standby.durables, standby.info.events) = (Vec::new(), Vec::new(), Vec::new());
    standby.commands = Vec::new();
    standby.instance = Some(format!("{STANDBY}{instance}"));
    for (info, handling) in &mut standby.methods {
        *handling = forwarder(core, &service.info.name, info);
    }
    standby
}

fn forwarder(core: &Arc<Core>, service: &str, info: &MethodInfo) -> MethodHandler {
    let (core, service, method) = (Arc::downgrade(core), service.to_owned(), info.name.clone());
    let queue_call = move |context: &Context, input: &[u8]| -> Result<QueuedUntilActive, Failure> {
        let core = core.upgrade();
        let core = core.ok_or_else(|| Failure::refusal(ErrorCode::NodeStopped, "the node has ended"))?;
        let arguments: Value = values::read("the arguments", input)?;
        let client = Client::new(Arc::clone(&core), &service).passing_on(context);
        let blob = values::write("the arguments", &arguments)?;
        Ok(QueuedUntilActive { core, client, service: service.clone(), method: method.clone(), blob })
    };
    if info.stream {
        return MethodHandler::Stream(Arc::new(move |context, input| {
            let call = queue_call(&context, input)?;
            let items: ReplyStream = Box::pin(ActiveItems::Finding(Box::pin(async move { call.stream().await })));
            Ok(items)
        }));
    }
    MethodHandler::Once(Arc::new(move |context, input| {
        let call = queue_call(&context, input)?;
        let answering: ReplyFuture = Box::pin(async move { call.call().await });
        Ok(answering)
    }))
}

/// A call that waits until an instance is active.
struct QueuedUntilActive {
    core: Arc<Core>,
    client: Client,
    service: String,
    method: String,
    blob: Blob,
}

impl QueuedUntilActive {
    async fn call(self) -> Result<Blob, Failure> {
        let mut tried: Vec<Arc<str>> = Vec::new();
        loop {
            let instance = self.core.directory.active(&self.core, &self.service, &tried).await?;
            let client = self.client.clone().instance(&*instance);
            match client.pass::<Value>(&self.method, self.blob.clone()).await {
                Ok(value) => return result("the result", &value),
                // The instance was no longer active, or has left, and has not begun with the call.
                Err(error) if [ErrorCode::NoResponders, ErrorCode::NodeStopped].contains(&error.code()) => {
                    tried.push(instance);
                }
                // Nothing has begun, so that another hub can have it.
                Err(error) if error.code() == ErrorCode::Overloaded => {
                    return Err(Failure::refusal(error.code(), error.message()));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn stream(self) -> Result<ReplyStream, Failure> {
        let instance = self.core.directory.active(&self.core, &self.service, &[]).await?;
        let items = self.client.instance(&*instance).pass_stream::<Value>(&self.method, self.blob);
        Ok(Box::pin(EncodedItems::new(items)))
    }
}

/// The items of the instance that is active, once there is one.
enum ActiveItems {
    Finding(Pin<Box<dyn Future<Output = Result<ReplyStream, Failure>> + Send>>),
    Found(ReplyStream),
}

impl Stream for ActiveItems {
    type Item = <ReplyStream as Stream>::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match &mut *self {
                Self::Found(items) => return items.as_mut().poll_next(context),
                Self::Finding(finding) => match std::task::ready!(finding.as_mut().poll(context)) {
                    Ok(items) => *self = Self::Found(items),
                    Err(failure) => return Poll::Ready(Some(Err(failure))),
                },
            }
        }
    }
}
