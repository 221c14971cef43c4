//! Commands: long work that is started, followed, and found again by its id.
//!
//! - [`info`]: the state of a command, as its users see it.
//! - [`record`]: the record of one command, as its bucket stores it.
//! - [`store`]: the records in their bucket, and the queue of their tokens.
//! - [`command`]: the commands of a service.
//! - [`worker`]: the worker of one command, with its [`attempt`]s.
//! - [`watch`]: the shared watch for changes of records.
//! - [`service`]: the service of a hub, for clients of all languages.
//! - [`client`]: the client of that service.

pub mod attempt;
pub mod client;
pub mod command;
pub mod info;
pub mod record;
mod service;
pub mod store;
mod watch;
pub mod worker;

pub(crate) use service::service;
