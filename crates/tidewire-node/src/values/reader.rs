//! Deserializer of values into types of Rust. A type other than `Value` gets the content of an
//! extension, or its text.

use serde::de::value::SeqDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use tidewire_proto::values::extension as ext;

use super::content::Content;
use super::cursor::{Cursor, Span, Token};
use super::decode_error::DecodeError;
use super::extensions::{self, REFERENCE_IS_NO_VALUE};
use super::references::REFERENCE;
use super::text;
use super::value::{VALUE, Value};

/// One value at a cursor.
pub(crate) struct Reader<'a, 'de>(pub &'a mut Cursor<'de>);

impl<'de> Reader<'_, 'de> {
    fn plain<V: Visitor<'de>>(self, token: Token, visitor: V) -> Result<V::Value, DecodeError> {
        match token {
            Token::Nil => visitor.visit_unit(),
            Token::Bool(value) => visitor.visit_bool(value),
            Token::Int(value) => visitor.visit_i64(value),
            Token::UInt(value) => visitor.visit_u64(value),
            Token::Float(value) => visitor.visit_f64(value),
            Token::Text(span) => self.text(span, visitor),
            Token::Bytes(span) => self.bytes(span, visitor),
            Token::List(count) => self.0.deeper(|cursor| Items::read(cursor, count, |items| visitor.visit_seq(items))),
            Token::Map(count) => self.0.deeper(|cursor| Entries::read(cursor, count, visitor)),
            Token::Extension(code, bytes) => self.extension(code, bytes, visitor),
        }
    }

    fn text<V: Visitor<'de>>(self, span: Span, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_borrowed_str(self.0.text(span)?)
    }

    fn bytes<V: Visitor<'de>>(self, span: Span, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_borrowed_bytes(self.0.bytes(span))
    }

    /// The content of an extension, for types that do not know the extension.
    fn extension<V: Visitor<'de>>(self, code: i8, bytes: usize, visitor: V) -> Result<V::Value, DecodeError> {
        match code {
            ext::TUPLE | ext::SET | ext::FROZENSET | ext::ERROR => {
                self.0.within(bytes, |cursor| Reader(cursor).deserialize_any(visitor))
            }
            ext::RECORD | ext::ENUM => self.0.within(bytes, |cursor| second(cursor, visitor)),
            ext::BYTEARRAY => {
                let span = self.0.take(bytes)?;
                self.bytes(span, visitor)
            }
            ext::BUFFER | ext::BYTEARRAY_BUFFER => {
                let reference = self.0.take(bytes)?;
                visitor.visit_borrowed_bytes(self.0.part(reference)?)
            }
            ext::REFERENCE => Err(DecodeError::unfit(REFERENCE_IS_NO_VALUE)),
            _ => self.other(code, bytes, visitor),
        }
    }

    fn reference<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.0.token()? {
            Token::Extension(ext::REFERENCE, bytes) => {
                self.0.within(bytes, |cursor| cursor.deeper(|cursor| visitor.visit_newtype_struct(Reader(cursor))))
            }
            token => self.plain(token, visitor),
        }
    }

    #[cold]
    fn other<V: Visitor<'de>>(self, code: i8, bytes: usize, visitor: V) -> Result<V::Value, DecodeError> {
        match extension_value(self.0, code, bytes)? {
            Value::Uuid(bytes) => visitor.visit_bytes(&bytes),
            value => match text::of(&value) {
                Some(text) => visitor.visit_string(text),
                None => {
                    Err(DecodeError::unfit("arrays and scalars of NumPy, and complex numbers, are read as a `Value`"))
                }
            },
        }
    }
}

fn extension_value(cursor: &mut Cursor<'_>, code: i8, bytes: usize) -> Result<Value, DecodeError> {
    let at = cursor.at();
    let content = Content { cursor, code, bytes };
    let value = content.newtype_variant::<Value>()?;
    extensions::value_of(code, value).map_err(|problem| DecodeError::malformed(problem, at))
}

/// The second of two values: the content of a record or of a member of an enum, after the name of
/// its type.
fn second<'de, V: Visitor<'de>>(cursor: &mut Cursor<'de>, visitor: V) -> Result<V::Value, DecodeError> {
    if cursor.array()? != 2 {
        return Err(cursor.wrong("the extension does not hold two values"));
    }
    cursor.skip()?;
    cursor.deeper(|cursor| Reader(cursor).deserialize_any(visitor))
}

