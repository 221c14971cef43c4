//! A cluster over NATS: a bridge joins the hub of a process from inside, and represents the nodes
//! of all other processes there.
//!
//! Each bridge has a number. A bridge sends the subscriptions of its node to all others, in frames
//! of the wire; there, a link of their hubs represents the node. Frames that a hub sends on such a
//! link travel here, in order, in messages to `tw.node.NUMBER`. `spec/nats.md` has the details.

mod bridge;
mod connection;
mod envelope;
mod peer;
mod presence;
mod session;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use tidewire_backend::home::{HomeError, HomeErrorKind};
use tidewire_link::{HubHandle, Runtime};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;
use tidewire_sync::Mutex;
use tokio::sync::watch;

use crate::settings::Settings;

/// Time that a closed bridge has to send its last messages.
const CLOSING: Duration = Duration::from_secs(2);

/// Options of a bridge, as it announces its node.
#[derive(Clone, Debug)]
pub struct BridgeOptions {
    /// The name of the node, unique in the cluster.
    pub name: String,
    /// Its number: that of the hub's [`HubOptions`](tidewire_link::HubOptions).
    pub number: u32,
    /// Exchanges that others may open there.
    pub in_flight: u64,
    /// The longest frame.
    pub frame_bytes: u64,
    /// The longest payload that it takes.
    pub payload_bytes: u64,
    /// The longest payload that it sends in one frame.
    pub chunk_bytes: u64,
    /// Interval of presence messages, and measure of the silence after which other nodes are gone.
    pub heartbeat_ms: u64,
}

impl BridgeOptions {
    /// The defaults.
    pub fn new(name: &str, number: u32) -> Self {
        Self {
            name: name.to_owned(),
            number,
            in_flight: limits::LINK_IN_FLIGHT.default,
            frame_bytes: limits::LINK_FRAME_BYTES.default,
            payload_bytes: limits::PAYLOAD_BYTES.default,
            chunk_bytes: limits::LINK_CHUNK_BYTES.default,
            heartbeat_ms: limits::LINK_HEARTBEAT_MS.default,
        }
    }

    /// A random number for a node, too large for the number of a link.
    pub fn draw_number() -> u32 {
        (rand_token() as u32) | 1 << 31
    }
}

/// Why there is no bridge.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display, derive_more::Error)]
#[display("{text}")]
pub struct BridgeError {
    code: ErrorCode,
    text: String,
}

impl BridgeError {
    pub(crate) fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// Which error it is.
    pub fn code(&self) -> ErrorCode {
        self.code
    }
}

impl From<HomeError> for BridgeError {
    fn from(error: HomeError) -> Self {
        let code = match error.kind() {
            HomeErrorKind::Invalid | HomeErrorKind::Unsupported => ErrorCode::InvalidArgument,
            HomeErrorKind::Denied => ErrorCode::Unauthorized,
            _ => ErrorCode::LinkLost,
        };
        Self::new(code, error.message())
    }
}

/// The other nodes of a cluster, at a hub of this process. Dropping it sends them a goodbye.
#[derive(derive_more::Debug)]
#[debug("Bridge {{ is_connected: {}, .. }}", self.is_connected())]
pub struct Bridge {
    closing: watch::Sender<bool>,
    closed: Mutex<Option<Receiver<()>>>,
    status: watch::Receiver<connection::Status>,
    known: Arc<AtomicU64>,
    _runtime: Runtime,
}

impl Bridge {
    /// Connects a hub to NATS, and blocks until the present nodes are known. The hub must be
    /// configured with the number first. `log` gets a line, and true for a fault.
    ///
    /// # Errors
    /// [`BridgeError`] with `link_lost` if no server can be reached, and with `unauthorized` if it
    /// refuses the login or a subject. `name_taken` if a node of this name exists, and
    /// `invalid_argument` if the server's limit for one message is too small.
    pub fn open(
        hub: &HubHandle,
        settings: Settings,
        options: BridgeOptions,
        log: impl Fn(&str, bool) + Send + Sync + 'static,
    ) -> Result<Self, BridgeError> {
        let runtime = hub.runtime().clone();
        let place = settings.shown();
        let (closing, is_closing) = watch::channel(false);
        let (closed_sender, closed) = sync_channel(1);
        let of = hub.clone();
        let opened = runtime.block_on(async move {
            let connected = connection::connect(&settings, &options).await?;
            let (status, known) = (connected.status.clone(), Arc::clone(&connected.known));
            let ready = bridge::begin(of, connected, options, Arc::new(log), is_closing, closed_sender).await?;
            ready.await.unwrap_or_else(|_| Err(BridgeError::new(ErrorCode::LinkLost, "the bridge has ended")))?;
            Ok((status, known))
        });
        match opened {
            Some(Ok((status, known))) => {
                Ok(Self { closing, closed: Mutex::new(Some(closed)), status, known, _runtime: runtime })
            }
            Some(Err(error)) => Err(error),
            None => Err(BridgeError::new(ErrorCode::LinkLost, format!("{place}: the thread of links has ended"))),
        }
    }

    /// True while there is a connection, and the other nodes are known. After a loss they have to
    /// be met again.
    pub fn is_connected(&self) -> bool {
        let status = self.status.borrow();
        status.is_up && status.losses == self.known.load(Ordering::Acquire)
    }

    /// Sends a goodbye to the other nodes, and blocks until it is written, for two seconds at most.
    /// Open calls fail.
    pub fn close(&self) {
        self.closing.send_replace(true);
        if let Some(closed) = self.closed.lock().take() {
            let _ = closed.recv_timeout(CLOSING);
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.closing.send_replace(true);
    }
}

/// A random token, unique in practice.
fn rand_token() -> u64 {
    let mut bytes = [0; 8];
    // A system without randomness has not fully started.
    if getrandom::fill(&mut bytes).is_err() {
        return u64::from(std::process::id()) << 32 | 1;
    }
    u64::from_le_bytes(bytes).max(1)
}
