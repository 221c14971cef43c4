//! The queue of inbound frames for the loop that handles them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use pyo3::prelude::*;
use pyo3::types::PyList;
use tidewire_engine::EngineHandle;
use tidewire_engine::raw::Mutex;
use tidewire_node::raw::{Call, Exchange, Flusher, Handler, Published, Reader, ReplySlot};
use tidewire_proto::generated::limits;

use crate::actors::bridge::{LoopHandle, LoopSource, raised};
use crate::interpreter::py_ref::PyRef;
use crate::link::inbound::{RemoteCall, RemoteMessage};
use crate::link::inbound_call::InboundCallState;
use crate::link::instance_endpoint::InstanceEndpoint;
use crate::link::mailbox_delivery::MailboxDelivery;
use crate::link::reader::SocketReader;
use crate::link::watchdog::LoopWatchdog;
use crate::link::{ReferenceReader, reply_error};

/// Calls and messages for one loop. They are handed over in bursts: one call of Python for each,
/// and one wake-up.
///
/// While more than `link_intake_bytes` are queued, the link reads nothing.
pub struct LoopInbox {
    queue: Mutex<Queue>,
    line: Mutex<Arc<LoopHandle>>,
    receive: PyRef<PyAny>,
    link: Flusher,
    watchdog: LoopWatchdog,
    taking: ReferenceReader,
}

#[derive(Default)]
struct Queue {
    items: Vec<InboundItem>,
    bytes: usize,
}

enum InboundItem {
    Call(Call, Arc<InboundCallState>, LoopTarget),
    Message(Published, LoopTarget),
    /// A change of a call that Python knows.
    Changed(Arc<InboundCallState>),
    /// The link is lost.
    Lost,
    /// The node has joined again.
    JoinedAgain,
    /// The node of this number, which was known here, has gone.
    Left(u32),
    /// The loop may read the socket.
    Readable(Reader),
    /// The hub refuses the subscription of this number.
    Refused(u64, Arc<ReplySlot>),
}

/// Bytes of one entry, apart from its payload.
const ENTRY_BYTES: usize = 256;
const INBOX_BYTES: usize = limits::LINK_INTAKE_BYTES.default as usize;

impl InboundItem {
    fn bytes(&self) -> usize {
        ENTRY_BYTES
            + match self {
                Self::Call(call, ..) => call.message.payload().len(),
                Self::Message(message, _) => message.message.payload().len(),
                Self::Changed(_)
                | Self::Lost
                | Self::JoinedAgain
                | Self::Left(_)
                | Self::Readable(_)
                | Self::Refused(..) => 0,
            }
    }
}

/// A subscription of a link, which feeds an inbox.
pub struct LoopSubscription {
    pub inbox: Arc<LoopInbox>,
    pub place: LoopTarget,
}

/// The receiver of frames of a subscription.
#[derive(Clone)]
pub struct LoopTarget {
    /// Number of the subscription on the Python side.
    pub number: u64,
    /// The endpoint for calls, if no Python code takes them.
    pub endpoint: Option<Arc<PyRef<InstanceEndpoint>>>,
    /// The receiver of messages, if they need no event loop.
    pub inflow: Option<Arc<MailboxDelivery>>,
    /// True for a subscription to messages only: no calls come.
    pub listens: bool,
    /// True while the subscription lasts.
    pub open: Arc<AtomicBool>,
}

impl LoopInbox {
    /// `receive` is called with a list of frames: (number, RemoteCall or RemoteMessage); (0,
    /// False) when the link is lost; (0, None) when the node has joined again; (number, None) when
    /// the node of this number has gone; (number, error) when the hub refuses a subscription and
    /// nobody awaits that.
    pub fn open(
        line: &Arc<LoopHandle>,
        receive: Py<PyAny>,
        link: Flusher,
        taking: ReferenceReader,
        engine: Option<EngineHandle>,
    ) -> Arc<Self> {
        let (place, watchdog) = (Mutex::new(Arc::clone(line)), LoopWatchdog::new(engine));
        let inbox =
            Arc::new(Self { queue: Mutex::default(), line: place, receive: receive.into(), link, watchdog, taking });
        line.add_source(Arc::clone(&inbox) as Arc<dyn LoopSource>);
        inbox
    }

    /// Moves inbound frames to another loop.
    pub fn follow(self: &Arc<Self>, line: &Arc<LoopHandle>) {
        let before = std::mem::replace(&mut *self.line.lock(), Arc::clone(line));
        before.remove_source(&(Arc::clone(self) as Arc<dyn LoopSource>));
        line.add_source(Arc::clone(self) as Arc<dyn LoopSource>);
        line.wake();
    }

    /// Its loop. The lock is free again when this returns: Python code that is called on the loop
    /// may release the interpreter.
    fn line(&self) -> Arc<LoopHandle> {
        Arc::clone(&self.line.lock())
    }

    fn wake(&self) {
        self.line().wake();
    }

    /// Nothing more is handed over.
    pub fn close(self: &Arc<Self>, py: Python<'_>) {
        self.line().remove_source(&(Arc::clone(self) as Arc<dyn LoopSource>));
        drop(self.take(py));
    }

    fn push(&self, item: InboundItem) {
        let mut queue = self.queue.lock();
        queue.bytes += item.bytes();
        queue.items.push(item);
        if queue.bytes > INBOX_BYTES {
            self.link.pause();
        }
        drop(queue);
        self.watchdog.asks();
        self.wake();
    }

