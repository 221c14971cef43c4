//! Values that travel between nodes, as `spec/values.md` describes them: any type of serde, or a
//! [`Value`] for data of unknown type.
//!
//! | in Rust | in Python |
//! |---|---|
//! | `bool`, integers, floats, `String`, `Option`, `()` | `bool`, `int`, `float`, `str`, the value or `None`, `None` |
//! | `Vec`, slices, sets | `list` |
//! | tuples and arrays of a fixed length | `tuple` |
//! | structs | `dict`, or the data class that a parameter or a field is annotated with |
//! | maps | `dict` |
//! | [`Bytes`], and what serde writes as bytes | `bytes` |
//! | enums | the name of the variant, or a `dict` with the name and what the variant holds |
//! | [`Value`] | anything |
//!
//! In the other direction, a data class, a model or a named tuple is read as a struct. A set is
//! read as a list, and a member of an enum as its value. A time, a `Decimal` or a `timedelta` is
//! read as text. A `UUID` is read as 16 bytes, which types of other crates such as `uuid` accept.

mod arguments;
mod blob;
pub(crate) mod bytes;
mod container;
mod content;
mod cursor;
pub(crate) mod decode_error;
mod extensions;
mod names;
mod reader;
pub(crate) mod references;
mod text;
pub(crate) mod value;
mod writer;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidewire_proto::generated::errors::ErrorCode;

use crate::error::Error;

pub(crate) use arguments::read as read_arguments;
pub(crate) use blob::Blob;
pub use bytes::Bytes;
pub(crate) use decode_error::Kind;
pub(crate) use value::Raw;
pub use value::{Array, Value};
pub(crate) use writer::Writer;

/// Writes a value as it travels.
///
/// # Errors
/// [`Error`] with the code `invalid_argument` and the path of the part that cannot be sent, or with
/// `payload_too_large`.
///
/// ```
/// use std::collections::BTreeMap;
/// use tidewire_node::values::to_bytes;
///
/// assert_eq!(to_bytes(&127)?, [0x7f]);
/// let wrong = to_bytes(&BTreeMap::from([("big", vec![u128::MAX])])).unwrap_err();
/// assert!(wrong.to_string().starts_with("value[\"big\"][0]: "), "{wrong}");
/// # Ok::<(), tidewire_node::Error>(())
/// ```
pub fn to_bytes<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    write("value", value).map(Blob::into_bytes)
}

/// Reads a value that travelled.
///
/// # Errors
/// [`Error`] with the code `wire_error` if the bytes are no value, or `invalid_argument` with the
/// path of the part that does not fit the type.
///
/// ```
/// use tidewire_node::values::from_bytes;
///
/// assert_eq!(from_bytes::<Vec<String>>(&[0x91, 0xa1, b'a'])?, ["a"]);
/// let wrong = from_bytes::<Vec<String>>(&[0x91, 0x07]).unwrap_err();
/// assert_eq!(wrong.to_string(), "value[0]: invalid type: integer `7`, expected a string");
/// # Ok::<(), tidewire_node::Error>(())
/// ```
pub fn from_bytes<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Error> {
    references::within(None, || read_any("value", bytes))
}

/// Writes a value of this name, which is data alone.
pub(crate) fn write<T: Serialize + ?Sized>(name: &str, value: &T) -> Result<Blob, Error> {
    references::within(None, || write_any(name, value))
}

/// Writes a value of this name. The caller has declared which references it may hold.
pub(crate) fn write_any<T: Serialize + ?Sized>(name: &str, value: &T) -> Result<Blob, Error> {
    Writer::blob(value).map_err(|wrong| Error::of_value(name, wrong))
}

/// Reads a value of this name, which is data alone.
pub(crate) fn read<T: DeserializeOwned>(name: &str, input: &[u8]) -> Result<T, Error> {
    references::within(None, || read_any(name, input))
}

/// The error that a caller receives: a number and a text, or a value.
pub(crate) fn read_error(title: &str, number: u16, payload: &[u8]) -> Error {
    let code = ErrorCode::from_number(number).unwrap_or(ErrorCode::RemoteError);
    match (code, read(title, payload)) {
        (ErrorCode::RemoteError, Ok(remote)) if number == code.number() => Error::remote_of(title, remote),
        _ => Error::new(code, format!("{title}: {}", String::from_utf8_lossy(payload))),
    }
}

/// Reads a value of this name. The caller has declared which references it may hold.
pub(crate) fn read_any<'de, T: Deserialize<'de>>(name: &str, input: &'de [u8]) -> Result<T, Error> {
    let found = cursor::Cursor::new(input).and_then(|mut cursor| {
        let value = T::deserialize(reader::Reader(&mut cursor))?;
        cursor.finish().map(|()| value)
    });
    found.map_err(|wrong| Error::of_value(name, wrong))
}

#[cfg(test)]
mod tests;
