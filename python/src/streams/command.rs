//! Commands for Python: conversions of the calls of the node's store.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tidewire_backend::home::{HomeError, HomeErrorKind};
use tidewire_node::Error;
use tidewire_node::streams::{CommandInfo, CommandRecord, Reported};
use tidewire_node::values::to_bytes;

use super::results::{each, raise};

/// A value as it travels.
fn encoded(py: Python<'_>, bytes: Result<Vec<u8>, Error>) -> PyResult<Py<PyAny>> {
    let bytes = bytes.map_err(|wrong| raise(py, &HomeError::new(HomeErrorKind::Invalid, wrong.message())))?;
    Ok(PyBytes::new(py, &bytes).into_any().unbind())
}

/// Gives true if the command is over, and the record.
pub fn record(py: Python<'_>, (record, _): (CommandRecord, u64)) -> PyResult<Py<PyAny>> {
    (record.is_over(), encoded(py, to_bytes(&record))?).into_py_any(py)
}

pub fn reported(py: Python<'_>, Reported { report, after, is_over }: Reported) -> PyResult<Py<PyAny>> {
    (report, after, is_over).into_py_any(py)
}

pub fn info(py: Python<'_>, info: CommandInfo) -> PyResult<Py<PyAny>> {
    encoded(py, to_bytes(&info))
}

pub fn infos(py: Python<'_>, infos: Vec<CommandInfo>) -> PyResult<Py<PyAny>> {
    each(py, infos, info)
}
