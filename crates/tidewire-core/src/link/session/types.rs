//! Types of a session: the greeting of a node, the reply of the hub, events and outgoing payloads.

use tidewire_proto::generated::limits;
use tidewire_proto::wire::{FieldsWriter, MemoryLocation, WireError};

use super::super::assembly::Message;
use super::super::compression::Packed;
use super::super::flush_policy::Batch;
use super::super::outbox::{Payload, PayloadParts, Unsent};
use super::SHARED_MEMORY;

/// Name, secrets and limits with which a node joins.
#[derive(Clone, Debug)]
pub struct Greeting {
    /// Its name, unique on the hub.
    pub name: String,
    /// The token that identifies the user, where the hub requires one.
    pub token: Option<String>,
    /// The secret of its link before, or of its attempts to join, whose place it takes.
    pub resume: Option<String>,
    /// Exchanges that the hub may open at once.
    pub in_flight: usize,
    /// The longest frame that it takes.
    pub frame_bytes: usize,
    /// The longest payload that it takes.
    pub payload_bytes: usize,
    /// Bytes that may wait to be written.
    pub queue_bytes: usize,
    /// The interval of heartbeats that it expects, in milliseconds.
    pub heartbeat_ms: u64,
    /// How long it waits for WELCOME, in milliseconds.
    pub greeting_ms: u64,
    /// The longest payload that it sends in one frame.
    pub chunk_bytes: usize,
    /// How much it writes at once.
    pub batch: Batch,
    /// How long it waits before it joins a lost hub again, in milliseconds: first, and at most.
    pub backoff_ms: (u64, u64),
    /// Shared memory in which its long payloads lie, if the hub is on this machine. 0: none.
    pub shared_bytes: usize,
    /// Where the processes of this machine can tell that they share its memory, if it lays long
    /// payloads there and reads them there.
    pub place: Option<String>,
    /// The length from which its payloads are compressed: on the connection to another host, and on
    /// a connection within its host. 0: none.
    pub compress_bytes: (usize, usize),
    /// The name of another hub, for which the node calls and publishes. Published messages then
    /// have their numbers in `to`, so the node has no queue groups of messages.
    pub hub: Option<String>,
}

impl Greeting {
    /// A greeting with the default limits.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            token: None,
            resume: None,
            in_flight: limits::LINK_IN_FLIGHT.default as usize,
            frame_bytes: limits::LINK_FRAME_BYTES.default as usize,
            payload_bytes: limits::PAYLOAD_BYTES.default as usize,
            queue_bytes: limits::LINK_QUEUE_BYTES.default as usize,
            heartbeat_ms: limits::LINK_HEARTBEAT_MS.default,
            greeting_ms: limits::LINK_GREETING_MS.default,
            chunk_bytes: limits::LINK_CHUNK_BYTES.default as usize,
            batch: Batch::default(),
            backoff_ms: (limits::LINK_BACKOFF_MS.default, limits::LINK_BACKOFF_MAX_MS.default),
            shared_bytes: limits::LINK_SHARED_BYTES.default as usize,
            place: None,
            compress_bytes: (
                limits::LINK_COMPRESS_BYTES.default as usize,
                limits::LINK_COMPRESS_NEAR_BYTES.default as usize,
            ),
            hub: None,
        }
    }

    /// The fields of HELLO.
    pub(super) fn fields(&self) -> Result<Vec<u8>, WireError> {
        let mut payload = Vec::new();
        let mut fields = FieldsWriter::new(&mut payload);
        fields.add("name", self.name.as_bytes())?;
        for (name, value) in [("token", &self.token), ("resume", &self.resume), ("hub", &self.hub)] {
            if let Some(value) = value {
                fields.add(name, value.as_bytes())?;
            }
        }
        if let Some(place) = &self.place {
            fields.add("features", SHARED_MEMORY.as_bytes())?;
            fields.add("place", place.as_bytes())?;
        }
        for (name, value) in [
            ("in-flight", self.in_flight as u64),
            ("frame-bytes", self.frame_bytes as u64),
            ("payload-bytes", self.payload_bytes as u64),
            ("heartbeat-ms", self.heartbeat_ms),
        ] {
            fields.add(name, value.to_string().as_bytes())?;
        }
        Ok(payload)
    }
}

/// The reply of the hub to a node that joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// The name of the hub.
    pub hub: String,
    /// The secret with which this node can take the place of this link.
    pub resume: String,
    /// The number of this node.
    pub node: u32,
    /// The longest payload that the hub takes.
    pub payload_bytes: usize,
    /// The run of the hub, in which its numbers of messages are unique; empty from older hubs.
    pub run: String,
}

/// A node, as the hub named it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// The user whose token it joined with, or an empty text.
    pub user: String,
}

