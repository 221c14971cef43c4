//! Fork handling: objects with threads or sockets stay with the parent, and the child makes its
//! own.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ops::Deref;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use tidewire_engine::raw::{generation, identity, leave_parent};

use super::attach;
use crate::errors::error;

/// From now on, each child of a fork knows that it is one, and no fork falls into an attachment.
///
/// Python calls its hooks in the child in the order in which they were registered. Between two of
/// them the interpreter may call back what waited for it in the parent, or drop something of ours.
/// So the child leaves its parent by `pthread_atfork`, before any hook.
pub fn watch(py: Python<'_>) -> PyResult<()> {
    extern "C" fn in_child() {
        close_descriptors(leave_parent());
    }
    // SAFETY: the handler changes atomic numbers and state of its own thread, allocates, and makes
    // system calls, which is allowed on the one thread of a child: the C library releases the locks
    // of its allocator before. It stays where it is: an extension module is never unloaded. A child
    // that shares the memory of its parent (`vfork`) doesn't call it.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    if failed != 0 {
        let text =
            "tidewire: the system takes no more handlers of forks (pthread_atfork): free memory, and import it again";
        return Err(PyOSError::new_err((failed, text)));
    }
    let hooks = [
        ("before", wrap_pyfunction!(attach::before_fork, py)?),
        ("after_in_parent", wrap_pyfunction!(attach::after_fork_in_parent, py)?),
    ];
    py.import("os")?.call_method("register_at_fork", (), Some(&hooks.into_py_dict(py)?)).map(drop)
}

/// Gives back what a child got of its parent's sockets, ports and locks of folders.
///
/// Objects of the parent in the memory of the child still have the numbers of these descriptors. So
/// the numbers stay taken, by `/dev/null`: a late close or write can't meet a file of the child.
/// The parent's own descriptors are untouched: nothing is shut down or unlocked.
fn close_descriptors(of_parent: impl Iterator<Item = (i32, u64)>) {
    // SAFETY: the path ends with a zero.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    for (number, before) in of_parent {
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

/// The error of what belongs to the parent of this process.
#[cold]
pub fn past(py: Python<'_>) -> PyErr {
    let text = "this object was made before a fork, and its threads stayed in the parent process: \
         make a new node or pool in the child, or start processes with spawn or forkserver";
    error(py, "ForkedError", text, &[])
}

#[cold]
fn leave(py: Python<'_>, failure: Option<PyErr>) -> ! {
    let failure = failure.map(|failure| failure.into_value(py));
    let left = PyModule::import(py, "tidewire._runtime.process_state")
        .and_then(|module| module.getattr("leave")?.call1((failure,)));
    if let Err(failure) = left {
        failure.write_unraisable(py, None);
    }
    std::process::abort()
}

/// An object of the process that made it. The child of a fork refuses it and never drops it: the
/// drop would wait for locks that no thread releases there, or end something that the parent still
/// uses.
pub struct PerProcessOwned<T> {
    /// Some until it is dropped.
    value: Option<T>,
    generation: u32,
}

impl<T> PerProcessOwned<T> {
    pub fn new(value: T) -> Self {
        Self { value: Some(value), generation: generation() }
    }

    /// False after a fork: this process is the child, and the object belongs to the parent.
    #[inline]
    pub fn is_mine(&self) -> bool {
        self.generation == generation()
    }

    /// It, or a `ForkedError` if it belongs to the parent.
    #[inline]
    pub fn checked(&self, py: Python<'_>) -> PyResult<&T> {
        if self.is_mine() { Ok(self) } else { Err(past(py)) }
    }

    #[inline]
    pub fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.checked(py).map(drop)
    }

    /// Returns the result of a handler in the process of this object. A child that the handler has
    /// forked ends here, because the threads that would go on are the parent's.
    #[inline]
    pub fn back<R>(&self, py: Python<'_>, result: PyResult<R>) -> PyResult<R> {
        if !self.is_mine() {
            leave(py, result.err());
        }
        result
    }

    /// It, if it belongs to this process.
    pub fn mine(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_mine())
    }

    /// The same, to be changed.
    pub fn mine_mut(&mut self) -> Option<&mut T> {
        if self.is_mine() { self.value.as_mut() } else { None }
    }

    /// Takes it out where this is dropped, if it belongs to this process.
    pub fn take_mine(&mut self) -> Option<T> {
        if self.is_mine() { self.value.take() } else { None }
    }

    /// Takes it out, if it belongs to this process.
    pub fn into_mine(mut self) -> Option<T> {
        self.take_mine()
    }
}

impl<T> Deref for PerProcessOwned<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("it is taken out only where it goes itself"),
        }
    }
}

impl<T> Drop for PerProcessOwned<T> {
    fn drop(&mut self) {
        if !self.is_mine() {
            let _leaked = ManuallyDrop::new(self.value.take());
        }
    }
}
