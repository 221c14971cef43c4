//! One instance of a service: takes calls in from the thread of the links, and lets handlers run.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidewire_link::{Call, Exchange, Handler, Published, Sending};
use tidewire_proto::generated::errors::ErrorCode;

use crate::core::Runner;
use crate::discovery::Visibility;
use crate::exchanging::{Ended, Exchanging};
use crate::gate::{Entry, Gate};
use crate::running;
use crate::service::{Handling, Service};

const WAITING_MAX: usize = 10_000;
const STREAMS_MAX: usize = 10_000;
pub(crate) const STOPPED: &str = "the service has stopped";

/// An instance that is served here.
pub(crate) struct Host {
    pub service: Arc<str>,
    pub instance: String,
    pub runner: Arc<Runner>,
    node: String,
    methods: HashMap<String, Method>,
    /// The lock protects who is in and who waits; nothing is called under it.
    doors: Mutex<Doors>,
    pub counts: Counts,
}

pub(crate) struct Method {
    pub name: Arc<str>,
    pub handling: Handling,
    visibility: Visibility,
}

/// What has become of calls.
#[derive(Default)]
pub(crate) struct Counts {
    pub calls: AtomicU64,
    pub errors: AtomicU64,
    pub cancelled: AtomicU64,
}

struct Doors {
    calls: Gate<Job>,
    /// A stream may last for ever, and must not take the place of a call.
    streams: Gate<Job>,
    running: HashMap<u64, Running>,
    next: u64,
    is_closed: bool,
}

struct Running {
    exchange: Arc<Exchanging>,
    is_stream: bool,
}

/// A call that was let in, or waits.
pub(crate) struct Job {
    pub call: Call,
    pub exchange: Arc<Exchanging>,
}

/// Held by a handler; dropping it lets the next call in.
pub(crate) struct Inside {
    pub host: Arc<Host>,
    /// Whether its task was run at all.
    pub has_begun: bool,
    number: u64,
}

impl Host {
    pub fn new(service: Service, instance: String, node: &str, runner: Arc<Runner>) -> Self {
        let methods = service.methods.into_iter().map(|(info, handling)| {
            let method = Method { name: info.name.as_str().into(), handling, visibility: info.visibility };
            (info.name, method)
        });
        let doors = Doors {
            calls: Gate::new(service.concurrency, WAITING_MAX),
            streams: Gate::new(STREAMS_MAX, WAITING_MAX),
            running: HashMap::new(),
            next: 0,
            is_closed: false,
        };
        Self {
            service: service.info.name.as_str().into(),
            instance,
            runner,
            node: node.to_owned(),
            methods: methods.collect(),
            doors: Mutex::new(doors),
            counts: Counts::default(),
        }
    }

    /// The method that a call is for.
    pub fn method(&self, call: &Call) -> Option<&Method> {
        let subject = call.head().subject;
        let name = subject.rsplit('.').next().unwrap_or(subject);
        let method = self.methods.get(name)?;
        let is_own = call.from.name == self.node;
        (is_own || method.visibility > Visibility::Node).then_some(method)
    }

    /// Calls and streams whose handlers run, and calls that wait.
    pub fn open(&self) -> (usize, usize) {
        let doors = self.doors.lock();
        (doors.running.len(), doors.calls.waiting() + doors.streams.waiting())
    }

    /// Ends all streams, as they may last for ever.
    pub fn cut_streams(&self) {
        self.end(|running| running.is_stream);
    }

    /// Ends all handlers, and lets none begin.
    pub fn close(&self) {
        let waiting: Vec<Job> = {
            let mut doors = self.doors.lock();
            doors.is_closed = true;
            let calls: Vec<_> = std::iter::from_fn(|| doors.calls.next_waiting()).collect();
            calls.into_iter().chain(std::iter::from_fn(|| doors.streams.next_waiting())).collect()
        };
        waiting.into_iter().for_each(|job| refuse(job.call, ErrorCode::NodeStopped, STOPPED));
        self.end(|_| true);
    }

