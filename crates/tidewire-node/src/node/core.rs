//! A node, and the state that all of its parts share.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Poll;
use std::time::Duration;

use serde_json::Value;
use tidewire_backend::home::Home;
use tidewire_core::rpc::balancer::CallProfile;
use tidewire_engine::Engine;
use tidewire_engine::raw::{Mutex, clock};
use tidewire_link::{HubHandle, Link, Listening, Runtime, Subscription as LinkSubscription};

use crate::delay::Delay;
use crate::discovery::EntryReader;
use crate::discovery::directory::Directory;
use crate::error::Error;
use crate::names;
use crate::node::options::{Log, NodeOptions};
use crate::node::runner::Runner;
use crate::node::stop_signal::StopSignal;
use crate::objects::Objects;
use crate::pending::{Pending, WakerEntry, Wakers};
use crate::subjects::local_subscriptions::{LocalSubscriptions, Subscription};

/// A node: it joins a hub, or is one, and serves, calls, publishes and subscribes. Clones are the
/// same node.
///
/// A node ends when it is [stopped](Node::stop). A node also ends, at once, when its last clone and
/// all clients, calls and streams made with it are dropped. Open work then fails with `link_lost`
/// on the other side.
///
/// Imported objects, calls of them, and caller streams that handlers read do not keep a node alive.
/// Handlers that hold a clone keep their node alive until it is stopped.
///
/// ```
/// use tidewire_node::{Node, NodeOptions};
///
/// let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait()?;
/// let other = Node::join(&hub.urls()[0], NodeOptions::named("other")).wait()?;
///
/// let mut numbers = hub.subscribe("numbers.*").wait()?;
/// other.publish("numbers.even", &42)?;
/// assert_eq!(numbers.next_blocking().unwrap().read::<i64>()?, 42);
/// # Ok::<(), tidewire_node::Error>(())
/// ```
///
/// On any async runtime, the same operations are `.await`ed:
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tidewire_node::{Node, NodeOptions};
///
/// let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).await?;
/// assert!(hub.client("nobody").call::<()>("x", &()).await.is_err());
/// # Ok::<(), tidewire_node::Error>(()) }).unwrap();
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("Node({:?})", self.core.name)]
pub struct Node {
    pub(super) core: Arc<Core>,
}

