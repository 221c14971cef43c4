//! Arguments of the calls. An invalid one raises `InvalidArgument` with the field, its value and
//! the fix.

use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::errors::error;
use crate::values::failure::shown;

/// Most bytes that a blob may take.
pub struct BytesMax(pub usize);

impl FromPyObject<'_, '_> for BytesMax {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let number = if value.is_instance_of::<PyBool>() { None } else { value.extract().ok() };
        number.map(Self).ok_or_else(|| refuse(&value, "bytes_max", "give a number of bytes, 0 or more"))
    }
}

/// The hook of a call: replaces objects by references, or makes objects of references.
pub struct Hook<'a, 'py>(pub Borrowed<'a, 'py, PyAny>);

impl<'a, 'py> FromPyObject<'a, 'py> for Hook<'a, 'py> {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if value.is_callable() { Ok(Self(value)) } else { Err(refuse(&value, "hook", "give a function, or None")) }
    }
}

#[cold]
fn refuse(value: &Bound<'_, PyAny>, field: &str, fix: &str) -> PyErr {
    error(value.py(), "InvalidArgument", &format!("{field}: {} is not allowed: {fix}", shown(value)), &[])
}