    fn end(&self, which: impl Fn(&Running) -> bool) {
        let exchanges: Vec<_> = {
            let doors = self.doors.lock();
            doors.running.values().filter(|one| which(one)).map(|one| Arc::clone(&one.exchange)).collect()
        };
        exchanges.into_iter().for_each(|exchange| exchange.end(Ended::Stopping));
    }

    fn problem(&self, call: &Call) -> Option<(ErrorCode, String)> {
        let Some(method) = self.method(call) else {
            let mut names: Vec<_> = self.methods.keys().map(String::as_str).take(10).collect();
            names.sort_unstable();
            let name = call.head().subject.rsplit('.').next().unwrap_or_default();
            let text = format!("{} has no method {name:?}: there are {}", self.service, names.join(", "));
            return Some((ErrorCode::NoSuchTarget, text));
        };
        let is_stream = matches!(method.handling, Handling::Stream(_));
        if is_stream && call.head().credit == 0 {
            let text = "it is a stream, and the call gives no credit for items: read it as a stream";
            return Some((ErrorCode::InvalidArgument, text.to_owned()));
        }
        if !is_stream && call.head().credit > 0 {
            let text = "it gives one value, and no stream: call it, rather than read it as a stream";
            return Some((ErrorCode::InvalidArgument, text.to_owned()));
        }
        None
    }

    fn begin(self: &Arc<Self>, job: Job, is_stream: bool) {
        let number = {
            let mut doors = self.doors.lock();
            let number = doors.next;
            doors.next += 1;
            doors.running.insert(number, Running { exchange: Arc::clone(&job.exchange), is_stream });
            number
        };
        let inside = Inside { host: Arc::clone(self), has_begun: false, number };
        self.runner.spawn(Box::pin(running::run(inside, job)));
    }
}

/// An instance as the link knows it.
pub(crate) struct Door(pub Arc<Host>);

impl Handler for Door {
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        if let Some((code, text)) = self.0.problem(&call) {
            refuse(call, code, &text);
            return None;
        }
        let is_stream = self.0.method(&call).is_some_and(|method| matches!(method.handling, Handling::Stream(_)));
        let (lane, exchange) = (call.message.flags.lane(), Exchanging::new(call.head().credit));
        let job = Job { call, exchange: Arc::clone(&exchange) };
        let entry = {
            let mut doors = self.0.doors.lock();
            if doors.is_closed {
                drop(doors);
                refuse(job.call, ErrorCode::NodeStopped, STOPPED);
                return None;
            }
            let gate = if is_stream { &mut doors.streams } else { &mut doors.calls };
            gate.come(job, lane)
        };
        match entry {
            Entry::Enters(job) => self.0.begin(job, is_stream),
            Entry::Waits => {}
            Entry::Full(job) => {
                let text = format!("service_waiting={WAITING_MAX}: so many calls wait already: try again later");
                refuse(job.call, ErrorCode::LimitExceeded, &text);
                return None;
            }
        }
        Some(exchange)
    }

    fn published(&self, _: Published) {}
}

impl Drop for Inside {
    fn drop(&mut self) {
        let (next, is_stream) = {
            let mut doors = self.host.doors.lock();
            let is_stream = doors.running.remove(&self.number).is_some_and(|running| running.is_stream);
            let gate = if is_stream { &mut doors.streams } else { &mut doors.calls };
            (if self.has_begun { gate.leave() } else { None }, is_stream)
        };
        match next {
            Some(job) => self.host.begin(job, is_stream),
            // Who runs tasks takes none any more. Each that waits would only be dropped within the drop of the one before.
            None if !self.has_begun => self.host.close(),
            None => {}
        }
        self.host.runner.ended.wake();
    }
}

/// Answers a call that no handler sees.
pub(crate) fn refuse(call: Call, code: ErrorCode, text: &str) {
    let flusher = call.flusher();
    call.fail(code, Sending::from(text.as_bytes()));
    flusher.flush();
}

impl Counts {
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
