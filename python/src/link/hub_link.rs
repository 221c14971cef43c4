//! A link of this node to its hub.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidewire_engine::raw::{Mutex, clock};
use tidewire_node::raw::{
    self, CallKey, Failure, Flusher, Greeting, ItemBuffer, JoinError, Message, ReplySlot, ReplyWaiter,
};
use tidewire_node::{Node, NodeOptions};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{CallHead, Fields, Flags, PublishHead};

use crate::actors::actor::ActorRef;
use crate::actors::bridge::Bridge;
use crate::actors::engine::Engine;
use crate::arguments::{Pattern, Priority, Subject};
use crate::errors::error;
use crate::interpreter::PerProcessOwned;
use crate::link::flush_batch::{flush_soon, joined_gathering};
use crate::link::hub::{Certificates, address};
use crate::link::instance_endpoint::InstanceEndpoint;
use crate::link::logger::Logger;
use crate::link::loop_inbox::{LoopInbox, LoopSubscription, LoopTarget};
use crate::link::mailbox_delivery::MailboxDelivery;
use crate::link::reply_slot::PendingReply;
use crate::link::settings::{Settings, greeting};
use crate::link::stream::{OpenStream, RemoteStream};
use crate::link::{ReferenceReader, detached, fields, refused, runtime, sending};
use crate::pending::Pending;

/// Prefixes of subjects on which only the hub or one node publishes.
const OWNED: [&str; 2] = ["$hub.", "$node."];

/// A link of this node to its hub.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Link {
    inner: PerProcessOwned<raw::Link>,
    inbox: Mutex<Option<Arc<LoopInbox>>>,
    flusher: Flusher,
    taking: ReferenceReader,
    /// The node over this link, once it is needed.
    node: PerProcessOwned<Arc<OnceLock<Node>>>,
}

/// A subscription over a link.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct LinkSubscription {
    inner: Mutex<Option<PerProcessOwned<raw::Subscription>>>,
    open: Arc<AtomicBool>,
}

/// Receiver of the hub's answer to a subscription.
struct Announced {
    place: Arc<ReplySlot>,
    inbox: Weak<LoopInbox>,
    /// Number of the subscription on the Python side.
    number: u64,
}

impl ReplyWaiter for Announced {
    fn replied(&self, reply: Message) {
        self.place.replied(reply);
    }

    fn failed(&self, failure: Failure) {
        // A task that awaits the answer gets the failure there. A lost link is no refusal.
        let is_reported = failure.message.is_none() || self.place.outcome.is_awaited();
        self.place.failed(failure);
        if let Some(inbox) = self.inbox.upgrade().filter(|_| !is_reported) {
            inbox.refused(self.number, Arc::clone(&self.place));
        }
    }

    fn over(&self) {
        self.place.over();
    }
}

/// Subject and settings of one call.
pub struct CallRequest<'a, 'py> {
    pub subject: &'a str,
    pub timeout_s: Option<f64>,
    pub priority: Option<Priority>,
    pub headers: Option<Bound<'py, PyDict>>,
    /// Asked for what stands for functions and objects.
    pub give: Option<Bound<'py, PyAny>>,
    pub begun: Instant,
}

impl Link {
    pub fn new(inner: raw::Link) -> Self {
        let flusher = inner.flusher();
        let (inner, node) = (PerProcessOwned::new(inner), PerProcessOwned::new(Arc::default()));
        Self { inner, inbox: Mutex::new(None), flusher, taking: ReferenceReader::new(), node }
    }

    /// The node over this link.
    pub fn node(&self, py: Python<'_>, engine: &Engine, name: &str) -> PyResult<Node> {
        let (link, runtime) = (self.inner(py)?, runtime()?);
        // A lost call is reported at once: its caller waits for the end of the outage.
        let options = NodeOptions::named(name).resends(0);
        Ok(self.node.get_or_init(|| Node::over(link, options, engine.handle(), runtime)).clone())
    }

