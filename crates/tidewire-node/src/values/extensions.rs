//! The contents of extensions as parts of a [`Value`].

use tidewire_proto::values::extension::*;

use super::value::{Array, Value};

/// Error text for a reference where only data is allowed.
pub(crate) const REFERENCE_IS_NO_VALUE: &str =
    "a stream of another node is read as `Items`, a function as `RemoteFunction`, an object as `RemoteObject`";

/// Microseconds of a day.
const DAY: i64 = 86_400_000_000;
/// Days from 1970-01-01 to 0001-01-01, and to the day after 9999-12-31.
const DAYS: std::ops::Range<i64> = -719_162..2_932_897;

/// Makes a value of an extension, from its content or its bytes.
pub(crate) fn value_of(code: i8, content: Value) -> Result<Value, &'static str> {
    if holds_values(code) { of_values(code, content) } else { of_bytes(code, content) }
}

/// The number of an extension that holds bytes, and those bytes. A byte array may become a buffer.
pub(crate) fn bytes_of(value: &Value) -> (i8, Vec<u8>) {
    match value {
        Value::ByteArray(bytes) => (BYTEARRAY, bytes.clone()),
        Value::Timestamp(micros) => (TIMESTAMP, timestamp_bytes(*micros)),
        Value::Moment(micros, offset) => (MOMENT, [micros.to_be_bytes(), offset.to_be_bytes()].concat()),
        Value::LocalTime(micros) => (LOCAL_TIME, micros.to_be_bytes().to_vec()),
        Value::Date(days) => (DATE, days.to_be_bytes().to_vec()),
        Value::Time(micros, None) => (TIME, micros.to_be_bytes().to_vec()),
        Value::Time(micros, Some(offset)) => (TIME, [micros.to_be_bytes(), offset.to_be_bytes()].concat()),
        Value::Duration { days, seconds, micros } => {
            (DURATION, [days.to_be_bytes(), seconds.to_be_bytes(), micros.to_be_bytes()].concat())
        }
        Value::Decimal(text) => (DECIMAL, text.clone().into_bytes()),
        Value::Uuid(bytes) => (UUID, bytes.to_vec()),
        Value::Complex(real, imaginary) => (COMPLEX, [real.to_be_bytes(), imaginary.to_be_bytes()].concat()),
        _ => unreachable!("all others hold values, or are no extensions"),
    }
}

/// The shortest form of a timestamp.
fn timestamp_bytes(micros: i64) -> Vec<u8> {
    let (seconds, nanos) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000) as u32 * 1_000);
    match (u32::try_from(seconds), nanos) {
        (Ok(seconds), 0) => seconds.to_be_bytes().to_vec(),
        _ if (0..1 << 34).contains(&seconds) => (u64::from(nanos) << 34 | seconds as u64).to_be_bytes().to_vec(),
        _ => [&nanos.to_be_bytes()[..], &seconds.to_be_bytes()].concat(),
    }
}

fn of_values(code: i8, content: Value) -> Result<Value, &'static str> {
    if code == REFERENCE {
        return Err(REFERENCE_IS_NO_VALUE);
    }
    if code == ERROR {
        return match content {
            Value::Map(fields) => Ok(Value::Error(fields)),
            _ => Err("an error does not hold a map"),
        };
    }
    let Value::List(items) = content else { return Err("the extension does not hold an array") };
    match code {
        TUPLE => Ok(Value::Tuple(items)),
        SET => hashable(items).map(Value::Set),
        FROZENSET => hashable(items).map(Value::FrozenSet),
        ARRAY => array(items),
        _ => pair(code, items),
    }
}

/// Members of a set, and keys of a map: hashable values.
fn hashable(items: Vec<Value>) -> Result<Vec<Value>, &'static str> {
    if items.iter().all(Value::is_hashable) { Ok(items) } else { Err("a member of a set can't be looked up") }
}

fn pair(code: i8, items: Vec<Value>) -> Result<Value, &'static str> {
    let Ok([first, second]) = <[Value; 2]>::try_from(items) else {
        return Err("the extension does not hold two values");
    };
    let Value::Text(name) = first else { return Err("the extension does not begin with a text") };
    match (code, second) {
        (RECORD, Value::Map(fields)) => Ok(Value::Record(name, fields)),
        (RECORD, _) => Err("a record does not hold a map of fields"),
        (SCALAR, Value::Text(text)) if name == "U" => Ok(Value::Scalar(name, text.into_bytes())),
        (SCALAR, Value::Bytes(data)) => Ok(Value::Scalar(name, data)),
        (SCALAR, _) => Err("a scalar does not hold bytes"),
        (_, member) => Ok(Value::Enum(name, Box::new(member))),
    }
}

fn array(items: Vec<Value>) -> Result<Value, &'static str> {
    let parts = <[Value; 4]>::try_from(items).map_err(|_| "an array does not hold four values")?;
    let [Value::Text(dtype), Value::List(lengths), Value::Text(order), Value::Bytes(data)] = parts else {
        return Err("an array is not dtype, lengths, order and bytes");
    };
    let shape = lengths.iter().map(|length| length.as_u64()).collect::<Option<Vec<_>>>();
    let shape = shape.ok_or("a length of an array is not a whole number")?;
    match order.as_str() {
        "C" | "F" => Ok(Value::Array(Array { dtype, shape, is_fortran: order == "F", data })),
        _ => Err("the order of an array is neither C nor F"),
    }
}

