//! The ports of a home of durable things: streams with their consumers, key-value buckets, leases.
//!
//! A home is where streams live: a folder (`tidewire-embedded`) or a cluster of NATS servers. Every
//! home does the same, passes the same suite of `tidewire-testkit`, and says in its
//! [`Capabilities`] what it can't do.
//!
//! # What all calls have in common
//!
//! - A call never blocks. It gives an [`Answer`], which is a future for any runtime, can be waited
//!   for on a plain thread, or calls back. Its work begins with the call, not with the first poll.
//! - Calls move batches: one call publishes, fetches or settles many, so that a border (of Python,
//!   of a link, of a disk) is crossed once for all of them. Within a batch each message has a
//!   result of its own, in the order of the batch.
//! - Things are named by texts in every call; there are no handles, so that a call can be forwarded
//!   to another process.
//! - Times are microseconds: of the wall clock since 1970 where the name ends in `_at_us` or is
//!   `time_us`, else spans.
//! - Dropping an answer does not take the call back, with one exception: what a dropped
//!   [`fetch`](Streams::fetch) or [`acquire`](Leases::acquire) would have given goes back at once,
//!   or when its time is over.
//! - What an answer reports as done has reached the durability that it names, at least `disk` for a
//!   home that has one.

mod answer;
mod capabilities;
mod capability;
mod consumer;
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

/// A home with all its ports.
pub trait Home: Streams + KeyValue + Leases {
    /// What this home can do beyond what every home can.
    fn capabilities(&self) -> &Capabilities;

    /// What people call it in errors: the folder or the URL.
    fn place(&self) -> &str;

    /// Takes nothing more, stores what was taken, answers it, and lets go of files or connections.
    /// Further calls fail with [`Closed`](HomeErrorKind::Closed); so do calls that wait, such as
    /// `fetch`.
    fn close(&self) -> Answer<()>;
}
