//! Objects made of memory that they consume. Each page is released as soon as it has been copied,
//! so that a long payload and the object made of it are not both in memory as a whole.
//!
//! Invariant: memory that is written to here, or released, is a slice that the caller alone has, or
//! an object that nobody has seen yet. Miri can't call Python; `tests/links/test_link_memory.py`
//! reads each of them back.
#![allow(unsafe_code)]

use std::ffi::c_char;
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

/// Bytes that are copied before their memory is released.
pub const STEP_BYTES: usize = 1 << 20;
/// Shorter payloads are not released: getting the same memory again costs more than holding it for
/// a moment.
pub const LONG_BYTES: usize = 4 << 20;
/// A text grows by this part of its length: more often would copy it more often, where it can't
/// grow in its place.
const TEXT_STEPS: usize = 32;

/// Returns whole pages to the system. Their content is lost: they read as zeros.
#[cfg(target_os = "linux")]
pub fn release_pages(bytes: &mut [u8]) {
    let page = rustix::param::page_size();
    let skipped = bytes.as_ptr().align_offset(page);
    let Some(rest) = bytes.get_mut(skipped..) else { return };
    let whole = rest.len() - rest.len() % page;
    if whole > 0 {
        let advice = rustix::mm::Advice::LinuxDontNeed;
        // SAFETY: the pages lie within a slice that nobody else has. Zeros are bytes like any
        // other. A failure changes nothing.
        let _ = unsafe { rustix::mm::madvise(rest.as_mut_ptr().cast(), whole, advice) };
    }
}

/// Other systems don't promise to take pages back at once.
#[cfg(not(target_os = "linux"))]
pub fn release_pages(_: &mut [u8]) {}

/// Asks the system for all pages of memory that is about to be written: one after the other they
/// would cost twice as much.
#[cfg(target_os = "linux")]
fn get(bytes: *mut u8, length: usize) {
    let page = rustix::param::page_size();
    let skipped = bytes.align_offset(page);
    let whole = length.saturating_sub(skipped) / page * page;
    if whole > 0 {
        let advice = rustix::mm::Advice::LinuxPopulateWrite;
        // SAFETY: it changes no byte. A failure changes nothing.
        let _ = unsafe { rustix::mm::madvise(bytes.wrapping_add(skipped).cast(), whole, advice) };
    }
}

#[cfg(not(target_os = "linux"))]
fn get(_: *mut u8, _: usize) {}

/// The bytes of a slice that is used up.
pub fn bytes<'py>(py: Python<'py>, from: &mut [u8]) -> PyResult<Bound<'py, PyBytes>> {
    let length = from.len() as ffi::Py_ssize_t;
    // SAFETY: without content it makes an object whose bytes are still to be written, or fails with
    // an exception.
    let object = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(ptr::null(), length))? };
    // SAFETY: it has capacity for as many bytes, and nobody has seen it yet.
    unsafe { fill(ffi::PyBytes_AsString(object.as_ptr()), from) };
    Ok(object.cast_into()?)
}

/// The same as a `bytearray`.
pub fn bytearray<'py>(py: Python<'py>, from: &mut [u8]) -> PyResult<Bound<'py, PyByteArray>> {
    let length = from.len() as ffi::Py_ssize_t;
    // SAFETY: as for `bytes`.
    let object = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyByteArray_FromStringAndSize(ptr::null(), length))? };
    // SAFETY: as for `bytes`.
    unsafe { fill(ffi::PyByteArray_AsString(object.as_ptr()), from) };
    Ok(object.cast_into()?)
}

