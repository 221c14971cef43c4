use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tidewire_core::link::gathering::Batch;
use tidewire_core::link::hub::{Hub, HubCounts, HubOptions, LinkId};
use tidewire_core::link::outbox::{Burst, Taker};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{self, Flags, Kind};
use tidewire_sync::{Mutex, RwLock};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixSocket, UnixStream};
use tokio::sync::{Notify, oneshot};

use crate::address::Address;
use crate::clock::{instant, now_us};
use crate::reading::{Filled, Reading};
use crate::runtime::Runtime;
use crate::socket::{Layers, Socket};
use crate::tls::TlsError;
use crate::writing::Writing;

/// Connections that wait to be taken in.
const BACKLOG: u32 = 1_024;
/// What is as good as for ever, for a clock.
const FOR_EVER: Duration = Duration::from_secs(86_400 * 365);

/// Where the frames of a link go inside of this process.
pub(crate) trait Feed: Send + Sync {
    /// Takes whole frames.
    fn feed(&self, frames: &[u8]);
    /// Whether it takes none at present.
    fn is_paused(&self) -> bool;
    /// Does what time asks for.
    fn tick(&self);
    /// When time asks for something next.
    fn due_us(&self) -> u64;
    /// The hub closes the link; the node may join it again if the hub itself goes on.
    fn ended(&self, reason: &str, may_return: bool);
}

enum Peer {
    Remote { socket: Socket, writing: Writing, end: Notify },
    Local { feed: Weak<dyn Feed>, writing: Writing },
}

/// A hub, its listeners, and those who joined. It ends when the last clone is dropped.
#[derive(Clone)]
pub struct HubHandle {
    shared: Arc<Shared>,
    _end: Arc<Ending>,
}

/// Ends the links: what serves them keeps the hub.
struct Ending(Weak<Shared>);

pub(crate) struct Shared {
    hub: Mutex<Hub>,
    peers: RwLock<Vec<Option<Arc<Peer>>>>,
    batch: Batch,
    greetings: (usize, Duration),
    look: Notify,
    /// Tells those who wait for the last call to end, and how many they are.
    idle: (Notify, AtomicUsize),
    /// Who is told when a node has come or gone, and of how many it was told last.
    on_nodes: OnceLock<Box<dyn Fn() + Send + Sync>>,
    nodes: AtomicU64,
    sleeps_until_us: AtomicU64,
    runtime: Runtime,
    log: Box<dyn Fn(&str) + Send + Sync>,
}

/// One place where a hub listens. Dropping it closes the place; those who joined stay.
pub struct Listening {
    /// The address, with the real port.
    pub address: Address,
    end: Arc<Notify>,
    file: Option<PathBuf>,
}

/// Why a hub can't listen somewhere.
#[derive(Debug)]
pub struct ListenError {
    address: Address,
    error: io::Error,
}

impl HubHandle {
    /// A hub on a thread of links. `log` is given one line for each link that ends for a reason.
    pub fn new(runtime: &Runtime, options: HubOptions, log: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let (batch, wait) = (options.batch, Duration::from_millis(options.greeting_ms));
        let greetings = (options.greetings, wait);
        let hub = Hub::new(options, u64::from_str_radix(&secret()[..16], 16).unwrap_or(1));
        let shared = Arc::new(Shared {
            hub: Mutex::new(hub),
            peers: RwLock::default(),
            batch,
            greetings,
            look: Notify::new(),
            idle: (Notify::new(), AtomicUsize::new(0)),
            on_nodes: OnceLock::new(),
            nodes: AtomicU64::new(0),
            sleeps_until_us: AtomicU64::new(u64::MAX),
            runtime: runtime.clone(),
            log: Box::new(log),
        });
        runtime.spawn(watch_time(Arc::downgrade(&shared)));
        let end = Arc::new(Ending(Arc::downgrade(&shared)));
        Self { shared, _end: end }
    }

