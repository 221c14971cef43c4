//! Links without sockets: what is said, when, and what becomes of it. Bytes and times go in, bytes
//! and events come out.
//!
//! - [`outbox`]: what waits to be written, in lanes, with long payloads cut.
//! - [`assembly`]: long payloads put together again.
//! - [`compression`]: payloads that are compressed, and inflated again.
//! - [`flow_control`]: the same, checked on their way through a hub.
//! - [`fair`]: messages that wait for one thread, whose senders take turns.
//! - [`flush_policy`]: whether what waits goes at once.
//! - [`slots`]: exchanges by their ids.
//! - [`keepalive`]: when to send a sign of life, and when the other side counts as dead.
//! - [`session`]: the side of a node, where exchanges begin and end.
//! - [`access`]: who may join a hub, and do what there.
//! - [`announcement`]: what services and agents say of themselves, checked.
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
