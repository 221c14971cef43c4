//! Durable streams, key-value buckets and leases: at the hub that a node has joined, in a storage
//! backend of its own, or in a folder.
//!
//! ```
//! use tidewire_node::streams::{ConsumerOptions, Message, StreamOptions};
//! use tidewire_node::{Node, NodeOptions};
//!
//! # let folder = std::env::temp_dir().join(format!("tidewire-doc-{}", std::process::id()));
//! # #[cfg(feature = "embedded")] {
//! let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub").data(&folder)).wait()?;   // or: tidewire up --data DIR
//! let shop = Node::join(&hub.urls()[0], NodeOptions::named("shop")).wait()?;
//!
//! let orders = shop.stream_with("orders", StreamOptions::new(["orders.>"])).wait()?;
//! let ack = orders.publish(Message::new("orders.created", &("tea", 12.5)).key("customer-7").id("order-42")).wait()?;
//! assert_eq!(ack.sequence, 1);
//!
//! let mut billing = orders.consumer("billing", ConsumerOptions::all()).wait()?;
//! let event = billing.next_blocking()?;
//! assert_eq!(event.read::<(String, f64)>()?, ("tea".to_owned(), 12.5));
//! event.ack().wait()?;
//! billing.close().wait()?;
//! # hub.stop(std::time::Duration::from_secs(5)).wait()?;
//! # std::fs::remove_dir_all(&folder).ok();
//! # }
//! # Ok::<(), tidewire_node::Error>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | make a stream, or find it | [`Node::stream_with`], [`Node::stream`] |
//! | publish | [`Stream::publish`]; [`Stream::publisher`] for many; [`Stream::batch`] for whole or not at all |
//! | take events | [`Stream::consumer`], [`Delivery::ack`] |
//! | handle events in a service | [`DurableHandler`] |
//! | replay | [`Stream::read`] |
//! | have the storage backend publish periodically | [`Stream::schedule`] |
//! | keep values by key | [`Node::bucket_with`], [`Bucket`] |
//! | start long work, and follow it | [`Node::commands`], [`CommandRun`] |
//! | be the only one | [`Node::lease`], [`Lease::fence`] |
//!
//! The places and the limits of storage backends are in `docs/guides/streams.md` and
//! `docs/reference/capabilities.md` of the repository. Spans of time are rounded down to
//! microseconds.

mod batcher;
mod bucket;
mod consumer;
mod durable;
mod errors;
mod event;
mod fetcher;
mod home_request;
mod home_server;
mod home_slot;
pub(crate) mod lease;
pub(crate) mod message;
pub(crate) mod opening;
mod publish_queue;
mod publisher;
mod remote_home;
mod replay;
mod schedule;
mod serial_queue;
mod service;
mod stream;
mod subscription;
mod wire;
mod wire_maps;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use crate::commands::{
    Attempt, AttemptEnd, AttemptFuture, Begun, Command, CommandContext, CommandHandler, CommandInfo, CommandProgress,
    CommandRecord, CommandReports, CommandRun, CommandStore, CommandWorker, Commands, Interruption, NewCommand,
    Outcome, Report, Reported, Stage, StartOptions, TokenEnd, WorkerOptions,
};
pub use batcher::Flush;
pub use bucket::{Bucket, BucketOptions, Entry, Watch};
pub use consumer::{Consumer, ConsumerOptions};
pub use durable::{DurableHandler, find_stream};
pub use event::{DeadEvent, Delivery, Event};
pub use fetcher::outage::OnOutage;
pub use fetcher::{Reader, Reads, Timeout};
pub use home_server::HomeServer;
pub use home_slot::HomeSlot;
pub(crate) use lease::acquire;
pub use lease::{Lease, LeaseOptions};
pub use message::Message;
pub use publish_queue::PublishQueue;
pub use publisher::{NotStored, Publisher};
pub use replay::{ReadOptions, Replay};
pub use schedule::Schedule;
pub use stream::{Stream, StreamOptions};
pub use subscription::{DeliveryHandler, DeliveryWorker, DurableSubscription, SubscriptionOptions};
pub use tidewire_backend::home::{
    Ack, BucketInfo, Capabilities, Capability, Change, Compact, ConsumerInfo, Durability, Full, Home, Order,
    Settlement, Start, StreamInfo,
};