    /// Listens at an address; when this returns, nodes can join.
    ///
    /// # Errors
    /// [`ListenError`] if the place is taken or not allowed.
    pub fn listen(&self, address: &Address) -> Result<Listening, ListenError> {
        let error = |error| ListenError { address: address.clone(), error };
        let end = Arc::new(Notify::new());
        let (shared, ends, wanted) = (Arc::downgrade(&self.shared), Arc::clone(&end), address.clone());
        let (frame_max, greetings) = (self.shared.hub.lock().frame_bytes(), self.shared.greetings);
        let listening = self.shared.runtime.block_on(async move {
            match &wanted {
                Address::Unix(path) => {
                    let listener = bind_unix(path).await?;
                    tokio::spawn(accept_unix(listener, shared, ends));
                    Ok((wanted.clone(), Some(path.clone())))
                }
                Address::Tcp { host, .. } if host.is_empty() => Err(io::Error::from(io::ErrorKind::InvalidInput)),
                Address::Tcp { host, port } | Address::Tls { host, port, .. } | Address::Ws { host, port, .. } => {
                    let layers = Layers::of(&wanted, frame_max, greetings)?;
                    let listener = TcpListener::bind((host.as_str(), *port)).await?;
                    let port = listener.local_addr()?.port();
                    tokio::spawn(accept_tcp(listener, layers, shared, ends));
                    Ok((wanted.with_port(port), None))
                }
            }
        });
        let listening = listening.unwrap_or_else(|| Err(io::Error::other("the thread of links has ended")));
        let (address, file) = listening.map_err(error)?;
        Ok(Listening { address, end, file })
    }

    /// What the hub has counted.
    pub fn counts(&self) -> HubCounts {
        self.shared.hub.lock().counts()
    }

    /// Calls that are passed on and not answered yet, but for streams, which may have no end.
    pub fn open_calls(&self) -> usize {
        self.shared.hub.lock().ending_calls()
    }

    /// Calls this whenever `nodes` of [`counts`](Self::counts) has changed, on any thread: it must be quick, and must not wait. Answers
    /// whether it will: a hub has one such call, the first.
    pub fn on_nodes(&self, call: impl Fn() + Send + Sync + 'static) -> bool {
        self.shared.on_nodes.set(Box::new(call)).is_ok()
    }

    /// Waits until no call is passed on any more, or the time is up; true if none is. Polled by whichever thread, it is done on that
    /// of the links. Dropping it gives up waiting.
    pub fn idle(&self, most: Option<Duration>) -> impl Future<Output = bool> + Send + use<> {
        let (shared, (mut send, receive)) = (Arc::clone(&self.shared), oneshot::channel());
        self.shared.runtime.spawn(async move {
            let within = tokio::time::timeout(most.unwrap_or(FOR_EVER), shared.is_idle());
            tokio::select! {
                idle = within => drop(send.send(idle.is_ok())),
                () = send.closed() => {}
            }
        });
        async { receive.await.unwrap_or(false) }
    }

    /// Tells all nodes that no new calls are taken.
    pub fn goodbye(&self) {
        self.shared.hub.lock().goodbye();
        self.shared.settle();
    }

    /// Ends all links. What is under way fails.
    pub fn close(&self) {
        self.shared.close();
    }

    /// The thread that its sockets are on.
    pub fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    pub(crate) fn attach(&self, feed: Weak<dyn Feed>) -> Option<LocalEnd> {
        self.shared.attach(feed)
    }

    /// Where nodes of this process join it, without keeping it.
    pub(crate) fn place(&self) -> Place {
        Place { hub: Arc::downgrade(&self.shared), runtime: self.shared.runtime.clone() }
    }
}

/// Where nodes of this process join a hub, for as long as there is one.
pub(crate) struct Place {
    hub: Weak<Shared>,
    runtime: Runtime,
}

impl Place {
    pub fn attach(&self, feed: Weak<dyn Feed>) -> Option<LocalEnd> {
        self.hub.upgrade()?.attach(feed)
    }

