//! The NATS gateway of a hub: its public services for clients of NATS that are no nodes, as
//! services of the micro protocol that take and give JSON.
//!
//! Each instance that a node of this hub serves is one of NATS, too: it answers `$SRV.PING`,
//! `$SRV.INFO` and `$SRV.STATS`, and each public method is an endpoint, `svc.NAME.METHOD`.
//! `spec/nats.md` has all of it.

mod description;
mod instance;
mod request;
mod subjects;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use async_nats::Client;
use tidewire_link::HubHandle;
use tidewire_nats::{BridgeOptions, Settings};
use tidewire_node::{Node, NodeOptions, ServiceInfo};
use tidewire_proto::generated::limits;
use tidewire_sync::Mutex;
use tokio::runtime;
use tokio::sync::{Notify, watch};

use crate::catalog::public;
use instance::Instance;
use subjects::SharedSubjects;

/// Time that a closed gateway has to answer accepted requests.
const LAST: Duration = Duration::from_secs(1);
/// Requests at once.
const REQUESTS: usize = limits::NATS_REQUESTS.default as usize;

type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// The NATS gateway of a hub. It ends when it is closed or dropped.
#[derive(derive_more::Debug)]
#[debug("NatsGateway {{ .. }}")]
pub struct NatsGateway {
    stage: watch::Sender<Stage>,
    ended: Mutex<Option<Receiver<()>>>,
}

/// How far the end of a gateway is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    /// It takes no requests. Messages on shared subjects still pass.
    Leaving,
    Closed,
}

/// State shared by all instances.
struct Shared {
    node: Node,
    client: Client,
    place: String,
    in_flight: AtomicUsize,
    /// Told when the last request has ended.
    idle: Notify,
    log: Log,
}

/// Task that keeps the offered instances of a hub up to date.
struct HubRequests {
    hub: HubHandle,
    settings: Settings,
    name: String,
    log: Log,
    changes: watch::Receiver<()>,
    stage: watch::Receiver<Stage>,
    shares: SyncSender<()>,
    ended: SyncSender<()>,
}

/// Instances by the names of their services and their ids.
type Served = BTreeMap<(String, String), ServiceInfo>;

impl NatsGateway {
    /// Offers the public services of a hub, now and later, at the servers of these settings; its
    /// node at the hub has this name. The gateway opens a connection and a thread once a service is
    /// public. Blocks until shared subjects are subscribed to, for a second at most. `log` gets a
    /// line for each error.
    pub fn open(
        hub: &HubHandle,
        settings: Settings,
        name: impl Into<String>,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let (changed, changes) = watch::channel(());
        let (stage, of_work) = watch::channel(Stage::Open);
        let (shares, shared) = sync_channel(1);
        let waits = !settings.subjects().is_empty();
        let (ended, has_ended) = sync_channel(1);
        hub.on_interests(move || {
            changed.send_replace(());
        });
        let (name, log) = (name.into(), Arc::new(log));
        let work = HubRequests { hub: hub.clone(), settings, name, log, changes, stage: of_work, shares, ended };
        hub.runtime().spawn(work.wait());
        if waits {
            let _ = shared.recv_timeout(LAST);
        }
        Self { stage, ended: Mutex::new(Some(has_ended)) }
    }

    /// Takes no more requests. Those that it has taken are answered.
    pub fn goodbye(&self) {
        self.stage.send_if_modified(|stage| std::mem::replace(stage, Stage::Leaving.max(*stage)) == Stage::Open);
    }

    /// Takes no more requests, and blocks until those that it has taken are answered, for a second
    /// at most.
    pub fn close(&self) {
        self.stage.send_replace(Stage::Closed);
        if let Some(ended) = self.ended.lock().take() {
            let _ = ended.recv_timeout(2 * LAST);
        }
    }
}

impl Drop for NatsGateway {
    fn drop(&mut self) {
        self.stage.send_replace(Stage::Closed);
    }
}

impl HubRequests {
    /// Waits until something is public or shared, and begins.
    async fn wait(self) {
        if self.settings.subjects().is_empty() && !self.public().await {
            return;
        }
        let log = Arc::clone(&self.log);
        let thread = thread::Builder::new().name("tidewire-nats-gateway".to_owned());
        let spawned = thread.spawn(move || {
            tidewire_sync::leave_signals();
            self.run();
        });
        if let Err(error) = spawned {
            log(&format!("plain clients of NATS can't call: no thread can be started: {error}"));
        }
    }

