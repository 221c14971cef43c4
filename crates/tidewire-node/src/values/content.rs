//! Contents of extension values for a [`Value`](super::Value), decoded by the extension's number.

use serde::de::value::{BorrowedBytesDeserializer, BytesDeserializer};
use serde::de::{DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, VariantAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::cursor::Cursor;
use super::decode_error::DecodeError;
use super::extensions as ext;
use super::reader::Reader;
use super::source::{Part, SourceChunk};

/// An extension that is decoded into a [`Value`](super::Value): its number as a variant, and its
/// content.
pub(super) struct Content<'a, 'de> {
    pub cursor: &'a mut Cursor<'de>,
    pub code: i8,
    pub bytes: usize,
}

impl<'de> EnumAccess<'de> for Content<'_, 'de> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), DecodeError> {
        Ok((seed.deserialize(self.code.into_deserializer())?, self))
    }
}

impl<'de> VariantAccess<'de> for Content<'_, 'de> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        self.cursor.take(self.bytes).map(drop)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, DecodeError> {
        if ext::holds_values(self.code) {
            return self.cursor.within(self.bytes, |cursor| seed.deserialize(Reader(cursor)));
        }
        let content = self.cursor.take(self.bytes)?;
        if !matches!(self.code, ext::BUFFER | ext::BYTEARRAY_BUFFER) {
            return match self.cursor.bytes(content) {
                SourceChunk::Kept(bytes) => seed.deserialize(BorrowedBytesDeserializer::<DecodeError>::new(bytes)),
                SourceChunk::Passing(bytes) => seed.deserialize(BytesDeserializer::<DecodeError>::new(bytes)),
            };
        }
        match self.cursor.part(content)? {
            Part::Kept(bytes) => seed.deserialize(BorrowedBytesDeserializer::<DecodeError>::new(bytes)),
            Part::Passing(bytes) => seed.deserialize(Owned(bytes)),
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, DecodeError> {
        Err(self.cursor.wrong("an extension holds one value"))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, DecodeError> {
        Err(self.cursor.wrong("an extension holds one value"))
    }
}

/// Bytes that are passed with their memory.
struct Owned(Vec<u8>);

impl<'de> Deserializer<'de> for Owned {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_byte_buf(self.0)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
