//! The blob: a head alone, or a header, a head and buffers.

use std::ops::Range;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMemoryView, PySlice};

use tidewire_link::Pieces;
use tidewire_proto::generated::limits;

use crate::errors::error;
use crate::held::DroppedAttached;
use crate::values::forms::{ALIGNMENT, HEADER_BYTES, MARK, VERSION, gap};

/// A longer blob is cut when it is sent.
const KEPT_BYTES: usize = limits::LINK_CHUNK_BYTES.default as usize;

/// A blob as it is sent.
pub enum Blob {
    /// All of it.
    Whole(Vec<u8>),
    /// All of it, or what comes before the only buffer, and that buffer: it is kept, as it can't change.
    Kept(Vec<u8>, DroppedAttached<PyBackedBytes>),
}

impl Blob {
    /// A head with one buffer.
    pub fn of_one(head: &[u8], part: &Bound<'_, PyBytes>) -> Self {
        let bytes = part.as_bytes();
        let mut start = header(head, &[bytes.len()]);
        if start.len() + bytes.len() > KEPT_BYTES {
            return Self::Kept(start, DroppedAttached::new(PyBackedBytes::from(part.clone())));
        }
        start.extend_from_slice(bytes);
        Self::Whole(start)
    }
}

impl From<Bound<'_, PyBytes>> for Blob {
    fn from(all: Bound<'_, PyBytes>) -> Self {
        if all.as_bytes().len() > KEPT_BYTES {
            return Self::Kept(Vec::new(), DroppedAttached::new(PyBackedBytes::from(all)));
        }
        Self::Whole(all.as_bytes().to_vec())
    }
}

impl Pieces for Blob {
    fn bytes(&self) -> usize {
        match self {
            Self::Whole(all) => all.len(),
            Self::Kept(start, rest) => start.len() + rest.len(),
        }
    }

    fn piece(&self, at: usize) -> &[u8] {
        match self {
            Self::Whole(all) => &all[at..],
            Self::Kept(start, _) if at < start.len() => &start[at..],
            Self::Kept(start, rest) => &rest[at - start.len()..],
        }
    }
}

/// Bytes that a blob takes, or a little more.
pub fn length(head: usize, parts: usize, parts_bytes: usize) -> usize {
    if parts == 0 { head } else { (HEADER_BYTES + head + 16 * parts).saturating_add(parts_bytes) }
}

/// Puts a blob together. Each buffer is copied once.
pub fn join<'py>(
    py: Python<'py>,
    head: &[u8],
    parts: &[Bound<'py, PyAny>],
    lengths: &[usize],
) -> PyResult<Bound<'py, PyBytes>> {
    let start = header(head, lengths);
    let mut at = start.len();
    let start = PyBytes::new(py, &start);
    if let [part] = parts {
        return Ok(start.add(part)?.cast_into()?);
    }
    let pieces = PyList::new(py, [&start])?;
    for (part, length) in parts.iter().zip(lengths) {
        pieces.append(part)?;
        at += length;
        pieces.append(PyBytes::new(py, &[0; ALIGNMENT][..gap(at)]))?;
        at += gap(at);
    }
    pieces.del_item(pieces.len() - 1)?;
    Ok(PyBytes::new(py, b"").call_method1(intern!(py, "join"), (pieces,))?.cast_into()?)
}

/// The header and the head, up to where the first buffer begins.
fn header(head: &[u8], lengths: &[usize]) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES + 8 * lengths.len() + head.len());
    header.extend_from_slice(&[MARK, VERSION, 0, 0]);
    header.extend_from_slice(&(lengths.len() as u32).to_be_bytes());
    header.extend_from_slice(&(head.len() as u64).to_be_bytes());
    for length in lengths {
        header.extend_from_slice(&(*length as u64).to_be_bytes());
    }
    header.extend_from_slice(head);
    header.resize(header.len() + gap(header.len()), 0);
    header
}

/// Calls `read` with the head and the buffers of a blob.
pub fn with_parts<'py, R>(
    data: &Bound<'py, PyAny>,
    read: impl FnOnce(&[u8], Parts<'_, 'py>) -> PyResult<R>,
) -> PyResult<R> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return with_parts_of(data.py(), bytes.as_bytes(), read);
    }
    let view = flat(data)?;
    let start = copied(&view, 0..view.len()?.min(HEADER_BYTES))?;
    let start = copied(&view, 0..Layout::head_end(start.as_bytes(), view.len()?))?;
    let layout = Layout::of(data.py(), start.as_bytes(), view.len()?)?;
    let parts = Parts { memory: Memory::View(&view), ranges: layout.parts, next: 0 };
    read(&start.as_bytes()[layout.head], parts)
}

/// Does the same with a blob in memory that does not change.
pub fn with_parts_of<'py, R>(
    py: Python<'py>,
    all: &[u8],
    read: impl FnOnce(&[u8], Parts<'_, 'py>) -> PyResult<R>,
) -> PyResult<R> {
    let layout = Layout::of(py, all, all.len())?;
    let parts = Parts { memory: Memory::Fixed(all), ranges: layout.parts, next: 0 };
    read(&all[layout.head], parts)
}

