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
mod tests {
    use super::super::to_json;
    use super::{arguments, value};
    use tidewire_node::values::Value;

    fn again(text: &str) -> String {
        let read = value(text.as_bytes()).unwrap_or_else(|wrong| panic!("{text}: {wrong}"));
        String::from_utf8(to_json(&read)).expect("JSON is text")
    }

    #[test]
    fn plain_json_comes_back_unchanged() {
        for text in [
            "null",
            "true",
            "-9223372036854775808",
            "18446744073709551615",
            "1.5",
            "1.0",
            r#""a \" \\ ü""#,
            r#"[1,[2,{"a":[]}],{}]"#,
            r#"{"$type":"bytes","base64":"AAEC/w=="}"#,
            r#"{"$type":"bytearray","base64":""}"#,
            r#"{"$type":"float","value":"nan"}"#,
            r#"{"$type":"float","value":"-inf"}"#,
            r#"{"$type":"complex","real":1.0,"imag":-0.5}"#,
            r#"{"$type":"map","entries":[[1,"one"],["$type","two"]]}"#,
            r#"{"$type":"array","dtype":"<f8","shape":[1],"order":"C","base64":"AAAAAAAA+D8="}"#,
        ] {
            assert_eq!(again(text), text);
        }
    }

    #[test]
    fn forms_of_text_are_written_as_text() {
        for (form, text) in [
            (r#"{"$type":"datetime","value":"2026-11-21T08:00:00-05:00"}"#, r#""2026-11-21T08:00:00-05:00""#),
            (r#"{"$type":"datetime","value":"1969-12-31T23:59:59.999999Z"}"#, r#""1969-12-31T23:59:59.999999Z""#),
            (r#"{"$type":"datetime","value":"2026-11-21 08:00"}"#, r#""2026-11-21T08:00:00""#),
            (r#"{"$type":"date","value":"0001-01-01"}"#, r#""0001-01-01""#),
            (r#"{"$type":"time","value":"23:59:01.5"}"#, r#""23:59:01.500000""#),
            (r#"{"$type":"duration","value":"-P1DT2H0.5S"}"#, r#""-PT93600.500000S""#),
            (r#"{"$type":"decimal","value":"1.10"}"#, r#""1.10""#),
            (
                r#"{"$type":"uuid","value":"00112233-4455-6677-8899-aabbccddeeff"}"#,
                r#""00112233-4455-6677-8899-aabbccddeeff""#,
            ),
            (r#"{"$type":"set","items":[1]}"#, "[1]"),
            (r#"{"$type":"tuple","items":[1,2]}"#, "[1,2]"),
        ] {
            assert_eq!(again(form), text);
        }
        assert_eq!(value(br#"{"$type":"tuple","items":[1]}"#), Ok(Value::Tuple(vec![Value::Int(1)])));
        assert_eq!(value(br#"{"$type":"date","value":"1970-01-02"}"#), Ok(Value::Date(1)));
    }

    #[test]
    fn a_value_that_json_would_change_is_refused() {
        for (text, word) in [
            ("18446744073709551616", "integer"),
            ("[-9223372036854775809]", "integer"),
            (r#"{"a":1,"a":2}"#, "\"a\" is given twice"),
            (r#"{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"i":2}"#, "\"i\" is given twice"),
            (r#"{"$type":"bytes","base64":"?"}"#, "base64"),
            (r#"{"$type":"bytes"}"#, "base64"),
            (r#"{"$type":"bytes","base64":"","more":1}"#, "more"),
            (r#"{"$type":"nothing"}"#, "\"nothing\" is not a form"),
            (r#"{"$type":3}"#, "$type"),
            (r#"{"$type":"date","value":"2026-02-30"}"#, "date"),
            (r#"{"$type":"array","dtype":"<f8","shape":[2],"order":"C","base64":"AAAAAAAA+D8="}"#, "bytes"),
            (r#"{"$type":"array","dtype":"O","shape":[0],"order":"C","base64":""}"#, "dtype"),
            ("[1,]", "trailing comma"),
            ("[1] 2", "trailing"),
            ("[", "EOF"),
        ] {
            let wrong = value(text.as_bytes()).expect_err(text);
            assert!(wrong.contains(word), "{text}: {wrong}");
        }
        assert!(value("[".repeat(100_000).as_bytes()).is_err());
        assert_eq!(value(b"1e20"), Ok(Value::Float(1e20)));
        assert_eq!(value(br#"["18446744073709551616",1e19]"#).map(drop), Ok(()));
    }

    #[test]
    fn arguments_are_an_array_or_an_object() {
        assert_eq!(arguments(b" \n"), Ok(Value::Nil));
        assert_eq!(arguments(b"[]"), Ok(Value::List(Vec::new())));
        let named = Value::Map(vec![("$type".into(), "bytes".into())]);
        assert_eq!(arguments(br#"{"$type":"bytes"}"#), Ok(named), "it is the name of an argument");
        assert!(arguments(b"3").expect_err("it is neither").contains("neither an array nor an object"));
    }
}
