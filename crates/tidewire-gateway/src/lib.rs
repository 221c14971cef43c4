//! The gateways of a hub: its public services for programs that speak JSON over HTTP/1.1, HTTP/2 or
//! NATS, and its subjects over HTTP.
//!
//! `POST /services/NAME/METHOD` calls, `/subjects/SUBJECT` publishes and subscribes,
//! `/openapi.json` describes, `/mcp` offers the same methods as tools; `spec/http.md` in the
//! repository has the details. [`NatsGateway`] offers the same methods as services of NATS
//! (`spec/nats.md`). A gateway is a node of its hub like any other, with one privilege: it may name
//! the user of a call, and mark the call as external.
//!
//! ```
//! use tidewire_gateway::{Gateway, GatewayOptions};
//! use tidewire_link::{HubHandle, HubOptions, Runtime};
//!
//! let runtime = Runtime::start("hub")?;
//! let hub = HubHandle::new(&runtime, HubOptions::new("hub"), |line| eprintln!("{line}"));
//! let gateway = Gateway::listen(&hub, "http://127.0.0.1:0", GatewayOptions::named("hub-http"))?;
//! assert!(gateway.url().starts_with("http://127.0.0.1:"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod address;
mod answer;
mod caller;
mod calls;
mod catalog;
mod commands;
mod compression;
mod connection;
mod counts;
mod documents;
mod files;
mod gateway;
mod headers;
mod json;
mod mcp;
mod metrics;
mod multipart;
mod nats;
mod openapi;
mod options;
mod problem;
mod repeats;
mod request;
mod routes;
mod schema;
mod server;
mod shared;
mod streams;
mod subjects;

pub use gateway::Gateway;
pub use metrics::{Sample, node_metrics, node_series};
pub use nats::NatsGateway;
pub use options::{GatewayLimits, GatewayOptions};
