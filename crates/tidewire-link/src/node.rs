mod call;
mod error;
mod hearing;
mod here;
mod keep;
mod straight;
mod taking;
mod turn;
mod way;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use tidewire_core::link::assembly::Message;
use tidewire_core::link::outbox::{Burst, Taker};
use tidewire_core::link::session::{Fault, Greeting, Joined, Named, Refused, Sending, Session};
use tidewire_core::tree::{SubjectTree, SubscriptionId};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::Pattern;
use tidewire_proto::wire::{CallHead, Flags, PublishHead, SubscribeHead};
use tidewire_sync::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};

use crate::address::Address;
use crate::clock::now_us;
use crate::hub::{Feed, HubHandle, Place};
use crate::runtime::Runtime;
use crate::socket::Socket;

pub use call::{Call, Flusher};
pub use error::JoinError;
use here::Home;
use keep::{gone, keep};
use turn::Offer;
pub use turn::{Elsewhere, Reader};
use way::{Way, WayKind};

/// What patterns begin with that belong to the number of a node.
const OF_NODE: &str = "$node.";

/// Who waits for what becomes of a call. Called on the thread that reads the socket: it must be quick, and must not wait.
pub trait Waiting: Send + Sync {
    /// The call was answered.
    fn replied(&self, reply: Message);
    /// The call has failed.
    fn failed(&self, failure: Failure);
    /// One item of the answer.
    fn item(&self, item: Message);
    /// No more items come; the call has ended.
    fn over(&self);
    /// The callee takes so many further items.
    fn credited(&self, items: u32);
    /// The call is still at work. The event loop there has been blocked for so many milliseconds; 0: it goes round.
    fn alive(&self, _blocked_ms: u32) {}
}

/// Who is behind a subscription. Called on the thread that reads the socket: it must be quick, and must not wait.
pub trait Handler: Send + Sync {
    /// A call, to be answered with its methods. What happens to it later is told to what this returns.
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>>;
    /// Something was published.
    fn published(&self, message: Published);
    /// Whether it listens only: no calls come then.
    fn listens(&self) -> bool {
        false
    }
}

/// What happens to a call after it has come in.
pub trait Exchange: Send + Sync {
    /// Nobody waits for the answer any more.
    fn cancelled(&self);
    /// An item from the caller.
    fn input(&self, item: Message);
    /// The caller sends no more items.
    fn input_over(&self);
    /// The caller takes so many further items.
    fn wanted(&self, items: u32);
}

/// Why a call failed.
#[derive(Debug)]
pub struct Failure {
    /// The number of the error in `spec/errors.toml`.
    pub number: u16,
    /// Text, or a value if the error is `remote_error`. None: the link was lost.
    pub message: Option<Message>,
}

/// Names one call of one link, while that link lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallKey {
    epoch: u32,
    id: u64,
}

/// A message that was published.
#[derive(Clone)]
pub struct Published {
    /// Its head and payload.
    pub message: Message,
    /// Who published it.
    pub from: Arc<Named>,
}

/// A link of this node to its hub. It ends when the last clone is dropped.
#[derive(Clone)]
pub struct Link {
    shared: Arc<Shared>,
    _end: Arc<Ending>,
}

struct Ending(Weak<Shared>);

/// Says for how many milliseconds an event loop has been blocked.
type Pulse = Box<dyn Fn() -> u32 + Send + Sync>;

struct Shared {
    state: Mutex<State>,
    exchanges: Mutex<HashMap<u64, Arc<dyn Exchange>>>,
    way: Mutex<Option<Arc<Way>>>,
    /// Who may give the reading of the socket to an event loop.
    readers: Mutex<Option<Offer>>,
    /// Where that loop is.
    home: Home,
    /// Nothing is taken in until those who handle it have caught up.
    paused: AtomicBool,
    /// When the thread of the links looks again by itself.
    sleeps_until_us: AtomicU64,
    /// Payloads from this length on are compressed; `usize::MAX`: none.
    compressed_from: AtomicUsize,
    greeting: Greeting,
    address: Option<Address>,
    ends: Notify,
    look: Notify,
    /// The hub of this process that it has joined, if it has.
    place: Option<Place>,
    /// Messages that came, and could not be read.
    dropped: AtomicU64,
    log: Box<dyn Fn(&str) + Send + Sync>,
    again: Mutex<Option<Box<dyn Fn() + Send + Sync>>>,
    on_lost: Mutex<Option<Box<dyn Fn() + Send + Sync>>>,
    left: Mutex<Option<OnLeft>>,
    on_written: OnceLock<Box<dyn Fn() + Send + Sync>>,
    pulse: Mutex<Option<Pulse>>,
    me: Weak<Self>,
}