fn of_bytes(code: i8, content: Value) -> Result<Value, &'static str> {
    let Value::Bytes(bytes) = content else { return Err("the extension has no bytes") };
    match code {
        BYTEARRAY | BYTEARRAY_BUFFER => Ok(Value::ByteArray(bytes)),
        BUFFER => Ok(Value::Bytes(bytes)),
        TIMESTAMP => timestamp(&bytes),
        MOMENT => moment(&bytes),
        LOCAL_TIME => Ok(Value::LocalTime(in_years(number(&bytes, 8)?)?)),
        DATE => date(&bytes),
        TIME => time(&bytes),
        DURATION => duration(&bytes),
        DECIMAL => decimal(bytes),
        UUID => Ok(Value::Uuid(<[u8; 16]>::try_from(bytes).map_err(|_| "a UUID has not 16 bytes")?)),
        COMPLEX => complex(&bytes),
        _ => Err("the extension is not known"),
    }
}

fn timestamp(bytes: &[u8]) -> Result<Value, &'static str> {
    let (seconds, nanos) = match *bytes {
        [a, b, c, d] => (i64::from(u32::from_be_bytes([a, b, c, d])), 0),
        [n0, n1, n2, s0, s1, s2, s3, s4] => {
            let whole = u64::from_be_bytes([n0, n1, n2, s0, s1, s2, s3, s4]);
            ((whole & 0x3_ffff_ffff) as i64, (whole >> 34) as u32)
        }
        [a, b, c, d, ref seconds @ ..] if seconds.len() == 8 => (number(seconds, 8)?, u32::from_be_bytes([a, b, c, d])),
        _ => return Err("a timestamp has not 4, 8 or 12 bytes"),
    };
    if nanos >= 1_000_000_000 || !DAYS.contains(&seconds.div_euclid(86_400)) {
        return Err("a timestamp is not in the years 1 to 9999");
    }
    Ok(Value::Timestamp(seconds * 1_000_000 + i64::from(nanos / 1_000)))
}

fn moment(bytes: &[u8]) -> Result<Value, &'static str> {
    let (micros, offset) = bytes.split_at_checked(8).ok_or("a moment has not 16 bytes")?;
    Ok(Value::Moment(in_years(number(micros, 8)?)?, zone(number(offset, 8)?)?))
}

fn date(bytes: &[u8]) -> Result<Value, &'static str> {
    let days = number(bytes, 4)?;
    if DAYS.contains(&days) { Ok(Value::Date(days as i32)) } else { Err("a date is not in the years 1 to 9999") }
}

fn time(bytes: &[u8]) -> Result<Value, &'static str> {
    let (micros, offset) = bytes.split_at_checked(8).ok_or("a time of day has not 8 or 16 bytes")?;
    let micros = number(micros, 8)?;
    let offset = if offset.is_empty() { None } else { Some(zone(number(offset, 8)?)?) };
    if (0..DAY).contains(&micros) { Ok(Value::Time(micros, offset)) } else { Err("a time is not within a day") }
}

fn duration(bytes: &[u8]) -> Result<Value, &'static str> {
    if bytes.len() != 12 {
        return Err("a duration has not 12 bytes");
    }
    let [days, seconds, micros] = [0, 4, 8].map(|at| number(&bytes[at..at + 4], 4));
    let (days, seconds, micros) = (days?, seconds?, micros?);
    let allowed = (0..86_400).contains(&seconds) && (0..1_000_000).contains(&micros) && days.abs() < 1_000_000_000;
    if !allowed {
        return Err("a part of a duration is out of its range");
    }
    Ok(Value::Duration { days: days as i32, seconds: seconds as u32, micros: micros as u32 })
}

fn decimal(bytes: Vec<u8>) -> Result<Value, &'static str> {
    let text = String::from_utf8(bytes).map_err(|_| "a decimal is not ASCII")?;
    let digits = text.trim_start_matches(['-', '+']).to_ascii_lowercase();
    let is_special = ["inf", "infinity"].contains(&&*digits) || digits.trim_start_matches('s').starts_with("nan");
    let is_number = digits.parse::<f64>().is_ok() || is_special;
    if is_number { Ok(Value::Decimal(text)) } else { Err("a decimal is no number") }
}

fn complex(bytes: &[u8]) -> Result<Value, &'static str> {
    let (real, imaginary) = bytes.split_at_checked(8).ok_or("a complex number has not 16 bytes")?;
    let float = |bytes| number(bytes, 8).map(|bits| f64::from_bits(bits as u64));
    Ok(Value::Complex(float(real)?, float(imaginary)?))
}

/// A signed number of exactly so many bytes.
fn number(bytes: &[u8], length: usize) -> Result<i64, &'static str> {
    if bytes.len() != length {
        return Err("a number in an extension has not the bytes that it must have");
    }
    let bits = bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let unused = 64 - 8 * length as u32;
    Ok((bits << unused) as i64 >> unused)
}

fn in_years(micros: i64) -> Result<i64, &'static str> {
    if DAYS.contains(&micros.div_euclid(DAY)) { Ok(micros) } else { Err("a time is not in the years 1 to 9999") }
}

fn zone(offset: i64) -> Result<i64, &'static str> {
    if (1 - DAY..DAY).contains(&offset) { Ok(offset) } else { Err("a time zone is a whole day away from UTC, or more") }
}
