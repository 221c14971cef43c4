//! A hub: its handle, and what its links have in common.

mod flush;
mod idle;
mod in_process;
mod listeners;
mod log;
mod pending_joins;
mod serve_link;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tidewire_core::link::access::Access;
use tidewire_core::link::flush_policy::Batch;
use tidewire_core::link::hub::{Change, Hub, HubCounts, HubOptions, LinkId, SubscriptionInterest};
use tidewire_proto::wire;
use tidewire_sync::{Mutex, RwLock};
use tokio::sync::{Notify, Semaphore};

use crate::clock::{instant, now_us};
use crate::idle::Idle;
use crate::runtime::Runtime;
use crate::shared_memory::SameHostProbe;
use crate::socket::Socket;
use crate::writer::SharedWriter;

use log::Log;
use pending_joins::PendingJoins;

pub(crate) use in_process::{InProcessHub, Role};
pub use in_process::{LocalEnd, LocalFrameSink};
pub use listeners::{ListenError, Listening};

enum Peer {
    Remote { socket: Socket, writing: SharedWriter, end: Notify },
    Local { feed: Weak<dyn LocalFrameSink>, writing: SharedWriter },
}

/// A hub, its listeners, and those who joined. It ends when the last clone is dropped.
#[derive(Clone)]
pub struct HubHandle {
    shared: Arc<Shared>,
    _end: Arc<CloseOnDrop>,
}

/// Ends the links: what serves them keeps the hub.
struct CloseOnDrop(Weak<Shared>);

struct Shared {
    hub: Mutex<Hub>,
    peers: RwLock<Vec<Option<Arc<Peer>>>>,
    batch: Batch,
    greetings: Arc<PendingJoins>,
    greeting_time: Duration,
    hello_bytes: usize,
    /// Held by the one link, of those that bring more than is taken at one go, whose turn it is.
    seat: Semaphore,
    wakeup: Notify,
    /// Waiters for the end of the last call and the flush of its answer.
    idle: Idle,
    /// Callback for nodes that join or leave; `nodes` is the last count that it was notified of.
    on_nodes: OnceLock<Box<dyn Fn() + Send + Sync>>,
    nodes: AtomicU64,
    /// Callback for changes.
    on_changes: OnceLock<Box<dyn Fn(Change) + Send + Sync>>,
    /// Callbacks for changes of the subscriptions of nodes.
    on_interests: RwLock<Vec<Box<dyn Fn() + Send + Sync>>>,
    bridged: AtomicBool,
    sleeps_until_us: AtomicU64,
    runtime: Runtime,
    log: Log,
}

impl HubHandle {
    /// A hub on a thread of links. `log` is given one line for each link that ends for a reason.
    pub fn new(runtime: &Runtime, options: HubOptions, log: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let options = HubOptions { memory: Some(Arc::new(SameHostProbe)), ..options };
        let (batch, greeting_time) = (options.batch, Duration::from_millis(options.greeting_ms));
        let greetings = PendingJoins::new(options.greetings);
        let hello_bytes = options.hello_bytes;
        let hub = Hub::new(options, u64::from_str_radix(&secret()[..16], 16).unwrap_or(1));
        let shared = Arc::new(Shared {
            hub: Mutex::new(hub),
            peers: RwLock::default(),
            batch,
            greetings,
            greeting_time,
            hello_bytes,
            seat: Semaphore::new(1),
            wakeup: Notify::new(),
            idle: Idle::new(),
            on_nodes: OnceLock::new(),
            nodes: AtomicU64::new(0),
            on_changes: OnceLock::new(),
            on_interests: RwLock::default(),
            bridged: AtomicBool::new(false),
            sleeps_until_us: AtomicU64::new(u64::MAX),
            runtime: runtime.clone(),
            log: Log::new(log),
        });
        runtime.spawn(watch_time(Arc::downgrade(&shared)));
        let end = Arc::new(CloseOnDrop(Arc::downgrade(&shared)));
        Self { shared, _end: end }
    }

    /// The counters of the hub.
    pub fn counts(&self) -> HubCounts {
        self.shared.hub.lock().counts()
    }

    /// Calls that are passed on and not answered yet, but for streams, which may have no end.
    pub fn open_calls(&self) -> usize {
        self.shared.hub.lock().ending_calls()
    }

    /// Calls this whenever `nodes` of [`counts`](Self::counts) has changed, on any thread: it must
    /// be quick, and must not wait. Answers whether it will: a hub has one such call, the first.
    pub fn on_nodes(&self, call: impl Fn() + Send + Sync + 'static) -> bool {
        self.shared.on_nodes.set(Box::new(call)).is_ok()
    }

    /// Calls this for each node that joins or goes, and each service that comes or goes, on any
    /// thread: it must be quick, and must not wait. Answers whether it will: a hub has one such
    /// call, the first.
    pub fn on_changes(&self, call: impl Fn(Change) + Send + Sync + 'static) -> bool {
        self.shared.hub.lock().keep_changes();
        self.shared.on_changes.set(Box::new(call)).is_ok()
    }

