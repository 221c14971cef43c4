//! The blob: a head alone, or a header, a head and buffers.

use std::ops::Range;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMemoryView, PySlice};

use tidewire_node::raw::PayloadParts;
use tidewire_proto::generated::limits;
use tidewire_proto::values::{ALIGNMENT, HEADER_BYTES, Layout, gap, header};

use crate::errors::error;
use crate::interpreter::once::intern;
use crate::interpreter::py_ref::DroppedAttached;
use crate::values::consumable_buffer::ConsumableBuffer;
use crate::values::elements::Elements;
use crate::values::memory;
use crate::values::reader::Head;

/// A longer blob is cut when it is sent.
pub const KEPT_BYTES: usize = limits::LINK_CHUNK_BYTES.default as usize;
/// A buffer is nearly all of a blob if the rest is at most this part: so much is copied, or stored
/// with an array.
const BESIDE_PART: usize = 5;

/// A blob as it is sent.
pub enum Blob {
    /// All of it.
    Whole(Vec<u8>),
    /// All of it, or the bytes before the only buffer, and that buffer. It is stored, as it can't
    /// change.
    Kept(Vec<u8>, DroppedAttached<PyBackedBytes>),
}

impl Blob {
    /// A head with one buffer.
    pub fn of_one(head: &[u8], part: &Bound<'_, PyBytes>) -> Self {
        let start = header(head, std::iter::once(part.as_bytes().len()));
        Self::Kept(start, DroppedAttached::new(PyBackedBytes::from(part.clone())))
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

impl PayloadParts for Blob {
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
    let start = header(head, lengths.iter().copied());
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

/// Calls `read` with the head and the buffers of a blob.
pub fn with_parts<'py, R>(
    data: &Bound<'py, PyAny>,
    read: impl FnOnce(Head<'_>, Parts<'_, 'py>) -> PyResult<R>,
) -> PyResult<R> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return with_parts_of(data.py(), bytes.as_bytes(), read);
    }
    let view = flat(data)?;
    let start = copied(&view, 0..view.len()?.min(HEADER_BYTES))?;
    let start = copied(&view, 0..Layout::head_end(start.as_bytes(), view.len()?))?;
    let layout = layout(data.py(), start.as_bytes(), view.len()?)?;
    let parts = Parts { memory: BlobMemory::View(&view), ranges: layout.parts, next: 0 };
    read(Head::Kept(&start.as_bytes()[layout.head]), parts)
}

/// Calls `read` with the head and the buffers of a blob in memory that does not change.
pub fn with_parts_of<'py, R>(
    py: Python<'py>,
    all: &[u8],
    read: impl FnOnce(Head<'_>, Parts<'_, 'py>) -> PyResult<R>,
) -> PyResult<R> {
    let layout = layout(py, all, all.len())?;
    let parts = Parts { memory: BlobMemory::Fixed(all), ranges: layout.parts, next: 0 };
    read(Head::Kept(&all[layout.head]), parts)
}

/// Calls `read` with the head and the buffers of a blob in memory that it consumes.
pub fn with_own_parts<'py, R>(
    py: Python<'py>,
    mut all: Vec<u8>,
    begin: usize,
    read: impl FnOnce(Head<'_>, Parts<'_, 'py>) -> PyResult<R>,
) -> PyResult<R> {
    let Layout { head, parts } = layout(py, &all[begin..], all.len() - begin)?;
    let beside = (all.len() - begin) / BESIDE_PART;
    let main = parts.iter().position(|part| part.len() >= all.len() - begin - beside);
    if let Some(number) = main {
        let aside = DetachedCopy::of(&mut all[begin..], head, parts, number);
        let main = begin + aside.main.start..begin + aside.main.end;
        let memory = BlobMemory::Own { aside: &aside.bytes, number, main: Some((all, main)) };
        return read(Head::Kept(&aside.bytes[..aside.head]), Parts { memory, ranges: aside.parts, next: 0 });
    }
    let (front, rest) = all[begin..].split_at_mut(head.end);
    let memory = BlobMemory::Passing(ConsumableBuffer::new(rest), head.end);
    read(Head::Passing(ConsumableBuffer::new(&mut front[head])), Parts { memory, ranges: parts, next: 0 })
}

/// A copy of what is beside the buffer that is nearly all of a blob.
struct DetachedCopy {
    bytes: Vec<u8>,
    /// Length of the head in `bytes`.
    head: usize,
    /// Ranges of the buffers in the copy. The range of the main buffer is empty.
    parts: Vec<Range<usize>>,
    /// Range of the main buffer in the blob.
    main: Range<usize>,
}

impl DetachedCopy {
    fn of(all: &mut [u8], head: Range<usize>, mut parts: Vec<Range<usize>>, number: usize) -> Self {
        let main = std::mem::take(&mut parts[number]);
        let mut bytes = Vec::with_capacity(head.len() + parts.iter().map(Range::len).sum::<usize>());
        bytes.extend_from_slice(&all[head.clone()]);
        for part in &mut parts {
            let from = bytes.len();
            bytes.extend_from_slice(&all[part.clone()]);
            *part = from..bytes.len();
        }
        if bytes.len() >= memory::STEP_BYTES {
            memory::release_pages(&mut all[..main.start]);
            memory::release_pages(&mut all[main.end..]);
        }
        Self { bytes, head: head.len(), parts, main }
    }
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
    to_bytes(&slice(view, range)?)
}

fn to_bytes<'py>(view: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(view.call_method0(intern!(view.py(), "tobytes"))?.cast_into()?)
}

