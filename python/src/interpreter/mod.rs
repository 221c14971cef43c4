//! The interpreter: threads that attach to it, forks, event loops and waits.

pub mod asyncio;
pub mod attach;
pub mod fork;
pub mod fork_count;
pub mod never_awaited;
pub mod once;
pub mod pause;
pub mod py_ref;
pub mod round_end;
pub mod steps;
pub mod wait;

pub use fork::PerProcessOwned;
