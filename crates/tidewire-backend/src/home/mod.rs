//! Ports of a storage backend (`Home`): streams with their consumers, key-value buckets, leases.
//!
//! A storage backend is a folder (`tidewire-embedded`) or a cluster of NATS servers. All storage
//! backends behave the same and pass the same suite of `tidewire-testkit`. Each one declares its
//! missing features in its [`Capabilities`].
//!
//! # Rules of all calls
//!
//! - A call never blocks. It returns an [`Answer`]: a future for any runtime, a result to wait for
//!   on a plain thread, or a callback. The work begins with the call, not with the first poll.
//! - Calls move batches: one call publishes, fetches or settles many messages. So Python, a link or
//!   a disk is entered once for all of them. Within a batch each message has a result of its own,
//!   in the order of the batch.
//! - Every call names its objects by text. There are no handles, so that a call can be forwarded to
//!   another process.
//! - Times are microseconds: of the wall clock since 1970 where the name ends in `_at_us` or is
//!   `time_us`, else spans.
//! - Dropping an answer does not cancel the call, with one exception. The deliveries of a dropped
//!   [`fetch`](Streams::fetch) and the lease of a dropped [`acquire`](Leases::acquire) are released
//!   at once, or when their time is over.
//! - A change that an answer reports as done has reached the durability that the answer names: at
//!   least `disk` for a storage backend that has a disk.

use tidewire_core::histogram::Durations;

mod answer;
mod capabilities;
mod capability;
mod consumer;
mod difference;
mod error;
mod keyvalue;
mod lease;
mod message;
pub mod pending_answer;
mod schedule;
mod stream;

pub use answer::{Answer, Teller, answer};
pub use capabilities::Capabilities;
pub use capability::{Capability, FOLDER_LACKS, NATS_LACKS, NATS_SINCE};
pub use consumer::{
    ConsumerInfo, ConsumerSettings, DeadLetter, Delivery, Fault, Fetch, Order, Settle, Settlement, Start,
};
pub use error::{HomeError, HomeErrorKind, HomeResult};
pub use keyvalue::{BucketInfo, BucketSettings, Changes, Entry, Expect, KeyValue, Watch};
pub use lease::{Grant, LeaseInfo, Leases};
pub use message::{Ack, Durability, Event, Headers, NewMessage};
pub use schedule::{Change, SCHEDULE_HEADER, ScheduleInfo, ScheduleSettings};
pub use stream::{Compact, Full, Page, Purge, Read, StreamInfo, StreamSettings, Streams};

/// Commits of a storage backend: writes with a sync that serve all waiting calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Commits {
    /// How long they took.
    pub times: Durations,
    /// How many calls they answered.
    pub calls: u64,
}

/// A storage backend with all its ports.
pub trait Home: Streams + KeyValue + Leases {
    /// The capabilities of this storage backend beyond those that every storage backend has.
    fn capabilities(&self) -> &Capabilities;

    /// The location for error texts: the folder or the URL.
    fn place(&self) -> &str;

    /// Commits since it was opened, if it writes to a disk of this process.
    fn commits(&self) -> Option<Commits> {
        None
    }

    /// Takes no new calls, stores everything that was taken, answers it, and releases files or
    /// connections. Further calls fail with [`Closed`](HomeErrorKind::Closed); so do calls that
    /// wait, such as `fetch`.
    fn close(&self) -> Answer<()>;
}
