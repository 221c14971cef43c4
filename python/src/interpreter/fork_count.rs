//! Counts forks and closes the descriptors of the parent, before anything else runs in the child.
//!
//! Python calls what is to be done after a fork in the order in which it was registered, ours
//! behind that of `threading` and of whatever was loaded before. Between two steps of those the
//! interpreter may call back what waited for it in the parent, or drop something of ours: that must
//! meet the child's own locks already, because another thread may hold the parent's.

#![allow(unsafe_code)]

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use tidewire_engine::raw::{forked, identity, take_descriptors_of_parent};

/// From now on, each child of a fork knows that it is one.
pub fn count() -> PyResult<()> {
    extern "C" fn in_child() {
        forked();
        close_descriptors_of_parent();
    }
    // SAFETY: all it does is to add to an atomic number, to read a table of atomic numbers and to
    // make system calls, which is allowed on the one thread of a child. It stays where it is: an
    // extension module is never unloaded. A child that shares the memory of its parent (`vfork`)
    // doesn't call it.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    if failed == 0 {
        return Ok(());
    }
    let text =
        "tidewire: the system takes no more handlers of forks (pthread_atfork): free memory, and import it again";
    Err(PyOSError::new_err((failed, text)))
}

/// Gives back what a child got of its parent's sockets, ports and locks of folders.
///
/// Objects of the parent in the memory of the child still have the numbers of these descriptors. So
/// the numbers stay taken, by `/dev/null`: a late close or write can't meet a file of the child.
/// The parent's own descriptors are untouched: nothing is shut down or unlocked. The thread hooks
/// of Python come too late for this: they run after hooks of others, and not for forks of C code.
fn close_descriptors_of_parent() {
    // SAFETY: the path ends with a zero.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    for (number, before) in take_descriptors_of_parent() {
        // SAFETY: a struct of numbers, which the system fills in.
        let mut file = unsafe { std::mem::zeroed::<libc::stat>() };
        // SAFETY: the pointer is valid. A number that is not open gives an error.
        let found = unsafe { libc::fstat(number, &raw mut file) };
        if found != 0 || identity(&file) != before {
            continue;
        }
        // SAFETY: the number is a descriptor of the parent's link or folder, which nothing uses in
        // this process.
        unsafe {
            if null < 0 || libc::dup2(null, number) < 0 {
                libc::close(number);
            } else {
                libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
    }
    if null >= 0 {
        // SAFETY: opened above, and used by nothing else.
        unsafe { libc::close(null) };
    }
}
