//! Links between nodes over sockets. What is said over them is decided in `tidewire_core::link`; this crate moves the bytes.
//!
//! One thread waits for all sockets of a process. Whoever sends writes to the socket itself, as long as it takes bytes;
//! what queues up meanwhile goes in the next write.

#![forbid(unsafe_code)]

mod address;
#[cfg_attr(not(feature = "websocket"), allow(dead_code))]
mod carrier;
#[cfg(feature = "tls")]
mod certificates;
mod clock;
#[cfg_attr(not(feature = "websocket"), allow(dead_code))]
mod direct;
mod freed;
mod hub;
mod idle;
mod layered;
#[cfg(target_os = "linux")]
mod making_way;
#[cfg_attr(not(target_os = "linux"), path = "no_memory.rs")]
mod memory;
mod node;
mod plain;
mod reading;
mod runtime;
#[cfg_attr(not(feature = "websocket"), allow(dead_code))]
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod secured;
mod socket;
mod tls;
mod turn;
#[cfg(feature = "websocket")]
mod upgrade;
mod watched;
mod writing;
#[cfg_attr(not(feature = "websocket"), path = "no_websocket.rs")]
mod ws;

pub use address::{Address, AddressError};
pub use freed::keep_freed;
pub use hub::{Feed, HubHandle, ListenError, Listening, LocalEnd};
pub use node::{Call, CallKey, Exchange, Failure, Flusher, Handler, JoinError, Link, Published, Subscription, Waiting};
pub use runtime::Runtime;
pub use tidewire_core::link::access::{Access, Grant, TokenLimits};
pub use tidewire_core::link::assembly::Message;
pub use tidewire_core::link::flush_policy::Batch;
pub use tidewire_core::link::hub::{HubCounts, HubOptions, SubscriptionInterest};
pub use tidewire_core::link::outbox::PayloadParts;
pub use tidewire_core::link::session::{Greeting, Joined, Named, Refused, Sending};
pub use tidewire_core::tree::SubscriptionId as InterestKey;
pub use tls::{Tls, TlsError};
pub use turn::{Elsewhere, Reader};
