//! Server side of a service instance: calls arrive on the thread of the links, and handlers run.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tidewire_core::rpc::admission::{Admission, Entry};
use tidewire_engine::raw::Mutex;
use tidewire_link::{Call, Exchange, Handler, OutgoingPayload};
use tidewire_proto::generated::errors::ErrorCode;

use crate::commands::CommandWorker;
use crate::discovery::{MethodInfo, Visibility};
use crate::error::Error;
use crate::node::core::{Core, Runner};
use crate::objects::ExportPin;
use crate::pending::ResultSlot;
use crate::services::context::{ORIGIN, PUBLIC};
use crate::services::events::Listener;
use crate::services::handler_run;
use crate::services::inbound_call::{Ended, InboundCallState};
use crate::services::service::{ConcurrencyLimits, MethodHandler, Service};
use crate::streams::ServedDurable;
use crate::values::Value;

pub(crate) const STOPPED: &str = "the service has stopped";

/// An instance that is served here.
pub(crate) struct ServiceInstance {
    pub service: Arc<str>,
    pub instance: String,
    pub runner: Arc<Runner>,
    node: String,
    methods: HashMap<String, Arc<Method>>,
    /// The lock protects who is in and who waits; nothing is called under it.
    doors: Mutex<AdmissionState>,
    waiting_max: usize,
    listeners: OnceLock<Vec<Arc<Listener>>>,
    durables: OnceLock<Vec<Arc<ServedDurable>>>,
    workers: OnceLock<Vec<OpenedWorker>>,
    pub counts: Counts,
}

/// A method of a service or of an object, as it is run.
pub(crate) struct Method {
    pub service: Arc<str>,
    pub name: Arc<str>,
    pub handling: MethodHandler,
    pub visibility: Visibility,
}

impl Method {
    /// Description of the method for the holder of its object: name, stream flag and timeout in
    /// seconds.
    pub fn offered(&self) -> Value {
        Value::List(vec![Value::from(&*self.name), Value::Bool(self.is_stream()), Value::Nil])
    }

    fn is_stream(&self) -> bool {
        matches!(self.handling, MethodHandler::Stream(_))
    }
}

/// A worker of commands, and the slot that is filled once it has begun.
type OpenedWorker = (Arc<CommandWorker>, Arc<ResultSlot<()>>);

/// Outcomes of calls, as counters.
#[derive(Default)]
pub(crate) struct Counts {
    pub calls: AtomicU64,
    pub errors: AtomicU64,
    pub cancelled: AtomicU64,
    pub events: AtomicU64,
    pub event_errors: AtomicU64,
}

struct AdmissionState {
    calls: Admission<AdmittedCall>,
    /// Streams may last for ever, and so have a separate limit.
    streams: Admission<AdmittedCall>,
    running: HashMap<u64, Running>,
    next: u64,
    is_closed: bool,
}

struct Running {
    exchange: Arc<InboundCallState>,
    is_stream: bool,
}

/// A call that was let in, or waits.
pub(crate) struct AdmittedCall {
    pub call: Call,
    pub exchange: Arc<InboundCallState>,
    pub method: Arc<Method>,
    /// Kept until its handler has ended.
    pub busy: Option<ExportPin>,
}

/// Held by a handler; dropping it lets the next call in.
pub(crate) struct AdmissionPermit {
    pub host: Arc<ServiceInstance>,
    /// True once its task has run.
    pub has_begun: bool,
    number: u64,
}

impl ServiceInstance {
    pub fn new(service: Service, instance: String, node: &str, runner: Arc<Runner>) -> Self {
        let title: Arc<str> = service.info.name.as_str().into();
        let methods =
            service.methods.into_iter().map(|(info, handling)| (info.name.clone(), method(&title, info, handling)));
        let methods = methods.collect();
        Self { instance, node: node.to_owned(), methods, ..Self::of(title, service.limits, runner) }
    }

    /// The instance that runs calls of exported objects.
    pub fn of_objects(runner: Arc<Runner>) -> Self {
        Self::of("objects".into(), ConcurrencyLimits::default(), runner)
    }

    fn of(service: Arc<str>, limits: ConcurrencyLimits, runner: Arc<Runner>) -> Self {
        let doors = AdmissionState {
            calls: Admission::new(limits.calls, limits.waiting),
            streams: Admission::new(limits.streams, limits.waiting),
            running: HashMap::new(),
            next: 0,
            is_closed: false,
        };
        Self {
            service,
            instance: String::new(),
            runner,
            node: String::new(),
            methods: HashMap::new(),
            doors: Mutex::new(doors),
            waiting_max: limits.waiting,
            listeners: OnceLock::new(),
            durables: OnceLock::new(),
            workers: OnceLock::new(),
            counts: Counts::default(),
        }
    }

