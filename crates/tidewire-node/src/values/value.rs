//! Dynamic value of any type that travels.

use std::fmt;

use serde::de::{Deserialize, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde::ser::{Serialize, SerializeSeq, Serializer};
use tidewire_proto::values::extension as ext;

use super::extensions::{bytes_of, value_of};
use super::names::name_of;

/// Newtype name with which a [`Value`] calls its deserializer.
pub(crate) const VALUE: &str = "\0tidewire:value";

/// Any value that travels between nodes, for data of unknown type; `spec/values.md` describes each.
///
/// ```
/// use tidewire_node::values::{Value, from_bytes, to_bytes};
///
/// let sent = to_bytes(&("X", 3, [1.5, 2.5]))?;
/// let Value::Tuple(items) = from_bytes(&sent)? else { panic!("it was a tuple") };
/// assert_eq!(items[..2], [Value::from("X"), Value::from(3)]);
/// # Ok::<(), tidewire_node::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Nothing; None in Python.
    #[default]
    Nil,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number above `i64::MAX`.
    UInt(u64),
    /// A number of 64 bits.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Bytes that can be changed where Python holds them.
    ByteArray(Vec<u8>),
    /// A list.
    List(Vec<Value>),
    /// A tuple of Python, or of Rust.
    Tuple(Vec<Value>),
    /// A set.
    Set(Vec<Value>),
    /// A set that does not change.
    FrozenSet(Vec<Value>),
    /// A map, in order.
    Map(Vec<(Value, Value)>),
    /// A time in UTC: microseconds since 1970.
    Timestamp(i64),
    /// A time: microseconds since 1970 in UTC, and the offset of its zone in microseconds.
    Moment(i64, i64),
    /// A time on a clock whose zone is not known: microseconds since 1970-01-01 00:00 on that
    /// clock.
    LocalTime(i64),
    /// A date: days since 1970-01-01.
    Date(i32),
    /// A time of day: microseconds since midnight, and the offset of its zone in microseconds.
    Time(i64, Option<i64>),
    /// A length of time.
    Duration {
        /// Whole days, negative for one backwards.
        days: i32,
        /// 0 to 86,399.
        seconds: u32,
        /// 0 to 999,999.
        micros: u32,
    },
    /// A decimal number as text.
    Decimal(String),
    /// A UUID.
    Uuid([u8; 16]),
    /// A complex number: real and imaginary part.
    Complex(f64, f64),
    /// A record, such as a data class: the name of its type, and its fields.
    Record(String, Vec<(Value, Value)>),
    /// A member of an enumeration: the name of its type, and its value.
    Enum(String, Box<Value>),
    /// An error: `type`, `message` and more.
    Error(Vec<(Value, Value)>),
    /// An array of NumPy.
    Array(Array),
    /// A scalar of NumPy: its dtype and its bytes.
    Scalar(String, Vec<u8>),
}

/// An array of numbers, as NumPy has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Array {
    /// Byte order, kind and size of an item, such as `<f8`.
    pub dtype: String,
    /// The length of each dimension.
    pub shape: Vec<u64>,
    /// True if the items of the first dimension are adjacent in memory.
    pub is_fortran: bool,
    /// The items.
    pub data: Vec<u8>,
}

impl Value {
    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The number, if it is a whole one of this range.
    pub fn as_i64(&self) -> Option<i64> {
        if let Self::Int(number) = self { Some(*number) } else { None }
    }

    /// The number, if it is a whole one of this range.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Int(number) => u64::try_from(*number).ok(),
            Self::UInt(number) => Some(*number),
            _ => None,
        }
    }

    /// The number, if it is one.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::UInt(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// The text of a time, a date, a length of time or a decimal, as ISO 8601 writes it; None for
    /// other values.
    pub fn iso(&self) -> Option<String> {
        super::text::of(self)
    }

    /// The entry of a map, a record or an error under a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let (Self::Map(fields) | Self::Record(_, fields) | Self::Error(fields)) = self else { return None };
        fields.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value)
    }

    /// True if it can be a key of a map or a member of a set.
    pub(crate) fn is_hashable(&self) -> bool {
        match self {
            Self::List(_) | Self::Map(_) | Self::Set(_) | Self::ByteArray(_) | Self::Array(_) => false,
            Self::Tuple(items) => items.iter().all(Self::is_hashable),
            _ => true,
        }
    }
}

