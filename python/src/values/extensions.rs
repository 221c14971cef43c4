//! Decoder of MessagePack extensions to Python objects.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyComplex, PyFrozenSet, PySet};
use tidewire_proto::values::extension as ext;

use crate::interpreter::once::Once;
use crate::values::decode::{Decoder, Read};
use crate::values::times;

impl<'a, 'py> Decoder<'a, '_, 'py> {
    pub fn extension(&mut self, marker: u8) -> Read<'py> {
        let length = match marker {
            0xc7 => self.reader.length::<1>(),
            0xc8 => self.reader.length::<2>(),
            0xc9 => self.reader.length::<4>(),
            fixed => Some(1 << (fixed - 0xd4)),
        };
        let length = length.ok_or_else(|| self.cut_off())?;
        let kind = self.reader.number::<1>().ok_or_else(|| self.cut_off())? as u8 as i8;
        if length > self.reader.left() {
            return Err(self.cut_off());
        }
        match kind {
            ext::TUPLE | ext::SET | ext::FROZENSET | ext::RECORD..=ext::REFERENCE => self.nested(kind, length),
            _ => self.flat(kind, length),
        }
    }

    /// An extension that holds values, which must fill it.
    fn nested(&mut self, kind: i8, length: usize) -> Read<'py> {
        self.promise(1)?;
        let end = self.reader.at() + length;
        let value = match kind {
            ext::TUPLE => self.tuple()?.into_any(),
            ext::SET => self.set()?,
            ext::FROZENSET => self.frozenset()?,
            ext::RECORD => self.record()?,
            ext::ENUM => self.built(Builder::Enum)?,
            ext::ERROR => self.error()?,
            ext::ARRAY => self.array()?,
            ext::SCALAR => self.built(Builder::Scalar)?,
            _ => self.reference()?,
        };
        if self.reader.at() == end { Ok(value) } else { Err(self.wrong("an extension is not as long as it says")) }
    }

    fn flat(&mut self, kind: i8, length: usize) -> Read<'py> {
        let range = self.take(length)?;
        if kind == ext::BYTEARRAY {
            return self.bytearray(range);
        }
        let content = self.reader.bytes(range);
        let py = self.py;
        let read = match kind {
            ext::BUFFER => self.parts.bytes(py, part(content)).map(|bytes| bytes.map(Bound::into_any)),
            ext::BYTEARRAY_BUFFER => self.parts.bytearray(py, part(content)).map(|bytes| bytes.map(Bound::into_any)),
            ext::TIMESTAMP => times::read_timestamp(py, content),
            ext::MOMENT => times::read_moment(py, content),
            ext::LOCAL_TIME => times::read_local_time(py, content),
            ext::DATE => times::read_date(py, content),
            ext::TIME => times::read_time_of_day(py, content),
            ext::DURATION => times::read_duration(py, content),
            ext::DECIMAL => Builder::Decimal.call(py, (PyBytes::new(py, content),)).map(Some),
            ext::UUID => Builder::Uuid.call(py, (PyBytes::new(py, content),)).map(Some),
            ext::COMPLEX => Ok(complex(py, content)),
            _ => return Err(self.wrong(&format!("it has an extension of type {kind}, which is not known here"))),
        };
        read?.ok_or_else(|| self.wrong(&format!("an extension of type {kind} holds what it must not hold")))
    }

    fn set(&mut self) -> Read<'py> {
        let members = self.members()?;
        let set = PySet::new(self.py, members).map_err(|failure| self.refused(failure))?;
        Ok(set.into_any())
    }

    fn frozenset(&mut self) -> Read<'py> {
        let members = self.members()?;
        let set = PyFrozenSet::new(self.py, members).map_err(|failure| self.refused(failure))?;
        Ok(set.into_any())
    }

    /// An extension with two values, of which Python makes the object.
    fn built(&mut self, builder: Builder) -> Read<'py> {
        self.expect_parts(2)?;
        self.enter(2)?;
        let parts = self.items(2)?;
        self.leave();
        builder.call(self.py, parts)
    }

    fn expect_parts(&mut self, parts: usize) -> PyResult<()> {
        if self.array_length()? == parts {
            Ok(())
        } else {
            Err(self.wrong("an extension does not have the parts that it must have"))
        }
    }

    fn record(&mut self) -> Read<'py> {
        self.expect_parts(2)?;
        self.enter(2)?;
        let name = self.value()?;
        let fields = self.fields()?;
        self.leave();
        Builder::Record.call(self.py, (name, fields))
    }

    fn error(&mut self) -> Read<'py> {
        self.enter(0)?;
        let fields = self.fields()?;
        self.leave();
        Builder::Error.call(self.py, (fields,))
    }

    fn array(&mut self) -> Read<'py> {
        self.expect_parts(4)?;
        self.enter(4)?;
        let dtype = self.value()?;
        let dimensions = self.array_length()?;
        self.promise(dimensions)?;
        let lengths = self.items(dimensions)?;
        let order = self.value()?;
        let memory = self.memory()?;
        self.leave();
        Builder::Array.call(self.py, (dtype, lengths, order, memory))
    }

    /// The elements of an array, as memory that may be written to.
    fn memory(&mut self) -> Read<'py> {
        match self.reader.marker() {
            Some(marker @ 0xc4..=0xc6) => {
                let range = self.binary(marker)?;
                self.bytearray(range)
            }
            // Writers use this form, and no other is needed.
            Some(0xd6) => {
                let kind = self.reader.signed::<1>();
                let number = self.reader.number::<4>().filter(|_| kind == Some(ext::BUFFER.into()));
                let memory = number.map(|number| self.parts.writable(self.py, number as u32)).transpose()?.flatten();
                memory.ok_or_else(|| self.wrong("the elements of an array are missing"))
            }
            _ => Err(self.wrong("the elements of an array are no bytes")),
        }
    }

    fn reference(&mut self) -> Read<'py> {
        self.enter(0)?;
        let reference = self.value()?;
        self.leave();
        match self.hook {
            Some(hook) => hook.call1((reference,)),
            None => Err(self.wrong("it refers to a function or an object, and none are expected here")),
        }
    }
}

