//! Counts forks, before anything else runs in the child.
//!
//! Python calls what is to be done after a fork in the order in which it was registered, ours
//! behind that of `threading` and of whatever was loaded before. Between two steps of those the
//! interpreter may call back what waited for it in the parent, or drop something of ours: that must
//! meet the child's own locks already, because another thread may hold the parent's.

#![allow(unsafe_code)]

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use tidewire_engine::raw::forked;

/// From now on, each child of a fork knows that it is one.
pub fn count() -> PyResult<()> {
    extern "C" fn in_child() {
        forked();
    }
    // SAFETY: all it does is to add to an atomic number, which is allowed on the one thread of a
    // child. It stays where it is: an extension module is never unloaded. A child that shares the
    // memory of its parent (`vfork`) doesn't call it.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    if failed == 0 {
        return Ok(());
    }
    let text =
        "tidewire: the system takes no more handlers of forks (pthread_atfork): free memory, and import it again";
    Err(PyOSError::new_err((failed, text)))
}
