//! Current connection of a node's link to its hub.

use std::io;
use std::sync::Arc;

use tidewire_core::link::outbox::WriteBatch;
use tokio::sync::Notify;

use crate::frame_reader::FrameReader;
use crate::hub::LocalEnd;
use crate::socket::Socket;
use crate::socket::layered_stream::LayeredStream;
use crate::socket::raw_stream::{RawStream, is_near};
use crate::socket::read_owner::ReadOwner;
use crate::writer::SharedWriter;

/// Connection between a node and its hub.
pub struct Connection {
    pub writing: SharedWriter,
    pub kind: Transport,
    pub turn: Arc<ReadOwner>,
    pub end: Notify,
    /// Number of this connection on its link. Frames of a later connection do not belong to this
    /// one.
    pub epoch: u32,
}

pub enum Transport {
    Plain(RawStream),
    /// TLS or WebSocket, which the thread of the links alone reads.
    Layered(Box<LayeredStream>),
    Local(LocalEnd),
}

impl Connection {
    pub fn new(kind: Transport, frame_max: usize, epoch: u32) -> Self {
        Self {
            writing: SharedWriter::new(),
            kind,
            turn: ReadOwner::new(FrameReader::new(frame_max)),
            end: Notify::new(),
            epoch,
        }
    }

    /// # Errors
    /// The error of the system if the thread of the links can't release the socket.
    pub fn with_socket(socket: Socket, frame_max: usize, epoch: u32) -> io::Result<Self> {
        Ok(Self::new(
            match socket.into_plain()? {
                Ok(plain) => Transport::Plain(plain),
                Err(layered) => Transport::Layered(layered),
            },
            frame_max,
            epoch,
        ))
    }

    /// True if the connection stays on this host, where compression saves nothing.
    pub fn is_near(&self) -> bool {
        match &self.kind {
            Transport::Plain(plain) => plain.is_near(),
            Transport::Layered(layered) => is_near(layered.stream().local_addr(), layered.stream().peer_addr()),
            Transport::Local(_) => true,
        }
    }

    /// Closes the connection to further frames.
    pub fn close(&self) {
        self.turn.end();
        if let Transport::Plain(plain) = &self.kind {
            plain.shutdown();
        }
    }
}

impl Transport {
    /// True if the transport writes parts of payloads from where they lie. Other transports need
    /// each frame in one piece.
    pub fn writes_parts(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    pub fn write(&self, burst: &WriteBatch) -> io::Result<usize> {
        match self {
            Self::Plain(plain) => plain.try_write(burst),
            Self::Layered(layered) => layered.try_write(burst.frames()),
            Self::Local(end) => Ok(end.write(burst.frames())),
        }
    }
}
