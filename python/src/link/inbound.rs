//! Calls and messages that come in over a link.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Poll;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use tidewire_engine::EngineHandle;
use tidewire_engine::raw::{Fire, Mutex, Watch, clock};
use tidewire_node::TRACE_CONTEXT;
use tidewire_node::raw::{Call, Exchange, Flusher, Named, OutgoingPayload, PayloadParts, Published};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{CallHead, Fields, PublishHead};

use crate::errors::error;
use crate::interpreter::attach::attach;
use crate::interpreter::once::Once;
use crate::interpreter::py_ref::PyRef;
use crate::interpreter::{PerProcessOwned, past};
use crate::link::inbound_call::{InboundCallState, OnCancel};
use crate::link::inbound_call_run::InboundCallRun;
use crate::link::instance_endpoint::Method;
use crate::link::{ReferenceReader, detached, refused, sending, sent_by};
use crate::pending::Pending;
use crate::values::Blob;

/// The names of the lanes.
const PRIORITIES: [&str; 4] = ["urgent", "high", "normal", "low"];

type Text<'py> = Bound<'py, PyString>;
type DecodedMessage<'py> =
    (Text<'py>, Bound<'py, PyAny>, Option<f64>, Option<Py<PyAny>>, Text<'py>, Text<'py>, Text<'py>, Text<'py>);

/// The field that says on whose behalf a call is made. Only the gateway of a hub may say so.
const USER: &str = "tw-user";
/// The field that says from where a call comes: over HTTP.
const ORIGIN: &str = "tw-origin";

/// Facts about a call that outlive its answer or its release.
struct CallDetails {
    /// The head, which was checked when it came in.
    head: Vec<u8>,
    subject: Box<str>,
    origin: u32,
    credit: u32,
    is_public: bool,
    from: Arc<Named>,
    lane: usize,
}

impl CallDetails {
    fn of(call: &Call) -> Self {
        let CallHead { origin, credit, subject, fields, .. } = call.head();
        Self {
            head: call.message.head().to_vec(),
            subject: subject.into(),
            origin,
            credit,
            is_public: fields.text(ORIGIN) == Some("public"),
            from: Arc::clone(&call.from),
            lane: call.message.flags.lane(),
        }
    }

    fn head(&self) -> CallHead<'_> {
        CallHead::parse(&self.head).unwrap_or_default()
    }

    fn user(&self) -> &str {
        self.head().fields.text(USER).unwrap_or(&self.from.user)
    }
}

/// A call that came in over a link. It is answered once. If it is dropped unanswered, its caller is
/// notified.
#[pyclass(frozen, weakref, module = "tidewire._tidewire")]
pub struct RemoteCall {
    about: CallDetails,
    /// Present until it is answered or released. The lock is held while it is looked at, and no
    /// Python object is made under it.
    call: Arc<Mutex<Option<PerProcessOwned<Call>>>>,
    exchange: Arc<InboundCallState>,
    flusher: Flusher,
    taking: ReferenceReader,
    deadline: Option<Instant>,
    payload_bytes: usize,
    /// The value that it came with, once the actor that takes it has looked at it.
    value: Once<Result<Py<PyAny>, PyErr>>,
    method: OnceLock<Method>,
}

impl RemoteCall {
    pub fn new(call: Call, exchange: Arc<InboundCallState>, taking: ReferenceReader) -> Self {
        *exchange.this.lock() = Arc::downgrade(&exchange);
        let (flusher, deadline, payload_bytes) = (call.flusher(), call.deadline, call.payload_bytes());
        let about = CallDetails::of(&call);
        let call = Arc::new(Mutex::new(Some(PerProcessOwned::new(call))));
        *exchange.unopened.lock() = Arc::downgrade(&call);
        Self {
            about,
            call,
            exchange,
            flusher,
            taking,
            deadline,
            payload_bytes,
            value: Once::new(),
            method: OnceLock::new(),
        }
    }

    /// The called method, which is the last token of the subject, and its lane.
    pub fn about(&self) -> (&str, usize) {
        let subject = self.subject();
        let method = subject.rsplit_once('.').map_or(subject, |(_, method)| method);
        (method, self.about.lane)
    }