    /// The method that a call is for.
    fn method(&self, call: &Call) -> Result<Arc<Method>, String> {
        let subject = call.head().subject;
        let name = subject.rsplit('.').next().unwrap_or(subject);
        let is_own = call.from.name == self.node;
        let is_public = call.head().fields.text(ORIGIN) == Some(PUBLIC);
        let least = match (is_own, is_public) {
            (_, true) => Visibility::Public,
            (true, false) => Visibility::Node,
            (false, false) => Visibility::Private,
        };
        let method = self.methods.get(name).filter(|method| method.visibility >= least);
        method.cloned().ok_or_else(|| {
            let seen = self.methods.iter().filter(|(_, method)| method.visibility >= least);
            let mut names: Vec<_> = seen.map(|(name, _)| name.as_str()).take(10).collect();
            names.sort_unstable();
            format!("{} has no method {name:?}: there are {}", self.service, names.join(", "))
        })
    }

    /// Running calls and streams, and waiting calls.
    pub fn open(&self) -> (usize, usize) {
        let doors = self.doors.lock();
        (doors.running.len(), doors.calls.waiting() + doors.streams.waiting())
    }

    /// Begins to handle events.
    pub fn listen(self: &Arc<Self>, listeners: Vec<Arc<Listener>>) {
        for listener in self.listeners.get_or_init(|| listeners) {
            Arc::clone(listener).begin(self, &self.runner);
        }
    }

    fn listeners(&self) -> &[Arc<Listener>] {
        self.listeners.get().map_or(&[], Vec::as_slice)
    }

    /// Begins to handle events of streams.
    pub fn subscribe(self: &Arc<Self>, core: &Arc<Core>, durables: Vec<Arc<ServedDurable>>) {
        self.durables.get_or_init(|| durables).iter().for_each(|durable| durable.begin(core, self));
    }

    pub fn durables(&self) -> &[Arc<ServedDurable>] {
        self.durables.get().map_or(&[], Vec::as_slice)
    }

    /// Begins to run commands.
    pub fn work(&self, workers: impl Iterator<Item = Arc<CommandWorker>>) {
        let workers = self.workers.get_or_init(|| workers.map(|worker| (worker, Arc::default())).collect());
        for (worker, opened) in workers {
            let (worker, opened, runner) = (Arc::clone(worker), Arc::clone(opened), Arc::clone(&self.runner));
            self.runner.spawn(Box::pin(async move {
                runner.beat();
                opened.end(worker.open().await.map_err(Error::from));
            }));
        }
    }

    pub fn workers(&self) -> &[OpenedWorker] {
        self.workers.get().map_or(&[], Vec::as_slice)
    }

    /// Fetches no more events of streams, and ends all streams of callers, as they may last for
    /// ever.
    pub fn leave(&self) {
        self.durables().iter().for_each(|durable| durable.subscription().drain());
        self.workers().iter().for_each(|(worker, _)| worker.drain());
        self.end(|running| running.is_stream);
    }

    /// Returns events of streams that were not handled, and commands that have not ended.
    pub fn give_back(&self) {
        self.durables().iter().for_each(|durable| durable.subscription().cut());
        self.workers().iter().for_each(|(worker, _)| worker.cut());
    }

    /// True once all fetched events and commands are handled or given back, and this is stored.
    pub fn has_given_back(&self) -> bool {
        self.durables().iter().all(|durable| durable.subscription().is_over())
            && self.workers().iter().all(|(worker, _)| worker.is_over())
    }

    /// Events dropped because the mailbox was full.
    pub fn events_dropped(&self) -> u64 {
        self.listeners().iter().map(|listener| listener.dropped()).sum()
    }

    /// True if no handler runs and no call is queued. A leaving service instance waits for this.
    pub fn is_idle(&self) -> bool {
        self.open() == (0, 0) && self.listeners().iter().all(|listener| listener.is_idle()) && self.has_given_back()
    }

    /// Ends all handlers, and lets none begin.
    pub fn close(&self) {
        let waiting: Vec<AdmittedCall> = {
            let mut doors = self.doors.lock();
            doors.is_closed = true;
            let calls: Vec<_> = std::iter::from_fn(|| doors.calls.next_waiting()).collect();
            calls.into_iter().chain(std::iter::from_fn(|| doors.streams.next_waiting())).collect()
        };
        waiting.into_iter().for_each(|job| refuse(job.call, ErrorCode::NodeStopped, STOPPED));
        self.end(|_| true);
        self.listeners().iter().for_each(|listener| listener.end());
        self.give_back();
    }

