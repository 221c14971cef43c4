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
//!
//! [`Node::stream_with`]: crate::Node::stream_with
//! [`Node::stream`]: crate::Node::stream
//! [`Node::bucket_with`]: crate::Node::bucket_with
//! [`Node::commands`]: crate::Node::commands
//! [`Node::lease`]: crate::Node::lease

mod batcher;
mod bucket;
mod consumer;
pub(crate) mod conventions;
mod durable;
mod errors;
mod event;
mod fetcher;
mod home_request;
mod home_server;
pub(crate) mod lease;
pub(crate) mod message;
pub(crate) mod mirrors;
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
pub(crate) use lease::acquire;
pub use lease::{Lease, LeaseOptions};
pub use message::Message;
pub use opening::HomeSlot;
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
pub(crate) use errors::{explained, is_final};
pub(crate) use home_request::refused;
pub(crate) use remote_home::{HubHome, own_or_hub};
pub(crate) use service::service;
