//! Times of NATS: RFC 3339 in its JSON, microseconds since 1970 here.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

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
    let time = i64::try_from(time_us).ok().and_then(|time_us| Timestamp::from_microsecond(time_us).ok());
    time.unwrap_or(Timestamp::MAX).to_string()
}

/// Reads RFC 3339. None for times before 1970, such as Go's zero time, and for invalid texts.
pub(crate) fn read(text: &str) -> Option<u64> {
    text.parse::<Timestamp>().ok()?.as_microsecond().try_into().ok()
}

/// How long one call waits: the end of a server shows only when the wait is over.
pub(crate) fn wait(wait_us: u64) -> Duration {
    span(wait_us.min(4_000_000))
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

#[cfg(test)]
mod tests {
    use super::{read, ttl_header, written};

    #[test]
    fn times_are_read_as_they_were_written() {
        for time_us in [0, 951_782_400_000_001, 1_709_164_800_999_999, 4_102_444_799_123_456] {
            assert_eq!(read(&written(time_us)), Some(time_us));
        }
        assert_eq!(written(951_782_400_000_000), "2000-02-29T00:00:00Z");
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