    /// For how many milliseconds the loop, or all threads of a dispatcher, have been blocked.
    /// The loop is asked for a sign of life.
    pub fn blocked_ms(&self) -> u32 {
        self.watchdog.asks();
        self.wake();
        self.watchdog.blocked_ms(&self.line())
    }

    fn take(&self, py: Python<'_>) -> Vec<InboundItem> {
        let queue = std::mem::take(&mut *self.queue.lock());
        if queue.bytes > INBOX_BYTES {
            // A hub of this process hands over here what waits, and may wait for a thread that does
            // so and wants the interpreter.
            crate::interpreter::attach::detach(py, || self.link.listen_again());
        }
        queue.items
    }

    /// The link is lost.
    pub fn lost(&self) {
        self.push(InboundItem::Lost);
    }

    /// The node has joined again after its link was lost.
    pub fn joined_again(&self) {
        self.push(InboundItem::JoinedAgain);
    }

    /// The loop may read the socket.
    pub fn readable(&self, reader: Reader) {
        self.push(InboundItem::Readable(reader));
    }

    /// The hub refuses a subscription, and nobody awaits its answer.
    pub fn refused(&self, number: u64, place: Arc<ReplySlot>) {
        self.push(InboundItem::Refused(number, place));
    }

    /// A node that was known here has gone.
    pub fn left(&self, node: u32) {
        self.push(InboundItem::Left(node));
    }

    /// A call that Python knows has changed.
    pub fn changed(&self, exchange: Arc<InboundCallState>) {
        self.push(InboundItem::Changed(exchange));
    }
}

impl LoopSource for LoopInbox {
    fn run(&self, py: Python<'_>) {
        self.watchdog.goes_round();
        let items = self.take(py);
        if items.is_empty() {
            return;
        }
        let mut list = PyList::empty(py);
        for item in items {
            // One that can't be handed over must not take the others of its burst along.
            if let Err(error) = self.hand_over(item, &mut list) {
                raised(py, error);
            }
        }
        self.hand_list(&mut list);
    }
}

impl LoopInbox {
    fn hand_over<'py>(&self, item: InboundItem, list: &mut Bound<'py, PyList>) -> PyResult<()> {
        let py = list.py();
        match item {
            InboundItem::Call(call, exchange, place) => {
                let call = Bound::new(py, RemoteCall::new(call, exchange, self.taking.clone()))?;
                let admitted = match place.endpoint.filter(|_| place.open.load(Ordering::Acquire)) {
                    Some(endpoint) => {
                        // Earlier frames are handed over first.
                        self.hand_list(list);
                        endpoint.get().admit(&call)
                    }
                    None => list.append((place.number, call)),
                };
                if let Some(inflow) = &place.inflow {
                    self.hand_list(list);
                    inflow.has_passed();
                }
                admitted
            }
            InboundItem::Message(message, place) => match place.pass_on(message) {
                Some(message) => list.append((place.number, Py::new(py, RemoteMessage::new(message))?)),
                None => Ok(()),
            },
            InboundItem::Changed(exchange) => {
                exchange.tell(py);
                Ok(())
            }
            InboundItem::Lost => list.append((0, false)),
            InboundItem::JoinedAgain => list.append((0, py.None())),
            InboundItem::Readable(reader) => SocketReader::begin(py, &self.line(), reader),
            InboundItem::Refused(number, place) => match place.failure() {
                Some((code, text)) => {
                    list.append((number, reply_error(py, "the subscription", code, &text).into_value(py)))
                }
                // Somebody has awaited it meanwhile.
                None => Ok(()),
            },
            InboundItem::Left(node) => list.append((node, py.None())),
        }
    }

    fn hand_list(&self, list: &mut Bound<'_, PyList>) {
        let py = list.py();
        if list.is_empty() {
            return;
        }
        let list = std::mem::replace(list, PyList::empty(py));
        if let Err(error) = self.receive.call1(py, (list,)) {
            raised(py, error);
        }
    }
}

impl LoopTarget {
    /// A message goes to the event loop. Later messages follow it there.
    fn goes_behind(&self) {
        self.inflow.iter().for_each(|inflow| inflow.goes_behind());
    }

    /// A message that went to the event loop goes on to its mailbox. Some: Python takes it.
    fn pass_on(&self, message: Published) -> Option<Published> {
        let Some(inflow) = &self.inflow else { return Some(message) };
        let refused = if self.open.load(Ordering::Acquire) { inflow.take_late(message).err() } else { None };
        inflow.has_passed();
        refused
    }
}

impl Handler for LoopSubscription {
    fn listens(&self) -> bool {
        self.place.listens
    }

    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        let inbox: Weak<LoopInbox> = Arc::downgrade(&self.inbox);
        let exchange = Arc::new(InboundCallState::new(inbox, call.head().credit));
        self.place.goes_behind();
        self.inbox.push(InboundItem::Call(call, Arc::clone(&exchange), self.place.clone()));
        Some(exchange)
    }

    fn published(&self, message: Published) {
        if !self.place.open.load(Ordering::Acquire) {
            return;
        }
        let message = match &self.place.inflow {
            Some(inflow) => match inflow.take(message) {
                Ok(()) => return,
                Err(message) => message,
            },
            None => message,
        };
        self.place.goes_behind();
        self.inbox.push(InboundItem::Message(message, self.place.clone()));
    }
}
