//! Cache of map keys, which repeat: short keys are stored as Python strings, with their hashes.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::interpreter::py_ref::PyRef;

/// Longest key that is stored.
const LONGEST: usize = 32;
/// Keys that a thread keeps. A key replaces another one in its slot.
const SLOTS: usize = 512;

struct KeyCache {
    length: usize,
    bytes: [u8; LONGEST],
    key: PyRef<PyString>,
}

thread_local! {
    static KEPT: RefCell<Vec<Option<KeyCache>>> = const { RefCell::new(Vec::new()) };
}

/// The string of UTF-8 bytes.
pub fn key<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    if bytes.is_empty() || bytes.len() > LONGEST {
        return PyString::from_bytes(py, bytes);
    }
    KEPT.with_borrow_mut(|cache| {
        if cache.is_empty() {
            cache.resize_with(SLOTS, || None);
        }
        let slot = &mut cache[slot(bytes)];
        match slot {
            Some(cached) if cached.bytes[..cached.length] == *bytes => Ok(cached.key.bind(py).clone()),
            _ => keep(py, bytes, slot),
        }
    })
}

fn keep<'py>(py: Python<'py>, bytes: &[u8], slot: &mut Option<KeyCache>) -> PyResult<Bound<'py, PyString>> {
    let key = PyString::from_bytes(py, bytes)?;
    let mut copy = [0; LONGEST];
    copy[..bytes.len()].copy_from_slice(bytes);
    *slot = Some(KeyCache { length: bytes.len(), bytes: copy, key: key.clone().into() });
    Ok(key)
}

fn slot(bytes: &[u8]) -> usize {
    let hash = bytes
        .iter()
        .fold(bytes.len() as u32, |hash, byte| hash.rotate_left(5) ^ u32::from(*byte))
        .wrapping_mul(0x9e37_79b9);
    (hash >> 16) as usize % SLOTS
}
