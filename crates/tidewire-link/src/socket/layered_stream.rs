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
    end: Option<io::Result<usize>>,
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
        let before = layer.direct().read_bytes();
        Self { stream, state: Mutex::new(State { layer, accepted: 0, end: None, most: usize::MAX, before }) }
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
    pub fn read_progress(&self) -> (bool, u64) {
        let state = &mut *self.state.lock();
        let is_held = matches!(&state.layer, Layer::Ws(ws) if ws.is_held());
        let direct = state.layer.direct();
        (is_held || direct.is_spent(), direct.read_bytes() - state.before)
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads like a plain stream. Bytes inside the layer are read before `WouldBlock` is returned,
    /// unless they [exceed](Self::read_progress) the limit of one read.
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        let state = &mut *self.state.lock();
        if let Some(end) = state.end.take() {
            return end;
        }
        state.layer.direct().allow(state.most);
        let mut filled = 0;
        while filled < into.len() {
            match state.layer.read(&mut into[filled..]) {
                Ok(count) if count > 0 => filled += count,
                other if filled == 0 => return other,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                other => {
                    state.end = Some(other);
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
