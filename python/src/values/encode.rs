//! Encoder of Python objects. It writes plain values in one pass, and other types by their plan
//! (`plans.rs`, `typed.rs`).

use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PyMemoryView, PySet, PyString, PyTuple,
};
use pyo3::{PyTypeCheck, PyTypeInfo};
use tidewire_proto::values::extension as ext;

use crate::values::blob::{self, Blob};
use crate::values::failure::{Failure, Reason, WriteResult, shown};
use crate::values::{DEPTH, INLINE_BYTES, writer};

pub struct Encoder<'a, 'py> {
    pub py: Python<'py>,
    /// The head as far as it is written.
    pub out: Vec<u8>,
    /// Buffers beside the head, and how many bytes they have together.
    parts: Vec<Bound<'py, PyAny>>,
    lengths: Vec<usize>,
    parts_bytes: usize,
    bytes_max: usize,
    depth: usize,
    pub hook: Option<&'a Bound<'py, PyAny>>,
}

/// A position of a writer, to return to.
pub struct WriterMark {
    out: usize,
    parts: usize,
    depth: usize,
}

impl<'a, 'py> Encoder<'a, 'py> {
    pub fn new(py: Python<'py>, hook: Option<&'a Bound<'py, PyAny>>, bytes_max: usize) -> Self {
        let out = Vec::with_capacity(512);
        Self { py, out, parts: Vec::new(), lengths: Vec::new(), parts_bytes: 0, bytes_max, depth: 0, hook }
    }

