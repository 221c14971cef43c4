//! Values without a Rust type, as text: for a `String` or a type of another crate.

use super::value::Value;

const DAY: i64 = 86_400_000_000;

/// The text of a time, a date, a duration or a decimal, as ISO 8601 writes it; None for other
/// values.
pub(crate) fn of(value: &Value) -> Option<String> {
    Some(match value {
        Value::Timestamp(micros) => format!("{}Z", local(*micros)),
        Value::Moment(micros, offset) => format!("{}{}", local(micros + offset), zone(*offset)),
        Value::LocalTime(micros) => local(*micros),
        Value::Date(days) => date((*days).into()),
        Value::Time(micros, offset) => format!("{}{}", clock(*micros), offset.map(zone).unwrap_or_default()),
        Value::Duration { days, seconds, micros } => {
            let whole = i64::from(*days) * DAY + i64::from(*seconds) * 1_000_000 + i64::from(*micros);
            let sign = if whole < 0 { "-" } else { "" };
            format!("{sign}PT{}.{:06}S", whole.abs() / 1_000_000, whole.abs() % 1_000_000)
        }
        Value::Decimal(text) => text.clone(),
        _ => return None,
    })
}

fn local(micros: i64) -> String {
    format!("{}T{}", date(micros.div_euclid(DAY)), clock(micros.rem_euclid(DAY)))
}

fn clock(micros: i64) -> String {
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    let fraction = if micros == 0 { String::new() } else { format!(".{micros:06}") };
    format!("{:02}:{:02}:{:02}{fraction}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

fn zone(offset: i64) -> String {
    let (sign, seconds) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 1_000_000);
    format!("{sign}{:02}:{:02}", seconds / 3_600, seconds / 60 % 60)
}

/// The date of a day, counted from 1970-01-01, by the rule of Howard Hinnant's `civil_from_days`.
fn date(days: i64) -> String {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::values::Value;

    #[test]
    fn times_are_written_as_iso_8601_has_them() {
        let text = |value| of(&value).unwrap_or_default();
        assert_eq!(text(Value::Timestamp(0)), "1970-01-01T00:00:00Z");
        assert_eq!(text(Value::Timestamp(-1)), "1969-12-31T23:59:59.999999Z");
        assert_eq!(text(Value::Date(20_778)), "2026-11-21");
        assert_eq!(text(Value::Date(-719_162)), "0001-01-01");
        assert_eq!(text(Value::Moment(1_795_266_000_000_000, -18_000_000_000)), "2026-11-21T08:00:00-05:00");
        assert_eq!(text(Value::Duration { days: -1, seconds: 86_399, micros: 500_000 }), "-PT0.500000S");
    }
}