/// Any object with memory, as a view of single bytes.
fn flat<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let view = PyMemoryView::from(data).and_then(|view| view.call_method1(intern!(data.py(), "cast"), ("B",)));
    view.map_err(|_| {
        let kind = data.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
        let text = format!("data: {kind} is not allowed: give bytes, a bytearray or a contiguous memoryview");
        error(data.py(), "InvalidArgument", &text, &[])
    })
}

fn copied<'py>(view: &Bound<'py, PyAny>, range: Range<usize>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(slice(view, range)?.call_method0(intern!(view.py(), "tobytes"))?.cast_into()?)
}

fn slice<'py>(view: &Bound<'py, PyAny>, range: Range<usize>) -> PyResult<Bound<'py, PyAny>> {
    view.get_item(PySlice::new(view.py(), range.start as isize, range.end as isize, 1))
}

/// Where the parts of a blob are.
struct Layout {
    head: Range<usize>,
    parts: Vec<Range<usize>>,
}

impl Layout {
    /// Where the head of a blob ends if its header is right; never beyond the end of the blob.
    fn head_end(start: &[u8], length: usize) -> usize {
        if start.len() < HEADER_BYTES || start[0] != MARK {
            return length;
        }
        let head_bytes = usize::try_from(number(start, 8)).unwrap_or(usize::MAX);
        table_end(start).saturating_add(head_bytes).min(length)
    }

    /// Reads the header. `start` holds the blob up to the end of the head, and `length` is that of the whole.
    fn of(py: Python<'_>, start: &[u8], length: usize) -> PyResult<Self> {
        if start.first() != Some(&MARK) {
            return Ok(Self { head: 0..length, parts: Vec::new() });
        }
        Self::parse(start, length).map_err(|wrong| {
            error(py, "WireError", &format!("data: {wrong}: give the whole of what encode returned"), &[])
        })
    }

    fn parse(start: &[u8], length: usize) -> Result<Self, &'static str> {
        if start.len() < HEADER_BYTES {
            return Err("it ends inside of the header");
        }
        if start[1..4] != [VERSION, 0, 0] {
            return Err("it has a version of the form that is not known here");
        }
        let table = table_end(start);
        if table == HEADER_BYTES || table > start.len() {
            return Err("its number of buffers is wrong");
        }
        let head_bytes = usize::try_from(number(start, 8)).unwrap_or(usize::MAX);
        let end = table.checked_add(head_bytes).filter(|end| *end <= start.len()).ok_or("its head is cut off")?;
        let parts = parts(&start[HEADER_BYTES..table], end, length)?;
        Ok(Self { head: table..end, parts })
    }
}

fn parts(table: &[u8], head_end: usize, length: usize) -> Result<Vec<Range<usize>>, &'static str> {
    let mut at = head_end;
    let mut parts = Vec::with_capacity(table.len() / 8);
    for offset in (0..table.len()).step_by(8) {
        let begin = at + gap(at);
        let bytes = usize::try_from(number(table, offset)).unwrap_or(usize::MAX);
        at = begin.checked_add(bytes).filter(|end| *end <= length).ok_or("a buffer is cut off")?;
        parts.push(begin..at);
    }
    if at == length { Ok(parts) } else { Err("there are bytes after its end") }
}

fn table_end(start: &[u8]) -> usize {
    let count = u32::from_be_bytes([start[4], start[5], start[6], start[7]]);
    HEADER_BYTES + 8 * count as usize
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The buffers of a blob, which are taken in order.
pub struct Parts<'a, 'py> {
    memory: Memory<'a, 'py>,
    ranges: Vec<Range<usize>>,
    next: usize,
}

enum Memory<'a, 'py> {
    /// Bytes, which stay as they are.
    Fixed(&'a [u8]),
    View(&'a Bound<'py, PyAny>),
}

impl<'py> Parts<'_, 'py> {
    /// The place of the next buffer, if `number` is its number.
    fn take(&mut self, number: u32) -> Option<Range<usize>> {
        let range = self.ranges.get(self.next).filter(|_| self.next == number as usize)?.clone();
        self.next += 1;
        Some(range)
    }

    pub fn all_taken(&self) -> bool {
        self.next == self.ranges.len()
    }

    pub fn bytes(&mut self, py: Python<'py>, number: u32) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let Some(range) = self.take(number) else { return Ok(None) };
        match &self.memory {
            Memory::Fixed(all) => Ok(Some(PyBytes::new(py, &all[range]))),
            Memory::View(view) => copied(view, range).map(Some),
        }
    }

    pub fn bytearray(&mut self, py: Python<'py>, number: u32) -> PyResult<Option<Bound<'py, PyByteArray>>> {
        let Some(range) = self.take(number) else { return Ok(None) };
        match &self.memory {
            Memory::Fixed(all) => Ok(Some(PyByteArray::new(py, &all[range]))),
            Memory::View(view) => PyByteArray::from(&slice(view, range)?).map(Some),
        }
    }

    /// Memory that an array may write to: that of the blob itself where that is allowed, else a copy.
    pub fn writable(&mut self, py: Python<'py>, number: u32) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Memory::View(view) = &self.memory
            && !view.getattr(intern!(py, "readonly"))?.is_truthy()?
        {
            let view = *view;
            return self.take(number).map(|range| slice(view, range)).transpose();
        }
        Ok(self.bytearray(py, number)?.map(Bound::into_any))
    }
}
