//! Objects with a `$type`: values that JSON has no form for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tidewire_node::values::{Array, Value};

use super::{TYPE, times};

/// The value of a form.
///
/// # Errors
/// The fault of the form, in words for its writer.
pub(crate) fn read(fields: Vec<(Value, Value)>) -> Result<Value, String> {
    let mut form = Form { name: String::new(), fields };
    form.name = form.text(TYPE)?;
    let value = match form.name.as_str() {
        "bytes" => Value::Bytes(form.base64()?),
        "bytearray" => Value::ByteArray(form.base64()?),
        "float" => Value::Float(float(&form.text("value")?).ok_or_else(|| form.wrong("value", "nan, inf or -inf"))?),
        "complex" => Value::Complex(form.number("real")?, form.number("imag")?),
        "tuple" => Value::Tuple(form.list("items")?),
        "set" => Value::Set(form.members()?),
        "frozenset" => Value::FrozenSet(form.members()?),
        "map" => Value::Map(form.entries()?),
        "decimal" => form.of_text(decimal, "a number")?,
        "uuid" => form.of_text(uuid, "32 hexadecimal digits")?,
        "datetime" => form.of_text(times::datetime, "a date and a time as in ISO 8601")?,
        "date" => form.of_text(times::date, "a date as in ISO 8601")?,
        "time" => form.of_text(times::time, "a time as in ISO 8601")?,
        "duration" => form.of_text(times::duration, "a duration as in ISO 8601, without years and months")?,
        "array" => Value::Array(form.array()?),
        other => {
            return Err(format!(
                "{other:?} is not a form: known are bytes, bytearray, float, complex, tuple, set, frozenset, map, decimal, \
                 uuid, datetime, date, time, duration and array"
            ));
        }
    };
    match form.fields.first() {
        None => Ok(value),
        Some((name, _)) => {
            Err(format!("{}: there is no field {:?} in this form", form.name, name.as_str().unwrap_or_default()))
        }
    }
}

struct Form {
    name: String,
    fields: Vec<(Value, Value)>,
}

impl Form {
    fn take(&mut self, name: &str) -> Result<Value, String> {
        let at = self.fields.iter().position(|(key, _)| key.as_str() == Some(name));
        let at = at.ok_or_else(|| format!("{}: the field {name:?} is missing", self.name))?;
        Ok(self.fields.swap_remove(at).1)
    }

    fn wrong(&self, field: &str, expected: &str) -> String {
        format!("{}: {field} is not what is allowed: give {expected}", self.name)
    }

    fn text(&mut self, name: &str) -> Result<String, String> {
        match self.take(name)? {
            Value::Text(text) => Ok(text),
            _ => Err(self.wrong(name, "text")),
        }
    }

    fn list(&mut self, name: &str) -> Result<Vec<Value>, String> {
        match self.take(name)? {
            Value::List(items) => Ok(items),
            _ => Err(self.wrong(name, "an array")),
        }
    }

    fn number(&mut self, name: &str) -> Result<f64, String> {
        let value = self.take(name)?;
        value.as_f64().ok_or_else(|| self.wrong(name, "a number"))
    }

    fn base64(&mut self) -> Result<Vec<u8>, String> {
        let text = self.text("base64")?;
        STANDARD.decode(text).map_err(|_| self.wrong("base64", "base64 of RFC 4648 with its padding"))
    }

    fn of_text(&mut self, read: impl Fn(&str) -> Option<Value>, expected: &str) -> Result<Value, String> {
        let text = self.text("value")?;
        read(&text).ok_or_else(|| self.wrong("value", expected))
    }

    fn members(&mut self) -> Result<Vec<Value>, String> {
        let items = self.list("items")?;
        if items.iter().any(holds_more) {
            return Err(self.wrong("items", "values that can be looked up: no arrays and objects"));
        }
        Ok(items)
    }

    fn entries(&mut self) -> Result<Vec<(Value, Value)>, String> {
        let pair = |pair: Value| {
            let Value::List(pair) = pair else { return None };
            let [key, value] = <[Value; 2]>::try_from(pair).ok()?;
            (!holds_more(&key)).then_some((key, value))
        };
        let entries = self.list("entries")?.into_iter().map(pair).collect::<Option<Vec<_>>>();
        entries.ok_or_else(|| self.wrong("entries", "pairs of a key, which is no array or object, and a value"))
    }

    fn array(&mut self) -> Result<Array, String> {
        let (dtype, order, data) = (self.text("dtype")?, self.text("order")?, self.base64()?);
        let item_bytes = bytes_of(&dtype).ok_or_else(|| self.wrong("dtype", "one of NumPy's such as <f8"))?;
        let shape = self.list("shape")?.iter().map(Value::as_u64).collect::<Option<Vec<_>>>();
        let shape = shape.ok_or_else(|| self.wrong("shape", "an array of whole numbers"))?;
        if order != "C" && order != "F" {
            return Err(self.wrong("order", "C or F"));
        }
        let bytes = shape.iter().try_fold(item_bytes, |bytes, length| bytes.checked_mul(*length));
        if bytes != Some(data.len() as u64) {
            let expected = format!("as many bytes as dtype and shape say; there are {}", data.len());
            return Err(self.wrong("base64", &expected));
        }
        Ok(Array { dtype, shape, is_fortran: order == "F", data })
    }
}

/// True if a value cannot be the key of a map.
fn holds_more(value: &Value) -> bool {
    match value {
        Value::List(_) | Value::Map(_) | Value::Set(_) | Value::ByteArray(_) | Value::Array(_) => true,
        Value::Tuple(items) => items.iter().any(holds_more),
        _ => false,
    }
}

/// The bytes of one item.
fn bytes_of(dtype: &str) -> Option<u64> {
    let mut letters = dtype.chars();
    let (order, kind) = (letters.next()?, letters.next()?);
    let count = letters.as_str().split('[').next()?;
    let count: u64 = if count.bytes().all(|digit| digit.is_ascii_digit()) { count.parse().ok()? } else { return None };
    let bytes = match kind {
        'b' if count == 1 => 1,
        'i' | 'u' if [1, 2, 4, 8].contains(&count) => count,
        'f' if [2, 4, 8].contains(&count) => count,
        'c' if [8, 16].contains(&count) => count,
        'm' | 'M' if count == 8 => 8,
        'S' => count,
        'U' => count.checked_mul(4)?,
        _ => return None,
    };
    (['<', '>', '|'].contains(&order) && bytes > 0).then_some(bytes)
}

fn float(text: &str) -> Option<f64> {
    match text {
        "nan" => Some(f64::NAN),
        "inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

fn decimal(text: &str) -> Option<Value> {
    let is_short = text.len() <= 4_096 && text.bytes().any(|byte| byte.is_ascii_digit());
    (is_short && text.parse::<f64>().is_ok()).then(|| Value::Decimal(text.to_owned()))
}

fn uuid(text: &str) -> Option<Value> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let all = <[u8; 32]>::try_from(digits).ok().filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(all.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(Value::Uuid(bytes))
}
