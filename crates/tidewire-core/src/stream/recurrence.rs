//! Recurrence rule of a schedule: a cron expression in a time zone, or an interval.
//!
//! A cron expression selects minutes of local time in its time zone. A minute that is skipped at
//! the start of daylight saving has no beat on that day. A minute that occurs twice at the end of
//! daylight saving has two beats.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use super::cron::Cron;

const MINUTE_US: u64 = 60_000_000;
const SECOND_US: u64 = 1_000_000;
/// The longest expression.
const LENGTH_MAX: usize = 512;
/// The longest interval: a year.
const EVERY_MAX_S: u64 = 366 * 86_400;
/// For how long the next minute is looked for. From one February 29 to the next it can be eight
/// years.
const YEARS: i64 = 9;
/// A day on which the calendar is as it is any year, to look whether an expression selects
/// anything.
const SOME_DAY_US: u64 = 946_684_800 * SECOND_US;

/// When a schedule beats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    text: String,
    zone: TimeZone,
    rule: Rule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Cron(Cron),
    EveryUs(u64),
}

impl Timing {
    /// Reads `0 22 * * 1-5`, `@daily` or `@every 90s`, and the name of a time zone such as
    /// `Europe/Berlin`.
    ///
    /// # Errors
    ///
    /// The field, the value and the fix.
    pub fn new(text: &str, time_zone: &str) -> Result<Self, String> {
        if text.len() > LENGTH_MAX {
            return Err(format!("when: it has {} characters: give at most {LENGTH_MAX}", text.len()));
        }
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let wrong = |why: String| format!("when: {text:?}: {why}");
        let rule = match text.strip_prefix("@every ") {
            Some(span) => Rule::EveryUs(seconds_of(span).map_err(wrong)? * SECOND_US),
            None => Rule::Cron(Cron::parse(&text).map_err(wrong)?),
        };
        let zone = TimeZone::get(time_zone).map_err(|_unknown| {
            format!("time_zone: {time_zone:?} is none: give a name such as \"Europe/Berlin\", or \"UTC\"")
        })?;
        let timing = Self { text, zone, rule };
        if matches!(timing.rule, Rule::EveryUs(_)) && timing.time_zone() != "UTC" {
            return Err(format!(
                "time_zone: {time_zone:?} is given with an interval: leave it out, or give five fields"
            ));
        }
        if timing.next_us(0, SOME_DAY_US).is_none() {
            return Err(format!("when: {:?} never comes: give a day that the month has", timing.text));
        }
        Ok(timing)
    }

    /// The expression, with single blanks.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name of its time zone; `UTC` for an interval.
    pub fn time_zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// Its fields in numbers alone; None for an interval.
    pub fn in_numbers(&self) -> Option<String> {
        match &self.rule {
            Rule::Cron(cron) => Some(cron.in_numbers()),
            Rule::EveryUs(_) => None,
        }
    }

    /// The first beat after a time. Those of an interval are counted from `began_us` on.
    pub fn next_us(&self, began_us: u64, after_us: u64) -> Option<u64> {
        match &self.rule {
            Rule::Cron(cron) => next_minute_us(cron, &self.zone, after_us),
            Rule::EveryUs(every_us) => {
                let beats = after_us.saturating_sub(began_us) / every_us + 1;
                began_us.checked_add(beats.checked_mul(*every_us)?)
            }
        }
    }
}

/// The seconds of `90s`, `5m` or `1h30m`.
fn seconds_of(span: &str) -> Result<u64, String> {
    let mut rest = span;
    let mut seconds = Some(0_u64).filter(|_| !span.is_empty());
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number = rest[..digits].parse::<u64>().ok();
        let unit = match rest[digits..].chars().next() {
            Some('h') => Some(3_600),
            Some('m') => Some(60),
            Some('s') => Some(1),
            _ => None,
        };
        seconds =
            seconds.zip(number.zip(unit)).and_then(|(sum, (number, unit))| number.checked_mul(unit)?.checked_add(sum));
        if seconds.is_none() {
            break;
        }
        rest = &rest[digits + 1..];
    }
    let right = "give whole hours, minutes and seconds such as 90s or 1h30m, from 1 s to 366 days";
    seconds
        .filter(|seconds| (1..=EVERY_MAX_S).contains(seconds))
        .ok_or_else(|| format!("{span:?} is no interval: {right}"))
}

/// Searches minutes of the zone from one on; where the month, the day or the hour does not match,
/// the search goes on with the next one.
fn next_minute_us(cron: &Cron, zone: &TimeZone, after_us: u64) -> Option<u64> {
    let first = (after_us / MINUTE_US + 1) * 60;
    let mut at = Timestamp::from_second(i64::try_from(first).ok()?).ok()?;
    let last = at.checked_add((YEARS * 366 * 24).hours()).ok()?;
    while at <= last {
        let shown = zone.to_datetime(at);
        let date = shown.date();
        let later = if !cron.has_month(date.month() as u32) {
            begin_of(zone, date.first_of_month().checked_add(1.month()).ok()?.into())
        } else if !cron.has_day(date.day() as u32, date.weekday().to_sunday_zero_offset() as u32) {
            begin_of(zone, date.tomorrow().ok()?.into())
        } else if !cron.has_hour(shown.hour() as u32) {
            // Clocks are set at quarters of an hour, so that none is passed over.
            at.checked_add((15 - shown.minute() as i64 % 15).minutes()).ok()
        } else if !cron.has_minute(shown.minute() as u32) {
            at.checked_add(1.minute()).ok()
        } else {
            return u64::try_from(at.as_microsecond()).ok();
        };
        at = later?.max(at.checked_add(1.minute()).ok()?);
    }
    None
}

/// The first moment at which a zone shows a time, or a later one if that is skipped.
fn begin_of(zone: &TimeZone, shown: DateTime) -> Option<Timestamp> {
    zone.to_ambiguous_timestamp(shown).compatible().ok()
}
