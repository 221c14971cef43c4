//! Nodes of the Tidewire messaging runtime in Rust: join a hub or be one, serve typed services and
//! call them, publish and subscribe.
//!
//! Nodes of Rust and Python call each other's services with the same values, errors, deadlines and
//! streams. `spec/wire.md`, `spec/values.md` and section 13 of `spec/semantics.md` in the
//! repository have the guarantees. Every operation can be awaited on any async runtime, or waited
//! for on a plain thread; no runtime is needed.
//!
//! ```
//! use tidewire_node::{Node, NodeOptions, Service};
//!
//! let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait()?;
//! let url = &hub.urls()[0];
//!
//! let server = Node::join(url, NodeOptions::named("server")).wait()?;
//! let pricing = Service::new("pricing")
//!     .method("quote", &["symbol", "qty"], |_, (_symbol, qty): (String, u32)| async move { Ok(2.5 * f64::from(qty)) });
//! server.serve(pricing).wait()?;
//!
//! let caller = Node::join(url, NodeOptions::named("caller")).wait()?;
//! let price: f64 = caller.client("pricing").call("quote", &("X", 3)).wait()?;
//! assert_eq!(price, 7.5);
//! # Ok::<(), tidewire_node::Error>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | join a hub, or be one | [`Node::join`], [`Node::listen`] |
//! | serve | [`Service`], [`Method`], [`Node::serve`]; a handler receives a [`Context`] |
//! | have one instance active at a time | [`Node::serve_single`], [`Context::fence`] |
//! | call | [`Node::client`]; a [`Call`] returns one value, [`Items`] are a stream |
//! | pass streams, functions and objects | [`Feed`], [`Function`], [`Object`]; a handler takes [`Items`], [`RemoteFunction`], [`RemoteObject`] |
//! | list services | [`Node::services`], [`Node::watch_services`] |
//! | handle events | [`Service::on`], [`Event`] |
//! | publish, request, subscribe | [`Node::publish`], [`Node::request`], [`Node::subscribe`] |
//! | store durable streams, key-value buckets, leases | [`streams`], [`Node::stream_with`], [`Node::bucket_with`], [`Node::lease`] |
//! | send data without a type | [`values::Value`] |

#![forbid(unsafe_code)]

mod call;
mod client;
mod context;
mod core;
mod current_service;
mod delay;
mod directory;
mod discovery;
mod encoded_items;
mod error;
mod events;
mod failure;
mod handler_run;
mod inbound_call;
mod instance;
mod instance_lookup;
mod item_stream;
mod join;
mod local_subscriptions;
mod names;
mod node;
mod objects;
mod options;
mod pending;
mod prepared_call;
mod reply_slot;
#[cfg(feature = "schemars")]
mod schemas;
mod serve;
mod service;
mod service_watch;
mod single_active;
mod stop_wait;
pub mod streams;
mod subject;
mod subjects;
mod token;
#[cfg(feature = "tracing")]
mod tracing;
#[cfg(not(feature = "tracing"))]
#[path = "tracing_disabled.rs"]
mod tracing;
pub mod values;

pub use call::Call;
pub use client::{Answer, Choice, Client, Priority};
pub use context::{Context, Detached};
pub use discovery::{EventInfo, InstanceInfo, MethodInfo, ServiceInfo, Visibility};
pub use error::{Error, Remote};
pub use events::{Event, EventContext};
pub use failure::Failure;
pub use item_stream::Items;
pub use node::{Node, RemoteStatistics, Stopped};
pub use objects::{Feed, Function, Object, RemoteFunction, RemoteObject};
pub use options::{NodeOptions, Task};
pub use pending::Pending;
pub use serve::{Served, ServiceStatistics};
pub use service::{Method, Service};
pub use service_watch::{InstanceChange, ServiceChanges};
pub use single_active::SingleActive;
pub use subject::Subject;
pub use subjects::{Message, SubscribeOptions, Subscription};
pub use tidewire_link::Tls;
#[cfg(feature = "macros")]
pub use tidewire_macros::service;
pub use tidewire_proto::generated::errors::ErrorCode;
pub use token::Token;

/// The examples of the guide run as tests.
#[cfg(all(doctest, feature = "embedded"))]
#[doc = include_str!("../../../docs/guides/rust.md")]
struct Guide;