    /// The caller of a call has left. A queued call is released at once, with its payload.
    pub fn gone(&self, exchange: &InboundCallState) {
        let is_it = |job: &AdmittedCall| std::ptr::eq(&*job.exchange, exchange);
        let job = {
            let mut doors = self.doors.lock();
            doors.calls.remove(is_it).or_else(|| doors.streams.remove(is_it))
        };
        if let Some(job) = job {
            refuse(job.call, ErrorCode::CallCancelled, "the caller has gone");
            drop(job.busy);
            self.runner.ended.wake();
        }
    }

    fn end(&self, which: impl Fn(&Running) -> bool) {
        let exchanges: Vec<_> = {
            let doors = self.doors.lock();
            doors.running.values().filter(|one| which(one)).map(|one| Arc::clone(&one.exchange)).collect()
        };
        exchanges.into_iter().for_each(|exchange| exchange.end(Ended::Stopping));
    }

    fn begin(self: &Arc<Self>, job: AdmittedCall) {
        let is_stream = job.method.is_stream();
        let number = {
            let mut doors = self.doors.lock();
            let number = doors.next;
            doors.next += 1;
            doors.running.insert(number, Running { exchange: Arc::clone(&job.exchange), is_stream });
            number
        };
        let inside = AdmissionPermit { host: Arc::clone(self), has_begun: false, number };
        self.runner.spawn(Box::pin(handler_run::run(inside, job)));
    }
}

/// An instance as the link knows it.
pub(crate) struct InstanceSubscription(pub Arc<ServiceInstance>);

impl Handler for InstanceSubscription {
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        match self.0.method(&call) {
            Ok(method) => let_in(&self.0, call, method, None),
            Err(text) => {
                refuse(call, ErrorCode::NoSuchTarget, &text);
                None
            }
        }
    }
}

/// Admits a call or queues it. The pin `busy` lives until the handler has ended.
pub(crate) fn let_in(
    host: &Arc<ServiceInstance>,
    call: Call,
    method: Arc<Method>,
    busy: Option<ExportPin>,
) -> Option<Arc<dyn Exchange>> {
    let is_stream = method.is_stream();
    if is_stream && call.head().credit == 0 {
        let text = "it is a stream, and the call gives no credit for items: read it as a stream";
        refuse(call, ErrorCode::InvalidArgument, text);
        return None;
    }
    if !is_stream && call.head().credit > 0 {
        let text = "it gives one value, and no stream: call it, rather than read it as a stream";
        refuse(call, ErrorCode::InvalidArgument, text);
        return None;
    }
    let (lane, exchange) = (call.message.flags.lane(), InboundCallState::new(call.head().credit));
    let job = AdmittedCall { call, exchange: Arc::clone(&exchange), method, busy };
    let entry = {
        let mut doors = host.doors.lock();
        if doors.is_closed {
            drop(doors);
            refuse(job.call, ErrorCode::NodeStopped, STOPPED);
            return None;
        }
        let admission = if is_stream { &mut doors.streams } else { &mut doors.calls };
        admission.enter(job, lane)
    };
    match entry {
        Entry::Admitted(job) => host.begin(job),
        Entry::Queued => exchange.waits(host),
        Entry::Refused(job) => {
            let text = format!("service_waiting={}: so many calls wait already: try again later", host.waiting_max);
            refuse(job.call, ErrorCode::LimitExceeded, &text);
            return None;
        }
    }
    Some(exchange)
}

/// A method of a service, or of an object, that errors call `service`.
pub(crate) fn method(service: &Arc<str>, info: MethodInfo, handling: MethodHandler) -> Arc<Method> {
    let name = info.name.into();
    Arc::new(Method { service: Arc::clone(service), name, handling, visibility: info.visibility })
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let next = {
            let mut doors = self.host.doors.lock();
            let is_stream = doors.running.remove(&self.number).is_some_and(|running| running.is_stream);
            let admission = if is_stream { &mut doors.streams } else { &mut doors.calls };
            if self.has_begun { admission.leave() } else { None }
        };
        match next {
            Some(job) => self.host.begin(job),
            // The runner is stopping. Closing refuses all queued calls at once; otherwise each
            // would be dropped inside the drop of the one before.
            None if !self.has_begun => self.host.close(),
            None => {}
        }
        self.host.runner.ended.wake();
    }
}

/// Answers a call that no handler sees.
pub(crate) fn refuse(call: Call, code: ErrorCode, text: &str) {
    let flusher = call.flusher();
    call.fail(code, OutgoingPayload::from(text.as_bytes()));
    flusher.flush();
}

impl Counts {
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
