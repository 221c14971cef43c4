//! Encoding and decoding of times, dates and durations.

use pyo3::prelude::*;
use pyo3::types::{
    PyDate, PyDateAccess, PyDateTime, PyDelta, PyDeltaAccess, PyTime, PyTimeAccess, PyTzInfo, PyTzInfoAccess,
};
use tidewire_proto::values::extension as ext;

use crate::interpreter::once::intern;
use crate::values::failure::{Failure, WriteResult};
use crate::values::writer::extension;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

pub fn datetime(out: &mut Vec<u8>, value: &Bound<'_, PyDateTime>) -> WriteResult {
    let local = days_of(value) * DAY + micros_of(value);
    let offset = offset_of(value).map_err(|failure| Failure::raised(value.py(), failure))?;
    match offset {
        None => extension(out, ext::LOCAL_TIME, &local.to_be_bytes()),
        Some(0) => timestamp(out, local),
        Some(offset) => extension(out, ext::MOMENT, &pair(local - offset, offset)),
    }
    Ok(())
}

/// Microseconds since 1970; none without a time zone.
pub fn instant(value: &Bound<'_, PyDateTime>) -> PyResult<Option<i64>> {
    let local = days_of(value) * DAY + micros_of(value);
    Ok(offset_of(value)?.map(|offset| local - offset))
}

/// The extension of MessagePack, in the shortest form.
fn timestamp(out: &mut Vec<u8>, micros: i64) {
    let seconds = micros.div_euclid(SECOND);
    let nanos = micros.rem_euclid(SECOND) as u32 * 1_000;
    match u64::try_from(seconds) {
        Ok(seconds) if nanos == 0 && seconds < 1 << 32 => {
            extension(out, ext::TIMESTAMP, &(seconds as u32).to_be_bytes());
        }
        Ok(seconds) if seconds < 1 << 34 => {
            extension(out, ext::TIMESTAMP, &(u64::from(nanos) << 34 | seconds).to_be_bytes());
        }
        _ => {
            let mut content = [0; 12];
            content[..4].copy_from_slice(&nanos.to_be_bytes());
            content[4..].copy_from_slice(&seconds.to_be_bytes());
            extension(out, ext::TIMESTAMP, &content);
        }
    }
}

pub fn date(out: &mut Vec<u8>, value: &Bound<'_, PyDate>) -> WriteResult {
    extension(out, ext::DATE, &(days_of(value) as i32).to_be_bytes());
    Ok(())
}

pub fn time(out: &mut Vec<u8>, value: &Bound<'_, PyTime>) -> WriteResult {
    let micros = micros_of(value);
    match offset_of(value).map_err(|failure| Failure::raised(value.py(), failure))? {
        Some(offset) => extension(out, ext::TIME, &pair(micros, offset)),
        None if value.get_tzinfo().is_some() => {
            return Err(Failure::refused("the zone of this time has no offset without a date: send a datetime"));
        }
        None => extension(out, ext::TIME, &micros.to_be_bytes()),
    }
    Ok(())
}

pub fn duration(out: &mut Vec<u8>, value: &Bound<'_, PyDelta>) -> WriteResult {
    let mut content = [0; 12];
    content[..4].copy_from_slice(&value.get_days().to_be_bytes());
    content[4..8].copy_from_slice(&value.get_seconds().to_be_bytes());
    content[8..].copy_from_slice(&value.get_microseconds().to_be_bytes());
    extension(out, ext::DURATION, &content);
    Ok(())
}

fn pair(first: i64, second: i64) -> [u8; 16] {
    let mut content = [0; 16];
    content[..8].copy_from_slice(&first.to_be_bytes());
    content[8..].copy_from_slice(&second.to_be_bytes());
    content
}

fn micros_of(value: &impl PyTimeAccess) -> i64 {
    let minutes = i64::from(value.get_hour()) * 60 + i64::from(value.get_minute());
    (minutes * 60 + i64::from(value.get_second())) * SECOND + i64::from(value.get_microsecond())
}

/// The offset from UTC in microseconds.
fn offset_of(value: &Bound<'_, impl Sized>) -> PyResult<Option<i64>> {
    let offset = value.as_any().call_method0(intern!(value.py(), "utcoffset"))?;
    if offset.is_none() {
        return Ok(None);
    }
    let offset = offset.cast::<PyDelta>()?;
    let seconds = i64::from(offset.get_seconds()) * SECOND + i64::from(offset.get_microseconds());
    Ok(Some(i64::from(offset.get_days()) * DAY + seconds))
}

/// Days since 1970-01-01, in years of 400 that begin in March.
fn days_of(value: &impl PyDateAccess) -> i64 {
    let (month, day) = (i64::from(value.get_month()), i64::from(value.get_day()));
    let year = i64::from(value.get_year()) - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year * 365 + year / 4 - year / 100 + day_of_year - 719_468
}