    /// The headers of its trace context.
    pub fn trace_fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (fields, found) = (self.about.head().fields, PyDict::new(py));
        for name in TRACE_CONTEXT {
            fields.text(name).map_or(Ok(()), |text| found.set_item(name, text))?;
        }
        Ok(found)
    }

    /// The method that was found for it.
    pub fn method(&self) -> &OnceLock<Method> {
        &self.method
    }

    /// The value that it came with. It is read once: a long payload is used up.
    pub fn decoded<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let read = || {
            *self.exchange.unopened.lock() = Weak::new();
            let value = sent_by(self.origin(), || match self.long_payload() {
                Some(payload) => self.taking.use_up(py, payload),
                None => self.decode_short(py),
            });
            value.map(Bound::unbind)
        };
        match self.value.get_or_init(py, read) {
            Ok(value) => Ok(value.bind(py).clone()),
            Err(error) => Err(error.clone_ref(py)),
        }
    }

    /// Reads a payload where it lies. The call is taken out meanwhile, as that may run code of the
    /// user's, which must not meet the lock; nobody else has the call yet.
    fn decode_short<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let call = self.call.lock().take();
        let Some(call) = call else { return Err(answered(py)) };
        let value = call.check(py).and_then(|()| self.taking.decode(py, call.message.payload()));
        *self.call.lock() = Some(call);
        value
    }

    /// Ends it at its deadline, unless that is dropped before.
    pub fn watch(&self, engine: &EngineHandle) -> Option<Watch> {
        Some(engine.watch(self.deadline?, Arc::clone(&self.exchange) as Arc<dyn Fire>))
    }

    /// Cancels this when the caller has gone; at once if it has.
    pub fn cancels(&self, py: Python<'_>, handling: Py<InboundCallRun>) -> PyResult<()> {
        self.on_gone(py, OnCancel::Cancel(handling.into()));
        Ok(())
    }

    fn on_gone(&self, py: Python<'_>, call: OnCancel) {
        let before = self.exchange.on_cancel.lock().replace(call);
        drop(before);
        // It may have gone before; then what was just set may not be called by anybody else.
        if self.unread() {
            self.exchange.tell(py);
        }
    }

    fn with<T>(&self, py: Python<'_>, act: impl FnOnce(&Call) -> T) -> PyResult<T> {
        let acted = self.call.lock().as_ref().map(|call| call.mine().map(act));
        match acted {
            Some(Some(value)) => Ok(value),
            Some(None) => Err(past(py)),
            None => Err(answered(py)),
        }
    }

    /// Writes an answer of so many bytes, now or with others.
    fn flush(&self, py: Python<'_>, company: bool, bytes: usize) {
        // With other calls at hand, their answers go in the same write: at the end of this round of
        // the loop, or, from another thread, when that of the links comes to it. Writing here would
        // hand the interpreter over for each answer.
        if !company || bytes >= self.flusher.batch().bytes {
            crate::interpreter::attach::detach(py, || self.flusher.flush());
        } else if !super::flush_batch::flush_soon(py, &self.flusher, bytes) {
            self.flusher.flush_soon();
        }
    }
}

#[pymethods]
impl RemoteCall {
    /// The called subject.
    #[getter]
    pub fn subject(&self) -> &str {
        &self.about.subject
    }

    /// The name of the node that called.
    #[getter]
    pub fn node(&self) -> &str {
        &self.about.from.name
    }

    /// The number of the link of that node.
    #[getter]
    fn origin(&self) -> u32 {
        self.about.origin
    }

    /// The user on whose behalf it is made: whose token the caller gave to the gateway of the hub,
    /// or that node joined with; or an empty text.
    #[getter]
    fn user(&self) -> &str {
        self.about.user()
    }

    /// Its headers, or None.
    #[getter]
    fn headers(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        headers(py, &self.about.head().fields)
    }

