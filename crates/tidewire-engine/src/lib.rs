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
mod ask_slot;
mod cell;
pub mod config;
mod core;
mod current;
mod dead_letters;
mod dispatch;
mod engine;
mod error;
mod guard;
mod inbox;
mod reply;
mod short_lock;
mod short_mutex;
mod statistics;
mod subjects;
mod supervise;
mod sync;
mod timers;
mod typed;

pub use actor::future::Inbox;
pub use actor::id::ActorId;
pub use actor::options::{Mailbox, OnFailure, Overflow, Priority, SpawnOptions, Supervision};
pub use actor::probe::Probe;
pub use actor::signal::{Signal, StopReason};
pub use actor::{Actor, ActorRef, Behaviour, Context};
pub use cell::Sent;
pub use config::DEFAULT_DISPATCHER;
pub use dead_letters::{DeadLetter, DeadLetters, RequeueError, StoredMessage};
#[cfg(feature = "tokio")]
pub use dispatch::TokioDispatcher;
pub use dispatch::starvation::Starvation;
pub use dispatch::{External, ThreadHooks, ThreadWrapper, Wakeup};
pub use engine::{Engine, EngineBuilder, EngineHandle, ShutdownReport};
pub use error::{AskError, DeadReason, EngineError, Fault, PassedOn, Refusal, SpawnError, SubscribeError, TellError};
pub use reply::{Pending, Reply};
pub use statistics::idle::{Idle, IdleSnapshot};
pub use statistics::stop_future::Stopping;
pub use statistics::stop_report::{Ledger, Stop, StopReport, Stuck, WaitsForItself};
pub use statistics::{ActorStatistics, DispatcherStatistics, Statistics, Timings};
pub use subjects::publish::{Published, Subscription};
pub use timers::timer::{Timer, TimerOutcome};

/// For bindings to other languages: how to drive an actor whose handlers are not Rust. It changes
/// with any version.
#[doc(hidden)]
pub mod raw {
    pub use crate::actor::id::{ActorId, ActorKey};
    pub use crate::ask_slot::{AskEnd, AskHandle, AskState};
    pub use crate::cell::ActorCell;
    pub use crate::cell::driver::{Activation, Behaviours, Driver};
    pub use crate::cell::envelope::{Change, Envelope, Meta};
    pub use crate::config::problem::{nearest, start_of};
    pub use crate::current::{acting_as, actor as current_actor};
    pub use crate::dispatch::blocking;
    pub use crate::timers::Fire;
    pub use crate::timers::watch::Watch;
    pub use tidewire_sync::clock;
    pub use tidewire_sync::{Condvar, Mutex, PerProcess, generation, identity, of_this_process};

    /// As [`tidewire_sync::leave_parent`]. Engines of the parent must not be used in the child, and
    /// not be dropped; new ones work. The thread may be a worker in the middle of a turn.
    pub fn leave_parent() -> impl Iterator<Item = (i32, u64)> {
        let descriptors = tidewire_sync::leave_parent();
        crate::dispatch::leave_seat();
        crate::current::reset();
        crate::dispatch::threads::reset();
        crate::reply::slot_cache::reset();
        descriptors
    }
}

/// The example of the guide runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Guide;
