//! Fork handling: objects with threads or sockets stay with the parent, and the child makes its
//! own.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use pyo3::prelude::*;
use tidewire_engine::raw::generation;

use crate::errors::error;

/// The process in which an object was made, as a count of forks.
#[derive(Clone, Copy)]
pub struct ForkGeneration(u32);

impl ForkGeneration {
    pub fn now() -> Self {
        Self(generation())
    }

    /// True after a fork: this process is the child, and the object belongs to the parent.
    #[inline]
    pub fn is_past(self) -> bool {
        self.0 != generation()
    }

    #[inline]
    pub fn check(self, py: Python<'_>) -> PyResult<()> {
        if self.is_past() { Err(past(py)) } else { Ok(()) }
    }

    /// Returns the handler's result in the process of the engine. A child that the handler has
    /// forked ends here, because the threads that would go on are the parent's.
    #[inline]
    pub fn back<T>(self, py: Python<'_>, result: PyResult<T>) -> PyResult<T> {
        if self.is_past() {
            leave(py, result.err());
        }
        result
    }
}

/// The error of what belongs to the parent of this process.
#[cold]
pub fn past(py: Python<'_>) -> PyErr {
    let text = "this node was started before a fork, and its threads stayed in the parent process: make a new node in the child";
    error(py, "NodeStopped", text, &[])
}

#[cold]
fn leave(py: Python<'_>, failure: Option<PyErr>) -> ! {
    let failure = failure.map(|failure| failure.into_value(py));
    let left = PyModule::import(py, "tidewire._runtime.fork_handlers")
        .and_then(|forking| forking.getattr("leave")?.call1((failure,)));
    if let Err(failure) = left {
        failure.write_unraisable(py, None);
    }
    std::process::abort()
}

/// An object that the child of a fork never drops: the drop would wait for locks that no thread
/// releases there, or end something that the parent still uses.
pub struct PerProcessOwned<T> {
    /// Some until it is dropped.
    value: Option<T>,
    pub born: ForkGeneration,
}

impl<T> PerProcessOwned<T> {
    pub fn new(value: T) -> Self {
        Self { value: Some(value), born: ForkGeneration::now() }
    }

    /// It, if it belongs to this process.
    pub fn mine(&self) -> Option<&T> {
        if self.born.is_past() { None } else { self.value.as_ref() }
    }

    /// The same, to be changed.
    pub fn mine_mut(&mut self) -> Option<&mut T> {
        if self.born.is_past() { None } else { self.value.as_mut() }
    }

    /// Takes it out where this is dropped, if it belongs to this process.
    pub fn take_mine(&mut self) -> Option<T> {
        if self.born.is_past() { None } else { self.value.take() }
    }

    /// Takes it out, if it belongs to this process.
    pub fn into_mine(mut self) -> Option<T> {
        if self.born.is_past() { None } else { self.value.take() }
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
        if self.born.is_past() {
            let _kept = ManuallyDrop::new(self.value.take());
        }
    }
}
