//! Options and counters of a hub.

use std::fmt;
use std::sync::Arc;

use tidewire_proto::generated::limits;

use super::super::access::Access;
use super::super::flush_policy::Batch;

/// Options of a hub.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// Its name.
    pub name: String,
    /// The number of the node that is this hub, where bridges tell other hubs of it; 0: the hub
    /// chooses.
    pub number: u32,
    /// Permissions of the tokens.
    pub access: Access,
    /// The most links.
    pub links: usize,
    /// Exchanges that a node may open at once.
    pub in_flight: usize,
    /// The longest frame.
    pub frame_bytes: usize,
    /// The longest payload.
    pub payload_bytes: usize,
    /// Bytes that may wait for one link.
    pub queue_bytes: usize,
    /// Subscriptions of one node.
    pub subscriptions: usize,
    /// Bytes that may wait for all links together.
    pub hub_queue_bytes: usize,
    /// The shortest time between two signs of life that a node may ask for, in milliseconds.
    pub hub_heartbeat_ms: u64,
    /// Bytes that a node says of itself in all.
    pub said_bytes: usize,
    /// How long the name of a node is reserved after its link was lost, in milliseconds.
    pub name_ms: u64,
    /// The interval of heartbeats that it expects, in milliseconds.
    pub heartbeat_ms: u64,
    /// How long it waits for HELLO, in milliseconds.
    pub greeting_ms: u64,
    /// Bytes that may come before HELLO has, with it.
    pub hello_bytes: usize,
    /// Connections of one place that have not sent the bytes before HELLO.
    pub greetings: usize,
    /// The longest payload of its own that it sends in one frame.
    pub chunk_bytes: usize,
    /// How much it writes at once to a link.
    pub batch: Batch,
    /// The check if a node shares the memory of this machine. None: payloads are passed on in
    /// chunks.
    pub memory: Option<Arc<dyn MachineMemory>>,
}

/// Detects nodes that share the memory of this machine.
pub trait MachineMemory: Send + Sync + fmt::Debug {
    /// True if the place that a node stated in its HELLO is on this machine.
    fn shares(&self, place: &str) -> bool;
}

impl HubOptions {
    /// The defaults.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            number: 0,
            access: Access::default(),
            links: limits::HUB_LINKS.default as usize,
            in_flight: limits::LINK_IN_FLIGHT.default as usize,
            frame_bytes: limits::LINK_FRAME_BYTES.default as usize,
            payload_bytes: limits::PAYLOAD_BYTES.default as usize,
            queue_bytes: limits::LINK_QUEUE_BYTES.default as usize,
            subscriptions: limits::LINK_SUBSCRIPTIONS.default as usize,
            hub_queue_bytes: limits::HUB_QUEUE_BYTES.default as usize,
            hub_heartbeat_ms: limits::HUB_HEARTBEAT_MS.default,
            said_bytes: limits::LINK_SAID_BYTES.default as usize,
            name_ms: limits::HUB_NAME_MS.default,
            heartbeat_ms: limits::LINK_HEARTBEAT_MS.default,
            greeting_ms: limits::LINK_GREETING_MS.default,
            hello_bytes: limits::LINK_HELLO_BYTES.default as usize,
            greetings: limits::LINK_GREETINGS.default as usize,
            chunk_bytes: limits::LINK_CHUNK_BYTES.default as usize,
            batch: Batch::default(),
            memory: None,
        }
    }
}

/// Counters of a hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HubCounts {
    /// Nodes that are joined now.
    pub nodes: u64,
    /// Frames passed on.
    pub forwarded: u64,
    /// Calls passed on.
    pub calls: u64,
    /// Published messages passed on, counted once for each link.
    pub published: u64,
    /// Published messages dropped because too much waited for their receiver.
    pub dropped: u64,
    /// Calls refused: nobody there, not allowed, or too much waiting.
    pub refused: u64,
}
