//! A TCP stream under TLS or WebSocket, read and written without blocking from any thread.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use tidewire_sync::Mutex;
use tokio::net::TcpStream;

use crate::socket::tcp::TcpIo;
use crate::socket::tls_stream::TlsIo;
use crate::websocket::WebSocketIo;

/// A TCP stream under TLS or WebSocket. Any thread may read and write; no operation blocks.
pub struct LayeredStream {
    stream: Arc<TcpStream>,
    /// Short, and the last lock that is taken: reading and writing share the layer.
    state: Mutex<State>,
}

struct State {
    layer: Layer,
    /// Bytes that the layer has taken and not written; their writer received `WouldBlock`.
    accepted: usize,
    /// How reading ended, after what was read before that.
    over: Option<io::Result<usize>>,
    /// Bytes that are read at one go.
    most: usize,
    /// Bytes that were read from the stream before the first frame.
    before: u64,
}

/// The protocol layer on top of the stream.
pub enum Layer {
    /// TLS.
    Secured(Box<TlsIo>),
    /// WebSocket, over TLS or not.
    Ws(Box<WebSocketIo>),
}

impl LayeredStream {
    pub fn new(stream: Arc<TcpStream>, mut layer: Layer) -> Self {
        let before = layer.direct().came();
        Self { stream, state: Mutex::new(State { layer, accepted: 0, over: None, most: usize::MAX, before }) }
    }

    /// At most so many bytes are read at one go, and no longer frames are taken.
    pub fn limit(&self, most: usize, frame_max: usize) {
        let state = &mut *self.state.lock();
        state.most = most;
        if let Layer::Ws(ws) = &mut state.layer {
            ws.limit(frame_max);
        }
    }

    /// True if the last read left bytes unread, and the number of bytes read since the first frame.
    pub fn left(&self) -> (bool, u64) {
        let state = &mut *self.state.lock();
        let is_held = matches!(&state.layer, Layer::Ws(ws) if ws.is_held());
        let direct = state.layer.direct();
        (is_held || direct.is_spent(), direct.came() - state.before)
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads like a plain stream. Bytes inside the layer are read before `WouldBlock` is returned,
    /// unless they [exceed](Self::left) the limit of one read.
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        let state = &mut *self.state.lock();
        if let Some(over) = state.over.take() {
            return over;
        }
        state.layer.direct().allow(state.most);
        let mut filled = 0;
        while filled < into.len() {
            match state.layer.read(&mut into[filled..]) {
                Ok(count) if count > 0 => filled += count,
                other if filled == 0 => return other,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                other => {
                    state.over = Some(other);
                    break;
                }
            }
        }
        Ok(filled)
    }

    /// Writes as a stream does, with one difference: after `WouldBlock`, the caller must come again
    /// with the same bytes. The layer may have taken the bytes, and needs that call to write them.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let state = &mut *self.state.lock();
        if state.accepted == 0 {
            state.accepted = state.layer.accept(bytes)?;
        }
        state.layer.flush()?;
        Ok(std::mem::take(&mut state.accepted))
    }
}

impl Drop for LayeredStream {
    fn drop(&mut self) {
        self.state.get_mut().layer.close();
    }
}

impl Layer {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Secured(secured) => secured.read(into),
            Self::Ws(ws) => ws.read(into),
        }
    }

    fn direct(&mut self) -> &mut TcpIo {
        match self {
            Self::Secured(secured) => secured.direct(),
            Self::Ws(ws) => ws.direct(),
        }
    }

    fn accept(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Secured(secured) => secured.write(bytes),
            Self::Ws(ws) => ws.accept(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Secured(secured) => secured.flush(),
            Self::Ws(ws) => ws.flush(),
        }
    }

    fn close(&mut self) {
        match self {
            Self::Secured(secured) => secured.close(),
            Self::Ws(ws) => ws.close(),
        }
    }
}