    /// Does something on the thread of the links.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }
}

/// The hub's end of a link inside of one process.
pub(crate) struct LocalEnd {
    shared: Arc<Shared>,
    at: LinkId,
}

impl LocalEnd {
    /// Gives whole frames to the hub.
    pub fn write(&self, frames: &[u8]) -> usize {
        self.shared.take_frames(self.at, frames);
        self.shared.settle();
        frames.len()
    }

    /// The node takes frames in again.
    pub fn resume(&self) {
        self.shared.resume(self.at);
        self.shared.settle();
    }
}

impl Drop for LocalEnd {
    fn drop(&mut self) {
        self.shared.gone(self.at);
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

    fn attach(self: &Arc<Self>, feed: Weak<dyn Feed>) -> Option<LocalEnd> {
        let at = self.hub.lock().connected_here(secret(), now_us())?;
        self.keep(at, Arc::new(Peer::Local { feed, writing: Writing::new() }));
        Some(LocalEnd { shared: Arc::clone(self), at })
    }

    fn keep(&self, at: LinkId, peer: Arc<Peer>) {
        let mut peers = self.peers.write();
        if peers.len() <= at {
            peers.resize_with(at + 1, || None);
        }
        peers[at] = Some(peer);
        drop(peers);
        self.look.notify_one();
    }

    fn gone(&self, at: LinkId) {
        // In this order: the number is free for another link only once nobody finds the old one under it.
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

    /// Writes what is new, and closes what is to be closed.
    fn settle(&self) {
        loop {
            let (touched, closing, retimed, nodes) = {
                let mut hub = self.hub.lock();
                if self.idle.1.load(Ordering::Relaxed) > 0 && hub.ending_calls() == 0 {
                    self.idle.0.notify_waiters();
                }
                let touched = hub.touched();
                // Looked up now: their numbers may soon be those of others.
                let closing = hub.closing().into_iter().map(|(at, reason)| (self.leaving(&hub, at), reason));
                (touched, closing.collect::<Vec<_>>(), hub.retimed(), hub.counts().nodes)
            };
            if self.nodes.swap(nodes, Ordering::Relaxed) != nodes
                && let Some(on_nodes) = self.on_nodes.get()
            {
                on_nodes();
            }
            if retimed {
                self.look.notify_one();
            }
            if touched.is_empty() && closing.is_empty() {
                return;
            }
            for at in touched {
                self.flush(at);
            }
            for (leaving, reason) in closing {
                self.end(leaving, &reason);
            }
        }
    }

    /// Ends when no call is passed on any more.
    async fn is_idle(&self) {
        let _counted = Counted::one_more(&self.idle.1);
        loop {
            let changed = self.idle.0.notified();
            tokio::pin!(changed);
            // From here on it hears what happens, also before it waits.
            changed.as_mut().enable();
            if self.hub.lock().ending_calls() == 0 {
                return;
            }
            changed.await;
        }
    }

    /// The nodes of this process have no thread that watches their time.
    fn tick_locals(&self) -> u64 {
        let local = |peer: &Arc<Peer>| if let Peer::Local { feed, .. } = &**peer { feed.upgrade() } else { None };
        let feeds: Vec<_> = self.peers.read().iter().flatten().filter_map(local).collect();
        feeds.iter().for_each(|feed| feed.tick());
        feeds.iter().map(|feed| feed.due_us()).min().unwrap_or(u64::MAX)
    }

    fn is_peer(&self, at: LinkId, peer: &Arc<Peer>) -> bool {
        self.peers.read().get(at).and_then(Option::as_ref).is_some_and(|other| Arc::ptr_eq(other, peer))
    }

    fn peer(&self, at: LinkId) -> Option<Arc<Peer>> {
        self.peers.read().get(at).and_then(Option::clone)
    }

    fn flush(&self, at: LinkId) {
        if let Some(peer) = self.peer(at) {
            self.flush_to(at, &peer);
        }
    }

    fn flush_to(&self, at: LinkId, peer: &Arc<Peer>) {
        let take = |burst: &mut Burst| self.take(at, peer, burst.bytes());
        match &**peer {
            Peer::Remote { socket, writing, end } => {
                if self.holds(at) {
                    return;
                }
                if writing.flush(take, |burst| socket.try_write(burst.frames())).is_err() {
                    end.notify_one();
                }
            }
            Peer::Local { feed, writing } => {
                let Some(feed) = feed.upgrade() else { return };
                let fed = writing.flush(take, |burst| fed(&*feed, burst.frames()));
                debug_assert!(fed.is_ok(), "feeding does not fail");
                if feed.due_us() < self.sleeps_until_us.load(Ordering::Acquire) {
                    self.look.notify_one();
                }
            }
        }
    }

    /// A node of this process takes frames in again.
    fn resume(&self, at: LinkId) {
        let Some(peer) = self.peer(at) else { return };
        let Peer::Local { feed, writing } = &*peer else { return };
        let Some(feed) = feed.upgrade() else { return };
        let take = |burst: &mut Burst| self.take(at, &peer, burst.bytes());
        let resumed = writing.resume(take, |burst| fed(&*feed, burst.frames()));
        debug_assert!(resumed.is_ok(), "feeding does not fail");
    }

    /// Whether what waits for a link is to wait for more. The thread that watches the time writes it.
    fn holds(&self, at: LinkId) -> bool {
        if self.batch.linger_us == 0 {
            return false;
        }
        let held = self.hub.lock().holds(at, now_us());
        if held {
            self.look.notify_one();
        }
        held
    }

    fn take(&self, at: LinkId, peer: &Arc<Peer>, bytes: &mut Vec<u8>) -> bool {
        let mut hub = self.hub.lock();
        // The number may be that of another link by now. It can't become so while the hub is locked.
        if !self.is_peer(at, peer) {
            return false;
        }
        let taken = hub.outbox(at).is_some_and(|out| out.take(bytes, self.batch.write_bytes()));
        if taken {
            hub.sent(at, now_us());
        }
        taken
    }

    /// A link that is to be closed, and the name of its node.
    fn leaving(&self, hub: &Hub, at: LinkId) -> (Option<Arc<Peer>>, String) {
        (self.peer(at), hub.name_of(at).to_owned())
    }

    fn end(&self, (peer, name): (Option<Arc<Peer>>, String), reason: &str) {
        let who =
            if name.is_empty() { "a link that has not joined".to_owned() } else { format!("the link of {name:?}") };
        (self.log)(&format!("{who} is closed: {reason}"));
        match peer.as_deref() {
            Some(Peer::Remote { end, .. }) => end.notify_one(),
            Some(Peer::Local { feed, .. }) => {
                if let Some(feed) = feed.upgrade() {
                    feed.ended(reason, true);
                }
            }
            None => {}
        }
    }

    fn accept(self: &Arc<Self>, socket: Socket) {
        let Some(at) = self.hub.lock().connected(secret(), now_us()) else {
            (self.log)("hub_links: a node was turned away, as many as possible are joined");
            turn_away(&socket);
            return;
        };
        let peer = Arc::new(Peer::Remote { socket, writing: Writing::new(), end: Notify::new() });
        self.keep(at, Arc::clone(&peer));
        tokio::spawn(serve(Arc::clone(self), at, peer));
    }
}

/// Says that as many nodes as possible are joined, as far as that is possible at once.
fn turn_away(socket: &Socket) {
    let text = "hub_links: as many nodes as possible have joined this hub: raise the limit there, or join later";
    let number = ErrorCode::LimitExceeded.number().to_le_bytes();
    let head = |head: &mut Vec<u8>| {
        head.extend_from_slice(&number);
        Ok(())
    };
    let mut frame = Vec::new();
    if wire::write(&mut frame, Kind::Error, Flags::URGENT, 0, head, text.as_bytes()).is_ok() {
        // Whoever does not hear it finds the connection closed.
        let _ = socket.try_write(&frame);
    }
}

/// One of those who are counted, for as long as it lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn one_more(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn fed(feed: &dyn Feed, frames: &[u8]) -> io::Result<usize> {
    if feed.is_paused() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    feed.feed(frames);
    Ok(frames.len())
}

async fn serve(shared: Arc<Shared>, at: LinkId, peer: Arc<Peer>) {
    let Peer::Remote { socket, writing, end } = &*peer else { return };
    let mut reading = Reading::new(shared.hub.lock().frame_bytes());
    let mut full = false;
    loop {
        tokio::select! {
            biased;
            () = end.notified() => break,
            () = writing.full.notified(), if !full => full = true,
            ready = socket.writable(), if full => {
                full = false;
                let take = |burst: &mut Burst| shared.take(at, &peer, burst.bytes());
                if ready.is_err() || writing.resume(take, |burst| socket.try_write(burst.frames())).is_err() {
                    break;
                }
            }
            ready = socket.readable() => {
                if ready.is_err() {
                    break;
                }
                match reading.fill(|room| socket.try_read(room)) {
                    Ok(Filled::All) => {
                        socket.drained();
                        shared.read(at, &mut reading);
                    }
                    Ok(Filled::Some) => shared.read(at, &mut reading),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        let leaving = shared.leaving(&shared.hub.lock(), at);
                        shared.end(leaving, &error.to_string());
                        break;
                    }
                    Ok(Filled::Closed) | Err(_) => break,
                }
            }
        }
    }
    shared.gone(at);
}