/// Events of a session. `C` is the type of the value that the caller of
/// [`call`](super::Session::call) or [`subscribe`](super::Session::subscribe) passed.
#[derive(Debug)]
pub enum Event<C> {
    /// The hub has taken this node in.
    Joined(Joined),
    /// A call for this node. It is open until it is answered.
    Called(Message),
    /// The caller of an open call has gone.
    Cancelled(u64),
    /// An item from the caller of an open call.
    Input(Message),
    /// The caller of an open call sends no more items.
    InputOver(u64),
    /// The caller of an open call gives credit for so many further items.
    Wanted(u64, u32),
    /// A published message.
    Published(Message),
    /// A published message that was dropped, since it can't be read. The text says why.
    Dropped(String),
    /// A subscription is in force.
    Subscribed(C),
    /// A call was answered; it has ended.
    Replied(C, Message),
    /// A call, or a subscription, has failed; it has ended. The message is text, or for
    /// `remote_error` a value.
    Failed(C, u16, Message),
    /// An item of an answer.
    Item(C, Message),
    /// No more items come; the call has ended.
    Over(C),
    /// The callee gives credit for so many further items.
    Credited(C, u32),
    /// A call is still running. The event loop of its handler has been blocked for so many
    /// milliseconds; 0: not blocked.
    Alive(C, u32),
    /// A node that the hub had named has gone.
    Left(u32),
    /// A payload lies in shared memory: read it into the memory that
    /// [`place_buffer`](super::Session::place_buffer) returns.
    Placed(SharedPayloadArrived),
    /// The hub takes no new exchanges.
    Goodbye,
    /// The link was lost before a call was answered, or a subscription was in force; it has ended.
    Lost(C),
}

/// A payload that lies in shared memory, and is awaited here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedPayloadArrived {
    /// Where.
    pub place: MemoryLocation,
    /// Its length.
    pub bytes: usize,
    pub(super) id: u64,
    pub(super) answer: bool,
}

/// Why a link can't go on.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::From)]
pub enum Fault {
    /// The other side broke a rule.
    #[from]
    Wire(WireError),
    /// The other side said why it closes the link.
    Told {
        /// The number of the error.
        number: u16,
        /// The error text.
        text: String,
    },
    /// The other side has been silent for too long.
    Silent,
}

/// Why something was not sent. Nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub enum Refused {
    /// The limit of open exchanges is reached.
    #[display("link_in_flight={max}{}: so many calls are open already: wait for some of them", if *of_token { " of the token" } else { "" })]
    InFlight {
        /// The limit.
        max: usize,
        /// The hub takes no more with the token of this node; with others it may.
        of_token: bool,
    },
    /// The other side takes no payload of this length.
    #[display("{bytes} bytes are more than payload_bytes={max} of the other side: send less, or raise the limit there")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The most that is taken.
        max: usize,
    },
    /// Too much waits to be written.
    #[display(
        "link_queue_bytes: {bytes} bytes wait to be written already: the other side reads too slowly, try again later"
    )]
    Full {
        /// The length in bytes.
        bytes: usize,
    },
    /// The token of this node does not allow it.
    #[display("the token of this node allows to publish on {allowed}: publish there, or allow more at the hub")]
    Unauthorized {
        /// Where it may publish.
        allowed: String,
    },
    /// The link says goodbye, or was never joined.
    #[display("the link to the hub is lost or closing: try again once it is back")]
    Closing,
    /// The exchange has ended.
    #[display("the call has ended: nobody waits for this")]
    Over,
    /// The head can't be written.
    #[display("{_0}")]
    Wire(WireError),
}

impl std::error::Error for Refused {}

impl From<Unsent> for Refused {
    fn from(unsent: Unsent) -> Self {
        match unsent {
            Unsent::Full { bytes } => Self::Full { bytes },
            Unsent::Wire(error) => Self::Wire(error),
        }
    }
}

/// A payload that is sent: borrowed if it is short, else stored until its last chunk has gone.
pub enum OutgoingPayload<'a> {
    /// Copied now.
    Short(&'a [u8]),
    /// Copied now, piece after piece.
    Pieces(&'a dyn PayloadParts),
    /// Sent in chunks as capacity allows.
    Long(Payload),
    /// A compressed payload. Receivers that can't inflate get the original.
    Packed(Packed),
    /// Written to shared memory, for a receiver that reads it there; see
    /// [`Outbox::next_to_lay`](super::super::outbox::Outbox::next_to_lay). Where shared memory
    /// can't be used, it is sent in chunks.
    Lay(Payload),
}

impl<'a> From<&'a [u8]> for OutgoingPayload<'a> {
    /// A long payload is copied.
    fn from(bytes: &'a [u8]) -> Self {
        if bytes.len() > limits::LINK_CHUNK_BYTES.default as usize {
            Self::Long(Box::new(bytes.to_vec()))
        } else {
            Self::Short(bytes)
        }
    }
}

impl OutgoingPayload<'_> {
    /// Its bytes, before it was compressed.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Short(bytes) => bytes.len(),
            Self::Pieces(payload) => payload.bytes(),
            Self::Long(payload) => payload.bytes(),
            Self::Packed(packed) => packed.inflated_bytes(),
            Self::Lay(payload) => payload.bytes(),
        }
    }

    /// The same, compressed if it gets shorter.
    #[must_use]
    pub fn packed(self) -> Self {
        let packed = match &self {
            Self::Short(bytes) => Packed::of(bytes),
            Self::Pieces(payload) => Packed::of(*payload),
            Self::Long(payload) => Packed::of(&**payload),
            Self::Packed(_) | Self::Lay(_) => None,
        };
        packed.map_or(self, Self::Packed)
    }

    /// Its bytes on the wire.
    pub(super) fn sent_bytes(&self) -> usize {
        if let Self::Packed(packed) = self { packed.bytes().len() } else { self.bytes() }
    }
}