/// Year, month and day; none outside of the years that Python has.
fn civil(days: i64) -> Option<(i32, u8, u8)> {
    let days = days.checked_add(719_468)?;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = i32::try_from(era.checked_mul(400)? + year + i64::from(month <= 2)).ok()?;
    (1..=9_999).contains(&year).then_some((year, month as u8, day as u8))
}

/// The time in an extension, or None for content that is no valid time.
pub type Read<'py> = PyResult<Option<Bound<'py, PyAny>>>;

pub fn read_timestamp<'py>(py: Python<'py>, content: &[u8]) -> Read<'py> {
    let (seconds, nanos) = match content.len() {
        4 => (unsigned(content) as i64, 0),
        8 => ((unsigned(content) & ((1 << 34) - 1)) as i64, unsigned(content) >> 34),
        12 => (unsigned(&content[4..]) as i64, unsigned(&content[..4])),
        _ => return Ok(None),
    };
    let Some(micros) = seconds.checked_mul(SECOND).filter(|_| nanos < 1_000_000_000) else { return Ok(None) };
    let Some(micros) = micros.checked_add((nanos / 1_000) as i64) else { return Ok(None) };
    make(py, micros, Some(&*PyTzInfo::utc(py)?))
}

pub fn read_moment<'py>(py: Python<'py>, content: &[u8]) -> Read<'py> {
    let ([instant, offset], []) = content.as_chunks::<8>() else { return Ok(None) };
    let (instant, offset) = (i64::from_be_bytes(*instant), i64::from_be_bytes(*offset));
    let (Some(zone), Some(local)) = (zone(py, offset)?, instant.checked_add(offset)) else { return Ok(None) };
    make(py, local, Some(&zone))
}

pub fn read_local_time<'py>(py: Python<'py>, content: &[u8]) -> Read<'py> {
    match content.try_into() {
        Ok(micros) => make(py, i64::from_be_bytes(micros), None),
        Err(_) => Ok(None),
    }
}

pub fn read_date<'py>(py: Python<'py>, content: &[u8]) -> Read<'py> {
    let Ok(days) = content.try_into().map(i32::from_be_bytes) else { return Ok(None) };
    let Some((year, month, day)) = civil(days.into()) else { return Ok(None) };
    PyDate::new(py, year, month, day).map(|date| Some(date.into_any()))
}

pub fn read_time_of_day<'py>(py: Python<'py>, content: &[u8]) -> Read<'py> {
    let (micros, zone) = match content.as_chunks::<8>() {
        ([micros], []) => (i64::from_be_bytes(*micros), None),
        ([micros, offset], []) => match zone(py, i64::from_be_bytes(*offset))? {
            Some(zone) => (i64::from_be_bytes(*micros), Some(zone)),
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    if !(0..DAY).contains(&micros) {
        return Ok(None);
    }
    let (hour, minute, second, micro) = clock(micros);
    PyTime::new(py, hour, minute, second, micro, zone.as_ref()).map(|time| Some(time.into_any()))
}

pub fn read_duration<'py>(py: Python<'py>, content: &[u8]) -> Read<'py> {
    let ([days, seconds, micros], []) = content.as_chunks::<4>() else { return Ok(None) };
    let [days, seconds, micros] = [days, seconds, micros].map(|number| i32::from_be_bytes(*number));
    let known = (-999_999_999..=999_999_999).contains(&days)
        && (0..86_400).contains(&seconds)
        && (0..1_000_000).contains(&micros);
    if !known {
        return Ok(None);
    }
    PyDelta::new(py, days, seconds, micros, false).map(|delta| Some(delta.into_any()))
}

/// A time in UTC; none outside of the years that Python has.
pub fn moment(py: Python<'_>, micros: i64) -> Read<'_> {
    make(py, micros, Some(&*PyTzInfo::utc(py)?))
}

fn make<'py>(py: Python<'py>, micros: i64, zone: Option<&Bound<'py, PyTzInfo>>) -> Read<'py> {
    let Some((year, month, day)) = civil(micros.div_euclid(DAY)) else { return Ok(None) };
    let (hour, minute, second, micro) = clock(micros.rem_euclid(DAY));
    PyDateTime::new(py, year, month, day, hour, minute, second, micro, zone).map(|time| Some(time.into_any()))
}

fn clock(micros: i64) -> (u8, u8, u8, u32) {
    let seconds = micros / SECOND;
    ((seconds / 3_600) as u8, (seconds / 60 % 60) as u8, (seconds % 60) as u8, (micros % SECOND) as u32)
}

/// A zone at a fixed offset, which is less than a day.
fn zone(py: Python<'_>, offset: i64) -> PyResult<Option<Bound<'_, PyTzInfo>>> {
    if !(1 - DAY..DAY).contains(&offset) {
        return Ok(None);
    }
    let (seconds, micros) = (offset.div_euclid(SECOND) as i32, offset.rem_euclid(SECOND) as i32);
    PyTzInfo::fixed_offset(py, PyDelta::new(py, 0, seconds, micros, true)?).map(Some)
}

fn unsigned(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