impl Shared {
    fn read(&self, at: LinkId, reading: &mut Reading) {
        let now = now_us();
        {
            let mut hub = self.hub.lock();
            if let Err(error) = reading.frames(|frame| hub.received(at, frame, now)) {
                hub.garbled(at, &error);
            }
        }
        self.settle();
    }
}

async fn watch_time(shared: Weak<Shared>) {
    loop {
        let Some(strong) = shared.upgrade() else { return };
        // Until it sleeps, whatever is due sooner has it look once more.
        strong.sleeps_until_us.store(u64::MAX, Ordering::Release);
        strong.hub.lock().tick(now_us());
        let local = strong.tick_locals();
        strong.settle();
        let next = strong.hub.lock().next_us().min(local);
        strong.sleeps_until_us.store(next, Ordering::Release);
        let look = strong.look.notified();
        tokio::pin!(look);
        // The hub itself must be able to end while this sleeps: a day is long enough to look again.
        let until = instant(next.min(now_us() + 86_400_000_000));
        tokio::select! {
            () = &mut look => {}
            () = tokio::time::sleep_until(until.into()) => {}
        }
    }
}

async fn accept_tcp(listener: TcpListener, layers: Option<Layers>, shared: Weak<Shared>, end: Arc<Notify>) {
    loop {
        let accepted = tokio::select! {
            () = end.notified() => return,
            accepted = listener.accept() => accepted,
        };
        let Some(shared) = shared.upgrade() else { return };
        match accepted {
            Ok((stream, _)) => match &layers {
                None => shared.accept(Socket::tcp(stream)),
                Some(layers) => {
                    tokio::spawn(accept_layered(layers.clone(), stream, Arc::downgrade(&shared)));
                }
            },
            Err(error) => pause(&shared, &error).await,
        }
    }
}

