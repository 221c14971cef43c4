//! State shared by all requests of a gateway.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use tidewire_link::{Access, HubHandle};
use tidewire_node::{Error, Node};
use tokio::sync::{Mutex as AsyncMutex, watch};

use crate::catalog::Catalog;
use crate::connection::Connection;
use crate::counts::Counting;
use crate::files::Files;
use crate::mcp::sessions::Sessions;
use crate::options::GatewayOptions;
use crate::repeats::Repeats;

/// State shared by all requests.
pub(crate) struct Shared {
    pub node: Node,
    pub hub: HubHandle,
    pub access: Access,
    pub catalog: Catalog,
    pub options: GatewayOptions,
    pub files: Files,
    pub console: Files,
    pub counting: Arc<Counting>,
    pub sessions: Sessions,
    pub repeats: Arc<Repeats>,
    /// The last metrics of nodes and streams, and when they were read.
    pub metrics: AsyncMutex<Option<(Instant, String)>>,
    /// True once the gateway stops.
    pub accepting: watch::Sender<bool>,
    pub ending: watch::Sender<bool>,
    /// Those that are open. The lock is held for one addition, removal or look at all of them.
    connections: Mutex<Vec<Weak<Connection>>>,
}

impl Shared {
    pub fn new(hub: &HubHandle, node: Node, access: Access, options: GatewayOptions) -> Result<Self, Error> {
        let read = |folder: &PathBuf| Files::read(folder, options.limits.files_bytes);
        let files = options.files.as_ref().map(read).transpose()?.unwrap_or_default();
        let console = options.console.as_ref().map(|(folder, _)| read(folder)).transpose()?.unwrap_or_default();
        Ok(Self {
            catalog: Catalog::new(node.clone()),
            node,
            hub: hub.clone(),
            access,
            options,
            files,
            console,
            counting: Arc::default(),
            sessions: Sessions::default(),
            repeats: Arc::default(),
            metrics: AsyncMutex::default(),
            accepting: watch::Sender::new(false),
            ending: watch::Sender::new(false),
            connections: Mutex::default(),
        })
    }

    /// True if any program on this computer may use the gateway without a token.
    pub fn is_open(&self) -> bool {
        self.access.is_open()
    }

    pub fn keep(&self, connection: &Arc<Connection>) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if connections.len() >= 2 * self.counting.connections.load(Ordering::Relaxed).max(16) {
            connections.retain(|one| one.strong_count() > 0);
        }
        connections.push(Arc::downgrade(connection));
    }

    /// Closes the connection that has been idle for the longest time. False: all are busy.
    pub fn close_idle(&self) -> bool {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let open = connections.iter().filter_map(Weak::upgrade).filter(|one| !one.is_closing());
        let idle = open.filter_map(|one| Some((one.idle_since()?, one)));
        idle.min_by_key(|(since, _)| *since).is_some_and(|(_, oldest)| oldest.close())
    }
}