    pub fn join_error(py: Python<'_>, failure: &JoinError) -> PyErr {
        let class = match failure {
            JoinError::Io(..) => "LinkLost",
            JoinError::Tls(_) | JoinError::Untrusted(..) => "InvalidArgument",
            JoinError::Told(_, number, _) => ErrorCode::from_number(*number).map_or("TidewireError", ErrorCode::name),
            JoinError::Fault(..) => "WireError",
        };
        error(py, class, &failure.to_string(), &[])
    }

    /// The link, for others that use it.
    pub fn inner(&self, py: Python<'_>) -> PyResult<raw::Link> {
        self.inner.check(py)?;
        Ok(raw::Link::clone(&self.inner))
    }

    /// Makes a call.
    pub fn ask<'py>(
        &self,
        py: Python<'py>,
        engine: &Engine,
        value: &Bound<'py, PyAny>,
        request: &CallRequest<'_, 'py>,
    ) -> PyResult<PendingReply> {
        let place = Arc::new(ReplySlot::default());
        let key = self.send(py, value, request, 0, Arc::clone(&place) as Arc<dyn ReplyWaiter>)?;
        let wait = request.timeout_s.filter(|seconds| *seconds < 1e9);
        let end = wait.and_then(|wait| request.begun.checked_add(Duration::from_secs_f64(wait.max(0.0))));
        Ok(PendingReply {
            place,
            link: raw::Link::clone(&self.inner),
            key: Some(key),
            title: request.subject.to_owned(),
            taking: self.taking.clone(),
            deadline: end.map(|end| (end, engine.handle())),
            watch: None,
            off_loop: None,
        })
    }

    /// Opens a stream.
    pub fn open_stream<'py>(
        &self,
        py: Python<'py>,
        value: &Bound<'py, PyAny>,
        request: &CallRequest<'_, 'py>,
        credit: u32,
    ) -> PyResult<RemoteStream> {
        let items = ItemBuffer::new(credit);
        let key = self.send(py, value, request, credit, Arc::clone(&items) as Arc<dyn ReplyWaiter>)?;
        let (link, title) = (raw::Link::clone(&self.inner), request.subject.to_owned());
        Ok(RemoteStream::new(OpenStream { items, link, key, title, taking: self.taking.clone() }))
    }

    /// Sends a call, now or with others, and returns its key.
    fn send<'py>(
        &self,
        py: Python<'py>,
        value: &Bound<'py, PyAny>,
        request: &CallRequest<'_, 'py>,
        credit: u32,
        waiting: Arc<dyn ReplyWaiter>,
    ) -> PyResult<CallKey> {
        self.inner.check(py)?;
        let (subject, give) = (request.subject, request.give.as_ref());
        let mut blob = crate::values::encode(value, subject, self.inner.payload_bytes(), give)?;
        let headers = fields(py, request.headers.as_ref())?;
        let head = CallHead {
            deadline_ms: request.timeout_s.map_or(0, |seconds| (seconds * 1_000.0).ceil().clamp(1.0, 4e9) as u32),
            credit,
            subject,
            fields: Fields::parse("CALL", &headers).map_err(|broken| super::wire(py, subject, &broken))?,
            ..CallHead::default()
        };
        let (inner, payload, flags) = (&*self.inner, sending(&mut blob), flags(request.priority));
        let bytes = payload.bytes();
        let key = detached(py, inner.compresses(bytes), || inner.call(&head, flags, payload, waiting));
        let key = key.map_err(|why| refused(py, subject, &why))?;
        let joined = joined_gathering(&self.flusher, py, bytes);
        if !(joined || self.inner.is_busy() && flush_soon(py, &self.flusher, bytes)) {
            crate::interpreter::attach::detach(py, || self.inner.flush());
        }
        Ok(key)
    }
}

#[pymethods]
impl Link {
    /// Joins a hub, and blocks until it has taken this node in. `settings` is the table `links`.
    /// `log` is called with one line at a time, and true for a problem. An attempt takes the place
    /// of one before it that had the same `secret`.
    #[staticmethod]
    #[pyo3(signature = (url, name, token, settings, log, secret, tls = None))]
    #[expect(clippy::too_many_arguments, reason = "Python calls it")]
    fn join(
        py: Python<'_>,
        url: &str,
        name: &str,
        token: Option<String>,
        settings: Settings,
        log: Py<PyAny>,
        secret: String,
        tls: Option<Certificates>,
    ) -> PyResult<Self> {
        let (address, runtime) = (address(py, url, tls)?, runtime()?);
        let greeting = Greeting { resume: Some(secret), ..greeting(name, token, &settings) };
        let log = Logger::new(log);
        let warn = move |line: &str| log.warn(line);
        let joined = crate::interpreter::attach::detach(py, || raw::Link::join(&runtime, &address, greeting, warn));
        Ok(Self::new(joined.map_err(|failure| Self::join_error(py, &failure))?))
    }