/// The number of a buffer. Invalid content gives a number that no buffer has.
fn part(content: &[u8]) -> u32 {
    content.try_into().map_or(u32::MAX, u32::from_be_bytes)
}

fn complex<'py>(py: Python<'py>, content: &[u8]) -> Option<Bound<'py, PyAny>> {
    let ([real, imaginary], []) = content.as_chunks::<8>() else { return None };
    Some(PyComplex::from_doubles(py, f64::from_be_bytes(*real), f64::from_be_bytes(*imaginary)).into_any())
}

/// Functions of the Python half that make objects.
#[derive(Clone, Copy)]
enum Builder {
    Record,
    Enum,
    Error,
    Array,
    Scalar,
    Decimal,
    Uuid,
}

impl Builder {
    fn call<'py>(self, py: Python<'py>, arguments: impl pyo3::call::PyCallArgs<'py>) -> Read<'py> {
        static FUNCTIONS: [Once<Py<PyAny>>; 7] = [const { Once::new() }; 7];
        let (module, name) = match self {
            Self::Record => ("tidewire.values.records", "record"),
            Self::Enum => ("tidewire.values.records", "member"),
            Self::Error => ("tidewire.values.failures", "build"),
            Self::Array => ("tidewire.values.arrays", "build"),
            Self::Scalar => ("tidewire.values.arrays", "build_scalar"),
            Self::Decimal => ("tidewire.values.scalars", "decimal"),
            Self::Uuid => ("tidewire.values.scalars", "uuid"),
        };
        FUNCTIONS[self as usize].of(py, module, name)?.call1(arguments)
    }
}
