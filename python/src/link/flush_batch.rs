//! Frames that a thread with an event loop writes together, at the end of a round of that loop.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use tidewire_node::raw::Flusher;

use crate::actors::bridge::known_line;
use crate::interpreter::PerProcessOwned;
use crate::interpreter::round_end::at_round_end;

thread_local! {
    static GATHERING: RefCell<Option<PerProcessOwned<FlushBatch>>> = const { RefCell::new(None) };
}

/// The frames that this thread flushes at the end of a round of its loop.
struct FlushBatch {
    link: usize,
    frames: usize,
    /// Bytes of payloads since something was written.
    bytes: usize,
    /// False once the task that writes has run.
    planned: Arc<AtomicBool>,
}

/// Writes a frame with a payload of so many bytes at the end of this round of the loop, if this is
/// the thread of one. Returns true if it will.
pub fn flush_soon(py: Python<'_>, flusher: &Flusher, bytes: usize) -> bool {
    joined_gathering(flusher, py, bytes) || plan_flush(py, flusher, bytes)
}

/// Adds a frame to the batch that this thread will write at the end of this round of its loop.
/// Returns false if there is no batch.
pub fn joined_gathering(flusher: &Flusher, py: Python<'_>, bytes: usize) -> bool {
    let Some(enough) = gathered(flusher, bytes) else { return false };
    if enough {
        // The other side begins while the round of the loop goes on, and what is written is still
        // in the caches of the processor.
        crate::interpreter::attach::detach(py, || flusher.flush());
    }
    true
}

/// Counts one more frame, if this thread will write the link anyway. Returns true if there are
/// enough frames for a write.
fn gathered(flusher: &Flusher, bytes: usize) -> Option<bool> {
    GATHERING.with_borrow_mut(|gathering| {
        let link = flusher.address();
        let planned = |one: &&mut FlushBatch| one.link == link && one.planned.load(Ordering::Relaxed);
        let gathering = gathering.as_mut()?.mine_mut().filter(planned)?;
        gathering.frames += 1;
        gathering.bytes += bytes;
        let batch = flusher.batch();
        let enough = gathering.frames >= batch.frames || gathering.bytes >= batch.bytes;
        if enough {
            (gathering.frames, gathering.bytes) = (0, 0);
        }
        Some(enough)
    })
}

fn plan_flush(py: Python<'_>, flusher: &Flusher, bytes: usize) -> bool {
    if known_line(py).is_none() {
        return false;
    }
    let planned = Arc::new(AtomicBool::new(true));
    let (task, waits) = (flusher.clone(), Arc::clone(&planned));
    at_round_end(py, move || {
        waits.store(false, Ordering::Relaxed);
        task.flush();
    });
    GATHERING.set(Some(PerProcessOwned::new(FlushBatch { link: flusher.address(), frames: 1, bytes, planned })));
    true
}
