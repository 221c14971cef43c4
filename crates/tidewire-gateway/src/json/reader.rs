//! JSON reader of values. Every number, name and form is read exactly, or refused with its
//! position: nothing is rounded or left out.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use tidewire_node::values::Value;

use super::{TYPE, forms};

/// The arguments of a call: an array holds arguments by position, an object arguments by name, an
/// empty text none.
///
/// # Errors
/// The fault of the text, in words for its writer.
pub(crate) fn arguments(text: &[u8]) -> Result<Value, String> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Nil);
    }
    let read = read(text, true)?;
    match read {
        Value::List(_) | Value::Map(_) => Ok(read),
        _ => Err("the body is neither an array nor an object: give arguments by position or by name".to_owned()),
    }
}

/// One value.
///
/// # Errors
/// The fault of the text, in words for its writer.
pub(crate) fn value(text: &[u8]) -> Result<Value, String> {
    read(text, false)
}

fn read(text: &[u8], is_plain: bool) -> Result<Value, String> {
    let large = Cell::new(false);
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = Json { is_plain, large: &large }.deserialize(&mut reader);
    let value = read.and_then(|value| reader.end().map(|()| value));
    let value = value.map_err(|wrong| format!("the body is not what is allowed: {wrong}"))?;
    if large.get() && has_long_integer(text) {
        return Err("an integer is not within -2^63 to 2^64 - 1: give it as {\"$type\": \"decimal\", \"value\": \"...\"}, or as a float".to_owned());
    }
    Ok(value)
}

/// True if an integer has too many digits for 64 bits: the parser would have made a float of it.
fn has_long_integer(text: &[u8]) -> bool {
    let (mut in_text, mut is_escaped, mut digits) = (false, false, 0);
    for byte in text.iter().chain(b" ") {
        if in_text {
            (in_text, is_escaped) = (is_escaped || *byte != b'"', !is_escaped && *byte == b'\\');
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b'0'..=b'9' => {
                digits += i32::from(digits >= 0);
                continue;
            }
            // A fraction or an exponent follows: the number is a float.
            b'.' | b'e' | b'E' | b'+' => digits = i32::MIN,
            b'-' if digits < 0 => {}
            _ if digits >= 19 => return true,
            _ => digits = 0,
        }
    }
    false
}

/// Reader of one value. In a plain value, no object is a form, with any keys.
struct Json<'a> {
    is_plain: bool,
    large: &'a Cell<bool>,
}

impl Json<'_> {
    fn inner(&self) -> Self {
        Json { is_plain: false, large: self.large }
    }
}

impl<'de> DeserializeSeed<'de> for Json<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Json<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Nil)
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
        if value.abs() >= 9e18 {
            self.large.set(true);
        }
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.inner())? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map: Vec<(Value, Value)> = Vec::new();
        let mut known: HashSet<String> = HashSet::new();
        let mut is_form = false;
        while let Some(key) = entries.next_key::<String>()? {
            if !is_new(&key, &map, &mut known) {
                return Err(A::Error::custom(format!("{key:?} is given twice")));
            }
            is_form |= key == TYPE && !self.is_plain;
            let value = entries.next_value_seed(self.inner())?;
            map.push((Value::Text(key), value));
        }
        if is_form { forms::read(map).map_err(A::Error::custom) } else { Ok(Value::Map(map)) }
    }
}

/// True if a key is new. Few keys are compared, many are looked up.
fn is_new(key: &str, map: &[(Value, Value)], known: &mut HashSet<String>) -> bool {
    const FEW: usize = 8;
    if map.len() < FEW {
        return map.iter().all(|(other, _)| other.as_str() != Some(key));
    }
    if map.len() == FEW {
        known.extend(map.iter().filter_map(|(other, _)| other.as_str()).map(str::to_owned));
    }
    known.insert(key.to_owned())
}

#[cfg(test)]
mod tests;
