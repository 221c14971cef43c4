//! Cells that are filled once, with the interpreter held meanwhile.
//!
//! PyO3's cells release the interpreter before they begin, so that another thread can fork while
//! one is being filled. The child then finds the cell taken by a thread that it doesn't have, and
//! waits for ever.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::type_object::{PyTypeCheck, PyTypeInfo};
use pyo3::types::{PyDate, PyDateTime, PyDelta, PyList, PyMapping, PyString, PyTime, PyTzInfo};

/// Fills those cells of PyO3 that are used here, while this module is loaded. The cells for the
/// parts of dates and times are filled where `tidewire.values` is loaded.
pub fn fill_foreign(py: Python<'_>) -> PyResult<()> {
    drop([PyDate::type_object(py), PyDateTime::type_object(py), PyTime::type_object(py), PyDelta::type_object(py)]);
    drop([PyTzInfo::type_object(py), PyMapping::type_object(py)]);
    drop((PyTzInfo::utc(py)?, PyTzInfo::fixed_offset(py, PyDelta::new(py, 0, 60, 0, false)?)?));
    // Collecting an iterator asks for its length.
    PyList::empty(py).try_iter()?.collect::<PyResult<Vec<_>>>().map(drop)
}

/// A cell that is filled once. Two threads may both look for its value; the first that has it fills
/// the cell.
pub struct Once<T>(OnceLock<T>);

impl<T> Once<T> {
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    #[inline]
    pub fn get(&self, _py: Python<'_>) -> Option<&T> {
        self.0.get()
    }

    /// The value, if the cell is filled. For the garbage collector, which asks without the
    /// interpreter.
    pub fn peek(&self) -> Option<&T> {
        self.0.get()
    }

    /// Fills it, unless it is filled.
    pub fn set(&self, _py: Python<'_>, value: T) {
        self.fill(value);
    }

    /// The value, or the one that `find` finds.
    #[inline]
    pub fn get_or_init(&self, py: Python<'_>, find: impl FnOnce() -> T) -> &T {
        match self.get(py) {
            Some(value) => value,
            None => self.fill(find()),
        }
    }

    /// The value, or the one that `find` finds. After a failure the next caller tries again.
    #[inline]
    pub fn get_or_try_init<E>(&self, py: Python<'_>, find: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        match self.get(py) {
            Some(value) => Ok(value),
            None => Ok(self.fill(find()?)),
        }
    }

    /// Nothing in it releases the interpreter.
    fn fill(&self, value: T) -> &T {
        self.0.get_or_init(|| value)
    }
}

impl<T> Once<Py<T>> {
    /// The value, or an object of a module: `"get"`, or an attribute of an attribute,
    /// `"running.get"`.
    #[inline]
    pub fn of<'py>(&self, py: Python<'py>, module: &str, path: &str) -> PyResult<&Bound<'py, T>>
    where
        T: PyTypeCheck,
    {
        self.get_or_try_init(py, || find(py, module, path)).map(|found| found.bind(py))
    }
}

#[cold]
fn find<T: PyTypeCheck>(py: Python<'_>, module: &str, path: &str) -> PyResult<Py<T>> {
    let module = PyModule::import(py, module)?.into_any();
    let found = path.split('.').try_fold(module, |from, name| from.getattr(name))?;
    Ok(found.cast_into()?.unbind())
}

/// A name that is made once.
pub struct Name(&'static str, Once<Py<PyString>>);

impl Name {
    pub const fn new(text: &'static str) -> Self {
        Self(text, Once::new())
    }

    #[inline]
    pub fn get<'py>(&self, py: Python<'py>) -> &Bound<'py, PyString> {
        self.1.get_or_init(py, || PyString::intern(py, self.0).unbind()).bind(py)
    }
}

/// A name, made when this place is first reached.
macro_rules! intern {
    ($py:expr, $text:expr) => {{
        static NAME: $crate::interpreter::once::Name = $crate::interpreter::once::Name::new($text);
        NAME.get($py)
    }};
}

pub(crate) use intern;