/// The text of a slice of UTF-8 that is used up.
pub fn text<'py>(py: Python<'py>, from: &mut [u8]) -> PyResult<Bound<'py, PyString>> {
    let Some(shape) = (from.len() >= LONG_BYTES).then(|| TextShape::of(from)).flatten() else {
        return PyString::from_bytes(py, from);
    };
    let step = STEP_BYTES.max(from.len() / TEXT_STEPS);
    let (first, mut rest) = from.split_at_mut(boundary(from, step));
    let mut whole = shape.begun(py, first)?.into_ptr();
    release_pages(first);
    while !rest.is_empty() {
        let (next, after) = rest.split_at_mut(boundary(rest, step));
        let piece = PyString::from_bytes(py, next)?;
        // SAFETY: `whole` is the only reference to a text. It is replaced by a longer one, or by
        // null with an exception.
        unsafe { ffi::PyUnicode_Append(&mut whole, piece.as_ptr()) };
        if whole.is_null() {
            return Err(PyErr::fetch(py));
        }
        release_pages(next);
        rest = after;
    }
    // SAFETY: it is not null, and this is the only reference to it.
    let whole = unsafe { Bound::from_owned_ptr(py, whole) };
    Ok(whole.cast_into()?)
}

/// Length and width of a text before it is made.
struct TextShape {
    characters: usize,
    /// Its widest character: Python takes as many bytes for each as this one needs.
    widest: char,
}

impl TextShape {
    /// None: it is no UTF-8.
    fn of(from: &[u8]) -> Option<Self> {
        let text = str::from_utf8(from).ok()?;
        if text.is_ascii() {
            return Some(Self { characters: text.len(), widest: 'x' });
        }
        // First bytes grow with their characters; those that go on with one are below.
        let first = from.iter().copied().max()?;
        let widest = if first >= 0xf0 {
            '\u{10000}'
        } else if first >= 0xc4 {
            '\u{100}'
        } else {
            '\u{80}'
        };
        Some(Self { characters: characters(from), widest })
    }

    /// The first piece, as wide as the whole has to be and in a place where it can grow to that:
    /// neither costs a copy later.
    fn begun<'py>(&self, py: Python<'py>, first: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let length = characters(first);
        let mut widest = [0; 4];
        let mut piece = if self.widest.is_ascii() {
            PyString::from_bytes(py, first)?.into_ptr()
        } else {
            PyString::from_bytes(py, &[first, self.widest.encode_utf8(&mut widest).as_bytes()].concat())?.into_ptr()
        };
        for wanted in [self.characters, length] {
            // SAFETY: it is the only reference to a text that nobody has seen. After a failure it
            // stays as it is. Its excess characters are never read.
            if unsafe { ffi::PyUnicode_Resize(&mut piece, wanted as ffi::Py_ssize_t) } < 0 {
                // SAFETY: as above.
                drop(unsafe { Bound::from_owned_ptr(py, piece) });
                return Err(PyErr::fetch(py));
            }
        }
        // SAFETY: it is not null, and this is the only reference to it.
        Ok(unsafe { Bound::from_owned_ptr(py, piece) })
    }
}

fn characters(text: &[u8]) -> usize {
    text.iter().filter(|&&byte| !goes_on(byte)).count()
}

/// True for a continuation byte of UTF-8: its first bits are 10.
fn goes_on(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// Where a character ends, near `step`.
fn boundary(text: &[u8], step: usize) -> usize {
    if step >= text.len() {
        return text.len();
    }
    // Three bytes at most go on with a character.
    (step - 3..=step).rev().find(|&at| !goes_on(text[at])).unwrap_or(step)
}

/// # Safety
/// There is capacity for as many bytes at `to`, and nobody else looks at it.
unsafe fn fill(to: *mut c_char, from: &mut [u8]) {
    let is_long = from.len() >= LONG_BYTES;
    let mut to = to.cast::<u8>();
    for step in from.chunks_mut(STEP_BYTES) {
        if is_long {
            get(to, step.len());
        }
        // SAFETY: the caller promises the capacity. An object that was just made does not overlap
        // with a slice.
        unsafe {
            ptr::copy_nonoverlapping(step.as_ptr(), to, step.len());
            to = to.add(step.len());
        }
        if is_long {
            release_pages(step);
        }
    }
}
