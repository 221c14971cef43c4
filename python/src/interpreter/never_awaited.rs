//! The `RuntimeWarning` of an operation that was never awaited, as asyncio gives it for coroutines.

use std::sync::OnceLock;

use pyo3::prelude::*;

use crate::interpreter::once::Once;

/// A single warning. It shows the place of the operation if the interpreter records it (`-X dev`).
pub struct NeverAwaited(Option<Py<PyAny>>);

impl NeverAwaited {
    /// Note where this is made.
    pub fn here(py: Python<'_>) -> PyResult<Self> {
        static MADE_AT: Once<Py<PyAny>> = Once::new();
        static TRACES: OnceLock<bool> = OnceLock::new();
        let traces = match TRACES.get() {
            Some(traces) => *traces,
            None => {
                // Found before the cell is taken: the import releases the interpreter, and another
                // thread would wait for the cell with it.
                let found = traces_origins(py)?;
                *TRACES.get_or_init(|| found)
            }
        };
        let made_at =
            if traces { Some(MADE_AT.of(py, "tidewire._runtime.futures", "made_at")?.call0()?.unbind()) } else { None };
        Ok(Self(made_at))
    }

    /// Warn of an operation under this title.
    pub fn remind(self, py: Python<'_>, title: &str) {
        // The drop may happen while an error is raised.
        let pending = PyErr::take(py);
        let warned = PyModule::import(py, "tidewire._runtime.futures")
            .and_then(|module| module.getattr("never_awaited")?.call1((title, self.0)).map(drop));
        if let Err(error) = warned {
            error.write_unraisable(py, None);
        }
        if let Some(error) = pending {
            error.restore(py);
        }
    }
}

/// True if asyncio, too, records where coroutines were made.
fn traces_origins(py: Python<'_>) -> PyResult<bool> {
    PyModule::import(py, "tidewire._runtime.futures")?.getattr("TRACES")?.extract()
}
