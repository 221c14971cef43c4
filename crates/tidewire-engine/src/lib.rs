//! The in-process engine of Tidewire: actors with bounded mailboxes on dispatchers.
//!
//! It needs no network and no async runtime. Start with [`Engine`] and [`Actor`];
//! `spec/semantics.md` in the repository says what is promised about order, overflow, failure and
//! stop.
//!
//! ```
//! use std::time::Duration;
//! use tidewire_engine::Engine;
//!
//! let engine = Engine::new()?;
//! let echo = engine.spawn_fn(|n: u64, _| { assert!(n < 10); Ok(()) })?;
//! for n in 0..10 {
//!     echo.send_blocking(n)?;
//! }
//! let report = engine.shutdown(Duration::from_secs(1));
//! assert_eq!(report.ledger.handled, 10);
//! assert!(report.ledger.balances());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod actor;
mod actor_run;
mod ask_slot;
mod cell;
mod clock;
pub mod config;
mod core;
mod current;
mod dead_letters;
mod deadlines;
mod dispatch;
mod driver;
mod engine;
mod envelope;
mod error;
mod fork;
mod future;
mod guard;
mod idle;
mod inbox;
mod options;
mod probe;
mod reply;
mod short_lock;
mod short_mutex;
mod signal;
mod slot_cache;
mod starvation;
mod statistics;
mod stop_report;
mod subjects;
mod supervise;
mod sync;
mod threads;
mod timers;
mod typed;
mod wait_graph;
mod watch;

pub use actor::{Actor, ActorId, ActorRef, Behaviour, Context};
pub use cell::Sent;
pub use dead_letters::{DeadLetter, DeadLetters, RequeueError, StoredMessage};
#[cfg(feature = "tokio")]
pub use dispatch::TokioDispatcher;
pub use dispatch::{External, ThreadHooks, ThreadWrapper, Wakeup};
pub use engine::{DEFAULT_DISPATCHER, Engine, EngineBuilder, EngineHandle, ShutdownReport};
pub use error::{AskError, DeadReason, EngineError, Fault, Refusal, SpawnError, SubscribeError, TellError};
pub use future::Inbox;
pub use idle::{Idle, IdleSnapshot};
pub use options::{Mailbox, OnFailure, Overflow, Priority, SpawnOptions, Supervision};
pub use probe::Probe;
pub use reply::{Pending, Reply};
pub use signal::{Signal, StopReason};
pub use starvation::Starvation;
pub use statistics::{ActorStatistics, DispatcherStatistics, Statistics, Timings};
pub use stop_report::{Ledger, Stop, StopReport, Stopping, Stuck, WaitsForItself};
pub use subjects::{Published, Subscription};
pub use timers::{Timer, TimerOutcome};

/// For bindings to other languages: how to drive an actor whose handlers are not Rust. It changes
/// with any version.
#[doc(hidden)]
pub mod raw {
    pub use crate::actor::ActorId;
    pub use crate::cell::ActorCell;
    pub use crate::config::problem::{nearest, start_of};
    pub use crate::current::{ActorKey, acting_as, actor as current_actor};
    pub use crate::dispatch::blocking;
    pub use crate::driver::{Activation, Behaviours, Driver};
    pub use crate::envelope::{Change, Envelope, Meta};
    pub use crate::fork::leave_parent;
    pub use crate::reply::{AskEnd, AskHandle, AskState};
    pub use crate::timers::Fire;
    pub use crate::watch::Watch;
    pub use tidewire_sync::{Condvar, Mutex, PerProcess, forked, generation, identity, take_descriptors_of_parent};
}

/// The example of the guide runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Guide;
