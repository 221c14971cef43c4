//! Connected sockets of links: TCP or Unix, plain or under TLS and WebSocket.

pub mod async_stream;
pub mod layered_stream;
pub mod raw_stream;
pub mod read_owner;
#[cfg_attr(not(feature = "websocket"), allow(dead_code))]
pub mod tcp;
#[cfg_attr(not(feature = "websocket"), allow(dead_code))]
#[cfg_attr(not(feature = "tls"), path = "socket/tls_stream_disabled.rs")]
pub mod tls_stream;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidewire_sync::of_this_process;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use crate::address::Address;
use crate::carrier::Carrier;
use crate::socket::layered_stream::{Layer, LayeredStream};
use crate::socket::raw_stream::{RawStream, is_near};
use crate::socket::tcp::TcpIo;
use crate::socket::tls_stream::{ServerSide, TlsIo};
use crate::tls::Tls;
use crate::websocket;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The ALPN protocol of links over TLS.
const ALPN: &[u8] = b"tidewire/1";
/// The ALPN protocol of a WebSocket, which begins as HTTP.
const ALPN_HTTP: &[u8] = b"http/1.1";

/// A connected stream of bytes. Any thread may read and write without blocking; only the link
/// thread waits.
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Layered(Box<LayeredStream>),
}

/// The protocol layers of one listener of a hub.
#[derive(Clone)]
pub struct Layers {
    tls: Option<ServerSide>,
    ws: bool,
    frame_max: usize,
}

impl Socket {
    pub fn tcp(stream: TcpStream) -> Self {
        Self::Tcp(without_delay(stream))
    }

    /// A WebSocket after its handshake; `bytes` are the bytes that followed the handshake.
    #[cfg(feature = "websocket")]
    pub fn websocket(stream: TcpStream, bytes: Vec<u8>, frame_max: usize) -> Self {
        let stream = Arc::new(without_delay(stream));
        let ws = websocket::WebSocketIo::opened(carried(&stream, None), bytes, frame_max);
        Self::Layered(Box::new(LayeredStream::new(stream, Layer::Ws(Box::new(ws)))))
    }

    pub fn unix(stream: UnixStream) -> Self {
        Self::Unix(of_this_process(stream))
    }

    /// Connects, and performs the handshakes of TLS and WebSocket.
    ///
    /// # Errors
    /// A [`TlsError`](crate::TlsError) inside if the own certificates can't be used, `InvalidData`
    /// if the other side is no hub.
    pub async fn connect(address: &Address, frame_max: usize) -> io::Result<Self> {
        match tokio::time::timeout(CONNECT_TIMEOUT, connect(address, frame_max)).await {
            Ok(connected) => connected,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "nobody answered within 5 s")),
        }
    }

    /// The raw stream, or the layered one if it has layers.
    ///
    /// # Errors
    /// The error of the system if the link thread can't release the stream.
    pub fn into_plain(self) -> io::Result<Result<RawStream, Box<LayeredStream>>> {
        match self {
            Self::Tcp(stream) => stream.into_std().map(RawStream::Tcp).map(Ok),
            Self::Unix(stream) => stream.into_std().map(RawStream::Unix).map(Ok),
            Self::Layered(layered) => Ok(Err(layered)),
        }
    }

    /// True if the other side is on this host.
    pub fn is_near(&self) -> bool {
        match self {
            Self::Tcp(stream) => is_near(stream.local_addr(), stream.peer_addr()),
            Self::Unix(_) => true,
            Self::Layered(layered) => is_near(layered.stream().local_addr(), layered.stream().peer_addr()),
        }
    }

    /// The address of the other side.
    pub fn address(&self) -> Option<IpAddr> {
        let address = match self {
            Self::Tcp(stream) => stream.peer_addr(),
            Self::Layered(layered) => layered.stream().peer_addr(),
            Self::Unix(_) => return None,
        };
        address.ok().map(|address| address.ip())
    }

    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Unix(stream) => stream.readable().await,
            Self::Layered(layered) => layered.stream().readable().await,
        }
    }

    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            Self::Unix(stream) => stream.writable().await,
            Self::Layered(layered) => layered.stream().writable().await,
        }
    }

    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(into),
            Self::Unix(stream) => stream.try_read(into),
            Self::Layered(layered) => layered.try_read(into),
        }
    }

    /// At most so many bytes are read at one go, where a layer reads by itself, and frames are at
    /// most so long.
    pub fn limit(&self, bytes: usize, frame_max: usize) {
        if let Self::Layered(layered) = self {
            layered.limit(bytes, frame_max);
        }
    }

    /// True if the last read of a layer left bytes unread, and the number of bytes read since the
    /// first frame.
    pub fn read_progress(&self) -> (bool, u64) {
        match self {
            Self::Tcp(_) | Self::Unix(_) => (false, 0),
            Self::Layered(layered) => layered.read_progress(),
        }
    }

    /// Marks the socket as drained after a read that left capacity unused.
    ///
    /// [`readable`](Self::readable) then waits for more bytes without another system call. Only the
    /// link thread may call this: it alone is notified of incoming bytes.
    pub fn drained(&self) {
        let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = match self {
            Self::Tcp(stream) => stream.try_io(Interest::READABLE, nothing),
            Self::Unix(stream) => stream.try_io(Interest::READABLE, nothing),
            // The layer may still hold bytes.
            Self::Layered(_) => Ok(()),
        };
    }

    /// Writes whole frames. After `WouldBlock` the caller repeats the same bytes.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
            Self::Layered(layered) => layered.try_write(bytes),
        }
    }
}

