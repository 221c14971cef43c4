//! First join of a node to its hub.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Weak};

use tidewire_core::link::access::Grant;
use tidewire_core::link::session::{Fault, Greeting, Session};
use tidewire_core::tree::SubjectTree;
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_sync::Mutex;
use tokio::sync::{Notify, oneshot};

use super::connection::{Connection, Transport};
use super::fanout::FanoutQueue;
use super::reconnect::keep;
use super::{CloseOnDrop, JoinError, Link, Shared, State};
use crate::address::Address;
use crate::clock::now_us;
use crate::hub::{HubHandle, InProcessHub, LocalFrameSink, Role};
use crate::idle::Idle;
use crate::runtime::Runtime;
use crate::shared_memory::SharedArena;
use crate::socket::Socket;

impl Link {
    /// Joins a hub, and blocks until it has taken this node in. If the link is lost later, it joins
    /// again by itself.
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
            let joined = shared.begin();
            tokio::spawn(keep(Arc::clone(&shared), socket));
            match joined.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(Fault::Told { number, .. })) if number == ErrorCode::LinkLost.number() => {
                    let text = "it closed the connection before it said WELCOME: check whether it listens with the scheme of the URL";
                    Err(JoinError::Io(to, io::Error::new(io::ErrorKind::ConnectionAborted, text)))
                }
                Ok(Err(Fault::Silent)) => {
                    let text = "it takes connections and does not answer: it stands still, or is no hub";
                    Err(JoinError::Io(to, io::Error::new(io::ErrorKind::TimedOut, text)))
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
        Self::join_here(hub.place(Role::Own), greeting)
    }

    /// Joins a hub of this process as its gateway: without a token, and with the right to say for
    /// whom it calls and publishes. It has to look itself at what [`access`](HubHandle::access)
    /// allows those, and to run [`spread`](Self::spread): what is published waits for that.
    ///
    /// # Errors
    /// [`JoinError`] if the hub has no place, or says no.
    pub fn join_gateway(hub: &HubHandle, greeting: Greeting) -> Result<Self, JoinError> {
        Self::join_here(hub.place(Role::Gateway), greeting)
    }

    /// Joins a hub of this process for programs that are no nodes, under a number of its own: it
    /// gets messages of nodes of this hub, and its own go to those alone.
    ///
    /// # Errors
    /// [`JoinError`] if the hub says no.
    pub fn join_remote(hub: &HubHandle, number: u32, greeting: Greeting) -> Result<Self, JoinError> {
        Self::join_here(hub.place(Role::Remote(number)), greeting)
    }

    /// Joins a hub of this process for another hub, whose messages the link passes on with the
    /// permissions of a grant: it needs no token.
    ///
    /// # Errors
    /// [`JoinError`] if the hub says no.
    pub fn join_partner(hub: &HubHandle, grant: Grant, greeting: Greeting) -> Result<Self, JoinError> {
        Self::join_here(hub.place(Role::Partner(Box::new(grant))), greeting)
    }

    fn join_here(place: InProcessHub, greeting: Greeting) -> Result<Self, JoinError> {
        let address = Address::Tcp { host: "here".to_owned(), port: 0 };
        let link = Self::new(greeting, None, Some(place), Box::new(|_| {}))?;
        let feed: Arc<dyn LocalFrameSink> = Arc::clone(&link.shared) as Arc<dyn LocalFrameSink>;
        let joined = link.shared.begin();
        let attached = link.shared.place.as_ref().and_then(|place| place.attach(Arc::downgrade(&feed)));
        let Some(end) = attached else {
            return Err(JoinError::Told(
                address,
                ErrorCode::LimitExceeded.number(),
                "hub_links is exceeded".to_owned(),
            ));
        };
        link.shared.go_by(Arc::new(Connection::new(Transport::Local(end), 0, 0)));
        link.shared.flush();
        // Mostly everything has happened inside of the flush; but the thread of the links may be at
        // it.
        match joined.blocking_recv() {
            Ok(Ok(())) => Ok(link),
            Ok(Err(Fault::Told { number, text })) => Err(JoinError::Told(address, number, text)),
            Ok(Err(fault)) => Err(JoinError::Fault(address, String::from(&fault))),
            Err(_) => Err(JoinError::Fault(address, "it said nothing".to_owned())),
        }
    }

    fn new(
        mut greeting: Greeting,
        address: Option<Address>,
        place: Option<InProcessHub>,
        log: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Self, JoinError> {
        let here = || address.clone().unwrap_or(Address::Tcp { host: "here".to_owned(), port: 0 });
        let memory = memory_for(&mut greeting, address.as_ref());
        let is_gateway = place.as_ref().is_some_and(InProcessHub::is_gateway);
        let session =
            Session::join(&greeting, now_us()).map_err(|error| JoinError::Fault(here(), error.to_string()))?;
        let state = State {
            session,
            epoch: 0,
            joined: None,
            subscriptions: BTreeMap::new(),
            next_subscription: 1,
            by_id: HashMap::new(),
            plain: SubjectTree::default(),
            held_back: Vec::new(),
            welcome: None,
            resume: None,
            leaves: false,
            ended: false,
        };
        let shared = Arc::new_cyclic(|me| Shared {
            state: Mutex::new(state),
            exchanges: Mutex::default(),
            connection: Mutex::new(None),
            readers: Mutex::new(None),
            loop_thread: AtomicUsize::new(0),
            paused: AtomicBool::new(false),
            sleeps_until_us: AtomicU64::new(u64::MAX),
            compressed_from: AtomicUsize::new(usize::MAX),
            greeting,
            memory,
            shared_payloads: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            holds_back: AtomicBool::new(false),
            lays: AtomicBool::new(false),
            placed: Mutex::default(),
            address,
            spreading: is_gateway.then(FanoutQueue::new),
            place,
            dropped: AtomicU64::new(0),
            ends: Notify::new(),
            wakeup: Notify::new(),
            to_flush: AtomicBool::new(false),
            log,
            again: Mutex::new(None),
            on_lost: Mutex::new(None),
            pulse: Mutex::new(None),
            on_left: Mutex::new(None),
            idle: Idle::new(),
            me: Weak::clone(me),
        });
        let end = Arc::new(CloseOnDrop(Arc::downgrade(&shared)));
        Ok(Self { shared, _end: end })
    }
}

impl Shared {
    /// Makes ready for a WELCOME, which the answer tells of.
    fn begin(&self) -> oneshot::Receiver<Result<(), Fault>> {
        let (send, receive) = oneshot::channel();
        self.state.lock().welcome = Some(send);
        receive
    }
}

/// Memory that this node shares with its hub, as its greeting announces. None: the two are not on
/// one host, or the system has no such memory.
fn memory_for(greeting: &mut Greeting, address: Option<&Address>) -> Option<Arc<SharedArena>> {
    if greeting.shared_bytes == 0 || !address.is_none_or(Address::is_local) {
        return None;
    }
    let memory = SharedArena::of_process(greeting.shared_bytes).ok()?;
    greeting.place = Some(memory.description());
    Some(memory)
}
