//! Listeners of a hub, and how a connection becomes a link.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tidewire_sync::of_this_process;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixSocket, UnixStream};
use tokio::sync::Notify;

use super::pending_joins::{PendingJoin, place_of};
use super::{HubHandle, Shared};
use crate::address::Address;
use crate::socket::{Layers, Socket};
use crate::tls::TlsError;

/// Why a connection that has not joined is closed when there are too many of them.
pub(super) const MAKES_ROOM: &str = "link_greetings: it had not joined, and others have come";
/// Connections that wait to be taken in.
const BACKLOG: u32 = 1_024;

/// One place where a hub listens. Dropping it closes the place; those who joined stay.
pub struct Listening {
    /// The address, with the real port.
    pub address: Address,
    gates: Gates,
    file: Option<PathBuf>,
}

/// Why a hub can't listen somewhere.
#[derive(Debug, derive_more::Error)]
pub struct ListenError {
    address: Address,
    error: io::Error,
}

impl HubHandle {
    /// Listens at an address; when this returns, nodes can join.
    ///
    /// # Errors
    /// [`ListenError`] if the place is taken or not allowed.
    pub fn listen(&self, address: &Address) -> Result<Listening, ListenError> {
        let listening = self.bind(address)?;
        listening.accept();
        Ok(listening)
    }

    /// Takes an address. Nodes that connect wait until [`Listening::accept`] is called.
    ///
    /// # Errors
    /// [`ListenError`] if the place is taken or not allowed.
    pub fn bind(&self, address: &Address) -> Result<Listening, ListenError> {
        let error = |error| ListenError { address: address.clone(), error };
        let (shared, bound, gates) = (Arc::downgrade(&self.shared), address.clone(), Gates::default());
        let task_gates = gates.clone();
        let frame_max = self.shared.hub.lock().frame_bytes();
        let listening = self.shared.runtime.block_on(async move {
            match &bound {
                Address::Unix(path) => {
                    let listener = bind_unix(path).await?;
                    tokio::spawn(accept_unix(listener, None, shared, task_gates));
                    Ok((bound.clone(), Some(path.clone())))
                }
                Address::Tcp { host, .. } if host.is_empty() => Err(io::Error::from(io::ErrorKind::InvalidInput)),
                Address::Tcp { host, port } | Address::Tls { host, port, .. } | Address::Ws { host, port, .. } => {
                    let layers = Layers::of(&bound, frame_max)?;
                    let listener = of_this_process(TcpListener::bind((host.as_str(), *port)).await?);
                    let port = listener.local_addr()?.port();
                    tokio::spawn(accept_tcp(listener, layers, shared, task_gates));
                    Ok((bound.with_port(port), None))
                }
            }
        });
        let listening = listening.unwrap_or_else(|| Err(io::Error::other("the thread of links has ended")));
        let (address, file) = listening.map_err(error)?;
        Ok(Listening { address, gates, file })
    }

    /// Listens at a Unix socket for processes of this user alone: any other is turned away, root
    /// included, whoever may open the file. The file is there once somebody listens; one that is
    /// there already is replaced.
    ///
    /// # Errors
    /// [`ListenError`] if the place is not allowed.
    pub fn listen_to_own_user(&self, path: &Path) -> Result<Listening, ListenError> {
        let address = Address::Unix(path.to_owned());
        let (shared, target, gates) = (Arc::downgrade(&self.shared), path.to_owned(), Gates::default());
        let task_gates = gates.clone();
        let listening = self.shared.runtime.block_on(async move {
            let unnamed = target.with_extension("new");
            let listener = bind_unix(&unnamed).await?;
            let user = std::fs::metadata(&unnamed)?.uid();
            std::fs::rename(&unnamed, target)?;
            tokio::spawn(accept_unix(listener, Some(user), shared, task_gates));
            Ok(())
        });
        if let Err(error) = listening.unwrap_or_else(|| Err(io::Error::other("the thread of links has ended"))) {
            return Err(ListenError { address, error });
        }
        let listening = Listening { address, gates, file: Some(path.to_owned()) };
        listening.accept();
        Ok(listening)
    }

    /// Takes in the node of a WebSocket that a server of HTTP has opened with
    /// [`websocket_answer`](crate::websocket_answer); `bytes` followed the request. At a
    /// hub without tokens, a console reads statistics and descriptions alone.
    #[cfg(feature = "websocket")]
    pub fn join_websocket(&self, stream: std::net::TcpStream, bytes: Vec<u8>, is_console: bool) {
        let shared = Arc::clone(&self.shared);
        self.shared.runtime.spawn(async move {
            let Ok(stream) = TcpStream::from_std(stream) else { return };
            let mut greeting = shared.greetings.begin(place_of(stream.peer_addr().ok().map(|peer| peer.ip())));
            greeting.is_console = is_console;
            let frame_max = shared.hello_bytes;
            shared.accept(Socket::websocket(stream, bytes, frame_max), greeting);
        });
    }
}

