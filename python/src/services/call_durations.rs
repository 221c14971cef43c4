//! Durations of calls and of events of a node, as rows and with Python's types of errors.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tidewire_node::raw::CallDurations;

/// Counts one duration, and the type of its error.
pub fn note(py: Python<'_>, all: &CallDurations, kind: usize, name: &str, took: Duration, error: Option<&PyErr>) {
    let error = error.and_then(|error| error.get_type(py).name().ok());
    let error = error.as_ref().map_or("".into(), |error| error.to_string_lossy());
    all.record(kind, name, &error, took);
}

/// All of them, as rows.
pub fn rows<'py>(py: Python<'py>, all: &CallDurations) -> PyResult<Bound<'py, PyList>> {
    let rows = PyList::empty(py);
    for one in all.rows() {
        let row = PyDict::new(py);
        row.set_item("kind", one.kind)?;
        row.set_item("name", one.name)?;
        row.set_item("error", one.error)?;
        row.set_item("calls", one.calls)?;
        row.set_item("buckets", one.buckets.to_vec())?;
        row.set_item("sum_us", one.sum_us)?;
        rows.append(row)?;
    }
    Ok(rows)
}