    /// "urgent", "high", "normal" or "low".
    #[getter]
    fn priority(&self) -> &'static str {
        PRIORITIES[self.about.lane]
    }

    /// Seconds for which the caller still waits, or None for ever.
    #[getter]
    fn left(&self) -> Option<f64> {
        self.deadline.map(|at| at.saturating_duration_since(clock::now()).as_secs_f64())
    }

    /// True for a caller that reads a stream: it has given credit for items.
    #[getter]
    pub fn reads_items(&self) -> bool {
        self.about.credit > 0
    }

    /// True once the caller has gone.
    #[getter]
    pub fn cancelled(&self) -> bool {
        self.exchange.cancelled.load(Ordering::Acquire)
    }

    /// True once nobody reads items of a stream any more: the caller has gone, or waits for the
    /// end.
    #[getter]
    pub fn unread(&self) -> bool {
        self.exchange.is_unread()
    }

    /// All that there is to know of it: subject, value, seconds left, headers, priority, node, user
    /// and origin.
    fn opened<'py>(&self, py: Python<'py>) -> PyResult<DecodedMessage<'py>> {
        let value = self.decoded(py)?;
        Ok((
            PyString::new(py, self.subject()),
            value,
            self.left(),
            self.headers(py)?,
            PyString::intern(py, self.priority()),
            PyString::new(py, self.node()),
            PyString::new(py, self.user()),
            PyString::intern(py, if self.is_public() { "public" } else { "private" }),
        ))
    }

    /// The value that it came with.
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.decoded(py)
    }

    /// Calls something on the loop when the caller has gone, or takes no more items; at once if
    /// that is so.
    fn on_cancel(&self, py: Python<'_>, call: Py<PyAny>) -> PyResult<()> {
        if self.unread() {
            return call.call0(py).map(drop);
        }
        self.on_gone(py, OnCancel::Call(call.into()));
        Ok(())
    }

    /// Answers with a value. Nothing happens if the caller has gone. `give` is asked for what
    /// stands for functions and objects.
    #[pyo3(signature = (value, give = None))]
    pub fn reply<'py>(
        &self,
        py: Python<'py>,
        value: &Bound<'py, PyAny>,
        give: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let mut blob = crate::values::encode(value, "the result", self.payload_bytes, give)?;
        let Some(call) = self.take() else { return Ok(()) };
        let company = call.has_company();
        let payload = sending(&mut blob);
        let bytes = payload.bytes();
        let sent = detached(py, call.compresses(bytes), || call.reply(payload));
        self.forget();
        self.flush(py, company, bytes);
        match sent {
            Err(tidewire_node::raw::Refused::Over) | Ok(()) => Ok(()),
            Err(why) => Err(refused(py, "the result", &why)),
        }
    }

    /// Answers with an error: an exception, which travels as a value.
    pub fn fail(&self, py: Python<'_>, raised: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut blob = crate::values::encode(raised, "the error", self.payload_bytes, None)?;
        self.end(py, ErrorCode::RemoteError, sending(&mut blob));
        Ok(())
    }

    /// Answers with an error of this project, by its number, and a text.
    pub fn refuse(&self, py: Python<'_>, number: u16, text: &str) {
        let code = ErrorCode::from_number(number).unwrap_or(ErrorCode::RemoteError);
        self.end(py, code, OutgoingPayload::from(text.as_bytes()));
    }

    /// Sends one item of a stream; None, or something to await before the next one.
    #[pyo3(signature = (value, give = None))]
    fn item<'py>(
        slf: &Bound<'py, Self>,
        value: &Bound<'py, PyAny>,
        give: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Pending>> {
        let (py, this) = (slf.py(), slf.get());
        let mut blob = crate::values::encode(value, "an item", this.payload_bytes, give)?;
        if this.send_item(py, &mut blob)? {
            let left = this.exchange.credit.load(Ordering::Acquire);
            return Ok((left <= 0).then(|| this.credit()));
        }
        Ok(Some(Self::send_later(slf, blob)))
    }

    /// Something to await until an item may be sent: False if there is no credit, and the stream
    /// was cut.
    fn credit(&self) -> Pending {
        let exchange = Arc::clone(&self.exchange);
        let wait = std::future::poll_fn(move |context| {
            *exchange.waker.lock() = Some(context.waker().clone());
            exchange.poll_credit()
        });
        Pending::new("credit", None, Box::pin(wait))
    }

    /// Waits for no more credit: the stream is to end. From whichever thread.
    fn cut(&self) {
        self.exchange.cut.store(true, Ordering::Release);
        self.exchange.wake();
    }

    /// Sends no more items, which ends the call.
    fn over(&self, py: Python<'_>) {
        if let Some(call) = self.take() {
            let company = call.has_company();
            call.over();
            self.forget();
            self.flush(py, company, 0);
        }
    }

    /// Says that the handler is still at work.
    fn alive(&self) {
        if let Some(call) = self.call.lock().as_ref().and_then(PerProcessOwned::mine) {
            call.alive();
        }
    }
}

impl RemoteCall {
    /// True for a call that came over HTTP.
    pub fn is_public(&self) -> bool {
        self.about.is_public
    }

