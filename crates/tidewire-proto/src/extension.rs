//! The numbers of the extensions of `spec/values.md`.

#![allow(missing_docs, reason = "the table in the specification describes each")]

pub const TIMESTAMP: i8 = -1;
pub const TUPLE: i8 = 1;
pub const SET: i8 = 2;
pub const FROZENSET: i8 = 3;
pub const BYTEARRAY: i8 = 4;
pub const BUFFER: i8 = 5;
pub const BYTEARRAY_BUFFER: i8 = 6;
pub const MOMENT: i8 = 7;
pub const LOCAL_TIME: i8 = 8;
pub const DATE: i8 = 9;
pub const TIME: i8 = 10;
pub const DURATION: i8 = 11;
pub const DECIMAL: i8 = 12;
pub const UUID: i8 = 13;
pub const COMPLEX: i8 = 15;
pub const RECORD: i8 = 16;
pub const ENUM: i8 = 17;
pub const ERROR: i8 = 18;
pub const ARRAY: i8 = 19;
pub const SCALAR: i8 = 20;
pub const REFERENCE: i8 = 21;

/// True if the content of an extension is a value.
#[must_use]
pub const fn holds_values(code: i8) -> bool {
    matches!(code, TUPLE | SET | FROZENSET | RECORD | ENUM | ERROR | ARRAY | SCALAR | REFERENCE)
}