    /// Attaches a link that stands for the node of another hub, which has this number there: what
    /// the hub has for that node goes to `feed`, and [`LocalEnd::write`] says what the node says,
    /// HELLO first.
    pub fn attach_remote(&self, number: u32, feed: Weak<dyn LocalFrameSink>) -> LocalEnd {
        self.shared.attach(feed, Role::Remote(number))
    }

    /// Subscriptions of the nodes of this hub, without nodes that stand for others.
    pub fn interests(&self) -> Vec<SubscriptionInterest> {
        self.shared.hub.lock().interests()
    }

    /// From now on calls this, too, whenever [`interests`](Self::interests) may have changed, on
    /// any thread: it must be quick, and must not wait.
    pub fn on_interests(&self, call: impl Fn() + Send + Sync + 'static) {
        self.shared.on_interests.write().push(Box::new(call));
    }

    /// Notes that a bridge to other hubs is here. False: there was one before.
    pub fn take_bridge(&self) -> bool {
        !self.shared.bridged.swap(true, Ordering::AcqRel)
    }

    /// Notes that the connection to other nodes, at this place, is lost. None: they are met again.
    pub fn set_lost(&self, place: Option<&str>) {
        self.shared.hub.lock().set_lost(place);
    }

    /// Tells all nodes that no new calls are taken.
    pub fn goodbye(&self) {
        self.shared.hub.lock().goodbye();
        self.shared.settle();
    }

    /// Ends all links. Calls in flight fail.
    pub fn close(&self) {
        self.shared.close();
    }

    /// The grants of the hub: tokens that may join, and their permissions.
    pub fn access(&self) -> Access {
        self.shared.hub.lock().access().clone()
    }

    /// From now on, only those with these tokens may join, and do what they allow: for a hub that
    /// nobody has joined but its own node.
    pub fn set_access(&self, access: Access) {
        self.shared.hub.lock().set_access(access);
    }

    /// The name of the hub.
    pub fn name(&self) -> String {
        self.shared.hub.lock().name().to_owned()
    }

    /// The thread that its sockets are on.
    pub fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.close();
        }
    }
}

impl Shared {
    fn close(&self) {
        let peers: Vec<_> = self.peers.read().iter().flatten().cloned().collect();
        for peer in peers {
            match &*peer {
                Peer::Remote { end, .. } => end.notify_one(),
                Peer::Local { feed, .. } => {
                    if let Some(feed) = feed.upgrade() {
                        feed.ended("the hub has stopped", false);
                    }
                }
            }
        }
    }

    fn keep(&self, at: LinkId, peer: Arc<Peer>) {
        let mut peers = self.peers.write();
        if peers.len() <= at {
            peers.resize_with(at + 1, || None);
        }
        peers[at] = Some(peer);
        drop(peers);
        self.wakeup.notify_one();
    }

    fn remove_link(&self, at: LinkId) {
        // In this order: the number is free for another link only once nobody finds the old one
        // under it.
        if let Some(peer) = self.peers.write().get_mut(at) {
            *peer = None;
        }
        self.hub.lock().closed(at);
        self.settle();
    }

    fn take_frames(&self, at: LinkId, mut bytes: &[u8]) {
        let (mut hub, now) = (self.hub.lock(), now_us());
        let max = hub.frame_bytes();
        loop {
            match wire::read(bytes, max) {
                Ok(Some(frame)) => {
                    hub.received(at, &frame, now);
                    bytes = &bytes[frame.bytes.len()..];
                }
                Ok(None) => return,
                Err(error) => return hub.garbled(at, &error),
            }
        }
    }

    fn is_peer(&self, at: LinkId, peer: &Arc<Peer>) -> bool {
        self.peers.read().get(at).and_then(Option::as_ref).is_some_and(|other| Arc::ptr_eq(other, peer))
    }

    fn peer(&self, at: LinkId) -> Option<Arc<Peer>> {
        self.peers.read().get(at).and_then(Option::clone)
    }
}

async fn watch_time(shared: Weak<Shared>) {
    loop {
        let Some(strong) = shared.upgrade() else { return };
        // Until it sleeps, whatever is due sooner wakes it.
        strong.sleeps_until_us.store(u64::MAX, Ordering::Release);
        strong.hub.lock().tick(now_us());
        let local = strong.tick_locals().min(strong.log.tick());
        strong.settle();
        let next = strong.hub.lock().next_us().min(local);
        strong.sleeps_until_us.store(next, Ordering::Release);
        let wakeup = strong.wakeup.notified();
        tokio::pin!(wakeup);
        // The hub itself must be able to end while this sleeps: a day is long enough.
        let until = instant(next.min(now_us() + 86_400_000_000));
        tokio::select! {
            () = &mut wakeup => {}
            () = tokio::time::sleep_until(until.into()) => {}
        }
    }
}

/// A secret of 32 hexadecimal digits.
fn secret() -> String {
    let mut bytes = [0; 16];
    // The system has no randomness only before it has fully started; a link without a secret can't
    // be resumed, and that is all.
    if getrandom::fill(&mut bytes).is_err() {
        bytes[..8].copy_from_slice(&now_us().to_le_bytes());
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