pub(crate) use durable::ServedDurable;
pub(crate) use errors::is_final;
pub(crate) use home_request::refused;
pub(crate) use service::{StopSignal, service};

use crate::delay::until;
use crate::error::Error;
use crate::node::Node;
use crate::node::core::Core;
use crate::pending::Pending;
use remote_home::HubHome;

/// The name under which a hub offers its storage backend to its nodes, and the method that takes
/// all calls.
const SERVICE: &str = tidewire_proto::subject::grammar::STREAMS;
const CALL: &str = "call";
/// The method whose stream holds a lease for as long as it is read.
const HOLD: &str = "hold";
/// The call that ends the wait of another one, which has a token as its last argument: the stopping
/// caller still gets the result on its way, and gives it back.
const END_WAIT: &str = "end_wait";
/// How long one call waits for events or changes at most; then it is made again. The end of a wait
/// is heard of.
pub(crate) const LONG_WAIT: Duration = Duration::from_secs(600);
/// The same for a lease.
const ACQUIRE_WAIT_US: u64 = 4_000_000;
/// Limits of the events and entries of one call, and of their bytes.
const PAGE: u32 = 1_000;
const PAGE_BYTES: u32 = 4 << 20;

/// Streams, buckets and leases. They live in the storage backend of the node
/// ([`NodeOptions::home`](crate::NodeOptions::home), or `data` with the feature `embedded`), else
/// at the hub that it has joined.
impl Node {
    /// Finds a stream with any settings.
    ///
    /// # Errors
    /// Awaiting it fails with `not_found` if there is none, and with `unauthorized` if the token
    /// does not allow it. It fails with `home_unavailable` if the hub has no storage backend or its
    /// link is lost.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped. The same holds for all calls that only read.
    pub fn stream(&self, name: &str) -> Pending<Stream> {
        let (reads, name) = (self.reads(), name.to_owned());
        let info = reads.home.stream_info(&name);
        Pending::new(async move {
            info.await?;
            Ok(Stream::new(reads, &name))
        })
    }

    /// Creates a stream, or finds it with the same settings. Its name has letters, digits, `_` and
    /// `-`, at most 64.
    ///
    /// # Errors
    /// As for [`stream`](Node::stream). Also `settings_differ` if the stream exists with other
    /// settings; the error names the first one. `invalid_argument` if a setting is not allowed, and
    /// `unsupported` if the storage backend lacks a capability.
    ///
    /// # Cancel safety
    /// If it is dropped, the stream may have been made.
    pub fn stream_with(&self, name: &str, options: StreamOptions) -> Pending<Stream> {
        let settings = match options.settings(name) {
            Ok(settings) => settings,
            Err(error) => return Pending::failed(error),
        };
        let (reads, name) = (self.reads(), name.to_owned());
        let made = reads.home.create_stream(settings);
        Pending::new(async move {
            made.await?;
            Ok(Stream::new(reads, &name))
        })
    }

    fn reads(&self) -> Reads {
        Reads::new(self.own_or_hub(), &self.core().runner)
    }

