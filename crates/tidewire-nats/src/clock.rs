//! Times of NATS: RFC 3339 in its JSON, microseconds since 1970 here.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECONDS_A_DAY: i64 = 86_400;

/// The system clock of this computer, in microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_micros() as u64)
}

/// The time now, as NATS has it in JSON.
pub fn now() -> String {
    written(now_us())
}

/// `2026-11-22T18:40:52.000001Z`.
pub(crate) fn written(time_us: u64) -> String {
    let (seconds, micros) = ((time_us / 1_000_000) as i64, time_us % 1_000_000);
    let (year, month, day) = date(seconds.div_euclid(SECONDS_A_DAY));
    let of_day = seconds.rem_euclid(SECONDS_A_DAY);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Reads RFC 3339, with any fraction and offset. None for times before 1970, such as Go's zero
/// time, and for invalid texts.
pub(crate) fn read(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let rest = text.get(19..)?;
    let digits: String = rest.strip_prefix('.').unwrap_or_default().chars().take_while(char::is_ascii_digit).collect();
    let zone = if digits.is_empty() { rest } else { &rest[1 + digits.len()..] };
    let micros: u64 = format!("{digits:0<6}").get(..6)?.parse().ok()?;
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let sign = if zone.starts_with('-') { -1 } else { 1 };
            sign * (zone.get(1..3)?.parse::<i64>().ok()? * 3_600 + zone.get(4..6)?.parse::<i64>().ok()? * 60)
        }
    };
    let seconds = days(year, month, day) * SECONDS_A_DAY + hour * 3_600 + minute * 60 + second - offset;
    u64::try_from(seconds).ok().map(|seconds| seconds * 1_000_000 + micros)
}

/// A span as JetStream takes it.
pub(crate) const fn nanos(span_us: u64) -> u64 {
    span_us.saturating_mul(1_000)
}

/// A span of JetStream in microseconds.
pub(crate) fn micros(nanos: &serde_json::Value) -> u64 {
    nanos.as_u64().unwrap_or_default() / 1_000
}

/// A time to live as a server takes it: whole seconds, at least one.
pub(crate) fn ttl_header(ttl_us: u64) -> String {
    format!("{}s", ttl_us.div_ceil(1_000_000).max(1))
}

/// A span of the port.
pub(crate) const fn span(span_us: u64) -> Duration {
    Duration::from_micros(span_us)
}

/// Days since 1970 of a date of the Gregorian calendar; years begin in March, so that a leap day
/// ends one.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date of a day since 1970.
const fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year + era * 400 + if month <= 2 { 1 } else { 0 }, month, day)
}

#[cfg(test)]
mod tests {
    use super::{read, ttl_header, written};

    #[test]
    fn times_are_read_as_they_were_written() {
        for time_us in [0, 951_782_400_000_001, 1_709_164_800_999_999, 4_102_444_799_123_456] {
            assert_eq!(read(&written(time_us)), Some(time_us));
        }
        assert_eq!(written(951_782_400_000_000), "2000-02-29T00:00:00.000000Z");
        assert_eq!(read("2024-02-29T01:30:00.5+01:30"), read("2024-02-29T00:00:00.500000Z"));
        assert_eq!(read("2026-11-22T18:40:52.123456789Z").unwrap() % 1_000_000, 123_456);
    }

    #[test]
    fn an_invalid_time_is_none() {
        for text in ["0001-01-01T00:00:00Z", "", "yesterday", "2024-02-29", "2024-02-29T01:30:00.5"] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_time_to_live_is_whole_seconds() {
        assert_eq!(ttl_header(1), "1s");
        assert_eq!(ttl_header(1_000_000), "1s");
        assert_eq!(ttl_header(1_000_001), "2s");
    }
}
