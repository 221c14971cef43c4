//! Contents of extension values for a [`Value`](super::Value), decoded by the extension's number.

use serde::de::value::BorrowedBytesDeserializer;
use serde::de::{DeserializeSeed, EnumAccess, IntoDeserializer, VariantAccess, Visitor};
use tidewire_proto::values::extension as ext;

use super::cursor::Cursor;
use super::decode_error::DecodeError;
use super::reader::Reader;

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
        let bytes = match self.code {
            ext::BUFFER | ext::BYTEARRAY_BUFFER => self.cursor.part(content)?,
            _ => self.cursor.bytes(content),
        };
        seed.deserialize(BorrowedBytesDeserializer::<DecodeError>::new(bytes))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, DecodeError> {
        Err(self.cursor.wrong("an extension holds one value"))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, DecodeError> {
        Err(self.cursor.wrong("an extension holds one value"))
    }
}