    /// The state of every stream, by name.
    ///
    /// # Errors
    /// Awaiting it fails with `home_unavailable` if the storage backend cannot be reached.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub fn streams(&self) -> Pending<Vec<StreamInfo>> {
        answered(self.own_or_hub().list_streams())
    }

    /// Finds a key-value bucket with any settings.
    ///
    /// # Errors
    /// As for [`stream`](Node::stream).
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub fn bucket(&self, name: &str) -> Pending<Bucket> {
        let (reads, name) = (self.reads(), name.to_owned());
        let info = reads.home.bucket_info(&name);
        Pending::new(async move {
            info.await?;
            Ok(Bucket::new(reads, &name))
        })
    }

    /// Makes a key-value bucket, or finds that it is there with the same settings.
    ///
    /// # Errors
    /// As for [`stream_with`](Node::stream_with).
    ///
    /// # Cancel safety
    /// If it is dropped, the bucket may have been made.
    pub fn bucket_with(&self, name: &str, options: BucketOptions) -> Pending<Bucket> {
        let reads = self.reads();
        let (made, name) = (reads.home.create_bucket(options.settings(name)), name.to_owned());
        Pending::new(async move {
            made.await?;
            Ok(Bucket::new(reads, &name))
        })
    }

    /// The state of every bucket, by name.
    ///
    /// # Errors
    /// Awaiting it fails with `home_unavailable` if the storage backend cannot be reached.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub fn buckets(&self) -> Pending<Vec<BucketInfo>> {
        answered(self.own_or_hub().list_buckets())
    }

    /// Acquires a lease of 5 seconds, which is renewed until it is dropped, and waits as long as
    /// needed; see [`lease_with`](Node::lease_with).
    ///
    /// # Errors
    /// As for `lease_with`.
    ///
    /// # Cancel safety
    /// If it is dropped, the lease is not held: a granted lease is released, at the latest by its
    /// TTL.
    pub fn lease(&self, name: &str) -> Pending<Lease> {
        self.lease_with(name, LeaseOptions::default())
    }

    /// Acquires a lease. A name is a subject's text, such as `orders.matching`.
    ///
    /// # Errors
    /// Awaiting it fails with `lease_held` if another holder kept it for the `timeout`. It fails
    /// with `invalid_argument` if an option is not allowed, and with `home_unavailable` if the
    /// storage backend cannot be reached.
    ///
    /// # Cancel safety
    /// As for [`lease`](Node::lease).
    pub fn lease_with(&self, name: &str, options: LeaseOptions) -> Pending<Lease> {
        lease::acquire(self.core(), name, options)
    }

    /// The storage backend of streams, buckets and leases, for programs that move batches
    /// themselves. The storage backend of a hub reports missing capabilities on use.
    ///
    /// # Errors
    /// Awaiting it fails with `home_unavailable` if the hub has no storage backend, or its link is
    /// lost.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub fn home(&self) -> Pending<Arc<dyn Home>> {
        if let Some(home) = &self.core().home {
            let home = Arc::clone(home);
            return Pending::new(async move { Ok(home) });
        }
        let hub = HubHome::new(self.core());
        Pending::new(async move { Ok(Arc::new(hub.looked_at().await?) as Arc<dyn Home>) })
    }

    /// The storage backend of the hub, without a look at its capabilities: it refuses what it
    /// lacks. Publications of one such handle are stored in their order.
    pub fn hub_home(&self) -> Arc<dyn Home> {
        Arc::new(HubHome::new(self.core()))
    }

    /// Waits until each fetched event and lease whose caller has left is back at the hub. False
    /// after `timeout`.
    pub fn returned(&self, timeout: Duration) -> impl Future<Output = bool> + Send + use<> {
        let runner = Arc::clone(&self.core().runner);
        async move { until(&runner, Instant::now() + timeout, || runner.has_returned()).await }
    }

    fn own_or_hub(&self) -> Arc<dyn Home> {
        own_or_hub(self.core())
    }
}

/// The storage backend of the node, or that of the hub that it has joined.
pub(crate) fn own_or_hub(core: &Arc<Core>) -> Arc<dyn Home> {
    core.home.clone().unwrap_or_else(|| Arc::new(HubHome::new(core)))
}

/// The answer of a storage backend, as a pending operation of a node.
fn answered<T: Send + 'static>(answer: tidewire_backend::home::Answer<T>) -> Pending<T> {
    Pending::new(async move { Ok(answer.await?) })
}

/// Patterns of subjects, checked.
fn patterns(field: &str, texts: &[String]) -> Result<Vec<tidewire_proto::subject::Pattern>, Error> {
    let checked = texts.iter().map(|text| crate::names::pattern(text));
    checked.collect::<Result<_, _>>().map_err(|wrong| Error::new(wrong.code(), format!("{field}: {}", wrong.message())))
}

fn texts_of<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Vec<String> {
    texts.into_iter().map(Into::into).collect()
}

pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn time_of(time_us: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(time_us)
}

/// Microseconds since 1970; 0 before that.
fn micros_at(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, micros)
}
