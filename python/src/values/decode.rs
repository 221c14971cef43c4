//! Bytes to Python objects. Any bytes give a value or a `WireError`; extensions are in
//! `extensions.rs`.

use std::ops::Range;

use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyMemoryError, PyTypeError, PyUnicodeDecodeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyList, PyString, PyTuple};

use crate::errors::error;
use crate::values::DEPTH;
use crate::values::blob::Parts;
use crate::values::hashes::Hashes;
use crate::values::reader::{Head, Reader};
use crate::values::{key_cache, memory};

pub struct Decoder<'a, 'b, 'py> {
    pub py: Python<'py>,
    pub reader: Reader<'a>,
    pub parts: Parts<'b, 'py>,
    pub hook: Option<&'b Bound<'py, PyAny>>,
    depth: usize,
}

/// A value that has been read, before the blob is known to be complete.
pub type Read<'py> = PyResult<Bound<'py, PyAny>>;

impl<'a, 'b, 'py> Decoder<'a, 'b, 'py> {
    pub fn new(py: Python<'py>, head: Head<'a>, parts: Parts<'b, 'py>, hook: Option<&'b Bound<'py, PyAny>>) -> Self {
        Self { py, reader: Reader::new(head), parts, hook, depth: 0 }
    }

    /// Reads the one value of the blob.
    pub fn whole(mut self) -> Read<'py> {
        let value = self.value()?;
        if self.reader.left() > 0 {
            return Err(self.wrong("there are bytes after its end"));
        }
        if !self.parts.all_taken() {
            return Err(self.wrong("it has a buffer that nothing refers to"));
        }
        Ok(value)
    }

    pub fn value(&mut self) -> Read<'py> {
        let marker = self.reader.marker().ok_or_else(|| self.cut_off())?;
        match marker {
            0x00..=0x7f => self.integer(marker.into()),
            0x80..=0x8f => self.map(usize::from(marker & 0x0f)),
            0x90..=0x9f => self.list(usize::from(marker & 0x0f)),
            0xa0..=0xbf => self.text(usize::from(marker & 0x1f)),
            0xc0 => Ok(self.py.None().into_bound(self.py)),
            0xc2 | 0xc3 => Ok(PyBool::new(self.py, marker == 0xc3).to_owned().into_any()),
            0xc4..=0xc6 => self.bytes(marker),
            0xc7..=0xc9 | 0xd4..=0xd8 => self.extension(marker),
            0xca..=0xd3 => self.number(marker),
            0xd9..=0xdb => self.long_text(marker),
            0xdc | 0xdd => {
                let length = self.wide(marker == 0xdd)?;
                self.list(length)
            }
            0xde | 0xdf => {
                let length = self.wide(marker == 0xdf)?;
                self.map(length)
            }
            0xe0..=0xff => self.integer((marker as i8).into()),
            0xc1 => Err(self.wrong("it holds the byte 0xc1, which begins no value")),
        }
    }

    fn integer(&self, value: i64) -> Read<'py> {
        Ok(value.into_pyobject(self.py)?.into_any())
    }

    fn number(&mut self, marker: u8) -> Read<'py> {
        let py = self.py;
        let reader = &mut self.reader;
        let read = match marker {
            0xca => reader.number::<4>().map(|bits| Ok(float(py, f32::from_bits(bits as u32).into()))),
            0xcb => reader.number::<8>().map(|bits| Ok(float(py, f64::from_bits(bits)))),
            0xcc => reader.number::<1>().map(|number| unsigned(py, number)),
            0xcd => reader.number::<2>().map(|number| unsigned(py, number)),
            0xce => reader.number::<4>().map(|number| unsigned(py, number)),
            0xcf => reader.number::<8>().map(|number| unsigned(py, number)),
            0xd0 => reader.signed::<1>().map(|number| signed(py, number)),
            0xd1 => reader.signed::<2>().map(|number| signed(py, number)),
            0xd2 => reader.signed::<4>().map(|number| signed(py, number)),
            _ => reader.signed::<8>().map(|number| signed(py, number)),
        };
        read.ok_or_else(|| self.cut_off())?
    }

    fn bytes(&mut self, marker: u8) -> Read<'py> {
        let range = self.binary(marker)?;
        match self.reader.long(range.clone()) {
            Some(long) => memory::bytes(self.py, long).map(Bound::into_any),
            None => Ok(PyBytes::new(self.py, self.reader.bytes(range)).into_any()),
        }
    }

    /// A `bytearray` of bytes that were taken.
    pub fn bytearray(&mut self, range: Range<usize>) -> Read<'py> {
        match self.reader.long(range.clone()) {
            Some(long) => memory::bytearray(self.py, long).map(Bound::into_any),
            None => Ok(PyByteArray::new(self.py, self.reader.bytes(range)).into_any()),
        }
    }

    /// Range of the bytes of a bin value.
    pub fn binary(&mut self, marker: u8) -> PyResult<Range<usize>> {
        let length = match marker {
            0xc4 => self.reader.length::<1>(),
            0xc5 => self.reader.length::<2>(),
            _ => self.reader.length::<4>(),
        };
        let length = length.ok_or_else(|| self.cut_off())?;
        self.take(length)
    }

    pub fn take(&mut self, length: usize) -> PyResult<Range<usize>> {
        self.reader.take(length).ok_or_else(|| self.cut_off())
    }

    fn text(&mut self, length: usize) -> Read<'py> {
        let range = self.take(length)?;
        let text = match self.reader.long(range.clone()) {
            Some(long) => memory::text(self.py, long),
            None => PyString::from_bytes(self.py, self.reader.bytes(range)),
        };
        Ok(text.map_err(|failure| self.refused(failure))?.into_any())
    }

    fn long_text(&mut self, marker: u8) -> Read<'py> {
        let length = match marker {
            0xd9 => self.reader.length::<1>(),
            0xda => self.reader.length::<2>(),
            _ => self.reader.length::<4>(),
        };
        let length = length.ok_or_else(|| self.cut_off())?;
        self.text(length)
    }

    fn wide(&mut self, is_long: bool) -> PyResult<usize> {
        let length = if is_long { self.reader.length::<4>() } else { self.reader.length::<2>() };
        length.ok_or_else(|| self.cut_off())
    }

    fn list(&mut self, length: usize) -> Read<'py> {
        self.enter(length)?;
        let list = PyList::new(self.py, (0..length).map(|at| Item(self.inside::<PyList>(at))))?;
        self.leave();
        Ok(list.into_any())
    }

    fn map(&mut self, length: usize) -> Read<'py> {
        self.enter(0)?;
        let map = self.entries(length)?;
        self.leave();
        Ok(map.into_any())
    }

    fn entries(&mut self, length: usize) -> PyResult<Bound<'py, PyDict>> {
        self.promise(length.saturating_mul(2))?;
        let map = PyDict::new(self.py);
        let mut hashes = (!Hashes::are_few(length)).then(Hashes::default);
        for _ in 0..length {
            let key = self.key()?;
            if let Some(hashes) = &mut hashes {
                self.apart(hashes, &key)?;
            }
            let value = self.value().map_err(|failure| self.placed::<PyDict>(failure, &key))?;
            map.set_item(key, value).map_err(|failure| self.refused(failure))?;
        }
        Ok(map)
    }

    /// Checks that a key may join the present ones.
    fn apart(&self, hashes: &mut Hashes, key: &Bound<'py, PyAny>) -> PyResult<()> {
        match hashes.add(key) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.wrong("more than 64 keys of a set or a map have one hash")),
            Err(failure) => Err(self.refused(failure)),
        }
    }

    /// The members of a set.
    pub fn members(&mut self) -> PyResult<Bound<'py, PyTuple>> {
        let members = self.tuple()?;
        if !Hashes::are_few(members.len()) {
            let mut hashes = Hashes::default();
            members.iter().try_for_each(|member| self.apart(&mut hashes, &member))?;
        }
        Ok(members)
    }

    fn key(&mut self) -> Read<'py> {
        match self.reader.next() {
            Some(marker @ 0xa0..=0xbf) => {
                self.reader.marker();
                let range = self.take(usize::from(marker & 0x1f))?;
                let key = key_cache::key(self.py, self.reader.bytes(range)).map_err(|failure| self.refused(failure))?;
                Ok(key.into_any())
            }
            _ => self.value(),
        }
    }

    /// The map inside of an extension, which is one container with it.
    pub fn fields(&mut self) -> PyResult<Bound<'py, PyDict>> {
        let length = match self.reader.marker() {
            Some(marker @ 0x80..=0x8f) => usize::from(marker & 0x0f),
            Some(marker @ (0xde | 0xdf)) => self.wide(marker == 0xdf)?,
            _ => return Err(self.wrong("an extension does not hold the map that it must hold")),
        };
        self.entries(length)
    }

    /// The items of an array inside of an extension.
    pub fn tuple(&mut self) -> PyResult<Bound<'py, PyTuple>> {
        let length = self.array_length()?;
        self.enter(length)?;
        let tuple = self.items(length)?;
        self.leave();
        Ok(tuple)
    }

    /// So many values, which were promised.
    pub fn items(&mut self, length: usize) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(self.py, (0..length).map(|at| Item(self.inside::<PyTuple>(at))))
    }

    fn inside<C: PyTypeInfo>(&mut self, at: usize) -> Read<'py> {
        self.value().map_err(|failure| self.placed::<C>(failure, at))
    }

    /// An error that wants to know where it was, `Misfit`, with one more container around it.
    #[cold]
    fn placed<C: PyTypeInfo>(&self, failure: PyErr, at: impl IntoPyObject<'py>) -> PyErr {
        let path = failure.value(self.py).getattr("path").ok().and_then(|path| path.cast_into::<PyList>().ok());
        match path.map(|path| path.insert(0, (C::type_object(self.py), at))) {
            Some(Err(error)) => error,
            _ => failure,
        }
    }

    /// The beginning of an array inside of an extension.
    pub fn array_length(&mut self) -> PyResult<usize> {
        match self.reader.marker() {
            Some(marker @ 0x90..=0x9f) => Ok(usize::from(marker & 0x0f)),
            Some(marker @ (0xdc | 0xdd)) => self.wide(marker == 0xdd),
            _ => Err(self.wrong("an extension does not hold the array that it must hold")),
        }
    }

    /// Goes into a container of so many values.
    pub fn enter(&mut self, values: usize) -> PyResult<()> {
        if self.depth == DEPTH {
            return Err(self.wrong(&format!("it is nested deeper than {DEPTH} levels")));
        }
        self.promise(values)?;
        self.depth += 1;
        Ok(())
    }

    pub fn promise(&mut self, values: usize) -> PyResult<()> {
        if self.reader.promise(values) { Ok(()) } else { Err(self.cut_off()) }
    }

    pub fn leave(&mut self) {
        self.depth -= 1;
    }

    #[cold]
    pub fn cut_off(&self) -> PyErr {
        self.wrong("it ends too early")
    }

    #[cold]
    pub fn wrong(&self, what: &str) -> PyErr {
        let text = format!("data: {what}, at byte {}: give the whole of what encode returned", self.reader.at());
        error(self.py, "WireError", &text, &[])
    }

    /// The error of Python for a part of the value, such as a list as a key.
    #[cold]
    pub fn refused(&self, failure: PyErr) -> PyErr {
        if failure.is_instance_of::<PyMemoryError>(self.py) {
            return failure;
        }
        let known =
            failure.is_instance_of::<PyTypeError>(self.py) || failure.is_instance_of::<PyUnicodeDecodeError>(self.py);
        let what = if known { failure.value(self.py).to_string() } else { failure.to_string() };
        let wrong = self.wrong(&what);
        wrong.set_cause(self.py, Some(failure));
        wrong
    }
}

fn float(py: Python<'_>, value: f64) -> Bound<'_, PyAny> {
    PyFloat::new(py, value).into_any()
}

fn unsigned(py: Python<'_>, value: u64) -> Read<'_> {
    Ok(value.into_pyobject(py)?.into_any())
}

fn signed(py: Python<'_>, value: i64) -> Read<'_> {
    Ok(value.into_pyobject(py)?.into_any())
}

/// An item of a list to read. The first that fails ends the list.
struct Item<'py>(Read<'py>);

impl<'py> IntoPyObject<'py> for Item<'py> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, _: Python<'py>) -> Read<'py> {
        self.0
    }
}