    /// Hands calls and messages to `receive`, as a list of (number, call or message), on the loop
    /// of this bridge; (0, False) says that the link is lost, (0, None) that the node has joined
    /// again, and (n, None) that the node whose link has this number has gone. `engine` runs plain
    /// functions of the handlers.
    #[pyo3(signature = (bridge, receive, engine = None))]
    fn deliver_to(&self, py: Python<'_>, bridge: &Bridge, receive: Py<PyAny>, engine: Option<&Engine>) -> PyResult<()> {
        self.inner.check(py)?;
        let inbox = LoopInbox::open(
            &bridge.line,
            receive,
            self.flusher.clone(),
            self.taking.clone(),
            engine.map(Engine::handle),
        );
        let weak = Arc::downgrade(&inbox);
        let node = Arc::downgrade(&self.node);
        self.inner.on_joined_again(move || {
            node.upgrade().iter().filter_map(|node| node.get()).for_each(Node::joined_again);
            weak.upgrade().into_iter().for_each(|inbox| inbox.joined_again());
        });
        let weak = Arc::downgrade(&inbox);
        self.inner.on_lost(move || weak.upgrade().into_iter().for_each(|inbox| inbox.lost()));
        let weak = Arc::downgrade(&inbox);
        self.inner.on_pulse(move || weak.upgrade().map_or(0, |inbox| inbox.blocked_ms()));
        let weak = Arc::downgrade(&inbox);
        self.inner.on_left(move |node| weak.upgrade().into_iter().for_each(|inbox| inbox.left(node)));
        let weak = Arc::downgrade(&inbox);
        let before = self.inbox.lock().replace(inbox);
        if let Some(before) = before {
            before.close(py);
        }
        self.inner.on_way(move |reader| {
            if let Some(inbox) = weak.upgrade() {
                inbox.readable(reader);
            }
        });
        Ok(())
    }

    /// Moves inbound frames to another loop after the previous one was closed.
    fn follow(&self, py: Python<'_>, bridge: &Bridge) -> PyResult<()> {
        self.inner.check(py)?;
        let inbox = self.inbox.lock().clone();
        inbox.into_iter().for_each(|inbox| inbox.follow(&bridge.line));
        Ok(())
    }

    /// Sets the function that makes objects of the references in values from this link.
    fn take_with(&self, py: Python<'_>, take: Py<PyAny>) {
        self.taking.take_with(py, take);
    }

    /// Calls a subject; await the result. `give` is asked for what stands for functions and
    /// objects.
    #[pyo3(signature = (engine, subject, value, timeout_s, priority = None, headers = None, give = None))]
    #[allow(clippy::too_many_arguments)]
    fn call<'py>(
        &self,
        py: Python<'py>,
        engine: &Engine,
        subject: Subject<'_, '_>,
        value: &Bound<'py, PyAny>,
        timeout_s: Option<f64>,
        priority: Option<Priority>,
        headers: Option<Bound<'py, PyDict>>,
        give: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Pending> {
        let (subject, begun) = (subject.text, clock::now());
        let request = CallRequest { subject, timeout_s, priority, headers, give, begun };
        Ok(Pending::new("call", None, Box::pin(self.ask(py, engine, value, &request)?)))
    }

