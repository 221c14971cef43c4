//! Values between processes: Python objects as MessagePack with extensions, and buffers beside it.
//! The form is in `spec/values.md`.

mod blob;
mod consumable_buffer;
mod decode;
mod elements;
mod encode;
mod extensions;
mod failure;
mod hashes;
mod key_cache;
mod memory;
mod options;
mod plans;
mod reader;
mod times;
mod typed;
mod writer;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tidewire_proto::generated::limits;

use crate::arguments::Name;
pub use blob::Blob;
use decode::Decoder;
use encode::Encoder;
pub use failure::shown;
use options::{BytesMax, Hook};
pub use times::{instant, moment};

/// Containers within each other, at most.
const DEPTH: usize = limits::VALUE_DEPTH.default as usize;
/// Bytes that are written into the head; more become a buffer.
const INLINE_BYTES: usize = limits::VALUE_INLINE_BYTES.default as usize;
/// Most bytes of a blob when the call says nothing.
const PAYLOAD_BYTES: usize = limits::PAYLOAD_BYTES.default as usize;

/// Writes a value as one blob. The hook is asked for what stands for functions and objects; the
/// path begins with `name`.
#[pyfunction]
#[pyo3(
    signature = (value, hook = None, bytes_max = BytesMax(PAYLOAD_BYTES), name = Name("value")),
    text_signature = "(value, hook=None, bytes_max=268435456, name='value')"
)]
pub fn encode_value<'py>(
    value: &Bound<'py, PyAny>,
    hook: Option<Hook<'_, 'py>>,
    bytes_max: BytesMax,
    name: Name<'_>,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = value.py();
    let mut encoder = Encoder::new(py, hook.as_ref().map(|hook| &*hook.0), bytes_max.0);
    let written = encoder.value(value).and_then(|()| encoder.check_size());
    written.map_err(|failure| failure.raise(py, name.0, bytes_max.0))?;
    encoder.finish()
}

/// Writes a value of this name for a link, as [`encode_value`] does. A single long `bytes` is not
/// copied.
pub fn encode<'py>(
    value: &Bound<'py, PyAny>,
    name: &str,
    bytes_max: usize,
    hook: Option<&Bound<'py, PyAny>>,
) -> PyResult<Blob> {
    let mut encoder = Encoder::new(value.py(), hook, bytes_max);
    let written = encoder.value(value).and_then(|()| encoder.check_size());
    written.map_err(|failure| failure.raise(value.py(), name, bytes_max))?;
    encoder.into_blob()
}

/// Reads the value of a blob that lies in memory of a link. Large parts are copied once.
pub fn decode<'py>(py: Python<'py>, blob: &[u8], hook: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
    blob::with_parts_of(py, blob, |head, parts| Decoder::new(py, head, parts, hook).whole())
}

/// True if a blob of this length is worth being [used up](use_up). A shorter one is copied, which
/// costs nothing.
pub fn is_long(bytes: usize) -> bool {
    bytes > blob::KEPT_BYTES
}

/// Reads the value of a blob in memory of its own, which is used up. Long parts are released as
/// soon as they have been read, and an array that is nearly all of the blob uses its memory.
pub fn use_up<'py>(
    py: Python<'py>,
    (bytes, begin): (Vec<u8>, usize),
    hook: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if !is_long(bytes.len() - begin) {
        return decode(py, &bytes[begin..], hook);
    }
    tidewire_node::raw::keep_freed(bytes.len());
    blob::with_own_parts(py, bytes, begin, |head, parts| Decoder::new(py, head, parts, hook).whole())
}

/// Reads the value of a blob. The hook makes objects of what stands for them.
#[pyfunction]
#[pyo3(signature = (data, hook = None))]
pub fn decode_value<'py>(data: &Bound<'py, PyAny>, hook: Option<Hook<'_, 'py>>) -> PyResult<Bound<'py, PyAny>> {
    let hook = hook.as_ref().map(|hook| &*hook.0);
    blob::with_parts(data, |head, parts| Decoder::new(data.py(), head, parts, hook).whole())
}