/// What is called when a node has gone.
type OnLeft = Box<dyn Fn(u32) + Send + Sync>;

struct State {
    session: Session<Arc<dyn Waiting>>,
    epoch: u32,
    joined: Option<Joined>,
    subscriptions: BTreeMap<u64, Subscribed>,
    next_subscription: u64,
    by_id: HashMap<u64, u64>,
    plain: SubjectTree<u64>,
    welcome: Option<oneshot::Sender<Result<(), Fault>>>,
    resume: Option<String>,
    ended: bool,
}

struct Subscribed {
    pattern: String,
    queue: String,
    says: Vec<u8>,
    handler: Arc<dyn Handler>,
    id: Option<u64>,
    key: Option<SubscriptionId>,
    /// Who waits for it to be in force, if the link was lost when it was made.
    later: Option<Arc<dyn Waiting>>,
}

/// A subscription. Dropping it ends it.
pub struct Subscription {
    link: Weak<Shared>,
    number: u64,
}

impl Link {
    /// Joins a hub, and blocks until it has taken this node in. If the link is lost later, it joins again by itself.
    ///
    /// # Errors
    /// [`JoinError`] if the hub can't be reached, or says no.
    pub fn join(
        runtime: &Runtime,
        address: &Address,
        greeting: Greeting,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, JoinError> {
        let link = Self::new(greeting, Some(address.clone()), None, Box::new(log))?;
        let (shared, to) = (Arc::clone(&link.shared), address.clone());
        let connected = runtime.block_on(async move {
            let frame_max = shared.greeting.frame_bytes;
            let socket = Socket::connect(&to, frame_max).await.map_err(|error| JoinError::not_connected(&to, error))?;
            let told = shared.begin();
            tokio::spawn(keep(Arc::clone(&shared), socket));
            match told.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(Fault::Told { number, .. })) if number == ErrorCode::LinkLost.number() => {
                    let text = "it closed the connection before it said WELCOME: check whether it listens with the scheme of the URL";
                    Err(JoinError::Io(to, io::Error::new(io::ErrorKind::ConnectionAborted, text)))
                }
                Ok(Err(Fault::Told { number, text })) => Err(JoinError::Told(to, number, text)),
                Ok(Err(fault)) => Err(JoinError::Fault(to, String::from(&fault))),
                Err(_) => Err(JoinError::Fault(to, "it closed the connection before it said WELCOME".to_owned())),
            }
        });
        match connected {
            Some(Ok(())) => Ok(link),
            Some(Err(error)) => Err(error),
            None => Err(JoinError::Io(address.clone(), io::Error::other("the thread of links has ended"))),
        }
    }

    /// Joins a hub of this process.
    ///
    /// # Errors
    /// [`JoinError`] if the hub has no place, or says no.
    pub fn join_local(hub: &HubHandle, greeting: Greeting) -> Result<Self, JoinError> {
        let address = Address::Tcp { host: "here".to_owned(), port: 0 };
        let link = Self::new(greeting, None, Some(hub.place()), Box::new(|_| {}))?;
        let feed: Arc<dyn Feed> = Arc::clone(&link.shared) as Arc<dyn Feed>;
        let told = link.shared.begin();
        let Some(end) = hub.attach(Arc::downgrade(&feed)) else {
            return Err(JoinError::Told(
                address,
                ErrorCode::LimitExceeded.number(),
                "hub_links is exceeded".to_owned(),
            ));
        };
        link.shared.go_by(Arc::new(Way::new(WayKind::Local(end), 0)));
        link.shared.flush();
        // Mostly everything has happened inside of the flush; but the thread of the links may be at it.
        match told.blocking_recv() {
            Ok(Ok(())) => Ok(link),
            Ok(Err(Fault::Told { number, text })) => Err(JoinError::Told(address, number, text)),
            Ok(Err(fault)) => Err(JoinError::Fault(address, String::from(&fault))),
            Err(_) => Err(JoinError::Fault(address, "it said nothing".to_owned())),
        }
    }

    fn new(
        greeting: Greeting,
        address: Option<Address>,
        place: Option<Place>,
        log: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Self, JoinError> {
        let here = || address.clone().unwrap_or(Address::Tcp { host: "here".to_owned(), port: 0 });
        let session =
            Session::join(&greeting, now_us()).map_err(|error| JoinError::Fault(here(), error.to_string()))?;
        let state = State {
            session,
            epoch: 0,
            joined: None,
            subscriptions: BTreeMap::new(),
            next_subscription: 1,
            by_id: HashMap::new(),
            plain: SubjectTree::new(),
            welcome: None,
            resume: None,
            ended: false,
        };
        let shared = Arc::new_cyclic(|me| Shared {
            state: Mutex::new(state),
            exchanges: Mutex::default(),
            way: Mutex::new(None),
            readers: Mutex::new(None),
            home: Home::default(),
            paused: AtomicBool::new(false),
            sleeps_until_us: AtomicU64::new(u64::MAX),
            compressed_from: AtomicUsize::new(usize::MAX),
            greeting,
            address,
            place,
            dropped: AtomicU64::new(0),
            ends: Notify::new(),
            look: Notify::new(),
            log,
            again: Mutex::new(None),
            on_lost: Mutex::new(None),
            pulse: Mutex::new(None),
            left: Mutex::new(None),
            on_written: OnceLock::new(),
            me: Weak::clone(me),
        });
        let end = Arc::new(Ending(Arc::downgrade(&shared)));
        Ok(Self { shared, _end: end })
    }

    /// What the hub said, or None while the link is lost.
    pub fn joined(&self) -> Option<Joined> {
        self.shared.state.lock().joined.clone()
    }

    /// Which of its connections this is, counted while it joins again: what was known of others by another one may have changed.
    pub fn epoch(&self) -> u32 {
        self.shared.state.lock().epoch
    }

    /// Calls this whenever the node has joined again after its link was lost, and has subscribed again.
    pub fn on_joined_again(&self, call: impl Fn() + Send + Sync + 'static) {
        *self.shared.again.lock() = Some(Box::new(call));
    }

    /// Calls this whenever the link is lost, or has been ended. Called on any thread: it must be quick, and must not wait.
    pub fn on_lost(&self, call: impl Fn() + Send + Sync + 'static) {
        *self.shared.on_lost.lock() = Some(Box::new(call));
    }

    /// Asks this for how many milliseconds the event loop of the handlers has been blocked, from time to time while calls are open.
    /// Called on the thread of the links: it must be quick, and must not wait.
    pub fn on_pulse(&self, pulse: impl Fn() -> u32 + Send + Sync + 'static) {
        *self.shared.pulse.lock() = Some(Box::new(pulse));
    }

    /// Calls this with the number of each node that was known here, and has gone.
    pub fn on_left(&self, call: impl Fn(u32) + Send + Sync + 'static) {
        *self.shared.left.lock() = Some(Box::new(call));
    }

    /// Calls this whenever something may have been written: then [`is_written`](Self::is_written) and [`open_calls`](Self::open_calls)
    /// may say something else. There is one such call, the first. It is made on any thread: it must be quick, and must not wait.
    pub fn on_written(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.shared.on_written.set(Box::new(call));
    }

    /// Whether exchanges other than those of subscriptions are open: then a frame may wait for company.
    pub fn is_busy(&self) -> bool {
        let state = self.shared.state.lock();
        let (mine, theirs) = state.session.open_exchanges();
        mine + theirs > state.by_id.len() + 1
    }

    /// Calls. The frame waits for [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`Refused`] if it can't be sent; nobody is told then.
    pub fn call(
        &self,
        head: &CallHead<'_>,
        flags: Flags,
        payload: Sending<'_>,
        waiting: Arc<dyn Waiting>,
    ) -> Result<CallKey, Refused> {
        let payload = self.shared.packed(payload, |session| session.may_compress());
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
    pub fn item(&self, key: CallKey, payload: Sending<'_>) -> Result<(), Refused> {
        let payload = self.shared.packed(payload, |session| session.may_compress());
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
    pub fn publish(&self, head: &PublishHead<'_>, flags: Flags, payload: Sending<'_>) -> Result<(), Refused> {
        let payload = self.shared.packed(payload, |session| session.may_compress());
        self.shared.joined_state()?.session.publish(head, flags, payload)
    }

    /// Subscribes. `waiting` hears `over` once it is in force, or why it was refused; `says` are the fields that tell others of it.
    /// While the link is lost, that is when it is back.
    ///
    /// # Errors
    /// [`Refused`] if it can't be sent.
    pub fn subscribe(
        &self,
        pattern: &Pattern,
        queue: &str,
        says: &[u8],
        handler: Arc<dyn Handler>,
        waiting: Arc<dyn Waiting>,
    ) -> Result<Subscription, Refused> {
        let number = {
            let mut state = self.shared.state.lock();
            let number = state.next_subscription;
            let (mut id, mut later) = (None, None);
            if state.joined.is_some() {
                let head = SubscribeHead { queue, pattern: pattern.as_str() };
                let session = &mut state.session;
                let subscribed = if handler.listens() {
                    session.listen(&head, says, waiting)
                } else {
                    session.subscribe(&head, says, waiting)
                };
                id = Some(subscribed?);
            } else if state.ended || (self.shared.address.is_none() && self.shared.place.is_none()) {
                return Err(Refused::Closing);
            } else {
                later = Some(waiting);
            }
            state.next_subscription += 1;
            let key = queue.is_empty().then(|| state.plain.insert(pattern, number));
            state.by_id.extend(id.map(|id| (id, number)));
            let (pattern, queue, says) = (pattern.as_str().to_owned(), queue.to_owned(), says.to_vec());
            state.subscriptions.insert(number, Subscribed { pattern, queue, says, handler, id, key, later });
            number
        };
        self.shared.flush();
        Ok(Subscription { link: Arc::downgrade(&self.shared), number })
    }

    /// Writes what waits, as much as the socket takes; the rest follows by itself.
    pub fn flush(&self) {
        self.shared.flush();
    }

    /// Takes no new calls, and tells the hub.
    pub fn goodbye(&self) {
        self.shared.state.lock().session.goodbye();
        self.shared.flush();
    }

    /// Whether a payload of this length may be compressed when it is sent, which takes its time.
    pub fn compresses(&self, payload: usize) -> bool {
        self.shared.compresses(payload)
    }

    /// The longest payload that this node takes and sends.
    pub fn payload_bytes(&self) -> usize {
        self.shared.greeting.payload_bytes
    }

    /// Writes what waits, without keeping the link.
    pub fn flusher(&self) -> Flusher {
        Flusher { link: Arc::downgrade(&self.shared), batch_frames: self.shared.greeting.batch.frames }
    }

    /// Ends the link now.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Whether all that was sent has been written, long payloads to their last chunk.
    pub fn is_written(&self) -> bool {
        let way = self.shared.way.lock().clone();
        self.shared.state.lock().session.out.bytes() == 0 && way.is_none_or(|way| way.writing.is_idle())
    }

    /// The name of the node with this number, as the hub told it.
    pub fn name_of(&self, node: u32) -> Option<String> {
        self.shared.state.lock().session.name_of(node).map(|named| named.name.clone())
    }

    /// Messages that were published, and dropped here because they could not be read.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Calls of others that this node has not answered yet.
    pub fn open_calls(&self) -> usize {
        self.shared.state.lock().session.open_exchanges().1
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.close();
        }
    }
}

impl Shared {
    fn joined_state(&self) -> Result<MutexGuard<'_, State>, Refused> {
        let state = self.state.lock();
        if state.joined.is_none() { Err(Refused::Closing) } else { Ok(state) }
    }

    fn with<T>(&self, key: CallKey, act: impl FnOnce(&mut Session<Arc<dyn Waiting>>) -> T) -> Option<T> {
        let mut state = self.state.lock();
        (state.epoch == key.epoch).then(|| act(&mut state.session))
    }

    fn compresses(&self, payload: usize) -> bool {
        payload >= self.compressed_from.load(Ordering::Relaxed)
    }

    /// A payload as it is sent. It is compressed under no lock; should the link be another one by then, the session knows what to do.
    fn packed<'a>(
        &self,
        payload: Sending<'a>,
        may: impl FnOnce(&mut Session<Arc<dyn Waiting>>) -> bool,
    ) -> Sending<'a> {
        let packs = self.compresses(payload.bytes()) && may(&mut self.state.lock().session);
        if packs { payload.packed() } else { payload }
    }

    /// Makes ready for a WELCOME, which the answer tells of.
    fn begin(&self) -> oneshot::Receiver<Result<(), Fault>> {
        let (send, receive) = oneshot::channel();
        self.state.lock().welcome = Some(send);
        receive
    }

    fn flush(&self) {
        let Some(way) = self.way.lock().clone() else { return };
        if self.holds(&way) {
            return;
        }
        let flushed = way.writing.flush(|burst| self.take(&way, burst), |burst| way.kind.write(burst));
        if flushed.is_err() {
            way.end.notify_one();
        }
        self.written();
    }

    fn written(&self) {
        if let Some(on_written) = self.on_written.get() {
            on_written();
        }
    }

    /// Whether what waits is to wait for more. The thread of the links writes it in time.
    fn holds(&self, way: &Way) -> bool {
        if self.greeting.batch.linger_us == 0 || matches!(way.kind, WayKind::Local(_)) {
            return false;
        }
        let held = self.state.lock().session.holds(now_us());
        if held {
            self.look.notify_one();
        }
        held
    }

    fn take(&self, way: &Way, burst: &mut Burst) -> bool {
        let count = self.greeting.batch.write_bytes();
        let mut state = self.state.lock();
        let out = &mut state.session.out;
        let taken = if way.kind.writes_parts() { out.take(burst, count) } else { out.take(burst.bytes(), count) };
        if taken {
            state.session.sent(now_us());
        }
        taken
    }

    fn close(&self) {
        self.state.lock().ended = true;
        self.ends.notify_one();
        let way = self.way.lock().take();
        if let Some(way) = way {
            way.end.notify_one();
        }
        self.lost();
        self.give_up_subscribing();
    }

    /// The link will not be back for the subscriptions that wait for it.
    fn give_up_subscribing(&self) {
        let mut state = self.state.lock();
        let late: Vec<_> = state.subscriptions.values_mut().filter_map(|one| one.later.take()).collect();
        drop(state);
        for waiting in late {
            waiting.failed(Failure { number: ErrorCode::LinkLost.number(), message: None });
        }
    }

    /// Every exchange has ended; those who wait are told.
    fn lost(&self) {
        let mut events = Vec::new();
        let was_joined = {
            let mut state = self.state.lock();
            state.session.lost(&mut events);
            state.welcome = None;
            state.joined.take().is_some()
        };
        self.deliver(events, 0);
        self.written();
        if was_joined && let Some(on_lost) = &*self.on_lost.lock() {
            on_lost();
        }
    }
}