    /// Calls a subject whose answer is a stream.
    #[pyo3(signature = (subject, value, timeout_s, credit, priority = None, headers = None, give = None))]
    #[allow(clippy::too_many_arguments)]
    fn open<'py>(
        &self,
        py: Python<'py>,
        subject: Subject<'_, '_>,
        value: &Bound<'py, PyAny>,
        timeout_s: Option<f64>,
        credit: u32,
        priority: Option<Priority>,
        headers: Option<Bound<'py, PyDict>>,
        give: Option<Bound<'py, PyAny>>,
    ) -> PyResult<RemoteStream> {
        let (subject, begun) = (subject.text, clock::now());
        let request = CallRequest { subject, timeout_s, priority, headers, give, begun };
        self.open_stream(py, value, &request, credit)
    }

    /// Publishes.
    #[pyo3(signature = (subject, value, priority = None, headers = None))]
    fn publish(
        &self,
        py: Python<'_>,
        subject: Subject<'_, '_>,
        value: &Bound<'_, PyAny>,
        priority: Option<Priority>,
        headers: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        self.inner.check(py)?;
        if OWNED.iter().any(|prefix| subject.text.starts_with(prefix)) {
            let fix = "is not published on: such subjects belong to the hub or to one node: choose another one";
            return Err(error(py, "InvalidSubject", &format!("subject {:?} {fix}", subject.text), &[]));
        }
        let (mut blob, headers) =
            (crate::values::encode(value, "message", self.inner.payload_bytes(), None)?, fields(py, headers)?);
        let fields = Fields::parse("PUBLISH", &headers).map_err(|broken| super::wire(py, subject.text, &broken))?;
        let head = PublishHead { subject: subject.text, fields, ..PublishHead::default() };
        let (inner, payload, flags) = (&*self.inner, sending(&mut blob), flags(priority));
        let bytes = payload.bytes();
        let sent = detached(py, inner.compresses(bytes), || inner.publish(&head, flags, payload));
        sent.map_err(|why| refused(py, subject.text, &why))?;
        if !flush_soon(py, &self.flusher, bytes) {
            crate::interpreter::attach::detach(py, || self.inner.flush());
        }
        Ok(())
    }

    /// Subscribes. Frames come with `number`; calls go to the endpoint, if any, and messages
    /// to the mailbox of an actor if that can take them. A subscription that listens gets no calls.
    /// The pending is done once the hub has the subscription, or fails with the refusal.
    #[pyo3(signature = (pattern, queue, says, number, endpoint = None, mailbox = None, listens = false))]
    #[allow(clippy::too_many_arguments)]
    fn subscribe(
        &self,
        py: Python<'_>,
        pattern: Pattern<'_>,
        queue: &str,
        says: Option<&Bound<'_, PyDict>>,
        number: u64,
        endpoint: Option<Py<InstanceEndpoint>>,
        mailbox: Option<(Py<Engine>, Py<ActorRef>)>,
        listens: bool,
    ) -> PyResult<(LinkSubscription, Pending)> {
        self.inner.check(py)?;
        let pattern = tidewire_proto::subject::Pattern::new(pattern.0)
            .map_err(|wrong| error(py, "InvalidSubject", &wrong.to_string(), &[]))?;
        let Some(inbox) = self.inbox.lock().clone() else {
            return Err(error(py, "InvalidArgument", "this link hands nothing over yet", &[]));
        };
        let announcement = fields(py, says)?;
        let place = Arc::new(ReplySlot::default());
        let open = Arc::new(AtomicBool::new(true));
        let inflow = mailbox
            .and_then(|(engine, actor)| MailboxDelivery::into_mailbox(actor.get().inner.cell(), engine.get().handle()));
        let at = LoopTarget {
            number,
            endpoint: endpoint.map(|endpoint| Arc::new(endpoint.into())),
            inflow,
            listens,
            open: Arc::clone(&open),
        };
        let announced = Announced { place: Arc::clone(&place), inbox: Arc::downgrade(&inbox), number };
        let (handler, waiting) =
            (Arc::new(LoopSubscription { inbox, place: at }), Arc::new(announced) as Arc<dyn ReplyWaiter>);
        let subscribe = || self.inner.subscribe(&pattern, queue, &announcement, handler, waiting);
        let subscribed = crate::interpreter::attach::detach(py, subscribe);
        let inner = subscribed.map_err(|why| refused(py, pattern.as_str(), &why))?;
        let title = pattern.as_str().to_owned();
        let asking = PendingReply {
            place,
            link: raw::Link::clone(&self.inner),
            key: None,
            title,
            taking: self.taking.clone(),
            deadline: None,
            watch: None,
            off_loop: None,
        };
        let pending = Pending::new("subscribe", None, Box::pin(asking));
        Ok((LinkSubscription { inner: Mutex::new(Some(PerProcessOwned::new(inner))), open }, pending))
    }

    /// The hub's name, the number of this node and the longest payload. None while the link is
    /// lost.
    #[getter]
    fn joined(&self) -> Option<(String, u32, usize)> {
        self.inner.mine()?.joined().map(|joined| (joined.hub, joined.node, joined.payload_bytes))
    }

    /// Number of the present connection. Facts about other nodes from an earlier connection may
    /// have changed.
    #[getter]
    fn epoch(&self) -> u32 {
        self.inner.mine().map_or(0, raw::Link::epoch)
    }

    /// Calls of others that this node has not answered yet.
    #[getter]
    fn open_calls(&self) -> usize {
        self.inner.mine().map_or(0, raw::Link::open_calls)
    }

    /// The name of the node whose link has this number, as the hub reported it.
    fn name_of(&self, node: u32) -> Option<String> {
        self.inner.mine()?.name_of(node)
    }

    /// Messages that were published, and dropped here because they could not be read.
    #[getter]
    fn dropped(&self) -> u64 {
        self.inner.mine().map_or(0, raw::Link::dropped)
    }

    /// Payloads passed through shared memory to other processes of this host.
    #[getter]
    fn laid(&self) -> u64 {
        self.inner.mine().map_or(0, raw::Link::laid)
    }

    /// Bytes in, bytes out, and how many bytes may still wait for the connection.
    fn traffic(&self) -> Option<(u64, u64, usize)> {
        self.inner.mine().map(raw::Link::traffic)
    }

    /// Accepts no new calls, and notifies the hub.
    fn goodbye(&self, py: Python<'_>) {
        if let Some(mine) = self.inner.mine() {
            crate::interpreter::attach::detach(py, || mine.goodbye());
        }
    }

    /// Something to await: True once the hub has read all sent frames, False after so many seconds.
    fn drained(&self, py: Python<'_>, seconds: Option<f64>) -> PyResult<Pending> {
        self.inner.check(py)?;
        let most = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let drained = self.inner.drained(&runtime()?, most);
        let operation = async move {
            let is_drained = drained.await;
            crate::interpreter::attach::attach(|py| is_drained.into_py_any(py))
        };
        Ok(Pending::new("drained", None, Box::pin(operation)))
    }

    /// Something to await: True once each fetched event and lease whose caller has left is back at
    /// the hub, False after so many seconds.
    fn returned(&self, seconds: f64) -> Pending {
        let returned = self
            .node
            .mine()
            .and_then(|node| node.get())
            .map(|node| node.returned(Duration::try_from_secs_f64(seconds).unwrap_or_default()));
        let operation = async move {
            let is_back = match returned {
                Some(returned) => returned.await,
                None => true,
            };
            crate::interpreter::attach::attach(|py| is_back.into_py_any(py))
        };
        Pending::new("returned", None, Box::pin(operation))
    }

    /// Ends the link now. Operations in progress fail.
    fn close(&self, py: Python<'_>) {
        let Some(mine) = self.inner.mine() else { return };
        let inbox = self.inbox.lock().take();
        if let Some(inbox) = inbox {
            inbox.close(py);
        }
        crate::interpreter::attach::detach(py, || mine.close());
    }
}

#[pymethods]
impl LinkSubscription {
    /// Ends the subscription.
    fn close(&self, py: Python<'_>) {
        self.open.store(false, Ordering::Release);
        let subscription = self.inner.lock().take();
        crate::interpreter::attach::detach(py, || drop(subscription));
    }
}

fn flags(priority: Option<Priority>) -> Flags {
    let lane = match Priority::lane(priority) {
        tidewire_engine::Priority::Urgent => 0,
        tidewire_engine::Priority::High => 1,
        tidewire_engine::Priority::Normal => 2,
        tidewire_engine::Priority::Low => 3,
    };
    Flags::NORMAL.in_lane(lane)
}
