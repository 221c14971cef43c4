//! Server side of a service instance: calls arrive on the thread of the links, and handlers run.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use serde_json::{Value, json};
use tidewire_core::histogram::Histogram;
use tidewire_core::rpc::admission::{Admission, Entry};
use tidewire_engine::raw::{Mutex, clock};
use tidewire_link::{Call, Exchange, Handler};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::grammar::scoped_method;

use crate::commands::CommandWorker;
use crate::discovery::Visibility;
use crate::error::Error;
use crate::inline_task::InlineTask;
use crate::names;
use crate::node::core::{Core, StoppableInstance};
use crate::node::runner::Runner;
use crate::objects::{ExportPin, Objects};
use crate::pending::ResultSlot;
use crate::services::context::{ORIGIN, PUBLIC};
use crate::services::current_service;
use crate::services::handler_run;
use crate::services::inbound_call::{Ended, InboundCallState, STOPPED, refuse};
use crate::services::listener::Listener;
use crate::services::method::{Method, method};
use crate::services::service::{ANY_SCOPE, ConcurrencyLimits, Service};
use crate::statistics::call_durations::SERVER;
use crate::streams::ServedDurable;

/// An instance that is served here.
pub(crate) struct ServiceInstance {
    pub service: Arc<str>,
    pub id: String,
    pub runner: Arc<Runner>,
    /// Exported and imported objects, which handlers receive and return.
    pub objects: Weak<Objects>,
    node: String,
    methods: HashMap<String, Arc<Method>>,
    /// Calls begin in the order of their arrival, where they arrive.
    is_inline: bool,
    /// The lock protects who is in and who waits; nothing is called under it.
    admission: Mutex<AdmissionState>,
    waiting_max: usize,
    listeners: OnceLock<Vec<Arc<Listener>>>,
    durables: OnceLock<Vec<Arc<ServedDurable>>>,
    workers: OnceLock<Vec<OpenedWorker>>,
    pub counts: Counts,
    /// Times of handlers that returned a result, in microseconds. None: nobody looks at them.
    times_us: Option<Mutex<Histogram>>,
}

/// Statistics of the calls of one instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceStatistics {
    /// Calls whose handlers have begun.
    pub calls: u64,
    /// Those of them that failed.
    pub errors: u64,
    /// Those of them that were cancelled, or came to their deadline.
    pub cancelled: u64,
    /// Running handlers.
    pub in_flight: usize,
    /// Calls that wait for one of them.
    pub waiting: usize,
    /// Streams that have come to their end.
    pub streams: u64,
    /// Events whose handlers have begun.
    pub events: u64,
    /// Those of them that failed.
    pub event_errors: u64,
    /// Events dropped because the mailbox was full.
    pub events_dropped: u64,
}

/// A worker of commands, and the slot that is filled once it has begun.
type OpenedWorker = (Arc<CommandWorker>, Arc<ResultSlot<()>>);

/// Outcomes of calls, as counters.
#[derive(Default)]
pub(crate) struct Counts {
    pub calls: AtomicU64,
    pub errors: AtomicU64,
    pub cancelled: AtomicU64,
    pub streams: AtomicU64,
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
    pub instance: Arc<ServiceInstance>,
    /// True once its task has run.
    pub has_begun: bool,
    /// Its task begins on the thread of the links.
    pub is_inline: bool,
    number: u64,
}

impl ServiceInstance {
    pub fn new(service: Service, id: String, node: &str, runner: Arc<Runner>, objects: Weak<Objects>) -> Self {
        let title: Arc<str> = service.info.name.as_str().into();
        let methods =
            service.methods.into_iter().map(|(info, handling)| (info.name.clone(), method(&title, info, handling)));
        let (methods, is_inline) = (methods.collect(), service.is_inline);
        let node = node.to_owned();
        let is_measured = runner.durations.is_some() && !names::is_internal(&title);
        let times_us = is_measured.then(Mutex::default);
        Self { id, node, methods, is_inline, times_us, ..Self::of(title, service.limits, runner, objects) }
    }

    /// The instance that runs calls of exported objects.
    pub fn of_objects(runner: Arc<Runner>, objects: Weak<Objects>) -> Self {
        Self::of("objects".into(), ConcurrencyLimits::default(), runner, objects)
    }