impl Node {
    pub(crate) const fn of(core: Arc<Core>) -> Self {
        Self { core }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

/// A served instance, as its node stops it.
pub(crate) trait StoppableInstance: Send + Sync {
    fn is_named(&self, service: &str, id: &str) -> bool;

    /// Its statistics as a row; None if the node measures none.
    fn row(&self) -> Option<Value>;

    /// Fails if this thread is in a handler of the instance, which would wait for itself.
    fn refuse_own(&self, what: &str) -> Result<(), Error>;

    /// Fetches no more events and commands, and ends all streams of callers.
    fn leave(&self);

    /// Returns events of streams that were not handled, and commands that have not ended.
    fn give_back(&self);

    /// True once all fetched events and commands are handled or given back, and this is stored.
    fn has_given_back(&self) -> bool;

    /// True if no handler runs and no call is queued. A leaving service instance waits for this.
    fn is_idle(&self) -> bool;

    /// Ends all handlers, and lets none begin.
    fn close(&self);
}

/// A single active instance, as its node stops it.
pub(crate) trait Standby: Send + Sync {
    /// Ends the standby.
    fn leave(&self);

    /// Waits for the end. An active instance finishes its calls and releases its lease.
    fn end(self: Arc<Self>, timeout: Duration) -> Pending<()>;
}

/// Record of an instance that a node serves.
pub(crate) struct ServedRecord {
    pub instance: Arc<dyn StoppableInstance>,
    pub _subscriptions: [LinkSubscription; 2],
    /// Subscriptions of the event handlers. Received events are still handled.
    pub _events: Vec<Subscription>,
}

/// Makes a row of statistics; None once its subject has gone.
pub(crate) type RowSource = Box<dyn Fn() -> Option<Value> + Send>;

/// State of a node.
pub(crate) struct Core {
    pub name: String,
    pub link: Link,
    pub hub: Option<HubHandle>,
    /// Where streams, buckets and leases live, if not at the hub that it has joined.
    pub home: Option<Arc<dyn Home>>,
    /// True if the node opened the storage backend; the node then closes it.
    pub owns_home: bool,
    /// Stop signal of remote calls that wait in the storage backend.
    pub leaving: Arc<StopSignal>,
    pub runner: Arc<Runner>,
    pub local: Arc<LocalSubscriptions>,
    pub objects: Arc<Objects>,
    pub directory: Directory,
    /// Announcements that this node could not use.
    pub entry_reader: EntryReader,
    /// The statistics of each federation, while the program has it.
    pub federations: Mutex<Vec<RowSource>>,
    /// Woken when the link is back.
    pub rejoined: Wakers,
    pub listening: Mutex<Vec<Listening>>,
    pub served: Mutex<BTreeMap<u64, ServedRecord>>,
    /// Runs calls of exported objects. Empty if the link belongs to another part of the process.
    pub object_instance: OnceLock<Arc<dyn StoppableInstance>>,
    /// Single active instances, active or on standby.
    pub singles: Mutex<Vec<Weak<dyn Standby>>>,
    pub log: Log,
    /// Notified of joins and departures.
    pub changes: Log,
    /// Maximal number of retries of an idempotent call whose link was lost.
    pub resends: u32,
    pub is_stopping: AtomicBool,
    /// None: the engine and the link belong to another part of the process, which ends them.
    pub engine: Option<Engine>,
    /// It lives as long as the node does, as the sockets are on it.
    pub runtime: Runtime,
}

impl Core {
    /// A call for the balancer, at this time.
    pub fn profile<'a>(&self, method: &'a str, cost: f64, is_idempotent: bool) -> CallProfile<'a> {
        let now_us = self.runner.us_at(clock::now());
        CallProfile { method, cost, is_idempotent, now_us, dice: names::dice() }
    }

    pub fn new(
        options: NodeOptions,
        runtime: Runtime,
        link: Link,
        hub: Option<HubHandle>,
        home: Option<Arc<dyn Home>>,
        (runner, engine): (Arc<Runner>, Option<Engine>),
    ) -> Arc<Self> {
        Arc::new_cyclic(|core: &Weak<Self>| Self {
            owns_home: options.owns_home(),
            name: options.name,
            link,
            hub,
            home,
            leaving: Arc::default(),
            objects: Arc::new(Objects::new(Weak::clone(core), &runner)),
            runner,
            local: Arc::default(),
            directory: Directory::default(),
            entry_reader: EntryReader::default(),
            federations: Mutex::default(),
            rejoined: Wakers::default(),
            listening: Mutex::default(),
            served: Mutex::new(BTreeMap::new()),
            object_instance: OnceLock::new(),
            singles: Mutex::default(),
            log: options.log,
            changes: options.changes,
            resends: options.resends,
            is_stopping: AtomicBool::new(false),
            engine,
            runtime,
        })
    }

    /// Objects that handlers receive and return.
    pub fn handler_objects(&self) -> Weak<Objects> {
        self.object_instance.get().map_or_else(Weak::new, |_| Arc::downgrade(&self.objects))
    }

    /// Hosts of services that are served here.
    pub fn instances(&self) -> Vec<Arc<dyn StoppableInstance>> {
        self.served.lock().values().map(|record| Arc::clone(&record.instance)).collect()
    }

    /// Waits until the delay is over. A lost link that is back ends the wait.
    pub async fn pause(&self, delay: Delay) {
        let was_lost = self.link.joined().is_none();
        let mut entry = WakerEntry::default();
        poll_fn(|context| {
            self.rejoined.keep(&mut entry, context.waker());
            let is_back = was_lost && self.link.joined().is_some();
            if delay.is_over(context) || is_back { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Fails if the node is stopping.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_stopping.load(Ordering::Acquire) {
            let text = format!("{}: the node is stopping or has stopped: make a new one", self.name);
            return Err(Error::new(tidewire_proto::generated::errors::ErrorCode::NodeStopped, text));
        }
        Ok(())
    }
}
