//! Link of a node: its handle and its shared state.

mod backpressure;
mod call;
mod callbacks;
mod close;
mod connection;
mod direct_read;
mod dispatch;
mod drain;
mod error;
mod fanout;
mod handshake;
mod read_pause;
mod receive;
mod reconnect;
mod send;
mod shared_memory;
mod socket_reader;
mod subscriptions;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use tidewire_core::link::session::{Fault, Greeting, Joined, OutgoingPayload, Refused, Session};
use tidewire_core::tree::SubjectTree;
use tidewire_proto::wire::{CallHead, Flags, PublishHead};
use tidewire_sync::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};

use crate::address::Address;
use crate::hub::InProcessHub;
use crate::idle::Idle;
use crate::shared_memory::SharedArena;
use crate::socket::read_owner::ReaderCallback;

use backpressure::HeldBack;
pub use call::{Call, Flusher};
pub use callbacks::{Exchange, Failure, Handler, Published, ReplyWaiter};
use connection::Connection;
pub use error::JoinError;
use fanout::FanoutQueue;
use reconnect::connection_closed;
use shared_memory::SharedReads;
use subscriptions::Subscribed;
pub use subscriptions::Subscription;

/// Names one call of one link, while that link lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallKey {
    epoch: u32,
    id: u64,
}

/// A link of this node to its hub. It ends when the last clone is dropped.
#[derive(Clone)]
pub struct Link {
    shared: Arc<Shared>,
    _end: Arc<CloseOnDrop>,
}

struct CloseOnDrop(Weak<Shared>);

/// Says for how many milliseconds an event loop has been blocked.
type Pulse = Box<dyn Fn() -> u32 + Send + Sync>;

/// Callback for a node that has left.
type OnLeft = Box<dyn Fn(u32) + Send + Sync>;

struct Shared {
    state: Mutex<State>,
    exchanges: Mutex<HashMap<u64, Arc<dyn Exchange>>>,
    connection: Mutex<Option<Arc<Connection>>>,
    /// Callback that offers the reading of the socket to an event loop.
    readers: Mutex<Option<ReaderCallback>>,
    /// Number of the thread of that event loop; 0: there is none.
    loop_thread: AtomicUsize,
    /// The link receives nothing until its handlers have caught up.
    paused: AtomicBool,
    /// Next time at which the thread of the links looks by itself.
    sleeps_until_us: AtomicU64,
    /// Payloads from this length on are compressed; `usize::MAX`: none.
    compressed_from: AtomicUsize,
    greeting: Greeting,
    /// Shared memory for long payloads, if the hub is on this host.
    memory: Option<Arc<SharedArena>>,
    /// Number of payloads of this link that were placed there.
    shared_payloads: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    /// Senders of stream items wait for capacity.
    holds_back: AtomicBool,
    /// Payloads wait to be placed in shared memory.
    lays: AtomicBool,
    /// Payloads in the memory of other processes, which the thread of the links has yet to read.
    placed: Mutex<SharedReads>,
    address: Option<Address>,
    ends: Notify,
    wakeup: Notify,
    /// The thread of the links is to flush the outbox at its next wake-up.
    to_flush: AtomicBool,
    /// The hub of this process that it has joined, if it has.
    place: Option<InProcessHub>,
    /// Queue of published messages for a delivery thread of the node.
    spreading: Option<FanoutQueue>,
    /// Messages that were dropped: unreadable, or without capacity for them.
    dropped: AtomicU64,
    log: Box<dyn Fn(&str) + Send + Sync>,
    again: Mutex<Option<Box<dyn Fn() + Send + Sync>>>,
    on_lost: Mutex<Option<Box<dyn Fn() + Send + Sync>>>,
    on_left: Mutex<Option<OnLeft>>,
    /// Those who wait until nothing is left to be answered and written.
    idle: Idle,
    pulse: Mutex<Option<Pulse>>,
    me: Weak<Self>,
}

struct State {
    session: Session<Arc<dyn ReplyWaiter>>,
    epoch: u32,
    joined: Option<Joined>,
    subscriptions: BTreeMap<u64, Subscribed>,
    next_subscription: u64,
    by_id: HashMap<u64, u64>,
    plain: SubjectTree<u64>,
    held_back: HeldBack,
    welcome: Option<oneshot::Sender<Result<(), Fault>>>,
    resume: Option<String>,
    /// The node has said goodbye: nobody has anything to ask it any more.
    leaves: bool,
    ended: bool,
}

impl State {
    /// True if a lost link is to be joined again.
    fn comes_back(&self) -> bool {
        !self.ended && !self.leaves
    }
}

impl Link {
    /// Answer of the hub to the join, or None while the link is lost.
    pub fn joined(&self) -> Option<Joined> {
        self.shared.state.lock().joined.clone()
    }

    /// Which of its connections this is, counted while it joins again: what was known of others by
    /// another one may have changed.
    pub fn epoch(&self) -> u32 {
        self.shared.state.lock().epoch
    }

    /// Calls this whenever the node has joined again after its link was lost, and has subscribed
    /// again.
    pub fn on_joined_again(&self, call: impl Fn() + Send + Sync + 'static) {
        *self.shared.again.lock() = Some(Box::new(call));
    }

    /// Calls this whenever the link is lost, or has been ended. Called on any thread: it must be
    /// quick, and must not wait.
    pub fn on_lost(&self, call: impl Fn() + Send + Sync + 'static) {
        *self.shared.on_lost.lock() = Some(Box::new(call));
    }

