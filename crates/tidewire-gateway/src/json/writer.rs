//! Values as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use tidewire_node::values::{Array, Value};

use super::TYPE;

/// A value as JSON.
pub(crate) fn to_json(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    write_json(&mut out, value);
    out
}

/// Appends a value as JSON.
pub(crate) fn write_json(out: &mut Vec<u8>, value: &Value) {
    // Writing to memory does not fail, and all keys are text.
    let written = serde_json::to_writer(out, &Json(value));
    debug_assert!(written.is_ok(), "{written:?}");
}

struct Json<'a>(&'a Value);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Nil => to.serialize_unit(),
            Value::Bool(value) => to.serialize_bool(*value),
            Value::Int(value) => to.serialize_i64(*value),
            Value::UInt(value) => to.serialize_u64(*value),
            Value::Float(value) => float(*value, to),
            Value::Text(text) => to.serialize_str(text),
            Value::Bytes(bytes) => form(to, "bytes", [("base64", &STANDARD.encode(bytes))]),
            Value::ByteArray(bytes) => form(to, "bytearray", [("base64", &STANDARD.encode(bytes))]),
            Value::List(items) | Value::Tuple(items) | Value::Set(items) | Value::FrozenSet(items) => list(items, to),
            Value::Map(entries) | Value::Record(_, entries) => map(entries, to),
            Value::Enum(_, member) => Json(member).serialize(to),
            Value::Uuid(bytes) => to.serialize_str(&uuid(bytes)),
            Value::Complex(real, imaginary) => {
                let (real, imaginary) = (Value::Float(*real), Value::Float(*imaginary));
                form(to, "complex", [("real", Json(&real)), ("imag", Json(&imaginary))])
            }
            Value::Error(_) => error(self.0, to),
            Value::Array(items) => array(items, to),
            Value::Scalar(dtype, data) => scalar(dtype, data, to),
            other => to.serialize_str(&other.iso().unwrap_or_default()),
        }
    }
}

fn float<S: Serializer>(value: f64, to: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() {
        return to.serialize_f64(value);
    }
    let name = match value {
        _ if value.is_nan() => "nan",
        _ if value > 0.0 => "inf",
        _ => "-inf",
    };
    form(to, "float", [("value", name)])
}

fn list<S: Serializer>(items: &[Value], to: S) -> Result<S::Ok, S::Error> {
    let mut list = to.serialize_seq(Some(items.len()))?;
    for item in items {
        list.serialize_element(&Json(item))?;
    }
    list.end()
}

/// A map with text keys is an object. Any other map, and one that would be read as a form, is a
/// list of pairs.
fn map<S: Serializer>(entries: &[(Value, Value)], to: S) -> Result<S::Ok, S::Error> {
    if entries.iter().all(|(key, _)| key.as_str().is_some_and(|key| key != TYPE)) {
        let mut object = to.serialize_map(Some(entries.len()))?;
        for (key, value) in entries {
            object.serialize_entry(key.as_str().unwrap_or_default(), &Json(value))?;
        }
        return object.end();
    }
    let pairs: Vec<[Json<'_>; 2]> = entries.iter().map(|(key, value)| [Json(key), Json(value)]).collect();
    form(to, "map", [("entries", pairs)])
}

/// An error as data, without its traceback.
fn error<S: Serializer>(value: &Value, to: S) -> Result<S::Ok, S::Error> {
    let text = |name| value.get(name).and_then(Value::as_str).unwrap_or_default();
    form(to, "error", [("error", text("type")), ("message", text("message"))])
}

fn array<S: Serializer>(array: &Array, to: S) -> Result<S::Ok, S::Error> {
    let mut object = to.serialize_map(Some(5))?;
    object.serialize_entry(TYPE, "array")?;
    object.serialize_entry("dtype", &array.dtype)?;
    object.serialize_entry("shape", &array.shape)?;
    object.serialize_entry("order", if array.is_fortran { "F" } else { "C" })?;
    object.serialize_entry("base64", &STANDARD.encode(&array.data))?;
    object.end()
}

/// A NumPy number is a number; a number without a JSON form is written as its bytes.
fn scalar<S: Serializer>(dtype: &str, data: &[u8], to: S) -> Result<S::Ok, S::Error> {
    if dtype == "U" {
        return to.serialize_str(&String::from_utf8_lossy(data));
    }
    let is_big = dtype.starts_with('>');
    let number = |bytes: &[u8]| {
        let fold = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        if is_big { bytes.iter().fold(0, fold) } else { bytes.iter().rev().fold(0, fold) }
    };
    match (dtype.get(1..).unwrap_or_default(), data.len()) {
        ("b1", 1) => to.serialize_bool(data[0] != 0),
        ("i1" | "i2" | "i4" | "i8", length @ 1..=8) => {
            let unused = 64 - 8 * length as u32;
            to.serialize_i64((number(data) << unused) as i64 >> unused)
        }
        ("u1" | "u2" | "u4" | "u8", 1..=8) => to.serialize_u64(number(data)),
        ("f4", 4) => float(f32::from_bits(number(data) as u32).into(), to),
        ("f8", 8) => float(f64::from_bits(number(data)), to),
        _ => form(to, "scalar", [("dtype", dtype), ("base64", &STANDARD.encode(data))]),
    }
}

fn form<S: Serializer, T: Serialize, const N: usize>(
    to: S,
    name: &str,
    fields: [(&str, T); N],
) -> Result<S::Ok, S::Error> {
    let mut object = to.serialize_map(Some(N + 1))?;
    object.serialize_entry(TYPE, name)?;
    for (name, value) in &fields {
        object.serialize_entry(name, value)?;
    }
    object.end()
}

fn uuid(bytes: &[u8; 16]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let group = |range: std::ops::Range<usize>| digits[range].concat();
    [group(0..4), group(4..6), group(6..8), group(8..10), group(10..16)].join("-")
}