/// Takes a node in once TLS and WebSocket have said what they say first; others are taken in meanwhile.
async fn accept_layered(layers: Layers, stream: TcpStream, shared: Weak<Shared>) {
    let accepted = layers.accept(stream).await;
    let Some(shared) = shared.upgrade() else { return };
    match accepted {
        Ok(socket) => shared.accept(socket),
        Err(error) => (shared.log)(&format!("a connection was turned away: {error}")),
    }
}

async fn accept_unix(listener: UnixListener, shared: Weak<Shared>, end: Arc<Notify>) {
    loop {
        let accepted = tokio::select! {
            () = end.notified() => return,
            accepted = listener.accept() => accepted,
        };
        let Some(shared) = shared.upgrade() else { return };
        match accepted {
            Ok((stream, _)) => shared.accept(Socket::Unix(stream)),
            Err(error) => pause(&shared, &error).await,
        }
    }
}

/// Accepting failed, for example because no descriptors are left: it would fail again at once.
async fn pause(shared: &Shared, error: &io::Error) {
    (shared.log)(&format!("a node could not be taken in: {error}"));
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Binds a Unix socket that only this user can open. A file that a process left behind is replaced; one that is in use is not.
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
    socket.listen(BACKLOG)
}

/// Whether a file is a socket that no process listens at. A connection to any other file would be refused as well.
async fn is_left_behind(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;

    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    is_socket && UnixStream::connect(path).await.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// A secret of 32 hexadecimal digits.
fn secret() -> String {
    let mut bytes = [0; 16];
    // The system has no randomness only before it has fully started; a link without a secret can't be resumed, and that is all.
    if getrandom::fill(&mut bytes).is_err() {
        bytes[..8].copy_from_slice(&now_us().to_le_bytes());
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Drop for Listening {
    fn drop(&mut self) {
        // In this order: once nobody listens, the file may be that of another hub.
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
        }
        self.end.notify_one();
    }
}

impl ListenError {
    fn mend(&self) -> &'static str {
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

    /// Whether it is the certificates that can't be used.
    pub fn is_tls(&self) -> bool {
        self.error.get_ref().is_some_and(|inner| inner.is::<TlsError>())
    }
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_tls() {
            return write!(f, "{}", self.error);
        }
        write!(f, "url: can't listen at {}: {}{}", self.address, self.error, self.mend())
    }
}

impl std::error::Error for ListenError {}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::time::Instant;

    use tidewire_proto::wire::WireError;

    use super::*;

    const SOON: Duration = Duration::from_secs(30);

    /// A link of the hub, and the other end of it.
    fn connected(hub: &HubHandle) -> std::os::unix::net::UnixStream {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("there are descriptors");
        ours.set_nonblocking(true).expect("it is a socket");
        theirs.set_read_timeout(Some(SOON)).expect("it is a socket");
        let shared = Arc::clone(&hub.shared);
        let taken = hub.shared.runtime.block_on(async move {
            let socket = UnixStream::from_std(ours).expect("it is a socket");
            // Nothing is written before the runtime has heard that it can be.
            socket.writable().await.expect("it is open");
            shared.accept(Socket::Unix(socket));
        });
        taken.expect("the thread of links runs");
        theirs
    }

    fn until(holds: impl Fn() -> bool) {
        let end = Instant::now() + SOON;
        while !holds() {
            assert!(Instant::now() < end, "it does not come to that");
            std::thread::yield_now();
        }
    }

    #[test]
    fn whoever_still_writes_to_a_lost_link_takes_nothing_of_the_next_one_with_its_number() {
        let runtime = Runtime::start("hub").expect("a thread can be started");
        let hub = HubHandle::new(&runtime, HubOptions::new("hub"), |_| {});
        let lost = connected(&hub);
        let peer = hub.shared.peer(0).expect("it is the first one");
        drop(lost);
        until(|| hub.shared.peer(0).is_none());
        let mut next = connected(&hub);
        until(|| hub.shared.peer(0).is_some());
        let broken = WireError::Unexpected { kind: Kind::Call.name(), problem: "it is none" };
        hub.shared.hub.lock().garbled(0, &broken);
        // As a thread does that had looked the link up, and was held up.
        hub.shared.flush_to(0, &peer);
        hub.shared.settle();
        let mut said = Vec::new();
        next.read_to_end(&mut said).expect("the hub closes it");
        assert!(!said.is_empty(), "the node is not told why its link is closed");
    }
}