impl<'de> Deserializer<'de> for Reader<'_, 'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let token = self.0.token()?;
        self.plain(token, visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.0.peek()? == Token::Nil {
            self.0.token()?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        if name == REFERENCE {
            return self.reference(visitor);
        }
        if name != VALUE {
            return visitor.visit_newtype_struct(self);
        }
        match self.0.token()? {
            Token::Extension(code, bytes) => visitor.visit_enum(Content { cursor: self.0, code, bytes }),
            token => self.plain(token, visitor),
        }
    }

    /// Bytes may be read as a list of numbers, as `Vec<u8>` wants them.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let span = match self.0.token()? {
            Token::Bytes(span) => span,
            Token::Extension(ext::BYTEARRAY, bytes) => self.0.take(bytes)?,
            Token::Extension(ext::BUFFER | ext::BYTEARRAY_BUFFER, bytes) => {
                let reference = self.0.take(bytes)?;
                return visitor.visit_seq(numbers(self.0.part(reference)?.iter().copied()));
            }
            token => return self.plain(token, visitor),
        };
        visitor.visit_seq(numbers(self.0.bytes(span).iter().copied()))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match self.0.token()? {
            Token::Text(span) => visitor.visit_enum(self.0.text(span)?.into_deserializer()),
            Token::Map(1) => self.0.deeper(|cursor| visitor.visit_enum(Variant(cursor))),
            Token::Extension(code @ (ext::ENUM | ext::RECORD), bytes) => {
                self.0.within(bytes, |cursor| enumerated(cursor, code, visitor))
            }
            _ => Err(self.0.wrong("neither the name of a variant, nor a map with the name of one")),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.0.skip()?;
        visitor.visit_unit()
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit map struct identifier
    }
}

fn numbers<I: Iterator<Item = u8>>(bytes: I) -> SeqDeserializer<I, DecodeError> {
    SeqDeserializer::new(bytes)
}

fn enumerated<'de, V: Visitor<'de>>(cursor: &mut Cursor<'de>, code: i8, visitor: V) -> Result<V::Value, DecodeError> {
    if cursor.array()? != 2 || code == ext::RECORD {
        return Err(cursor.wrong("a record is no variant of an enum"));
    }
    cursor.skip()?;
    cursor.deeper(|cursor| Reader(cursor).deserialize_enum("", &[], visitor))
}

/// The items of a list that is being read.
pub(crate) struct Items<'a, 'de> {
    cursor: &'a mut Cursor<'de>,
    count: usize,
    read: usize,
}

impl<'a, 'de> Items<'a, 'de> {
    fn read<T>(
        cursor: &'a mut Cursor<'de>,
        count: usize,
        visit: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let mut items = Self { cursor, count, read: 0 };
        let found = visit(&mut items)?;
        if items.read < count {
            return Err(DecodeError::unfit(format!("{count} items are more than the {} that it has here", items.read)));
        }
        Ok(found)
    }
}

impl<'de> SeqAccess<'de> for &mut Items<'_, 'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        if self.read == self.count {
            return Ok(None);
        }
        let number = self.read;
        self.read += 1;
        let item = seed.deserialize(Reader(self.cursor));
        item.map(Some).map_err(|wrong| wrong.inside_of(format_args!("[{number}]")))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.count - self.read)
    }
}

/// The entries of a map that is being read.
struct Entries<'a, 'de> {
    cursor: &'a mut Cursor<'de>,
    left: usize,
    /// The key of the value that comes next, if it is a text.
    key: Option<&'de str>,
}

impl<'a, 'de> Entries<'a, 'de> {
    fn read<V: Visitor<'de>>(cursor: &'a mut Cursor<'de>, count: usize, visitor: V) -> Result<V::Value, DecodeError> {
        let mut entries = Self { cursor, left: count, key: None };
        let found = visitor.visit_map(&mut entries)?;
        if entries.left > 0 { Err(DecodeError::unfit("the map has more entries than it has here")) } else { Ok(found) }
    }

    fn key_ahead(&mut self) -> Option<&'de str> {
        let Ok(Token::Text(span)) = self.cursor.peek() else { return None };
        self.cursor.text(span).ok()
    }
}

impl<'de> MapAccess<'de> for &mut Entries<'_, 'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.key = self.key_ahead();
        seed.deserialize(Reader(self.cursor)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        let key = self.key.take();
        let value = seed.deserialize(Reader(self.cursor));
        value.map_err(|wrong| match key {
            Some(key) => wrong.inside_of(key),
            None => wrong,
        })
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// A map of one entry: the name of a variant, and its content.
struct Variant<'a, 'de>(&'a mut Cursor<'de>);

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), DecodeError> {
        Ok((seed.deserialize(Reader(self.0))?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        self.0.skip()
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, DecodeError> {
        seed.deserialize(Reader(self.0))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeError> {
        Reader(self.0).deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, DecodeError> {
        Reader(self.0).deserialize_any(visitor)
    }
}