impl Shared {
    fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    fn pause(&self) {
        if self.paused.swap(true, Ordering::AcqRel) {
            return;
        }
        // The thread of the links may be waiting for something to read.
        if let Some(way) = &*self.way.lock() {
            way.turn.changed.notify_one();
        }
    }

    fn listen_again(&self) {
        if !self.paused.swap(false, Ordering::AcqRel) {
            return;
        }
        let way = self.way.lock().clone();
        match way.as_deref().map(|way| &way.kind) {
            Some(WayKind::Local(end)) => end.resume(),
            Some(_) => way.iter().for_each(|way| way.turn.changed.notify_one()),
            None => {}
        }
    }

    fn broken(&self, fault: Fault) {
        let welcome = self.state.lock().welcome.take();
        if let Some(welcome) = welcome {
            let _ = welcome.send(Err(fault));
        }
        self.lost();
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Some(link) = self.link.upgrade() else { return };
        let gone = {
            let mut state = link.state.lock();
            let gone = state.subscriptions.remove(&self.number);
            if let Some(subscribed) = &gone {
                if let Some(key) = subscribed.key {
                    state.plain.remove(key);
                }
                if let Some(id) = subscribed.id {
                    state.by_id.remove(&id);
                    state.session.unsubscribe(id);
                }
            }
            gone
        };
        // The handler may be the last to hold something: it is dropped after the lock.
        drop(gone);
        link.flush();
    }
}

/// A subscription that is made again. Mostly nobody waits for it, so that it is logged if it can't be.
struct Again {
    pattern: String,
    link: Weak<Shared>,
    later: Option<Arc<dyn Waiting>>,
}

impl Again {
    fn not_sent(&self, why: &Refused) {
        self.log(&why.to_string());
        if let Some(later) = &self.later {
            later.failed(Failure { number: ErrorCode::LinkLost.number(), message: None });
        }
    }

    fn log(&self, why: &str) {
        if let Some(link) = self.link.upgrade() {
            (link.log)(&format!("{:?} is not subscribed to again: {why}", self.pattern));
        }
    }
}

impl Waiting for Again {
    fn replied(&self, _: Message) {}

    fn failed(&self, failure: Failure) {
        match (&self.later, &failure.message) {
            (Some(later), _) => later.failed(failure),
            (None, Some(told)) => self.log(&String::from_utf8_lossy(told.payload())),
            (None, None) => {}
        }
    }

    fn item(&self, _: Message) {}

    fn over(&self) {
        self.later.iter().for_each(|later| later.over());
    }

    fn credited(&self, _: u32) {}
}
