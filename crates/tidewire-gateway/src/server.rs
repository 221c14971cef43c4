//! Thread of a gateway: accepts connections, and serves each until its end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tidewire_link::{Access, HubHandle};
use tidewire_node::{Error, Node};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_sync::of_this_process;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{self, Handle};

use crate::connection::Connection;
use crate::options::GatewayOptions;
use crate::routes;
use crate::shared::Shared;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1_024;
/// Time that a connection has to end when it is asked to.
const LAST: Duration = Duration::from_secs(1);

/// A gateway that runs.
pub(crate) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    handle: Handle,
    /// Dropped with the last handle: the thread ends.
    _thread: tokio::sync::oneshot::Sender<Infallible>,
    is_closed: AtomicBool,
}

impl Server {
    pub fn start(
        address: SocketAddr,
        hub: &HubHandle,
        node: Node,
        access: Access,
        options: GatewayOptions,
    ) -> Result<Self, Error> {
        let failed = |error: io::Error| {
            let fix = match error.kind() {
                io::ErrorKind::AddrInUse => ": end the program that listens there, or choose another port",
                io::ErrorKind::AddrNotAvailable => ": give a name or an address of this machine",
                io::ErrorKind::PermissionDenied => ": choose a port that this user may use",
                _ => "",
            };
            Error::new(ErrorCode::ConfigError, format!("url: can't listen at http://{address}: {error}{fix}"))
        };
        let shared = Arc::new(Shared::new(hub, node, access, options)?);
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(failed)?;
        let listener = runtime.block_on(async { bind(address) }).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let handle = runtime.handle().clone();
        let spreads = shared.node.spread();
        let (alive, ended) = tokio::sync::oneshot::channel::<Infallible>();
        let serves = Arc::clone(&shared);
        let thread = thread::Builder::new().name("tidewire-http".to_owned());
        let started = thread.spawn(move || {
            tidewire_sync::leave_signals();
            runtime.block_on(async move {
                tokio::spawn(spreads);
                tokio::select! {
                    () = accept(&serves, listener) => {}
                    _ = ended => {}
                }
            });
            runtime.shutdown_background();
        });
        started.map_err(failed)?;
        Ok(Self { shared, address, handle, _thread: alive, is_closed: AtomicBool::new(false) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub async fn idle(&self, most: Duration) -> bool {
        let shared = Arc::clone(&self.shared);
        let idle = self.handle.spawn(async move { tokio::time::timeout(most, shared.counting.idle()).await.is_ok() });
        idle.await.unwrap_or(true)
    }

    pub fn accept(&self) {
        self.shared.accepting.send_replace(true);
    }

    pub fn close(&self) {
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            self.shared.ending.send_replace(true);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG).map(of_this_process)
}

async fn accept(shared: &Arc<Shared>, listener: TcpListener) {
    let mut accepting = shared.accepting.subscribe();
    let mut ending = shared.ending.subscribe();
    loop {
        let accepted = tokio::select! {
            _ = ending.wait_for(|ends| *ends) => break,
            accepted = async {
                let _ = accepting.wait_for(|accepts| *accepts).await;
                listener.accept().await
            } => accepted,
        };
        match accepted {
            Ok((stream, _)) => take_in(shared, of_this_process(stream)),
            Err(error) => {
                (shared.options.log)(&format!("http: a connection could not be taken in: {error}"));
                // It would fail again at once, for example because no descriptors are left.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    // Running requests end on this thread; the caller of close sets the timeout.
    std::future::pending::<()>().await;
}

fn take_in(shared: &Arc<Shared>, stream: TcpStream) {
    let open = &shared.counting.connections;
    if open.load(Ordering::Relaxed) >= shared.options.limits.connections {
        shared.counting.closed.fetch_add(1, Ordering::Relaxed);
        if !shared.close_idle() {
            return;
        }
    }
    open.fetch_add(1, Ordering::Relaxed);
    let _ = stream.set_nodelay(true);
    let connection = Arc::new(Connection::new());
    shared.keep(&connection);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let _counted = Counted(Arc::clone(&shared));
        serve(&shared, stream, connection).await;
    });
}

/// A connection that is counted, until it is dropped.
struct Counted(Arc<Shared>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.counting.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn serve(shared: &Arc<Shared>, stream: TcpStream, connection: Arc<Connection>) {
    let limits = shared.options.limits;
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(limits.read_ms as u64))
        .max_buf_size(limits.head_bytes.max(8_192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.requests as u32)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(Duration::from_secs(20));
    let answers = service_fn(|request| routes::answer(Arc::clone(shared), Arc::clone(&connection), request));
    let mut talk = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), answers));
    let mut ending = shared.ending.subscribe();
    let mut is_ending = false;
    loop {
        let left = connection.time_left(&limits);
        tokio::select! {
            biased;
            _ = talk.as_mut() => return,
            () = connection.closing() => break,
            _ = ending.wait_for(|ends| *ends), if !is_ending => {
                is_ending = true;
                talk.as_mut().graceful_shutdown();
            }
            () = tokio::time::sleep(left.unwrap_or_default()) => {
                if connection.time_left(&limits).is_none() {
                    shared.counting.closed.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
        }
    }
    if connection.idle_since().is_some() {
        talk.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(LAST, talk).await;
    }
}
