//! Links between nodes over sockets. The protocol is in `tidewire_core::link`; this crate moves the
//! bytes.
//!
//! One thread waits for all sockets of a process. A sending thread writes to the socket itself, as
//! long as the socket takes bytes. Queued frames go out in the next write.

#![forbid(unsafe_code)]

mod address;
#[cfg_attr(not(feature = "websocket"), allow(dead_code))]
mod carrier;
#[cfg(feature = "tls")]
mod certificates;
mod clock;
mod frame_reader;
mod hub;
mod idle;
mod malloc_tuning;
mod node;
mod runtime;
#[cfg_attr(not(target_os = "linux"), path = "shared_memory_disabled.rs")]
mod shared_memory;
mod socket;
mod tls;
#[cfg(feature = "websocket")]
mod upgrade;
#[cfg_attr(not(feature = "websocket"), path = "no_websocket.rs")]
mod websocket;
mod writer;
#[cfg(target_os = "linux")]
mod yield_core;

pub use address::{Address, AddressError};
pub use hub::{HubHandle, ListenError, Listening, LocalEnd, LocalFrameSink};
pub use malloc_tuning::keep_freed;
pub use node::{
    Call, CallKey, Exchange, Failure, Flusher, Handler, JoinError, Link, Published, ReplyWaiter, Subscription,
};
pub use runtime::Runtime;
pub use socket::read_owner::{OffLoopWaiter, Reader};
pub use tidewire_core::link::access::{Access, Grant, Rights, TokenLimits};
pub use tidewire_core::link::assembly::Message;
pub use tidewire_core::link::flush_policy::Batch;
pub use tidewire_core::link::hub::{HubCounts, HubOptions, SubscriptionInterest};
pub use tidewire_core::link::outbox::PayloadParts;
pub use tidewire_core::link::session::{Greeting, Joined, Named, OutgoingPayload, Refused};
pub use tidewire_core::tree::SubscriptionId as InterestKey;
pub use tls::{Tls, TlsError};
#[cfg(feature = "websocket")]
pub use upgrade::websocket_answer;
