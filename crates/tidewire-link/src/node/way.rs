//! The way of a link to its hub, while it lasts.

use std::io;
use std::sync::Arc;

use tidewire_core::link::outbox::WriteBatch;
use tokio::sync::Notify;

use crate::hub::LocalEnd;
use crate::layered::Layered;
use crate::plain::{Plain, is_near};
use crate::reading::Reading;
use crate::socket::Socket;
use crate::turn::Turn;
use crate::writing::Writing;

/// What lies between a node and its hub.
pub struct Way {
    pub writing: Writing,
    pub kind: WayKind,
    pub turn: Arc<Turn>,
    pub end: Notify,
    /// Which connection of the link it is. What the next one has to say is not for it.
    pub epoch: u32,
}

pub enum WayKind {
    Plain(Plain),
    /// TLS or WebSocket, which the thread of the links alone reads.
    Layered(Box<Layered>),
    Local(LocalEnd),
}

impl Way {
    pub fn new(kind: WayKind, frame_max: usize, epoch: u32) -> Self {
        Self { writing: Writing::new(), kind, turn: Turn::new(Reading::new(frame_max)), end: Notify::new(), epoch }
    }

    /// # Errors
    /// Whatever the system says if the thread of the links can't let go of the socket.
    pub fn over(socket: Socket, frame_max: usize, epoch: u32) -> io::Result<Self> {
        Ok(Self::new(
            match socket.into_plain()? {
                Ok(plain) => WayKind::Plain(plain),
                Err(layered) => WayKind::Layered(layered),
            },
            frame_max,
            epoch,
        ))
    }

    /// Whether it does not leave this host, so that nothing is won by sending less.
    pub fn is_near(&self) -> bool {
        match &self.kind {
            WayKind::Plain(plain) => plain.is_near(),
            WayKind::Layered(layered) => is_near(layered.stream().local_addr(), layered.stream().peer_addr()),
            WayKind::Local(_) => true,
        }
    }

    /// Nothing more goes this way.
    pub fn close(&self) {
        self.turn.end();
        if let WayKind::Plain(plain) = &self.kind {
            plain.shutdown();
        }
    }
}

impl WayKind {
    /// Whether it writes parts of payloads from where they are. The others want whole frames in one piece.
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