impl Layers {
    /// The layers that the URL of a listener asks for. None: frames travel on the plain stream.
    ///
    /// # Errors
    /// A [`TlsError`](crate::TlsError) inside if the certificates can't be used.
    pub fn of(address: &Address, frame_max: usize) -> io::Result<Option<Self>> {
        let (tls, ws) = match address {
            Address::Tcp { .. } | Address::Unix(_) => return Ok(None),
            Address::Tls { tls, .. } => (Some(tls.server(ALPN).map_err(invalid)?), false),
            Address::Ws { tls: None, .. } => (None, true),
            Address::Ws { tls: Some(tls), .. } => (Some(tls.server(ALPN_HTTP).map_err(invalid)?), true),
        };
        Ok(Some(Self { tls, ws, frame_max }))
    }

    /// Performs the handshakes before the first frame, within `time`.
    ///
    /// # Errors
    /// `InvalidData` if the other side speaks something else, `TimedOut` if it says too little.
    pub async fn accept(&self, stream: TcpStream, time: Duration) -> io::Result<Socket> {
        match tokio::time::timeout(time, self.greet(stream)).await {
            Ok(accepted) => accepted,
            Err(_) => {
                let wait_ms = time.as_millis();
                let text = format!("it did not finish its handshake within link_greeting_ms ({wait_ms} ms)");
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
        }
    }

    async fn greet(&self, stream: TcpStream) -> io::Result<Socket> {
        let stream = Arc::new(without_delay(stream));
        let secured = match &self.tls {
            Some(config) => Some(TlsIo::accept(Arc::clone(&stream), config).await?),
            None => None,
        };
        let layer = match secured {
            Some(secured) if !self.ws => Layer::Secured(Box::new(secured)),
            carrier => Layer::Ws(Box::new(websocket::accept(carried(&stream, carrier), self.frame_max).await?)),
        };
        Ok(Socket::Layered(Box::new(LayeredStream::new(stream, layer))))
    }
}

async fn connect(address: &Address, frame_max: usize) -> io::Result<Socket> {
    match address {
        Address::Unix(path) => UnixStream::connect(path).await.map(Socket::unix),
        Address::Tcp { host, port } => TcpStream::connect((host.as_str(), *port)).await.map(Socket::tcp),
        Address::Tls { host, port, tls } => {
            let (stream, secured) = connect_secured(host, *port, tls, ALPN).await?;
            Ok(Socket::Layered(Box::new(LayeredStream::new(stream, Layer::Secured(Box::new(secured))))))
        }
        Address::Ws { host, port, path, tls } => {
            let (stream, secured) = match tls {
                Some(tls) => {
                    connect_secured(host, *port, tls, ALPN_HTTP).await.map(|(stream, one)| (stream, Some(one)))?
                }
                None => (Arc::new(without_delay(TcpStream::connect((host.as_str(), *port)).await?)), None),
            };
            let place = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
            let ws = websocket::join(carried(&stream, secured), &place, path, frame_max).await?;
            Ok(Socket::Layered(Box::new(LayeredStream::new(stream, Layer::Ws(Box::new(ws))))))
        }
    }
}

async fn connect_secured(host: &str, port: u16, tls: &Tls, protocol: &[u8]) -> io::Result<(Arc<TcpStream>, TlsIo)> {
    let config = tls.client(protocol).map_err(invalid)?;
    let stream = Arc::new(without_delay(TcpStream::connect((host, port)).await?));
    let secured = TlsIo::join(Arc::clone(&stream), host, config).await?;
    Ok((stream, secured))
}

fn carried(stream: &Arc<TcpStream>, secured: Option<TlsIo>) -> Carrier {
    match secured {
        Some(secured) => Carrier::Secured(Box::new(secured)),
        None => Carrier::Direct(TcpIo::new(Arc::clone(stream))),
    }
}

fn without_delay(stream: TcpStream) -> TcpStream {
    // Frames gather here, so that the system need not wait for more.
    let _ = stream.set_nodelay(true);
    of_this_process(stream)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}
