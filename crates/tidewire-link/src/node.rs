mod turn;
mod way;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tidewire_core::backoff::Backoff;
use tidewire_core::link::assembly::Message;
use tidewire_core::link::session::{Event, Fault, Greeting, Joined, Named, Refused, Sending, Session};
use tidewire_core::tree::{SubjectTree, SubscriptionId};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::Pattern;
use tidewire_proto::wire::{self, CallHead, Flags, PublishHead, SubscribeHead};
use tokio::io::Interest;
use tokio::sync::{Notify, oneshot};

use crate::address::Address;
use crate::clock::{instant, now_us};
use crate::hub::{Feed, HubHandle};
use crate::layered::Layered;
use crate::plain::Plain;
use crate::reading::{Filled, Reading};
use crate::runtime::Runtime;
use crate::socket::Socket;
use crate::tls::TlsError;
use crate::watched::Watched;

use turn::Offer;
pub use turn::{Elsewhere, Reader};
use way::{Way, WayKind};

/// What patterns begin with that belong to the number of a node.
const OF_NODE: &str = "$node.";

/// Most reads at a heartbeat.
const CATCH_UP_READS: usize = 16;

/// Who waits for what becomes of a call. Called on the thread of the links: it must be quick, and must not wait.
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

/// Who is behind a subscription. Called on the thread of the links: it must be quick, and must not wait.
pub trait Handler: Send + Sync {
    /// A call, to be answered with its methods. What happens to it later is told to what this returns.
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>>;
    /// Something was published.
    fn published(&self, message: Published);
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
pub struct Published {
    /// Its head and payload.
    pub message: Message,
    /// Who published it.
    pub from: Named,
}

/// Why a node could not join.
#[derive(Debug)]
pub enum JoinError {
    /// There is no way to the hub.
    Io(Address, io::Error),
    /// The own certificates can't be used.
    Tls(TlsError),
    /// The hub said no.
    Told(Address, u16, String),
    /// What is there is no hub.
    Fault(Address, String),
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
    /// The number of the thread of that loop, or 0.
    home: AtomicUsize,
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
    log: Box<dyn Fn(&str) + Send + Sync>,
    again: Mutex<Option<Box<dyn Fn() + Send + Sync>>>,
    left: Mutex<Option<OnLeft>>,
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

/// A call for this node. Dropping it unanswered fails it.
pub struct Call {
    link: Arc<Shared>,
    key: CallKey,
    /// Its head and payload.
    pub message: Message,
    /// Who called.
    pub from: Named,
    /// Until when the caller waits.
    pub deadline: Option<Instant>,
    answered: bool,
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
        let link = Self::new(greeting, Some(address.clone()), Box::new(log))?;
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
        let link = Self::new(greeting, None, Box::new(|_| {}))?;
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
            home: AtomicUsize::new(0),
            paused: AtomicBool::new(false),
            sleeps_until_us: AtomicU64::new(u64::MAX),
            compressed_from: AtomicUsize::new(usize::MAX),
            greeting,
            address,
            ends: Notify::new(),
            look: Notify::new(),
            log,
            again: Mutex::new(None),
            pulse: Mutex::new(None),
            left: Mutex::new(None),
            me: Weak::clone(me),
        });
        let end = Arc::new(Ending(Arc::downgrade(&shared)));
        Ok(Self { shared, _end: end })
    }

    /// What the hub said, or None while the link is lost.
    pub fn joined(&self) -> Option<Joined> {
        self.shared.state.lock().joined.clone()
    }

    /// Calls this whenever the node has joined again after its link was lost, and has subscribed again.
    pub fn on_joined_again(&self, call: impl Fn() + Send + Sync + 'static) {
        *self.shared.again.lock() = Some(Box::new(call));
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
                id = Some(state.session.subscribe(&head, says, waiting)?);
            } else if state.ended || self.shared.address.is_none() {
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
        let flushed = way.writing.flush(|bytes, count| self.take(bytes, count), |bytes| way.kind.write(bytes));
        if flushed.is_err() {
            way.end.notify_one();
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

    fn take(&self, bytes: &mut Vec<u8>, count: usize) -> bool {
        let count = count.min(self.greeting.batch.bytes);
        let mut state = self.state.lock();
        let taken = state.session.out.take(bytes, count);
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
        {
            let mut state = self.state.lock();
            state.joined = None;
            state.session.lost(&mut events);
            state.welcome = None;
        }
        self.deliver(events, 0);
    }

    /// Takes what was read.
    fn read(self: &Arc<Self>, reading: &mut Reading) -> Result<(), Fault> {
        let (mut events, mut fault) = (Vec::new(), Ok(()));
        let (epoch, due_us);
        {
            let mut state = self.state.lock();
            let now = now_us();
            epoch = state.epoch;
            let session = &mut state.session;
            let garbled = reading.frames(|frame| {
                if fault.is_ok() {
                    fault = session.received(frame, now, &mut events);
                }
            });
            if let (Err(error), Ok(())) = (garbled, &fault) {
                fault = Err(error.into());
            }
            due_us = session.next_us();
        }
        if due_us < self.sleeps_until_us.load(Ordering::Acquire) {
            // A loop may have read it, and the thread of the links has to know.
            self.look.notify_one();
        }
        self.happened(events, epoch);
        self.flush();
        fault.inspect_err(|fault| self.refuse(fault))
    }

    fn happened(self: &Arc<Self>, events: Vec<Event<Arc<dyn Waiting>>>, epoch: u32) {
        for event in events {
            match event {
                Event::Called(message) => self.called(message, epoch),
                Event::Published(message) => self.published(message),
                Event::Joined(joined) => self.welcomed(joined),
                other => self.tell(other, epoch),
            }
        }
    }

    fn deliver(&self, events: Vec<Event<Arc<dyn Waiting>>>, epoch: u32) {
        for event in events {
            self.tell(event, epoch);
        }
    }

    fn tell(&self, event: Event<Arc<dyn Waiting>>, _epoch: u32) {
        match event {
            Event::Replied(waiting, message) => waiting.replied(message),
            Event::Failed(waiting, number, message) => waiting.failed(Failure { number, message: Some(message) }),
            Event::Lost(waiting) => waiting.failed(Failure { number: ErrorCode::LinkLost.number(), message: None }),
            Event::Item(waiting, message) => waiting.item(message),
            Event::Over(waiting) | Event::Subscribed(waiting) => waiting.over(),
            Event::Credited(waiting, items) => waiting.credited(items),
            Event::Alive(waiting, blocked_ms) => waiting.alive(blocked_ms),
            Event::Cancelled(id) => {
                let exchange = self.exchanges.lock().remove(&id);
                if let Some(exchange) = exchange {
                    exchange.cancelled();
                }
            }
            Event::Input(message) => {
                if let Some(exchange) = self.exchange(message.id) {
                    exchange.input(message);
                }
            }
            Event::InputOver(id) => {
                if let Some(exchange) = self.exchange(id) {
                    exchange.input_over();
                }
            }
            Event::Wanted(id, items) => {
                if let Some(exchange) = self.exchange(id) {
                    exchange.wanted(items);
                }
            }
            Event::Left(number) => {
                if let Some(left) = &*self.left.lock() {
                    left(number);
                }
            }
            Event::Goodbye | Event::Called(_) | Event::Published(_) | Event::Joined(_) => {}
        }
    }

    fn exchange(&self, id: u64) -> Option<Arc<dyn Exchange>> {
        self.exchanges.lock().get(&id).cloned()
    }

    fn welcomed(&self, joined: Joined) {
        let (welcome, refused) = {
            let mut state = self.state.lock();
            state.resume = Some(joined.resume.clone());
            state.joined = Some(joined);
            let refused = self.subscribe_again(&mut state);
            (state.welcome.take(), refused)
        };
        refused.into_iter().for_each(|(waiting, why)| waiting.not_sent(&why));
        self.look.notify_one();
        if let Some(welcome) = welcome {
            let _ = welcome.send(Ok(()));
        } else if let Some(again) = &*self.again.lock() {
            again();
        }
    }

    /// Answers which of them could not be sent, and why.
    fn subscribe_again(&self, state: &mut State) -> Vec<(Arc<Again>, Refused)> {
        state.by_id.clear();
        let (State { session, subscriptions, by_id, .. }, mut refused) = (state, Vec::new());
        for (number, subscribed) in subscriptions.iter_mut() {
            subscribed.id = None;
            let later = subscribed.later.take();
            if later.is_none() && subscribed.pattern.starts_with(OF_NODE) {
                // It belongs to the number that this node had.
                continue;
            }
            let again = Arc::new(Again { pattern: subscribed.pattern.clone(), link: self.me.clone(), later });
            let head = SubscribeHead { queue: &subscribed.queue, pattern: &subscribed.pattern };
            match session.subscribe(&head, &subscribed.says, Arc::clone(&again) as Arc<dyn Waiting>) {
                Ok(id) => {
                    subscribed.id = Some(id);
                    by_id.insert(id, *number);
                }
                Err(why) => refused.push((again, why)),
            }
        }
        refused
    }

    fn called(self: &Arc<Self>, message: Message, epoch: u32) {
        let id = message.id;
        let Ok(head) = CallHead::parse(message.head()) else { return };
        let (handler, from) = {
            let mut state = self.state.lock();
            if state.epoch != epoch || !state.session.is_open(id) {
                // Its end was read with it. Nobody would tell a handler of that.
                return;
            }
            let number = state.by_id.get(&head.to);
            let handler = number.and_then(|number| state.subscriptions.get(number)).map(|one| Arc::clone(&one.handler));
            (handler, state.session.name_of(head.origin).cloned().unwrap_or_default())
        };
        let wait = Duration::from_millis(head.deadline_ms.into());
        let deadline = (head.deadline_ms > 0).then(|| Instant::now() + wait);
        let key = CallKey { epoch, id };
        let call = Call { link: Arc::clone(self), key, message, from, deadline, answered: false };
        let Some(handler) = handler else {
            call.fail(ErrorCode::NoResponders, Sending::Short(b"the subscription has ended"));
            return;
        };
        let Some(exchange) = handler.called(call) else { return };
        self.exchanges.lock().insert(id, Arc::clone(&exchange));
        // It may have been answered meanwhile.
        if !self.with(key, |session| session.is_open(id)).unwrap_or(false) {
            self.exchanges.lock().remove(&id);
        }
    }

    fn published(&self, message: Message) {
        let Ok(head) = PublishHead::parse(message.head()) else { return };
        let (handlers, from) = {
            let state = self.state.lock();
            let of = |number: &u64| state.subscriptions.get(number).map(|one| Arc::clone(&one.handler));
            let mut handlers = Vec::new();
            if head.to == 0 {
                state.plain.for_each_match_str(head.subject, |number| handlers.extend(of(number)));
            } else {
                handlers.extend(state.by_id.get(&head.to).and_then(of));
            }
            (handlers, state.session.name_of(head.origin).cloned().unwrap_or_default())
        };
        let mut handlers = handlers.into_iter();
        let Some(first) = handlers.next() else { return };
        for other in handlers {
            other.published(Published { message: message.clone(), from: from.clone() });
        }
        first.published(Published { message, from });
    }

    fn answered(&self, key: CallKey) {
        // The same id names another call once the node has joined again.
        let is_current = self.state.lock().epoch == key.epoch;
        if is_current {
            self.exchanges.lock().remove(&key.id);
        }
    }
}

impl Feed for Shared {
    fn feed(&self, mut frames: &[u8]) {
        let Some(this) = self.me.upgrade() else { return };
        let (mut events, mut fault) = (Vec::new(), Ok(()));
        let epoch = {
            let mut state = self.state.lock();
            let now = now_us();
            while let (Ok(Some(frame)), Ok(())) = (wire::read(frames, self.greeting.frame_bytes), &fault) {
                fault = state.session.received(&frame, now, &mut events);
                frames = &frames[frame.bytes.len()..];
            }
            state.epoch
        };
        this.happened(events, epoch);
        if let Err(fault) = fault {
            self.broken(fault);
        }
        self.flush();
    }

    fn is_paused(&self) -> bool {
        Self::is_paused(self)
    }

    fn tick(&self) {
        self.tell_alive(now_us());
        self.flush();
    }

    fn due_us(&self) -> u64 {
        self.state.lock().session.telling_us()
    }

    fn ended(&self, reason: &str) {
        self.broken(Fault::Told { number: ErrorCode::LinkLost.number(), text: reason.to_owned() });
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

/// Looks after a link over a socket: reads it, watches the time, and joins again when it is lost.
async fn keep(shared: Arc<Shared>, socket: Socket) {
    let mut socket = Some(socket);
    let mut backoff = Backoff::new(
        shared.greeting.backoff_ms.0.saturating_mul(1_000),
        shared.greeting.backoff_ms.1.saturating_mul(1_000),
        now_us() ^ Arc::as_ptr(&shared) as u64,
    );
    loop {
        if let Some(socket) = socket.take() {
            let reason = match Way::over(socket, shared.greeting.frame_bytes) {
                Ok(way) => shared.go(Arc::new(way)).await,
                Err(_) => gone(),
            };
            if shared.state.lock().ended {
                return;
            }
            let first = shared.state.lock().welcome.take();
            let was_joined = shared.state.lock().joined.is_some();
            shared.lost();
            if let Some(first) = first {
                // It never joined: whoever wanted to is told, and decides.
                let _ = first.send(Err(reason));
                return;
            }
            if was_joined {
                backoff.reset();
                (shared.log)(&format!("the link is lost: {}", String::from(&reason)));
            } else if let Fault::Told { text, .. } = &reason {
                (shared.log)(&format!("the hub does not take this node in again: {text}"));
            }
        }
        if shared.state.lock().ended {
            return;
        }
        let wait = Duration::from_micros(backoff.next_delay_us());
        tokio::select! {
            () = shared.ends.notified() => return,
            () = tokio::time::sleep(wait) => {}
        }
        let Some(address) = &shared.address else { return };
        if let Ok(connected) = Socket::connect(address, shared.greeting.frame_bytes).await
            && shared.begin_again()
        {
            socket = Some(connected);
        }
    }
}

/// Keeps a connection until it can't go on, and says why.
async fn run(shared: &Arc<Shared>, way: &Way) -> Fault {
    let ended = match &way.kind {
        WayKind::Plain(plain) => run_plain(shared, way, plain).await,
        WayKind::Layered(layered) => run_layered(shared, way, layered).await,
        WayKind::Local(_) => Ok(()),
    };
    ended.err().or_else(|| way.turn.fault()).unwrap_or_else(gone)
}

async fn run_plain(shared: &Arc<Shared>, way: &Way, plain: &Plain) -> Result<(), Fault> {
    let (mut watched, mut full) = (Watched::default(), false);
    let look_us = shared.greeting.heartbeat_ms * 500;
    let mut look = now_us() + look_us;
    loop {
        // Until it sleeps, whatever is due sooner has it look once more.
        shared.sleeps_until_us.store(u64::MAX, Ordering::Release);
        let due = shared.state.lock().session.next_us();
        // Whoever waited elsewhere may have gone: the loop is asked again now and then.
        let next = if shared.home.load(Ordering::Acquire) != 0 && way.turn.is_to_offer() { due.min(look) } else { due };
        let reads = way.turn.is_of_links() && !shared.is_paused();
        shared.sleeps_until_us.store(next, Ordering::Release);
        tokio::select! {
            biased;
            () = way.end.notified() => return Ok(()),
            () = way.turn.changed.notified() => {}
            () = shared.look.notified() => {}
            () = way.writing.full.notified(), if !full => full = true,
            ready = watched.ready(plain, reads, full) => {
                ready.map_err(|_| gone())?;
                let mut done = Ok(());
                if full {
                    watched.act(Interest::WRITABLE, || {
                        full = false;
                        done = shared.resume(way);
                        Err(io::ErrorKind::WouldBlock.into())
                    });
                    done?;
                }
                let mut filled = Ok(Filled::All);
                if reads {
                    watched.act(Interest::READABLE, || {
                        filled = way.read(shared);
                        let all = matches!(filled, Ok(Filled::All));
                        if all { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
                    });
                    filled?;
                }
            }
            () = tokio::time::sleep_until(instant(next).into()) => {
                shared.catch_up(way)?;
                shared.tick()?;
                shared.offer();
                look = now_us() + look_us;
            }
        }
    }
}

async fn run_layered(shared: &Arc<Shared>, way: &Way, layered: &Layered) -> Result<(), Fault> {
    let mut reading = Reading::new(shared.greeting.frame_bytes);
    let mut full = false;
    loop {
        let next = shared.state.lock().session.next_us();
        tokio::select! {
            biased;
            () = way.end.notified() => return Ok(()),
            () = way.turn.changed.notified() => {}
            () = shared.look.notified() => {}
            () = way.writing.full.notified(), if !full => full = true,
            ready = layered.stream().writable(), if full => {
                full = false;
                ready.map_err(|_| gone())?;
                shared.resume(way)?;
            }
            ready = layered.stream().readable(), if !shared.is_paused() => {
                ready.map_err(|_| gone())?;
                match reading.fill(|room| layered.try_read(room)) {
                    Ok(Filled::All | Filled::Some) => shared.read(&mut reading)?,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        return Err(Fault::Told { number: ErrorCode::WireError.number(), text: error.to_string() });
                    }
                    Ok(Filled::Closed) | Err(_) => return Ok(()),
                }
            }
            () = tokio::time::sleep_until(instant(next).into()) => shared.tick()?,
        }
    }
}

fn gone() -> Fault {
    Fault::Told { number: ErrorCode::LinkLost.number(), text: "the hub closed the connection".to_owned() }
}

impl Shared {
    /// Goes on with writing.
    fn resume(&self, way: &Way) -> Result<(), Fault> {
        let resumed = way.writing.resume(|bytes, count| self.take(bytes, count), |bytes| way.kind.write(bytes));
        resumed.map_err(|_| gone())
    }

    /// Reads what has come, although it may be the turn of a loop: it may be busy, and the hub is not silent then.
    fn catch_up(self: &Arc<Self>, way: &Way) -> Result<(), Fault> {
        for _ in 0..CATCH_UP_READS {
            if self.is_paused() || way.read(self)? != Filled::Some {
                break;
            }
        }
        Ok(())
    }

    fn tick(&self) -> Result<(), Fault> {
        let now = now_us();
        self.tell_alive(now);
        let mut state = self.state.lock();
        if self.is_paused() {
            state.session.deaf(now);
        }
        let ticked = state.session.tick(now);
        drop(state);
        self.flush();
        ticked
    }

    /// Tells callers that their calls are still at work.
    fn tell_alive(&self, now: u64) {
        if self.state.lock().session.is_telling_due(now) {
            let blocked_ms = self.pulse.lock().as_ref().map_or(0, |pulse| pulse());
            self.state.lock().session.still_at_work(blocked_ms, now);
        }
    }

    fn go_by(&self, way: Arc<Way>) {
        let (far, near) = self.greeting.compress_bytes;
        let from = if way.is_near() { near } else { far };
        self.compressed_from.store(if from == 0 { usize::MAX } else { from }, Ordering::Relaxed);
        *self.way.lock() = Some(way);
    }

    /// Goes a way until it ends, and says why it did.
    async fn go(self: &Arc<Self>, way: Arc<Way>) -> Fault {
        self.go_by(Arc::clone(&way));
        self.flush();
        self.offer();
        let reason = run(self, &way).await;
        *self.way.lock() = None;
        way.close();
        reason
    }

    /// A new session, for a new connection. False: the link has been ended.
    fn begin_again(&self) -> bool {
        let mut state = self.state.lock();
        let greeting = Greeting { resume: state.resume.clone(), ..self.greeting.clone() };
        let Ok(session) = Session::join(&greeting, now_us()) else { return false };
        state.session = session;
        state.epoch = state.epoch.wrapping_add(1);
        !state.ended
    }

    /// Tells the hub which rule it broke.
    fn refuse(&self, fault: &Fault) {
        if let Fault::Wire(error) = fault {
            self.state.lock().session.close(error.code(), &error.to_string());
            self.flush();
        }
    }
}

impl Call {
    /// What is called, and with which fields.
    pub fn head(&self) -> CallHead<'_> {
        // It was checked when it came in.
        CallHead::parse(self.message.head()).unwrap_or_default()
    }

    /// Names the call on its link.
    pub fn key(&self) -> CallKey {
        self.key
    }

    /// Whether somebody still waits for the answer.
    pub fn is_open(&self) -> bool {
        self.link.with(self.key, |session| session.is_open(self.key.id)).unwrap_or(false)
    }

    /// Whether other exchanges are open on the link, so that a frame may wait for company.
    pub fn has_company(&self) -> bool {
        self.link.state.lock().session.open_exchanges().1 > 1
    }

    /// Answers. The frame waits for [`Flusher::flush`].
    ///
    /// # Errors
    /// [`Refused`] if it can't be sent; the caller is told so, unless it is gone.
    pub fn reply(mut self, payload: Sending<'_>) -> Result<(), Refused> {
        self.answered = true;
        let lane = self.message.flags.lane() as u8;
        let payload = self.packed(payload);
        let sent = self.act(|session, id| session.reply(id, Flags::NORMAL.in_lane(lane), payload));
        if let Err(refused) = &sent {
            let text = refused.to_string();
            let code = if matches!(refused, Refused::TooLong { .. }) {
                ErrorCode::PayloadTooLarge
            } else {
                ErrorCode::LimitExceeded
            };
            let _ = self.act(|session, id| session.fail(id, code, Sending::Short(text.as_bytes())));
        }
        self.link.answered(self.key);
        sent
    }

    /// Fails. The frame waits for [`Flusher::flush`].
    pub fn fail(mut self, code: ErrorCode, payload: Sending<'_>) {
        self.answered = true;
        let _ = self.act(|session, id| session.fail(id, code, payload));
        self.link.answered(self.key);
    }

    /// Sends one item of the answer.
    ///
    /// # Errors
    /// [`Refused`] if it can't be sent.
    pub fn item(&self, payload: Sending<'_>) -> Result<(), Refused> {
        let payload = self.packed(payload);
        let sent = self.act(|session, id| session.answer_item(id, Flags::NORMAL, payload));
        self.link.flush();
        sent
    }

    /// Sends no more items, which ends the call.
    pub fn over(mut self) {
        self.answered = true;
        let _ = self.act(|session, id| {
            session.answer_over(id);
            Ok(())
        });
        self.link.answered(self.key);
        self.link.flush();
    }

    /// Takes so many further items from the caller.
    pub fn want_input(&self, items: u32) {
        let _ = self.act(|session, id| {
            session.want_input(id, items);
            Ok(())
        });
        self.link.flush();
    }

    /// Says that the handler is still at work.
    pub fn alive(&self) {
        let _ = self.act(|session, id| {
            session.alive(id);
            Ok(())
        });
        self.link.flush();
    }

    /// A link to flush once several answers are written.
    pub fn flusher(&self) -> Flusher {
        Flusher { link: Arc::downgrade(&self.link), batch_frames: self.link.greeting.batch.frames }
    }

    /// Whether an answer of this length may be compressed when it is sent, which takes its time.
    pub fn compresses(&self, payload: usize) -> bool {
        self.link.compresses(payload)
    }

    fn packed<'a>(&self, payload: Sending<'a>) -> Sending<'a> {
        // The id may name another call once the node has joined again; its answer is not sent then.
        self.link.packed(payload, |session| session.may_compress_answer(self.key.id))
    }

    /// The longest payload that this node takes and sends.
    pub fn payload_bytes(&self) -> usize {
        self.link.greeting.payload_bytes
    }

    fn act(&self, act: impl FnOnce(&mut Session<Arc<dyn Waiting>>, u64) -> Result<(), Refused>) -> Result<(), Refused> {
        self.link.with(self.key, |session| act(session, self.key.id)).unwrap_or(Err(Refused::Over))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.answered {
            let text = b"the handler ended without an answer";
            let _ = self.act(|session, id| session.fail(id, ErrorCode::NoReply, Sending::Short(text)));
            self.link.answered(self.key);
            self.link.flush();
        }
    }
}