    /// Waits until something is public. False: the gateway has ended.
    async fn public(&self) -> bool {
        let (mut changes, mut stage) = (self.changes.clone(), self.stage.clone());
        while self.served().is_empty() {
            tokio::select! {
                _ = stage.wait_for(|stage| *stage != Stage::Open) => return false,
                changed = changes.changed() => if changed.is_err() { return false },
            }
        }
        true
    }

    /// Public services of the nodes of this hub.
    fn served(&self) -> Served {
        let all =
            ServiceInfo::served_at(&self.hub).into_iter().filter_map(public).filter(|info| !info.methods.is_empty());
        all.filter_map(|info| Some(((info.name.clone(), info.instances.first()?.clone()), info))).collect()
    }

    fn run(self) {
        let log = Arc::clone(&self.log);
        let failed = |why: &dyn fmt::Display| log(&format!("plain clients of NATS are not served: {why}"));
        let runtime = match runtime::Builder::new_current_thread().enable_io().enable_time().build() {
            Ok(runtime) => runtime,
            Err(error) => return failed(&error),
        };
        let log = Arc::clone(&self.log);
        let report = move |what: &str, is_refused: bool| match is_refused {
            true => log(&format!("{what}: let this user subscribe to $SRV.>, svc.> and its subjects, and publish")),
            false => log(what),
        };
        let client = match runtime.block_on(self.settings.client(report)) {
            Ok(client) => client,
            Err(error) => return failed(&error),
        };
        let options = |name: &str| {
            let log = Arc::clone(&self.log);
            NodeOptions::named(name).threads(1).log(move |line| log(line))
        };
        let shares = !self.settings.subjects().is_empty();
        let name = format!("{}-subjects", self.name);
        let sharing = match shares.then(|| Node::bridge(&self.hub, BridgeOptions::draw_number(), options(&name))) {
            Some(Ok(node)) => Some(runtime.spawn(self.share(node, client.clone()))),
            Some(Err(error)) => return failed(&error),
            None => None,
        };
        if runtime.block_on(self.public()) {
            match Node::gateway(&self.hub, options(&self.name)) {
                Ok(node) => runtime.block_on(self.offer(node, client)),
                Err(error) => failed(&error),
            }
        }
        if let Some(sharing) = sharing {
            drop(runtime.block_on(sharing));
        }
        drop(runtime);
        let _ = self.ended.send(());
    }

    /// Passes messages on shared subjects, until the gateway is closed.
    fn share(&self, node: Node, client: Client) -> impl Future<Output = ()> + Send + use<> {
        let (hub, settings, log) = (self.hub.clone(), self.settings.clone(), Arc::clone(&self.log));
        let shared = Arc::new(SharedSubjects { node, client, hub, settings, log });
        shared.run(self.changes.clone(), self.stage.clone(), self.shares.clone())
    }

    /// Offers the public instances, until the gateway ends.
    async fn offer(&self, node: Node, client: Client) {
        let (in_flight, idle) = (AtomicUsize::new(0), Notify::new());
        let (place, log) = (self.settings.shown(), Arc::clone(&self.log));
        let shared = &Arc::new(Shared { node, client, place, in_flight, idle, log });
        let mut open: BTreeMap<(String, String), Instance> = BTreeMap::new();
        let (mut changes, mut stage) = (self.changes.clone(), self.stage.clone());
        loop {
            changes.mark_unchanged();
            let served = self.served();
            // An instance with a changed description is a new one.
            open.retain(|key, instance| served.get(key) == Some(instance.info()));
            for (key, info) in served {
                open.entry(key).or_insert_with(|| Instance::open(shared, info));
            }
            tokio::select! {
                _ = stage.wait_for(|stage| *stage != Stage::Open) => break,
                changed = changes.changed() => if changed.is_err() { break },
            }
        }
        drop(open);
        drop(tokio::time::timeout(LAST, shared.rest()).await);
    }
}

impl Shared {
    /// Waits until all requests are answered, and that is written.
    async fn rest(&self) {
        // Ended instances still read their received requests.
        drop(self.client.flush().await);
        tokio::task::yield_now().await;
        loop {
            let idle = self.idle.notified();
            if self.in_flight.load(Ordering::Relaxed) == 0 {
                break;
            }
            idle.await;
        }
        drop(self.client.flush().await);
    }
}
