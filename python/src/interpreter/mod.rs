//! The interpreter: threads that attach to it, forks, event loops and waits.

pub mod asyncio;
pub mod attach;
pub mod exit;
mod fork;
pub mod never_awaited;
pub mod once;
pub mod pause;
pub mod py_ref;
pub mod round_end;
pub mod steps;
pub mod wait;

pub use fork::{PerProcessOwned, past};
use pyo3::prelude::*;

/// To be called once, while this module is loaded.
pub fn start(py: Python<'_>) -> PyResult<()> {
    fork::watch(py)?;
    once::fill_foreign(py)
}
