//! Locks and values of the process, as they must be in a process that forks.
//!
//! The child of a fork has one of its parent's threads, and memory as the others left it: a lock
//! that one of them held is never released there. So nothing here is shared by locks that have
//! nothing to do with each other, and what belongs to the process is made anew in each child.

#![forbid(unsafe_code)]

mod locks;
mod process;
mod signals;

pub use locks::{Condvar, Mutex, MutexGuard, RwLock};
pub use process::{PerProcess, forked, generation};
pub use signals::leave_signals;