macro_rules! from {
    ($($from:ty: $value:ident => $made:expr,)*) => {
        $(impl From<$from> for Value {
            fn from($value: $from) -> Self {
                $made
            }
        })*
    };
}

from! {
    bool: value => Self::Bool(value),
    i32: value => Self::Int(value.into()),
    u32: value => Self::Int(value.into()),
    i64: value => Self::Int(value),
    u64: value => i64::try_from(value).map_or(Self::UInt(value), Self::Int),
    f64: value => Self::Float(value),
    &str: value => Self::Text(value.to_owned()),
    String: value => Self::Text(value),
    Vec<u8>: value => Self::Bytes(value),
    Vec<Value>: value => Self::List(value),
    Vec<(Value, Value)>: value => Self::Map(value),
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(VALUE, AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Nil)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Nil)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_byte_buf<E>(self, value: Vec<u8>) -> Result<Value, E> {
        Ok(Value::Bytes(value))
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<Value, E> {
        Ok(Value::Bytes(value.to_vec()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Value>()? {
            if !key.is_hashable() {
                return Err(serde::de::Error::custom("a key of a map can't be looked up"));
            }
            map.push((key, entries.next_value()?));
        }
        Ok(Value::Map(map))
    }

    /// An extension: the variant is its number.
    fn visit_enum<A: EnumAccess<'de>>(self, extension: A) -> Result<Value, A::Error> {
        let (code, content) = extension.variant::<i8>()?;
        value_of(code, content.newtype_variant()?).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nil => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => serializer.serialize_i64(*value),
            Self::UInt(value) => serializer.serialize_u64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::Bytes(value) => serializer.serialize_bytes(value),
            Self::List(items) => items.serialize(serializer),
            Self::Map(entries) => Entries(entries).serialize(serializer),
            _ => self.serialize_extension(serializer),
        }
    }
}

impl Value {
    fn serialize_extension<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Tuple(items) => to.serialize_newtype_struct(name_of(ext::TUPLE), items),
            Self::Set(items) => to.serialize_newtype_struct(name_of(ext::SET), items),
            Self::FrozenSet(items) => to.serialize_newtype_struct(name_of(ext::FROZENSET), items),
            Self::Record(of, fields) => to.serialize_newtype_struct(name_of(ext::RECORD), &Pair(of, &Entries(fields))),
            Self::Enum(of, member) => to.serialize_newtype_struct(name_of(ext::ENUM), &Pair(of, member)),
            Self::Error(fields) => to.serialize_newtype_struct(name_of(ext::ERROR), &Entries(fields)),
            Self::Array(array) => to.serialize_newtype_struct(name_of(ext::ARRAY), array),
            Self::Scalar(dtype, data) if dtype == "U" => {
                to.serialize_newtype_struct(name_of(ext::SCALAR), &Pair(dtype, &String::from_utf8_lossy(data)))
            }
            Self::Scalar(dtype, data) => to.serialize_newtype_struct(name_of(ext::SCALAR), &Pair(dtype, &Raw(data))),
            other => {
                let (code, bytes) = bytes_of(other);
                to.serialize_newtype_struct(name_of(code), &Raw(&bytes))
            }
        }
    }
}

impl Serialize for Array {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut items = serializer.serialize_seq(Some(4))?;
        items.serialize_element(&self.dtype)?;
        items.serialize_element(&self.shape)?;
        items.serialize_element(if self.is_fortran { "F" } else { "C" })?;
        items.serialize_element(&Raw(&self.data))?;
        items.end()
    }
}

/// Borrowed bytes, encoded as bytes.
pub(crate) struct Raw<'a>(pub &'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// Two values in an array. A tuple of Rust would be written as a tuple.
struct Pair<'a, A: ?Sized, B: ?Sized>(&'a A, &'a B);

impl<A: Serialize + ?Sized, B: Serialize + ?Sized> Serialize for Pair<'_, A, B> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut items = serializer.serialize_seq(Some(2))?;
        items.serialize_element(self.0)?;
        items.serialize_element(self.1)?;
        items.end()
    }
}

struct Entries<'a>(&'a [(Value, Value)]);

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}