/// Writes what waits for a link.
#[derive(Clone)]
pub struct Flusher {
    link: Weak<Shared>,
    batch_frames: usize,
}

impl Flusher {
    /// Names the link in this process, for as long as there is a flusher of it.
    pub fn address(&self) -> usize {
        self.link.as_ptr() as usize
    }

    /// Frames that are written although others might follow.
    pub fn batch_frames(&self) -> usize {
        self.batch_frames
    }

    /// Takes nothing in until [`listen_again`](Self::listen_again): those who handle it are behind.
    pub fn pause(&self) {
        if let Some(link) = self.link.upgrade() {
            link.pause();
        }
    }

    /// Takes in what comes.
    pub fn listen_again(&self) {
        if let Some(link) = self.link.upgrade() {
            link.listen_again();
        }
    }

    /// Writes what waits, as much as the socket takes; the rest follows by itself.
    pub fn flush(&self) {
        if let Some(link) = self.link.upgrade() {
            link.flush();
        }
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

impl JoinError {
    fn not_connected(address: &Address, error: io::Error) -> Self {
        match error.downcast::<TlsError>() {
            Ok(unusable) => Self::Tls(unusable),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Self::Fault(address.clone(), error.to_string()),
            Err(error) => Self::Io(address.clone(), error),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(error) => error.fmt(f),
            Self::Io(address, error) => write!(f, "url: there is no hub at {address}: {error}"),
            Self::Told(address, _, text) => write!(f, "the hub at {address} says: {text}"),
            Self::Fault(address, text) => write!(f, "what listens at {address} is no hub that fits: {text}"),
        }
    }
}

impl std::error::Error for JoinError {}
