//! Frames of a link in the binary messages of a WebSocket.

use std::io;

use tidewire_proto::wire;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tungstenite::{Bytes, Error, Message, WebSocket};

use crate::carrier::Carrier;
use crate::socket::tcp::TcpIo;
pub use crate::upgrade::{accept, join};

/// Frames are gathered into messages of about this length; a longer frame is a message of its own.
const MESSAGE_BYTES: usize = 64 * 1024;
/// Read buffer of each socket. The carrier reads more than this from the system at once.
const READ_BYTES: usize = 4 * 1024;
/// Messages without frames that are read at one go.
const EMPTY_MESSAGES: usize = 64;

/// Frames in the messages of a WebSocket. No operation blocks; after `WouldBlock` the caller waits
/// for the stream.
pub struct WebSocketIo {
    socket: WebSocket<Carrier>,
    message: Bytes,
    frame_max: usize,
    /// More messages without frames came than are read at one go.
    is_held: bool,
}

impl WebSocketIo {
    /// The WebSocket of a client whose request a server of HTTP has answered.
    pub fn opened(carrier: Carrier, bytes: Vec<u8>, frame_max: usize) -> Self {
        Self::new(carrier, bytes, Role::Server, frame_max)
    }

    /// A WebSocket after its handshake; `bytes` are the bytes that followed the handshake.
    pub fn new(carrier: Carrier, bytes: Vec<u8>, role: Role, frame_max: usize) -> Self {
        let message_max = message_max(frame_max);
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .write_buffer_size(MESSAGE_BYTES)
            // Answers to pings must not grow without limit, either.
            .max_write_buffer_size(message_max + MESSAGE_BYTES)
            .max_frame_size(Some(message_max))
            .max_message_size(Some(message_max));
        let socket = WebSocket::from_partially_read(carrier, bytes, role, Some(config));
        Self { socket, message: Bytes::new(), frame_max, is_held: false }
    }

    /// Takes no longer frames from now on.
    pub fn limit(&mut self, frame_max: usize) {
        self.frame_max = frame_max;
        self.socket.set_config(|config| {
            let message_max = message_max(frame_max);
            (config.max_frame_size, config.max_message_size) = (Some(message_max), Some(message_max));
        });
    }

    /// The stream that is read.
    pub fn direct(&mut self) -> &mut TcpIo {
        match self.socket.get_mut() {
            Carrier::Direct(direct) => direct,
            Carrier::Secured(secured) => secured.direct(),
        }
    }

    /// True if the last read returned `WouldBlock` although frames may be left inside.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Bytes of frames. `WouldBlock` means that nothing is left inside, either, unless it [is
    /// held](Self::is_held).
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut empty = 0;
        self.is_held = false;
        while self.message.is_empty() {
            if empty > EMPTY_MESSAGES {
                self.is_held = true;
                return Err(io::ErrorKind::WouldBlock.into());
            }
            empty += 1;
            match self.socket.read() {
                Ok(Message::Binary(message)) => self.message = self.whole(message)?,
                Ok(Message::Text(_)) => {
                    return Err(self.refuse(CloseCode::Unsupported, "a text message: send binary ones"));
                }
                // The answer to a ping waits for a flush.
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => self.flush_some()?,
                Ok(Message::Close(_)) => {
                    let _ = self.socket.flush();
                    return Ok(0);
                }
                Err(error) => return self.failed(error),
            }
        }
        let count = into.len().min(self.message.len());
        into[..count].copy_from_slice(&self.message.split_to(count));
        Ok(count)
    }

    /// Takes the first message's worth of whole frames. They have been written only once `flush`
    /// says so.
    pub fn accept(&mut self, frames: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let count = message_length(frames);
        match self.socket.write(Message::Binary(Bytes::copy_from_slice(&frames[..count]))) {
            Ok(()) => Ok(count),
            // The message is stored; the next flush writes it.
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(count),
            Err(error) => Err(as_io(error)),
        }
    }

    /// Writes what was taken.
    pub fn flush(&mut self) -> io::Result<()> {
        self.socket.flush().map_err(as_io)
    }

    /// Says that nothing follows, as far as is possible at once.
    pub fn close(&mut self) {
        // The closing side does not wait for the other one.
        let _ = self.socket.close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }));
        if let Carrier::Secured(secured) = self.socket.get_mut() {
            secured.close();
        }
    }

    fn flush_some(&mut self) -> io::Result<()> {
        match self.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }

    /// The message, unless it ends within a frame. Frames that are wrong in other ways are for who
    /// reads them.
    fn whole(&mut self, message: Bytes) -> io::Result<Bytes> {
        let mut at = 0;
        while at < message.len() {
            match wire::read(&message[at..], self.frame_max) {
                Ok(Some(frame)) => at += frame.bytes.len(),
                Ok(None) => {
                    return Err(self.refuse(CloseCode::Policy, "a message that ends within a frame: send whole frames"));
                }
                Err(_) => break,
            }
        }
        Ok(message)
    }

    fn failed(&mut self, error: Error) -> io::Result<usize> {
        match error {
            Error::ConnectionClosed | Error::AlreadyClosed => Ok(0),
            Error::Io(error) => Err(error),
            Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => Ok(0),
            Error::Capacity(_) => {
                Err(self.refuse(CloseCode::Size, "a message that is too long: send one frame in each"))
            }
            other => Err(self.refuse(CloseCode::Protocol, &other.to_string())),
        }
    }

    fn refuse(&mut self, code: CloseCode, text: &str) -> io::Error {
        let _ = self.socket.close(Some(CloseFrame { code, reason: text.into() }));
        io::Error::new(io::ErrorKind::InvalidData, format!("the WebSocket brought {text}"))
    }
}

/// The longest message, of frames that are at most so long.
fn message_max(frame_max: usize) -> usize {
    frame_max.max(MESSAGE_BYTES) + MESSAGE_BYTES
}

/// The length of as many whole frames as make one message.
fn message_length(frames: &[u8]) -> usize {
    let mut at = 0;
    while let Some(length) = frames.get(at..).and_then(|rest| rest.first_chunk()) {
        let end = at + wire::LENGTH_BYTES + u32::from_le_bytes(*length) as usize;
        if at > 0 && end > MESSAGE_BYTES {
            break;
        }
        at = end;
    }
    debug_assert!(at <= frames.len(), "outboxes give whole frames");
    at.min(frames.len())
}

fn as_io(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        other => io::Error::other(other),
    }
}