impl Listening {
    /// Lets nodes join here from now on.
    pub fn accept(&self) {
        self.gates.begin.notify_one();
    }
}

/// Signals to the task of one listener.
#[derive(Clone, Default)]
struct Gates {
    begin: Arc<Notify>,
    end: Arc<Notify>,
}

impl Gates {
    /// Waits until connections may be accepted; false if the listener ends before.
    async fn opened(&self) -> bool {
        tokio::select! {
            () = self.begin.notified() => true,
            () = self.end.notified() => false,
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // In this order: once nobody listens, the file may be that of another hub.
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
        }
        self.gates.end.notify_one();
    }
}

impl ListenError {
    fn fix(&self) -> &'static str {
        match (self.error.kind(), &self.address) {
            (io::ErrorKind::AddrInUse, Address::Unix(_)) => {
                ": end the program that listens there, or choose another path"
            }
            (io::ErrorKind::AddrInUse, _) => {
                ": end the program that listens there, or choose another port; with port 0 the system chooses"
            }
            (io::ErrorKind::AddrNotAvailable, _) => ": give a name or an address of this machine",
            (io::ErrorKind::NotFound, Address::Unix(_)) => ": make its folder first, or choose another path",
            (io::ErrorKind::PermissionDenied, _) => ": choose a place that this user may use",
            _ => "",
        }
    }

    /// True if the certificates can't be used.
    pub fn is_tls(&self) -> bool {
        self.error.get_ref().is_some_and(|inner| inner.is::<TlsError>())
    }
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_tls() {
            return write!(f, "{}", self.error);
        }
        write!(f, "url: can't listen at {}: {}{}", self.address, self.error, self.fix())
    }
}

/// Takes connections in until the hub ends.
async fn accept_all<T>(
    shared: Weak<Shared>,
    gates: Gates,
    mut accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
    take: impl Fn(&Arc<Shared>, T),
) {
    if !gates.opened().await {
        return;
    }
    loop {
        let accepted = tokio::select! {
            () = gates.end.notified() => return,
            accepted = poll_fn(&mut accept) => accepted,
        };
        let Some(shared) = shared.upgrade() else { return };
        match accepted {
            Ok(stream) => take(&shared, stream),
            Err(error) => pause(&shared, &error).await,
        }
    }
}

async fn accept_tcp(listener: TcpListener, layers: Option<Layers>, shared: Weak<Shared>, gates: Gates) {
    let take = |shared: &Arc<Shared>, (stream, _): (TcpStream, _)| match &layers {
        None => {
            let socket = Socket::tcp(stream);
            let greeting = shared.greetings.begin(place_of(socket.address()));
            shared.accept(socket, greeting);
        }
        Some(layers) => {
            let greeting = shared.greetings.begin(place_of(stream.peer_addr().ok().map(|peer| peer.ip())));
            let weak = Arc::downgrade(shared);
            tokio::spawn(accept_layered(layers.clone(), stream, weak, shared.greeting_time, greeting));
        }
    };
    accept_all(shared, gates, |context| listener.poll_accept(context), take).await;
}

/// Takes a node in once TLS and WebSocket have said what they say first; others are taken in
/// meanwhile.
async fn accept_layered(
    layers: Layers,
    stream: TcpStream,
    shared: Weak<Shared>,
    time: Duration,
    greeting: PendingJoin,
) {
    let accepted = tokio::select! {
        accepted = layers.accept(stream, time) => accepted,
        () = greeting.end.notified() => Err(io::Error::other(MAKES_ROOM)),
    };
    let Some(shared) = shared.upgrade() else { return };
    match accepted {
        Ok(socket) => shared.accept(socket, greeting),
        Err(error) => shared.say(&format!("a connection was turned away: {error}")),
    }
}

/// Takes nodes in, of `user` alone if there is one.
async fn accept_unix(listener: UnixListener, user: Option<u32>, shared: Weak<Shared>, gates: Gates) {
    let take = |shared: &Arc<Shared>, (stream, _): (UnixStream, _)| {
        if user.is_none_or(|user| stream.peer_cred().is_ok_and(|peer| peer.uid() == user)) {
            let greeting = shared.greetings.begin(place_of(None));
            shared.accept(Socket::unix(stream), greeting);
        }
    };
    accept_all(shared, gates, |context| listener.poll_accept(context), take).await;
}

/// Accepting failed, for example because no descriptors are left: it would fail again at once.
async fn pause(shared: &Shared, error: &io::Error) {
    shared.say(&format!("a node could not be taken in: {error}"));
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Binds a Unix socket that only this user can open. A file that a process left behind is replaced;
/// one that is in use is not.
async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt as _;

    let socket = UnixSocket::new_stream()?;
    match socket.bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if !is_left_behind(path).await {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            socket.bind(path)?;
        }
        other => other?,
    }
    // Nobody can connect before it listens, and then only this user can.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG).map(of_this_process)
}

/// True if a file is a socket on which no process listens. A connection to any other file would
/// be refused as well.
async fn is_left_behind(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;

    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    is_socket && UnixStream::connect(path).await.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
