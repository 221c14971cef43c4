//! Cron expressions: five fields of numbers, names, ranges, steps and lists, and the minutes that
//! they select.

/// The minutes of a calendar that an expression selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Each day field that is a bare `*` leaves the choice to the other one.
    any_day: bool,
    any_weekday: bool,
}

/// One of the five fields.
struct Field {
    name: &'static str,
    low: u32,
    high: u32,
    /// The last one of its own: a Sunday that is 7 is that which is 0.
    end: u32,
    /// Names of the numbers from `low` on.
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Field; 5] = [
    Field { name: "minute", low: 0, high: 59, end: 59, names: &[] },
    Field { name: "hour", low: 0, high: 23, end: 23, names: &[] },
    Field { name: "day of the month", low: 1, high: 31, end: 31, names: &[] },
    Field { name: "month", low: 1, high: 12, end: 12, names: MONTHS },
    Field { name: "day of the week", low: 0, high: 7, end: 6, names: WEEKDAYS },
];
const SHORTHANDS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

impl Cron {
    /// Reads an expression such as `0 22 * * mon-fri` or `@daily`.
    ///
    /// # Errors
    ///
    /// The field, the problem and a valid alternative.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = SHORTHANDS.iter().find(|(name, _)| *name == text).map_or(text, |(_, fields)| fields);
        if text.starts_with('@') {
            let known: Vec<&str> = SHORTHANDS.iter().map(|(name, _)| *name).collect();
            return Err(format!(
                "it is no shorthand: give five fields, \"@every 30s\", or one of {}",
                known.join(", ")
            ));
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let Ok(fields) = <[&str; 5]>::try_from(fields.as_slice()) else {
            let right = "give five: minute, hour, day of the month, month, day of the week, such as \"0 22 * * 1-5\"";
            return Err(format!("it has {} fields: {right}", fields.len()));
        };
        let mut bits = [0; 5];
        for (at, field) in FIELDS.iter().enumerate() {
            bits[at] = field.parse(fields[at])?;
        }
        let [minutes, hours, days, months, weekdays] = bits;
        let weekdays = (weekdays | weekdays >> 7) & 0x7f;
        let (any_day, any_weekday) = (fields[2] == "*", fields[4] == "*");
        Ok(Self { minutes, hours, days, months, weekdays, any_day, any_weekday })
    }

    /// True if a month, from 1, is selected.
    pub const fn has_month(&self, month: u32) -> bool {
        self.months & 1 << month != 0
    }

    /// True if a day is selected: its number from 1, and its weekday from Sunday, 0. If both fields
    /// restrict the day, one of them suffices.
    pub const fn has_day(&self, day: u32, weekday: u32) -> bool {
        let (by_day, by_weekday) = (self.days & 1 << day != 0, self.weekdays & 1 << weekday != 0);
        if self.any_day || self.any_weekday { by_day && by_weekday } else { by_day || by_weekday }
    }

    /// True if an hour is selected.
    pub const fn has_hour(&self, hour: u32) -> bool {
        self.hours & 1 << hour != 0
    }

    /// True if a minute is selected.
    pub const fn has_minute(&self, minute: u32) -> bool {
        self.minutes & 1 << minute != 0
    }

    /// The same in numbers alone, five fields with lists: for programs that read less than this
    /// one.
    pub fn in_numbers(&self) -> String {
        let written = |any: bool, bits: u64| if any { "*".to_owned() } else { listed(bits) };
        let fields = [
            written(false, self.minutes),
            written(false, self.hours),
            written(self.any_day, self.days),
            written(false, self.months),
            written(self.any_weekday, self.weekdays),
        ];
        fields.join(" ")
    }
}

impl Field {
    fn parse(&self, text: &str) -> Result<u64, String> {
        let mut bits = 0;
        for part in text.split(',') {
            let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
            let every = match step {
                None => 1,
                Some(step) => self.step(step)?,
            };
            let (first, last) = match range.split_once('-') {
                _ if range == "*" => (self.low, self.high),
                Some((first, last)) => self.range(first, last, part)?,
                None => {
                    let only = self.number(range)?;
                    // `5/15` begins at 5 and goes on to the end, which is Saturday for days of the
                    // week.
                    (only, if step.is_some() { only.max(self.end) } else { only })
                }
            };
            bits |= (first..=last).step_by(every).fold(0, |bits, number| bits | 1_u64 << number);
        }
        Ok(bits)
    }

    fn range(&self, first: &str, last: &str, part: &str) -> Result<(u32, u32), String> {
        let (from, to) = (self.number(first)?, self.number(last)?);
        // `fri-sun`.
        let to = if to < from && last.eq_ignore_ascii_case("sun") { self.high } else { to };
        if to < from {
            let Self { name, .. } = self;
            return Err(format!("{name} {part:?} goes back: write two ranges with a comma, the smaller number first"));
        }
        Ok((from, to))
    }

    fn step(&self, text: &str) -> Result<usize, String> {
        let step = text.parse().ok().filter(|step| (1..=self.high as usize).contains(step));
        step.ok_or_else(|| format!("{} steps by {text:?}: give a whole number from 1 to {}", self.name, self.high))
    }

    fn number(&self, text: &str) -> Result<u32, String> {
        if let Some(at) = self.names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(self.low + at as u32);
        }
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| plain && (self.low..=self.high).contains(number));
        number.ok_or_else(|| {
            let names = match self.names {
                [] => String::new(),
                [first, .., last] => format!(", {first} to {last}"),
                [only] => format!(", {only}"),
            };
            format!("{} {text:?} is not allowed: give *, {} to {}{names}", self.name, self.low, self.high)
        })
    }
}

fn listed(bits: u64) -> String {
    let numbers = (0..64).filter(|number| bits & 1 << number != 0);
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}
