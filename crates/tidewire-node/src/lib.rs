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

/// Methods that set one field each, and return the builder.
macro_rules! setters {
    ($type:ident: $($(#[$text:meta])* $name:ident($value:ident: $kind:ty) => $($field:tt).+ = $set:expr;)*) => {
        impl $type {
            $($(#[$text])*
            pub fn $name(mut self, $value: $kind) -> Self {
                self.$($field).+ = $set;
                self
            })*
        }
    };
}

mod calls;
mod commands;
mod delay;
mod discovery;
mod error;
mod federation;
mod inline_task;
mod names;
mod node;
mod objects;
mod pending;
pub mod raw;
mod services;
mod span;
mod statistics;
pub mod streams;
mod subjects;
mod token;
#[cfg(feature = "tracing")]
mod tracing;
#[cfg(not(feature = "tracing"))]
#[path = "tracing_disabled.rs"]
mod tracing;
pub mod values;

pub use calls::call::Call;
pub use calls::client::{Answer, Client};
pub use calls::item_stream::Items;
pub use calls::priority::{Choice, Priority};
pub use discovery::service_watch::{InstanceChange, ServiceChanges};
pub use discovery::{EventInfo, InstanceInfo, MethodInfo, ServiceCommand, ServiceInfo, Visibility};
pub use error::{Error, Remote};
pub use federation::{DirectionStatistics, Federation, FederationOptions, FederationStatistics, SharedNames};
pub use node::core::Node;
pub use node::options::{NodeOptions, Task};
pub use node::{RemoteStatistics, Stopped};
pub use objects::{Feed, Function, Object, RemoteFunction, RemoteObject};
pub use pending::Pending;
pub use services::context::{Context, Detached, TRACE_CONTEXT};
pub use services::events::{Event, EventContext};
pub use services::failure::Failure;
pub use services::instance::ServiceStatistics;
pub use services::serve::Served;
pub use services::service::{Method, Service};
pub use services::single_active::SingleActive;
pub use subjects::local_subscriptions::{SubscribeOptions, Subscription};
pub use subjects::message::Message;
pub use subjects::subject::Subject;
pub use tidewire_core::histogram::{DURATION_ENDS_MS, Durations};
pub use tidewire_core::rpc::balancer::{RoutingDecision, RoutingEstimate, RoutingExplanation, RoutingReason};
pub use tidewire_link::Tls;
#[cfg(feature = "macros")]
pub use tidewire_macros::service;
pub use tidewire_proto::generated::errors::ErrorCode;
pub use token::Token;

/// The examples of the guide run as tests.
#[cfg(all(doctest, feature = "embedded"))]
#[doc = include_str!("../../../docs/guides/rust.md")]
struct Guide;
