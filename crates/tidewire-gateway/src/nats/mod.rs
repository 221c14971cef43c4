//! The NATS gateway of a hub: its public services for clients of NATS that are no nodes, as
//! services of the micro protocol that take and give JSON.
//!
//! Each instance that a node of this hub serves is one of NATS, too: it answers `$SRV.PING`,
//! `$SRV.INFO` and `$SRV.STATS`, and each public method is an endpoint, `svc.NAME.METHOD`.
//! `spec/nats.md` has all of it.

mod description;
mod instance;
mod request;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use async_nats::Client;
use tidewire_link::HubHandle;
use tidewire_nats::Settings;
use tidewire_node::{Node, NodeOptions, ServiceInfo};
use tidewire_proto::generated::limits;
use tidewire_sync::Mutex;
use tokio::runtime;
use tokio::sync::{Notify, watch};

use crate::catalog::public;
use instance::Instance;

/// Time that a closed gateway has to answer accepted requests.
const LAST: Duration = Duration::from_secs(1);
/// Requests at once.
const REQUESTS: usize = limits::NATS_REQUESTS.default as usize;

type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// The NATS gateway of a hub. It ends when it is closed or dropped.
pub struct NatsGateway {
    ending: watch::Sender<bool>,
    ended: Mutex<Option<Receiver<()>>>,
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
    ending: watch::Receiver<bool>,
    ended: SyncSender<()>,
}

/// Instances by the names of their services and their ids.
type Served = BTreeMap<(String, String), ServiceInfo>;

impl NatsGateway {
    /// Offers the public services of a hub, now and later, at the servers of these settings; its
    /// node at the hub has this name. The gateway opens a connection and a thread once a service is
    /// public. Returns at once: `log` gets a line for each error.
    pub fn open(
        hub: &HubHandle,
        settings: Settings,
        name: impl Into<String>,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let (changed, changes) = watch::channel(());
        let (ending, is_ending) = watch::channel(false);
        let (ended, has_ended) = sync_channel(1);
        hub.on_interests(move || {
            changed.send_replace(());
        });
        let (name, log) = (name.into(), Arc::new(log));
        let work = HubRequests { hub: hub.clone(), settings, name, log, changes, ending: is_ending, ended };
        hub.runtime().spawn(work.wait());
        Self { ending, ended: Mutex::new(Some(has_ended)) }
    }

    /// Takes no more requests. Those that it has taken are answered.
    pub fn goodbye(&self) {
        self.ending.send_replace(true);
    }

    /// Takes no more requests, and blocks until those that it has taken are answered, for a second
    /// at most.
    pub fn close(&self) {
        self.goodbye();
        if let Some(ended) = self.ended.lock().take() {
            let _ = ended.recv_timeout(2 * LAST);
        }
    }
}

impl Drop for NatsGateway {
    fn drop(&mut self) {
        self.goodbye();
    }
}

impl fmt::Debug for NatsGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsGateway").finish_non_exhaustive()
    }
}

impl HubRequests {
    /// Waits until something is public, and begins.
    async fn wait(mut self) {
        while self.served().is_empty() {
            tokio::select! {
                _ = self.ending.wait_for(|ends| *ends) => return,
                changed = self.changes.changed() => if changed.is_err() { return },
            }
        }
        let log = Arc::clone(&self.log);
        let thread = thread::Builder::new().name("tidewire-nats-gateway".to_owned());
        let begun = thread.spawn(move || {
            tidewire_sync::leave_signals();
            self.run();
        });
        if let Err(error) = begun {
            log(&format!("plain clients of NATS can't call: no thread can be started: {error}"));
        }
    }

    /// Public services of the nodes of this hub.
    fn served(&self) -> Served {
        let all = ServiceInfo::served_at(&self.hub).into_iter().filter_map(public);
        all.filter_map(|info| Some(((info.name.clone(), info.instances.first()?.clone()), info))).collect()
    }

    fn run(self) {
        let failed = |why: &dyn fmt::Display| (self.log)(&format!("plain clients of NATS can't call: {why}"));
        let runtime = match runtime::Builder::new_current_thread().enable_io().enable_time().build() {
            Ok(runtime) => runtime,
            Err(error) => return failed(&error),
        };
        let log = Arc::clone(&self.log);
        let options = NodeOptions::named(&*self.name).threads(1).log(move |line| log(line));
        let node = match Node::gateway(&self.hub, options) {
            Ok(node) => node,
            Err(error) => return failed(&error),
        };
        let place = self.settings.shown();
        let log = Arc::clone(&self.log);
        let said = move |what: &str, is_refused: bool| match is_refused {
            true => log(&format!("{what}: let this user subscribe to $SRV.> and svc.>, and publish to those who ask")),
            false => log(what),
        };
        let client = match runtime.block_on(self.settings.client(said)) {
            Ok(client) => client,
            Err(error) => return failed(&error),
        };
        let log = Arc::clone(&self.log);
        let (in_flight, idle) = (AtomicUsize::new(0), Notify::new());
        let shared = Arc::new(Shared { node, client, place, in_flight, idle, log });
        runtime.block_on(self.offer(&shared));
        runtime.block_on(async { drop(tokio::time::timeout(LAST, shared.rest()).await) });
        drop(runtime);
        let _ = self.ended.send(());
    }

    /// Offers the public instances, until the gateway ends.
    async fn offer(&self, shared: &Arc<Shared>) {
        let mut open: BTreeMap<(String, String), Instance> = BTreeMap::new();
        let (mut changes, mut ending) = (self.changes.clone(), self.ending.clone());
        loop {
            changes.mark_unchanged();
            let served = self.served();
            // An instance with a changed description is a new one.
            open.retain(|key, instance| served.get(key) == Some(instance.info()));
            for (key, info) in served {
                open.entry(key).or_insert_with(|| Instance::open(shared, info));
            }
            tokio::select! {
                _ = ending.wait_for(|ends| *ends) => break,
                changed = changes.changed() => if changed.is_err() { break },
            }
        }
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
