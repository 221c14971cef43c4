//! State machines of links, without sockets: bytes and times go in, bytes and events come out.
//!
//! - [`outbox`]: the send queue, in lanes, with long payloads in chunks.
//! - [`assembly`]: assembly of long payloads from chunks.
//! - [`compression`]: compression of payloads.
//! - [`flow_control`]: checks of payloads that pass through a hub.
//! - [`fair`]: a fair queue of messages, whose senders take turns.
//! - [`flush_policy`]: how much makes one write.
//! - [`slots`]: exchanges by their ids.
//! - [`keepalive`]: pings, and the timeout of a silent peer.
//! - [`session`]: the side of a node, where exchanges begin and end.
//! - [`access`]: permissions of tokens.
//! - [`announcement`]: checked announcements of services and agents.
//! - [`hub`]: the side that routes between nodes.
//!
//! `spec/wire.md` is the protocol.

pub mod access;
pub mod announcement;
pub mod assembly;
pub mod compression;
pub mod fair;
pub mod flow_control;
pub mod flush_policy;
pub mod hub;
pub mod keepalive;
pub mod outbox;
pub mod session;
pub mod slots;
