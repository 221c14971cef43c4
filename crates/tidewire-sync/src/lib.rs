//! Locks and values of the process that are safe in a process that forks.
//!
//! The child of a fork has one of its parent's threads, and memory as the other threads left it. A
//! lock that one of them held is never released in the child. So this crate shares no state between
//! independent locks, and values of the process are initialized anew in each child.

#![forbid(unsafe_code)]

pub mod clock;
mod locks;
mod own_descriptors;
mod process;
mod signals;

pub use locks::{Condvar, Mutex, MutexGuard, RwLock};
pub use own_descriptors::{identity, of_this_process};
pub use process::{PerProcess, generation, leave_parent};
pub use signals::leave_signals;