    /// Sends an item, if the link has capacity for it. Otherwise the exchange is notified once
    /// the link has capacity.
    fn send_item(&self, py: Python<'_>, blob: &mut Blob) -> PyResult<bool> {
        let (waiter, bytes): (Arc<dyn Exchange>, _) = (Arc::clone(&self.exchange) as _, blob.bytes());
        let send =
            |call: &Call| call.may_send_item(bytes, &waiter).then(|| (call.has_company(), call.item(sending(blob))));
        let Some((company, sent)) = self.with(py, send)? else { return Ok(false) };
        sent.map_err(|why| refused(py, "an item", &why))?;
        self.exchange.credit.fetch_sub(1, Ordering::AcqRel);
        self.flush(py, company, bytes);
        Ok(true)
    }

    /// Sends an item when the link has capacity for it, and then waits as [`credit`](Self::credit)
    /// does. If the caller goes, the item is not sent.
    fn send_later(slf: &Bound<'_, Self>, mut blob: Blob) -> Pending {
        let (call, exchange) = (PyRef::from(slf.clone()), Arc::clone(&slf.get().exchange));
        let mut is_sent = false;
        let wait = std::future::poll_fn(move |context| {
            *exchange.waker.lock() = Some(context.waker().clone());
            if !is_sent && !exchange.is_unread() {
                match attach(|py| call.get().send_item(py, &mut blob)) {
                    Ok(sent) => is_sent = sent,
                    Err(error) => return Poll::Ready(Err(error)),
                }
                if !is_sent {
                    return Poll::Pending;
                }
            }
            exchange.poll_credit()
        });
        Pending::new("credit", None, Box::pin(wait))
    }

    fn end(&self, py: Python<'_>, code: ErrorCode, payload: OutgoingPayload<'_>) {
        let Some(call) = self.take() else { return };
        let (company, bytes) = (call.has_company(), payload.bytes());
        call.fail(code, payload);
        self.forget();
        self.flush(py, company, bytes);
    }

    /// The payload, if it is long: what is made of it needs the memory.
    fn long_payload(&self) -> Option<(Vec<u8>, usize)> {
        let mut place = self.call.lock();
        let message = &mut place.as_mut()?.mine_mut()?.message;
        crate::values::is_long(message.payload().len()).then(|| message.take_payload())
    }

    /// The call, for its answer. None: it has had one, or belongs to the parent of this process.
    fn take(&self) -> Option<Call> {
        self.call.lock().take()?.into_mine()
    }

    /// Nothing is done any more when the caller has gone.
    pub fn forget(&self) {
        let call = self.exchange.on_cancel.lock().take();
        drop(call);
    }
}

/// A message that was published elsewhere.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct RemoteMessage {
    inner: Published,
    /// The payload, if it is long.
    long: Option<Mutex<(Vec<u8>, usize)>>,
    size: usize,
}

impl RemoteMessage {
    pub fn new(mut inner: Published) -> Self {
        let size = inner.message.payload().len();
        let long = crate::values::is_long(size).then(|| Mutex::new(inner.message.take_payload()));
        Self { inner, long, size }
    }

    fn head(&self) -> PublishHead<'_> {
        // It was checked when it came in.
        PublishHead::parse(self.inner.message.head()).unwrap_or_default()
    }
}

#[pymethods]
impl RemoteMessage {
    /// The subject of the publication.
    #[getter]
    fn subject(&self) -> &str {
        self.head().subject
    }

    /// The name of the node that published it.
    #[getter]
    fn node(&self) -> &str {
        &self.inner.from.name
    }

    /// Its headers, or None.
    #[getter]
    fn headers(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        headers(py, &self.head().fields)
    }

    /// Bytes of what was published.
    #[getter]
    fn size(&self) -> usize {
        self.size
    }

    /// The published value. To be called once: a long one is used up.
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.long {
            Some(long) => crate::values::use_up(py, std::mem::take(&mut *long.lock()), None),
            None => crate::values::decode(py, self.inner.message.payload(), None),
        }
    }
}

fn answered(py: Python<'_>) -> PyErr {
    error(py, "InvalidArgument", "this call has been answered already", &[])
}

/// Headers as a dict, without what the gateway of a hub says; None if there are none.
pub fn headers(py: Python<'_>, fields: &Fields<'_>) -> PyResult<Option<Py<PyAny>>> {
    if fields.is_empty() {
        return Ok(None);
    }
    let all = PyDict::new(py);
    for (name, value) in fields.iter().filter(|(name, _)| ![USER, ORIGIN].contains(name)) {
        all.set_item(name, String::from_utf8_lossy(value))?;
    }
    if all.is_empty() {
        return Ok(None);
    }
    Ok(Some(all.into_any().unbind()))
}