#[cfg(all(test, feature = "tls", feature = "websocket"))]
mod tests {
    use std::future::Future;
    use std::time::Duration;

    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ServerConfig, crypto::ring};
    use tidewire_proto::wire::{self, Flags, Kind};
    use tokio::net::TcpListener;
    use tungstenite::protocol::Role;

    use super::{Arc, Layer, LayeredStream, TcpIo, TcpStream, TlsIo, WebSocketIo, io};
    use crate::carrier::Carrier;
    use crate::tls::Tls;

    const FRAME_BYTES: usize = 10_000;

    async fn connected() -> (Arc<TcpStream>, Arc<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let place = listener.local_addr().expect("it has an address");
        let (ours, theirs) = tokio::join!(TcpStream::connect(place), listener.accept());
        (Arc::new(ours.expect("it listens")), Arc::new(theirs.expect("it connects").0))
    }

    async fn websockets() -> (LayeredStream, LayeredStream) {
        let (ours, theirs) = connected().await;
        let end = |stream: Arc<TcpStream>, role| {
            let ws = WebSocketIo::new(Carrier::Direct(TcpIo::new(Arc::clone(&stream))), Vec::new(), role, 1 << 20);
            LayeredStream::new(stream, Layer::Ws(Box::new(ws)))
        };
        (end(ours, Role::Client), end(theirs, Role::Server))
    }

    async fn secured() -> (LayeredStream, LayeredStream) {
        let (ours, theirs) = connected().await;
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).expect("it is a name");
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("it is a key");
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("there are some").with_no_client_auth();
        let config = builder.with_single_cert(vec![cert.der().clone()], key).expect("they were made together");
        let trusting = Tls { verify: false, ..Tls::default() }.client(b"test").expect("it needs no files");
        let join = TlsIo::join(Arc::clone(&ours), "localhost", trusting);
        let (join, accept) = tokio::join!(join, TlsIo::accept(Arc::clone(&theirs), Arc::new(config)));
        let end = |stream, secured: io::Result<TlsIo>| {
            LayeredStream::new(stream, Layer::Secured(Box::new(secured.expect("they understand each other"))))
        };
        (end(ours, join), end(theirs, accept))
    }

    fn story(story: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it can be started");
        let bounded = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), story).await });
        bounded.expect("it ends soon");
    }

    fn frames() -> Vec<u8> {
        let mut frames = Vec::new();
        for id in 1..=20 {
            wire::write(&mut frames, Kind::Chunk, Flags::NORMAL, id, |_| Ok(()), &[7; FRAME_BYTES])
                .expect("it is short");
        }
        frames
    }

    /// Writes frames until the system takes no more. Answers the bytes that it said it wrote, and
    /// the frames that it was at.
    async fn fill(from: &LayeredStream) -> (usize, Vec<u8>) {
        let mut written = 0;
        loop {
            let all = frames();
            let mut rest = &all[..];
            while !rest.is_empty() {
                match from.try_write(rest) {
                    Ok(count) => (written, rest) = (written + count, &rest[count..]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && written > 0 => {
                        return (written, rest.to_vec());
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        from.stream().writable().await.expect("it is open")
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    async fn read(to: &LayeredStream, count: usize) {
        let (mut left, mut bytes) = (count, vec![0; 100_000]);
        while left > 0 {
            let most = left.min(bytes.len());
            match to.try_read(&mut bytes[..most]) {
                Ok(read) => left -= read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    to.stream().readable().await.expect("it is open")
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// A writer does not repeat bytes that were reported as written. After `WouldBlock` it
    /// repeats the same bytes.
    async fn written_frames_arrive((from, to): (LayeredStream, LayeredStream)) {
        let (written, rest) = fill(&from).await;
        read(&to, written).await;
        from.stream().writable().await.expect("it is open");
        let count = from.try_write(&rest).expect("there is room again");
        assert!(count > 0 && count <= rest.len(), "{count}");
        read(&to, count).await;
    }

    #[test]
    fn frames_written_to_a_websocket_arrive() {
        story(async { written_frames_arrive(websockets().await).await });
    }

    #[test]
    fn frames_written_under_tls_arrive() {
        story(async { written_frames_arrive(secured().await).await });
    }
}