    fn of(service: Arc<str>, limits: ConcurrencyLimits, runner: Arc<Runner>, objects: Weak<Objects>) -> Self {
        let admission = AdmissionState {
            calls: Admission::new(limits.calls, limits.waiting),
            streams: Admission::new(limits.streams, limits.waiting),
            running: HashMap::new(),
            next: 0,
            is_closed: false,
        };
        Self {
            service,
            id: String::new(),
            runner,
            objects,
            node: String::new(),
            methods: HashMap::new(),
            is_inline: false,
            admission: Mutex::new(admission),
            waiting_max: limits.waiting,
            listeners: OnceLock::new(),
            durables: OnceLock::new(),
            workers: OnceLock::new(),
            counts: Counts::default(),
            times_us: None,
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
        let method = self.methods.get(name).cloned().or_else(|| self.scoped(name));
        method.filter(|method| method.visibility >= least).ok_or_else(|| {
            let seen = self.methods.iter().filter(|(_, method)| method.visibility >= least);
            let mut names: Vec<_> = seen.map(|(name, _)| name.as_str()).take(10).collect();
            names.sort_unstable();
            format!("{} has no method {name:?}: there are {}", self.service, names.join(", "))
        })
    }

    /// The method of one object, if its kind has a method for each.
    fn scoped(&self, name: &str) -> Option<Arc<Method>> {
        let kind = name.split_once(':')?.0;
        let method = self.methods.get(&scoped_method(kind, ANY_SCOPE))?;
        Some(Arc::new(Method { name: name.into(), ..Method::clone(method) }))
    }

    /// Running calls and streams, and waiting calls.
    pub fn open(&self) -> (usize, usize) {
        let admission = self.admission.lock();
        (admission.running.len(), admission.calls.waiting() + admission.streams.waiting())
    }

    /// Statistics of its calls.
    pub fn statistics(&self) -> ServiceStatistics {
        let (in_flight, waiting) = self.open();
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counts { calls, errors, cancelled, streams, events, event_errors } = &self.counts;
        ServiceStatistics {
            calls: of(calls),
            errors: of(errors),
            cancelled: of(cancelled),
            in_flight,
            waiting,
            streams: of(streams),
            events: of(events),
            event_errors: of(event_errors),
            events_dropped: self.events_dropped(),
        }
    }

    /// The time at which a handler begins, if it is measured.
    pub fn begun(&self) -> Option<Instant> {
        self.times_us.as_ref().map(|_| clock::now())
    }

    /// Counts the time of a call whose handler has ended, and the type of its error.
    pub fn took(&self, method: &Method, begun: Option<Instant>, error: &str) {
        if let (Some(begun), Some(times_us), Some(durations)) = (begun, &self.times_us, &self.runner.durations) {
            let took = clock::since(begun);
            durations.record(SERVER, &method.title, error, took);
            if error.is_empty() && !method.is_stream() {
                times_us.lock().record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
            }
        }
    }

    /// Begins to handle events.
    pub fn listen(self: &Arc<Self>, listeners: Vec<Arc<Listener>>) {
        for listener in self.listeners.get_or_init(|| listeners) {
            Arc::clone(listener).begin(self, &self.runner);
        }
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

    /// Events dropped because the mailbox was full.
    pub fn events_dropped(&self) -> u64 {
        self.listeners.get().into_iter().flatten().map(|listener| listener.dropped()).sum()
    }

    /// The caller of a call has left. A queued call is released at once, with its payload.
    pub fn gone(&self, exchange: &InboundCallState) {
        let is_it = |job: &AdmittedCall| std::ptr::eq(&*job.exchange, exchange);
        let job = {
            let mut admission = self.admission.lock();
            admission.calls.remove(is_it).or_else(|| admission.streams.remove(is_it))
        };
        if let Some(job) = job {
            refuse(job.call, ErrorCode::CallCancelled, "the caller has gone");
            drop(job.busy);
            self.runner.ended.wake();
        }
    }

    fn end(&self, which: impl Fn(&Running) -> bool) {
        let exchanges: Vec<_> = {
            let admission = self.admission.lock();
            admission.running.values().filter(|one| which(one)).map(|one| Arc::clone(&one.exchange)).collect()
        };
        exchanges.into_iter().for_each(|exchange| exchange.end(Ended::Stopping));
    }

    fn begin(self: &Arc<Self>, job: AdmittedCall, is_inline: bool) {
        let is_stream = job.method.is_stream();
        let number = {
            let mut admission = self.admission.lock();
            let number = admission.next;
            admission.next += 1;
            admission.running.insert(number, Running { exchange: Arc::clone(&job.exchange), is_stream });
            number
        };
        let inside = AdmissionPermit { instance: Arc::clone(self), has_begun: false, is_inline, number };
        let task = Box::pin(handler_run::run(inside, job));
        if is_inline { InlineTask::spawn(task) } else { self.runner.spawn(task) }
    }
}

impl StoppableInstance for ServiceInstance {
    fn is_named(&self, service: &str, id: &str) -> bool {
        *self.service == *service && self.id == id
    }

    fn row(&self) -> Option<Value> {
        let times_us = self.times_us.as_ref()?;
        let [p50_us, p99_us] = [50.0, 99.0].map(|percent| times_us.lock().percentile(percent));
        let all = self.statistics();
        Some(json!({
            "service": *self.service,
            "instance": self.id,
            "calls": all.calls,
            "handled": all.calls.saturating_sub(all.in_flight as u64),
            "errors": all.errors,
            "cancelled": all.cancelled,
            "streams": all.streams,
            "in_flight": all.in_flight,
            "waiting": all.waiting,
            "p50_us": p50_us,
            "p99_us": p99_us,
            "events": all.events,
            "event_errors": all.event_errors,
            "events_dropped": all.events_dropped,
        }))
    }

    fn refuse_own(&self, what: &str) -> Result<(), Error> {
        current_service::refuse_own(self, what)
    }

    fn leave(&self) {
        self.durables().iter().for_each(|durable| durable.subscription().drain());
        self.workers().iter().for_each(|(worker, _)| worker.drain());
        self.end(|running| running.is_stream);
    }

    fn give_back(&self) {
        self.durables().iter().for_each(|durable| durable.subscription().cut());
        self.workers().iter().for_each(|(worker, _)| worker.cut());
    }

    fn has_given_back(&self) -> bool {
        self.durables().iter().all(|durable| durable.subscription().is_over())
            && self.workers().iter().all(|(worker, _)| worker.is_over())
    }

    fn is_idle(&self) -> bool {
        self.open() == (0, 0)
            && self.listeners.get().into_iter().flatten().all(|listener| listener.is_idle())
            && self.has_given_back()
    }

    fn close(&self) {
        let waiting: Vec<AdmittedCall> = {
            let mut admission = self.admission.lock();
            admission.is_closed = true;
            let calls: Vec<_> = std::iter::from_fn(|| admission.calls.next_waiting()).collect();
            calls.into_iter().chain(std::iter::from_fn(|| admission.streams.next_waiting())).collect()
        };
        waiting.into_iter().for_each(|job| refuse(job.call, ErrorCode::NodeStopped, STOPPED));
        self.end(|_| true);
        self.listeners.get().into_iter().flatten().for_each(|listener| listener.end());
        self.give_back();
    }
}

/// An instance as the link knows it.
pub(crate) struct InstanceSubscription(pub Arc<ServiceInstance>);

impl Handler for InstanceSubscription {
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        match self.0.method(&call) {
            Ok(method) => admit(&self.0, call, method, None),
            Err(text) => {
                refuse(call, ErrorCode::NoSuchTarget, &text);
                None
            }
        }
    }
}

/// Admits a call or queues it. The pin `busy` lives until the handler has ended.
pub(crate) fn admit(
    instance: &Arc<ServiceInstance>,
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
        let mut admission = instance.admission.lock();
        if admission.is_closed {
            drop(admission);
            refuse(job.call, ErrorCode::NodeStopped, STOPPED);
            return None;
        }
        let calls = if is_stream { &mut admission.streams } else { &mut admission.calls };
        calls.enter(job, lane)
    };
    match entry {
        Entry::Admitted(job) => instance.begin(job, instance.is_inline),
        Entry::Queued => {
            let instance = Arc::downgrade(instance);
            exchange.waits(move |exchange| instance.upgrade().into_iter().for_each(|instance| instance.gone(exchange)));
        }
        Entry::Refused(job) => {
            let text = format!("service_waiting={}: so many calls wait already: try again later", instance.waiting_max);
            refuse(job.call, ErrorCode::Overloaded, &text);
            return None;
        }
    }
    Some(exchange)
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let next = {
            let mut admission = self.instance.admission.lock();
            let is_stream = admission.running.remove(&self.number).is_some_and(|running| running.is_stream);
            let calls = if is_stream { &mut admission.streams } else { &mut admission.calls };
            if self.has_begun { calls.leave() } else { None }
        };
        match next {
            // A task that ends at once would begin the next one inside of itself.
            Some(job) => self.instance.begin(job, false),
            // The runner is stopping. Closing refuses all queued calls at once; otherwise each
            // would be dropped inside the drop of the one before.
            None if !self.has_begun => self.instance.close(),
            None => {}
        }
        self.instance.runner.ended.wake();
    }
}

impl Counts {
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