fn slice<'py>(view: &Bound<'py, PyAny>, range: Range<usize>) -> PyResult<Bound<'py, PyAny>> {
    view.get_item(PySlice::new(view.py(), range.start as isize, range.end as isize, 1))
}

fn layout(py: Python<'_>, start: &[u8], length: usize) -> PyResult<Layout> {
    Layout::of(start, length)
        .map_err(|wrong| error(py, "WireError", &format!("data: {wrong}: give the whole of what encode returned"), &[]))
}

/// The buffers of a blob, which are taken in order.
pub struct Parts<'a, 'py> {
    memory: BlobMemory<'a, 'py>,
    ranges: Vec<Range<usize>>,
    next: usize,
}

enum BlobMemory<'a, 'py> {
    /// Bytes, which stay as they are.
    Fixed(&'a [u8]),
    View(&'a Bound<'py, PyAny>),
    /// Bytes that are used up, and where they begin in the blob.
    Passing(ConsumableBuffer<'a>, usize),
    /// The buffer with this number is nearly all; the others are aside.
    Own {
        aside: &'a [u8],
        number: usize,
        main: Option<(Vec<u8>, Range<usize>)>,
    },
}

/// The memory of one buffer.
enum Part<'a, 'py> {
    Fixed(&'a [u8]),
    View(Bound<'py, PyAny>),
    Passing(&'a mut [u8]),
    Own(Vec<u8>, Range<usize>),
}

impl<'py> Parts<'_, 'py> {
    /// The next buffer, if `number` is its number.
    fn take(&mut self, number: u32) -> PyResult<Option<Part<'_, 'py>>> {
        let at = self.next;
        let Some(range) = self.ranges.get(at).filter(|_| at == number as usize) else { return Ok(None) };
        self.next += 1;
        self.memory.part(at, range.clone()).map(Some)
    }

    pub fn all_taken(&self) -> bool {
        self.next == self.ranges.len()
    }

    pub fn bytes(&mut self, py: Python<'py>, number: u32) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let Some(part) = self.take(number)? else { return Ok(None) };
        Ok(Some(match part {
            Part::Fixed(bytes) => PyBytes::new(py, bytes),
            Part::View(view) => to_bytes(&view)?,
            Part::Passing(bytes) => memory::bytes(py, bytes)?,
            Part::Own(mut all, range) => memory::bytes(py, &mut all[range])?,
        }))
    }

    pub fn bytearray(&mut self, py: Python<'py>, number: u32) -> PyResult<Option<Bound<'py, PyByteArray>>> {
        let Some(part) = self.take(number)? else { return Ok(None) };
        Ok(Some(match part {
            Part::Fixed(bytes) => PyByteArray::new(py, bytes),
            Part::View(view) => PyByteArray::from(&view)?,
            Part::Passing(bytes) => memory::bytearray(py, bytes)?,
            Part::Own(mut all, range) => memory::bytearray(py, &mut all[range])?,
        }))
    }

    /// Memory that an array may write to: that of the blob itself where that is allowed, else a
    /// copy.
    pub fn writable(&mut self, py: Python<'py>, number: u32) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(part) = self.take(number)? else { return Ok(None) };
        Ok(Some(match part {
            Part::Fixed(bytes) => PyByteArray::new(py, bytes).into_any(),
            Part::View(view) if view.getattr(intern!(py, "readonly"))?.is_truthy()? => {
                PyByteArray::from(&view)?.into_any()
            }
            Part::View(view) => view,
            Part::Passing(bytes) => memory::bytearray(py, bytes)?.into_any(),
            Part::Own(all, range) => Bound::new(py, Elements::new(all, range))?.into_any(),
        }))
    }
}

impl<'py> BlobMemory<'_, 'py> {
    fn part(&mut self, number: usize, range: Range<usize>) -> PyResult<Part<'_, 'py>> {
        Ok(match self {
            Self::Fixed(all) => Part::Fixed(&all[range]),
            Self::View(view) => Part::View(slice(view, range)?),
            Self::Passing(rest, from) => {
                let range = range.start - *from..range.end - *from;
                rest.pass(range.start);
                Part::Passing(rest.part(range))
            }
            Self::Own { number: main, main: own, .. } if *main == number => {
                // Each is taken once.
                let (all, range) = own.take().unwrap_or_default();
                Part::Own(all, range)
            }
            Self::Own { aside, .. } => Part::Fixed(&aside[range]),
        })
    }
}
