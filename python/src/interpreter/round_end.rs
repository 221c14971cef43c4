//! Tasks at the end of a round of the event loop of this thread.

use pyo3::prelude::*;
use tidewire_engine::raw::Mutex;

use super::PerProcessOwned;
use super::attach::detach;
use crate::actors::bridge::known_line;

/// Runs a task without the interpreter at the end of this round of the thread's event loop; at once
/// on a thread without a loop, and when the loop is closed.
pub fn at_round_end(py: Python<'_>, task: impl FnOnce() + Send + 'static) {
    let Some(line) = known_line(py) else { return detach(py, task) };
    let task: Task = Mutex::new(Some(Box::new(task)));
    if let Ok(callback) = Py::new(py, RoundEnd(PerProcessOwned::new(task))) {
        line.soon(py, callback.into_any());
    }
}

type Task = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// The callback of the loop. If the loop drops it, it runs the task then, apart from the child of a
/// fork.
#[pyclass(frozen, module = "tidewire._tidewire")]
struct RoundEnd(PerProcessOwned<Task>);

#[pymethods]
impl RoundEnd {
    fn __call__(&self, py: Python<'_>) {
        let task = self.0.mine().and_then(|task| task.lock().take());
        if let Some(task) = task {
            detach(py, task);
        }
    }
}

impl Drop for RoundEnd {
    fn drop(&mut self) {
        if let Some(task) = self.0.take_mine().and_then(|task| task.lock().take()) {
            task();
        }
    }
}
