//! Frames that a thread with an event loop writes together, at the end of a round of that loop.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use tidewire_link::Flusher;

thread_local! {
    static GATHERING: RefCell<Option<Gathering>> = const { RefCell::new(None) };
}

/// What this thread writes at the end of the round of its loop.
struct Gathering {
    link: usize,
    frames: u32,
    /// False once the task that writes has run, or is gone with its loop.
    planned: Arc<AtomicBool>,
}

/// In the child of a fork: what this thread had gathered is the parent's to write.
pub fn after_fork() {
    GATHERING.take();
}

/// Writes at the end of this round of the loop, if this is the thread of one. Answers whether it will.
pub fn flush_soon(py: Python<'_>, flusher: &Flusher) -> bool {
    joined_gathering(flusher, py) || plan_flush(py, flusher)
}

/// Adds a frame to what this thread will write at the end of this round of its loop anyway. Answers whether there is such a thing.
pub fn joined_gathering(flusher: &Flusher, py: Python<'_>) -> bool {
    let Some(frames) = gathered(flusher.address()) else { return false };
    if (frames as usize).is_multiple_of(flusher.batch_frames()) {
        // The other side begins while the round of the loop goes on.
        crate::attach::detach(py, || flusher.flush());
    }
    true
}

/// Counts one more frame, if this thread will write the link anyway.
fn gathered(link: usize) -> Option<u32> {
    GATHERING.with_borrow_mut(|gathering| {
        let planned = |one: &&mut Gathering| one.link == link && one.planned.load(Ordering::Relaxed);
        let gathering = gathering.as_mut().filter(planned)?;
        gathering.frames += 1;
        Some(gathering.frames)
    })
}

fn plan_flush(py: Python<'_>, flusher: &Flusher) -> bool {
    let Some(line) = crate::bridge::known_line(py) else { return false };
    let planned = Arc::new(AtomicBool::new(true));
    let task = FlushTask { flusher: flusher.clone(), planned: Arc::clone(&planned) };
    let soon = Py::new(py, task).is_ok_and(|task| line.soon(py, task.into_any()));
    if soon {
        GATHERING.set(Some(Gathering { link: flusher.address(), frames: 1, planned }));
    }
    soon
}

/// What a loop calls to write what has gathered.
#[pyclass(frozen, module = "tidewire._tidewire")]
struct FlushTask {
    flusher: Flusher,
    planned: Arc<AtomicBool>,
}

#[pymethods]
impl FlushTask {
    fn __call__(&self, py: Python<'_>) {
        self.planned.store(false, Ordering::Relaxed);
        crate::attach::detach(py, || self.flusher.flush());
    }
}

impl Drop for FlushTask {
    fn drop(&mut self) {
        // A loop that is closed may not have called it.
        self.planned.store(false, Ordering::Relaxed);
    }
}
