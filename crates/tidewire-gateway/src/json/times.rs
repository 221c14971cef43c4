//! Dates, times and durations of ISO 8601 as values.

use tidewire_node::values::Value;

const DAY: i64 = 86_400_000_000;
const SECOND: i64 = 1_000_000;

/// A date and a time; with a zone it is a moment, without one the time of a clock.
pub(crate) fn datetime(text: &str) -> Option<Value> {
    let (day, clock) = text.split_at_checked(10)?;
    let clock = clock.strip_prefix(['T', 't', ' '])?;
    let (micros, offset) = clock_and_zone(clock)?;
    let local = days(day)?.checked_mul(DAY)?.checked_add(micros)?;
    Some(match offset {
        None => Value::LocalTime(local),
        Some(0) => Value::Timestamp(local),
        Some(offset) => Value::Moment(local - offset, offset),
    })
}

/// A date.
pub(crate) fn date(text: &str) -> Option<Value> {
    Some(Value::Date(i32::try_from(days(text)?).ok()?))
}

/// A time of day.
pub(crate) fn time(text: &str) -> Option<Value> {
    let (micros, offset) = clock_and_zone(text)?;
    Some(Value::Time(micros, offset))
}

/// A duration of weeks, days, hours, minutes and seconds.
pub(crate) fn duration(text: &str) -> Option<Value> {
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |text| (-1, text));
    let text = text.strip_prefix('P')?;
    let (date, clock) = text.split_once('T').unwrap_or((text, ""));
    if date.is_empty() && clock.is_empty() {
        return None;
    }
    let units = [('W', 7 * DAY), ('D', DAY)];
    let of_clock = [('H', 3_600 * SECOND), ('M', 60 * SECOND), ('S', SECOND)];
    let micros = sign * parts(date, &units)?.checked_add(parts(clock, &of_clock)?)?;
    let (days, rest) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
    let (seconds, micros) = ((rest / SECOND) as u32, (rest % SECOND) as u32);
    Some(Value::Duration { days: i32::try_from(days).ok()?, seconds, micros })
}

/// Numbers with their units, in this order, each at most once.
fn parts(mut text: &str, units: &[(char, i64)]) -> Option<i64> {
    let (mut micros, mut units) = (0_i64, units.iter());
    while !text.is_empty() {
        let end = text.find(|letter: char| letter.is_ascii_alphabetic())?;
        let (number, rest) = text.split_at(end);
        let unit = rest.chars().next()?;
        let (_, scale) = units.find(|(known, _)| *known == unit)?;
        micros = micros.checked_add(scaled(number, *scale)?)?;
        text = &rest[1..];
    }
    Some(micros)
}

/// A decimal number of some unit, in microseconds.
fn scaled(number: &str, scale: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once(['.', ',']).unwrap_or((number, ""));
    let mut micros = digits(whole, 1..=10)?.checked_mul(scale)?;
    if number.len() > whole.len() {
        digits(fraction, 1..=9)?;
        let parts: i64 = format!("{fraction:0<9}").parse().ok()?;
        micros = micros.checked_add((i128::from(parts) * i128::from(scale) / 1_000_000_000) as i64)?;
    }
    Some(micros)
}

fn digits(text: &str, length: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let is_number = length.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// Days from 1970-01-01 to a date, by the rule of Howard Hinnant's `days_from_civil`.
fn days(text: &str) -> Option<i64> {
    let mut parts = text.split('-');
    let (year, month, day) =
        (digits(parts.next()?, 4..=4)?, digits(parts.next()?, 2..=2)?, digits(parts.next()?, 2..=2)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *lengths.get(usize::try_from(month - 1).ok()?)?;
    if parts.next().is_some() || year == 0 || !(1..=length).contains(&day) {
        return None;
    }
    let shifted = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (shifted.div_euclid(400), shifted.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

/// Microseconds since midnight, and the offset of the zone in microseconds.
fn clock_and_zone(text: &str) -> Option<(i64, Option<i64>)> {
    let (text, is_utc) = text.strip_suffix(['Z', 'z']).map_or((text, false), |text| (text, true));
    let at = text.find(['+', '-']).filter(|_| !is_utc);
    let (time, zone) = at.map_or((text, None), |at| (&text[..at], Some(&text[at..])));
    let offset = match zone {
        None => is_utc.then_some(0),
        Some(zone) => {
            let sign = if zone.starts_with('-') { -1 } else { 1 };
            Some(sign * clock(&zone[1..])?)
        }
    };
    Some((clock(time)?, offset))
}

fn clock(text: &str) -> Option<i64> {
    let mut parts = text.split(':');
    let (hours, minutes) = (digits(parts.next()?, 2..=2)?, digits(parts.next()?, 2..=2)?);
    let seconds = match parts.next() {
        None => 0,
        Some(text) => {
            let whole = text.split(['.', ',']).next()?;
            digits(whole, 2..=2).filter(|seconds| *seconds < 60)?;
            scaled(text, SECOND)?
        }
    };
    let is_allowed = hours < 24 && minutes < 60 && parts.next().is_none();
    is_allowed.then_some((hours * 60 + minutes) * 60 * SECOND + seconds)
}
