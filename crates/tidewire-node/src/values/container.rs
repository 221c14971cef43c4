//! Serializers of lists, tuples and maps.

use std::ops::Range;

use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleStruct,
    SerializeTupleVariant, Serializer,
};

use super::cursor::{Cursor, Token};
use super::decode_error::DecodeError;
use super::writer::{Writer, count_of};

/// A list, a tuple or a map that is being written.
pub(crate) struct Container<'a> {
    writer: &'a mut Writer,
    at: usize,
    known: bool,
    is_map: bool,
    count: usize,
    extension_at: Option<usize>,
    /// It is in a map of one entry.
    pub is_variant: bool,
    /// Where the key of the entry is that is being written.
    key: Range<usize>,
}

impl<'a> Container<'a> {
    /// One that begins at a place, with or without its count before it.
    pub fn new(writer: &'a mut Writer, at: usize, known: bool, is_map: bool, extension_at: Option<usize>) -> Self {
        Self { writer, at, known, is_map, count: 0, extension_at, is_variant: false, key: 0..0 }
    }
}

impl Container<'_> {
    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), DecodeError> {
        let number = self.count;
        self.count += 1;
        value.serialize(&mut *self.writer).map_err(|wrong| wrong.inside_of(format_args!("[{number}]")))
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), DecodeError> {
        self.count += 1;
        self.writer.serialize_str(name)?;
        value.serialize(&mut *self.writer).map_err(|wrong| wrong.inside_of(name))
    }

    fn close(self) -> Result<(), DecodeError> {
        if !self.known {
            let mut count = Vec::new();
            count_of(&mut count, self.count, self.is_map)?;
            self.writer.head.splice(self.at..self.at, count);
        }
        if let Some(begin) = self.extension_at {
            self.writer.end_extension(begin);
        }
        self.writer.depth -= 1 + usize::from(self.is_variant);
        Ok(())
    }
}

macro_rules! items {
    ($($of:ident: $method:ident,)*) => {
        $(impl $of for Container<'_> {
            type Ok = ();
            type Error = DecodeError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), DecodeError> {
                self.item(value)
            }

            fn end(self) -> Result<(), DecodeError> {
                self.close()
            }
        })*
    };
}

items! {
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field,
}

macro_rules! fields {
    ($($of:ident,)*) => {
        $(impl $of for Container<'_> {
            type Ok = ();
            type Error = DecodeError;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), DecodeError> {
                self.field(name, value)
            }

            fn end(self) -> Result<(), DecodeError> {
                self.close()
            }
        })*
    };
}

fields! { SerializeStruct, SerializeStructVariant, }

impl SerializeMap for Container<'_> {
    type Ok = ();
    type Error = DecodeError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), DecodeError> {
        self.count += 1;
        let begin = self.writer.head.len();
        key.serialize(&mut *self.writer)?;
        self.key = begin..self.writer.head.len();
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), DecodeError> {
        let written = value.serialize(&mut *self.writer);
        written.map_err(|wrong| match key_text(&self.writer.head[self.key.clone()]) {
            Some(key) => wrong.inside_of(format_args!("[{key:?}]")),
            None => wrong,
        })
    }

    fn end(self) -> Result<(), DecodeError> {
        self.close()
    }
}

fn key_text(written: &[u8]) -> Option<String> {
    let mut cursor = Cursor::new(written).ok()?;
    let Token::Text(span) = cursor.token().ok()? else { return None };
    cursor.text(span).ok().map(|text| text.to_owned())
}
