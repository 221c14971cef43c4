//! Memory of a message that an array uses in place.

use std::ops::Range;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::interpreter::once::intern;

/// Bytes that NumPy uses where they are, and may write to. They live as long as the arrays over
/// them.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Elements {
    /// Nobody looks at it here any more: the arrays have its address.
    _memory: Vec<u8>,
    address: usize,
    length: usize,
}

impl Elements {
    pub fn new(mut memory: Vec<u8>, range: Range<usize>) -> Self {
        let length = range.len();
        let address = memory[range].as_mut_ptr() as usize;
        Self { _memory: memory, address, length }
    }
}

#[pymethods]
impl Elements {
    fn __len__(&self) -> usize {
        self.length
    }

    /// The array interface of NumPy.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item(intern!(py, "version"), 3)?;
        interface.set_item(intern!(py, "typestr"), intern!(py, "|u1"))?;
        interface.set_item(intern!(py, "shape"), (self.length,))?;
        interface.set_item(intern!(py, "data"), (self.address, false))?;
        Ok(interface)
    }
}
