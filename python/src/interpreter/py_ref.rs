//! References to Python objects that any thread may release.
//!
//! A reference that PyO3 drops on a thread without the interpreter goes into a list under a lock of
//! PyO3's. A fork may fall into that moment, and the child then waits for the lock for ever. The
//! list here is a new one in each child.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use tidewire_engine::raw::{Mutex, PerProcess};

use crate::interpreter::attach::{call_soon, is_attached};

static LEFT: PerProcess<Mutex<Vec<Box<dyn Send>>>> = PerProcess::new();
/// True if the list may have entries.
static SOME_LEFT: AtomicBool = AtomicBool::new(false);

/// An object that is dropped at once on a thread with the interpreter. Otherwise the next thread
/// that attaches to the interpreter drops it.
pub struct DroppedAttached<T: Send + 'static>(Option<T>);

/// A reference to a Python object.
pub type PyRef<T> = DroppedAttached<Py<T>>;

impl<T: Send> DroppedAttached<T> {
    pub fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T> PyRef<T> {
    /// No reference: there is nothing to be looked at.
    pub fn nothing() -> Self {
        Self(None)
    }

    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        Self(self.0.as_ref().map(|object| object.clone_ref(py)))
    }

    /// The reference itself, for a caller that has the interpreter.
    pub fn into_py(mut self) -> Py<T> {
        match self.0.take() {
            Some(object) => object,
            None => unreachable!("it is taken out only where it goes itself"),
        }
    }
}

impl<T> From<Py<T>> for PyRef<T> {
    #[inline]
    fn from(object: Py<T>) -> Self {
        Self(Some(object))
    }
}

impl<T> From<Bound<'_, T>> for PyRef<T> {
    #[inline]
    fn from(object: Bound<'_, T>) -> Self {
        Self(Some(object.unbind()))
    }
}

impl<'py, T> IntoPyObject<'py> for PyRef<T> {
    type Target = T;
    type Output = Bound<'py, T>;
    type Error = std::convert::Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        Ok(self.into_py().into_bound(py))
    }
}

impl<T: Send> Deref for DroppedAttached<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.0 {
            Some(value) => value,
            None => unreachable!("it is taken out only where it goes itself"),
        }
    }
}

impl<T: Send> Drop for DroppedAttached<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            if is_attached() { drop(value) } else { leave(Box::new(value)) }
        }
    }
}

#[cold]
fn leave(value: Box<dyn Send>) {
    LEFT.get().lock().push(value);
    if !SOME_LEFT.swap(true, Ordering::AcqRel) {
        // Nothing else may ever get the interpreter through here.
        call_soon(collect);
    }
}

/// Drops what was left on threads without the interpreter.
#[inline]
pub fn collect(py: Python<'_>) {
    if SOME_LEFT.load(Ordering::Relaxed) {
        collect_now(py);
    }
}

#[cold]
fn collect_now(_py: Python<'_>) {
    if SOME_LEFT.swap(false, Ordering::Acquire) {
        // Dropped without the lock: it may run code of the user's.
        drop(std::mem::take(&mut *LEFT.get().lock()));
    }
}
