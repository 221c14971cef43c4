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

mod attempt;
mod client;
mod command;
mod info;
mod record;
mod service;
mod store;
mod watch;
mod worker;

pub use attempt::{Attempt, AttemptEnd, Interruption};
pub use client::{CommandProgress, CommandReports, CommandRun, Commands, Stage, StartOptions};
pub use command::{Command, CommandContext};
pub use info::CommandInfo;
pub use record::{CommandRecord, Report};
pub(crate) use service::service;
pub use store::{Begun, CommandStore, NewCommand, Reported, TokenEnd};
pub use tidewire_core::stream::command::Outcome;
pub use worker::{AttemptFuture, CommandHandler, CommandWorker, WorkerOptions};