    pub fn finish(self) -> PyResult<Bound<'py, PyBytes>> {
        if self.parts.is_empty() {
            return Ok(PyBytes::new(self.py, &self.out));
        }
        blob::join(self.py, &self.out, &self.parts, &self.lengths)
    }

    pub fn into_blob(self) -> PyResult<Blob> {
        if let [part] = &self.parts[..]
            && let Some(bytes) = exactly::<PyBytes>(part)
        {
            return Ok(Blob::of_one(&self.out, bytes));
        }
        if self.parts.is_empty() { Ok(Blob::Whole(self.out)) } else { self.finish().map(Blob::from) }
    }

    /// Writes any value. The types that are sent most are looked at first.
    pub fn value(&mut self, value: &Bound<'py, PyAny>) -> WriteResult {
        if let Some(text) = exactly::<PyString>(value) {
            self.text(text)
        } else if let Some(number) = exactly::<PyInt>(value) {
            self.integer(number)
        } else if let Some(number) = exactly::<PyFloat>(value) {
            self.float(number)
        } else if value.is_none() {
            writer::nil(&mut self.out);
            Ok(())
        } else if let Some(truth) = exactly::<PyBool>(value) {
            writer::boolean(&mut self.out, truth.is_true());
            Ok(())
        } else {
            self.container(value)
        }
    }

    fn container(&mut self, value: &Bound<'py, PyAny>) -> WriteResult {
        if let Some(dict) = exactly::<PyDict>(value) {
            self.dict(dict)
        } else if let Some(list) = exactly::<PyList>(value) {
            self.list(list)
        } else if let Some(bytes) = exactly::<PyBytes>(value) {
            self.bytes(bytes)
        } else if let Some(tuple) = exactly::<PyTuple>(value) {
            self.tuple(tuple)
        } else if let Some(bytes) = exactly::<PyByteArray>(value) {
            self.bytearray(bytes)
        } else if let Some(set) = exactly::<PySet>(value) {
            self.set(set, ext::SET)
        } else if let Some(set) = exactly::<PyFrozenSet>(value) {
            self.set(set, ext::FROZENSET)
        } else {
            self.by_plan(value)
        }
    }

    pub fn text(&mut self, value: &Bound<'py, PyString>) -> WriteResult {
        match value.to_str() {
            Ok(text) => {
                if text.len() > INLINE_BYTES {
                    self.check_capacity(text.len())?;
                }
                writer::text(&mut self.out, text);
                Ok(())
            }
            Err(_) => {
                let fix = "holds one half of a pair of surrogates: send text that UTF-8 can hold, or bytes";
                Err(Failure::refused(format!("{} {fix}", shown(value))))
            }
        }
    }

    #[inline]
    pub fn float(&mut self, value: &Bound<'py, PyFloat>) -> WriteResult {
        writer::float(&mut self.out, value.value());
        Ok(())
    }

    pub fn integer(&mut self, value: &Bound<'py, PyInt>) -> WriteResult {
        if let Ok(number) = value.extract::<i64>() {
            writer::signed(&mut self.out, number);
        } else if let Ok(number) = value.extract::<u64>() {
            writer::unsigned(&mut self.out, number);
        } else {
            return Err(Failure::refused(format!("{} has more than 64 bits: send it as text", shown(value))));
        }
        Ok(())
    }

    pub fn dict(&mut self, dict: &Bound<'py, PyDict>) -> WriteResult {
        self.enter(dict)?;
        let length = dict.len();
        writer::map(&mut self.out, length);
        let mut entries = dict.iter();
        for _ in 0..length {
            // A hook or a property may have changed it, and the iterator does not bear that.
            let entry = if dict.len() == length { entries.next() } else { None };
            let Some((key, value)) = entry else { return Err(changed(dict)) };
            self.value(&key).map_err(|failure| failure.at_key(&key).inside(dict))?;
            self.value(&value).map_err(|failure| failure.at_key(&key).inside(dict))?;
        }
        self.leave();
        Ok(())
    }

    pub fn list(&mut self, list: &Bound<'py, PyList>) -> WriteResult {
        self.enter(list)?;
        // Hooks and properties may change the list, not the tuple; and its items need no counting
        // of references.
        let items = list.to_tuple();
        writer::array(&mut self.out, items.len());
        for (index, item) in items.iter_borrowed().enumerate() {
            self.value(&item).map_err(|failure| failure.at_index(index).inside(list))?;
        }
        self.leave();
        Ok(())
    }

    pub fn tuple(&mut self, tuple: &Bound<'py, PyTuple>) -> WriteResult {
        self.enter(tuple)?;
        let start = writer::open(&mut self.out, ext::TUPLE);
        writer::array(&mut self.out, tuple.len());
        for (index, item) in tuple.iter_borrowed().enumerate() {
            self.value(&item).map_err(|failure| failure.at_index(index).inside(tuple))?;
        }
        self.leave();
        self.close(start)
    }

    /// Writes a set of either kind. The path to a member is the member itself.
    pub fn set(&mut self, set: &Bound<'py, PyAny>, kind: i8) -> WriteResult {
        self.enter(set)?;
        let length = set.len().map_err(|_| changed(set))?;
        let start = writer::open(&mut self.out, kind);
        writer::array(&mut self.out, length);
        let mut members = 0;
        for member in set.try_iter().map_err(|_| changed(set))? {
            let member = member.map_err(|_| changed(set))?;
            self.value(&member).map_err(|failure| failure.at_key(&member))?;
            members += 1;
        }
        self.leave();
        if members == length { self.close(start) } else { Err(changed(set)) }
    }

    pub fn bytes(&mut self, value: &Bound<'py, PyBytes>) -> WriteResult {
        let content = value.as_bytes();
        if content.len() > INLINE_BYTES {
            return self.part(value.clone().into_any(), content.len(), ext::BUFFER);
        }
        writer::bytes(&mut self.out, content);
        Ok(())
    }

    pub fn bytearray(&mut self, value: &Bound<'py, PyByteArray>) -> WriteResult {
        if value.len() > INLINE_BYTES {
            // The view keeps the length as it is until the buffer has been copied.
            let view = PyMemoryView::from(value).map_err(|failure| Failure::raised(self.py, failure))?;
            return self.part(view.into_any(), value.len(), ext::BYTEARRAY_BUFFER);
        }
        writer::extension(&mut self.out, ext::BYTEARRAY, &value.to_vec());
        Ok(())
    }

    /// Keeps a buffer beside the head, and writes its number in its place.
    pub fn part(&mut self, buffer: Bound<'py, PyAny>, length: usize, kind: i8) -> WriteResult {
        let number = u32::try_from(self.parts.len()).map_err(|_| Failure::new(Reason::TooLarge))?;
        writer::extension(&mut self.out, kind, &number.to_be_bytes());
        self.parts_bytes = self.parts_bytes.saturating_add(length);
        self.parts.push(buffer);
        self.lengths.push(length);
        self.check_size()
    }

    pub fn enter(&mut self, container: &Bound<'py, PyAny>) -> WriteResult {
        if self.depth == DEPTH {
            return Err(Failure::new(Reason::Deep(container.clone().unbind())));
        }
        self.depth += 1;
        // A value that is shared may be written more often than memory lasts.
        self.check_size()
    }

    pub fn leave(&mut self) {
        self.depth -= 1;
    }

    pub fn close(&mut self, start: usize) -> WriteResult {
        if writer::close(&mut self.out, start) { Ok(()) } else { Err(Failure::new(Reason::TooLarge)) }
    }

    pub fn check_size(&self) -> WriteResult {
        self.check_capacity(0)
    }

    fn check_capacity(&self, further: usize) -> WriteResult {
        let needed = blob::length(self.out.len(), self.parts.len(), self.parts_bytes).saturating_add(further);
        let fits = needed <= self.bytes_max && further <= u32::MAX as usize;
        if fits { Ok(()) } else { Err(Failure::new(Reason::TooLarge)) }
    }

    pub fn place(&self) -> WriterMark {
        WriterMark { out: self.out.len(), parts: self.parts.len(), depth: self.depth }
    }

    /// Forgets what was written since a place.
    pub fn back_to(&mut self, place: &WriterMark) {
        self.out.truncate(place.out);
        self.parts.truncate(place.parts);
        self.lengths.truncate(place.parts);
        self.parts_bytes = self.lengths.iter().sum();
        self.depth = place.depth;
    }
}

#[inline]
fn exactly<'b, 'py, T: PyTypeInfo + PyTypeCheck>(value: &'b Bound<'py, PyAny>) -> Option<&'b Bound<'py, T>> {
    if value.is_exact_instance_of::<T>() { value.cast_exact().ok() } else { None }
}

#[cold]
fn changed(container: &Bound<'_, PyAny>) -> Box<Failure> {
    let kind = container.get_type().name().map_or_else(|_| "container".to_owned(), |name| name.to_string());
    Failure::refused(format!("the {kind} changed while it was written: send a copy, or hold a lock around the call"))
}