    /// Asks this for how many milliseconds the event loop of the handlers has been blocked, from
    /// time to time while calls are open. Called on the thread of the links: it must be quick, and
    /// must not wait.
    pub fn on_pulse(&self, pulse: impl Fn() -> u32 + Send + Sync + 'static) {
        *self.shared.pulse.lock() = Some(Box::new(pulse));
    }

    /// Calls this with the number of each node that was known here, and has gone.
    pub fn on_left(&self, call: impl Fn(u32) + Send + Sync + 'static) {
        *self.shared.on_left.lock() = Some(Box::new(call));
    }

    /// True while exchanges other than those of subscriptions are open: then a frame may wait for
    /// others to share its write.
    pub fn is_busy(&self) -> bool {
        let state = self.shared.state.lock();
        let (mine, theirs) = state.session.open_exchanges();
        mine + theirs > state.by_id.len() + 1
    }

    /// Sends a call. The frame waits for [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`Refused`] if the call can't be sent; the waiter is not notified then.
    pub fn call(
        &self,
        head: &CallHead<'_>,
        flags: Flags,
        payload: OutgoingPayload<'_>,
        waiting: Arc<dyn ReplyWaiter>,
    ) -> Result<CallKey, Refused> {
        let payload = self.shared.readied(payload);
        let mut state = self.shared.joined_state()?;
        let id = state.session.call(head, flags, payload, waiting)?;
        Ok(CallKey { epoch: state.epoch, id })
    }

    /// Gives a call up. Nothing more is heard of it.
    pub fn cancel(&self, key: CallKey) {
        self.shared.with(key, |session| session.cancel(key.id));
        self.shared.flush();
    }

    /// Takes so many further items of an answer.
    pub fn want(&self, key: CallKey, items: u32) {
        self.shared.with(key, |session| session.want(key.id, items));
        self.shared.flush();
    }

    /// Sends one item to the callee.
    ///
    /// # Errors
    /// [`Refused`] if it can't be sent.
    pub fn item(&self, key: CallKey, payload: OutgoingPayload<'_>) -> Result<(), Refused> {
        let payload = self.shared.readied(payload);
        let sent = self.shared.with(key, |session| session.item(key.id, Flags::NORMAL, payload));
        self.shared.flush();
        sent.unwrap_or(Err(Refused::Over))
    }

    /// Sends no more items to the callee.
    pub fn over(&self, key: CallKey) {
        self.shared.with(key, |session| session.over(key.id));
        self.shared.flush();
    }

    /// Publishes. The frame waits for [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`Refused`] if it can't be sent.
    pub fn publish(&self, head: &PublishHead<'_>, flags: Flags, payload: OutgoingPayload<'_>) -> Result<(), Refused> {
        let payload = self.shared.packed(payload);
        self.shared.joined_state()?.session.publish(head, flags, payload)
    }

    /// Writes what waits, as much as the socket takes; the rest follows by itself.
    pub fn flush(&self) {
        self.shared.flush();
    }

    /// Takes no new calls, and tells the hub. A link that is lost afterwards stays lost.
    pub fn goodbye(&self) {
        {
            let mut state = self.shared.state.lock();
            state.leaves = true;
            state.session.goodbye();
        }
        self.shared.flush();
    }

    /// True if a payload of this length may be compressed when it is sent, which takes time.
    pub fn compresses(&self, payload: usize) -> bool {
        self.shared.compresses(payload)
    }

    /// The longest payload that this node takes and sends.
    pub fn payload_bytes(&self) -> usize {
        self.shared.greeting.payload_bytes
    }

    /// Writes what waits, without keeping the link.
    pub fn flusher(&self) -> Flusher {
        Flusher { link: Arc::downgrade(&self.shared), batch: self.shared.greeting.batch }
    }

    /// Ends the link now.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Name of the node with this number, as the hub announced it.
    pub fn name_of(&self, node: u32) -> Option<String> {
        self.shared.state.lock().session.name_of(node).map(|named| named.name.clone())
    }

    /// Messages that were published, and dropped here because they could not be read, or because
    /// too many waited.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Number of payloads that were placed in shared memory for other processes of this host.
    pub fn laid(&self) -> u64 {
        self.shared.shared_payloads.load(Ordering::Relaxed)
    }

    /// Bytes of received and of sent frames, over all connections and without payloads in shared
    /// memory, and the bytes that may still wait before a call is refused.
    pub fn traffic(&self) -> (u64, u64, usize) {
        let [received, sent] = [&self.shared.received_bytes, &self.shared.sent_bytes];
        let out = &self.shared.state.lock().session.out;
        let credit = out.bytes_max().saturating_sub(out.bytes());
        (received.load(Ordering::Relaxed), sent.load(Ordering::Relaxed), credit)
    }

    /// Calls of others that this node has not answered yet.
    pub fn open_calls(&self) -> usize {
        self.shared.state.lock().session.open_exchanges().1
    }
}

impl Shared {
    fn joined_state(&self) -> Result<MutexGuard<'_, State>, Refused> {
        let state = self.state.lock();
        if state.joined.is_none() { Err(Refused::Closing) } else { Ok(state) }
    }

    fn with<T>(&self, key: CallKey, act: impl FnOnce(&mut Session<Arc<dyn ReplyWaiter>>) -> T) -> Option<T> {
        let mut state = self.state.lock();
        (state.epoch == key.epoch).then(|| act(&mut state.session))
    }
}
