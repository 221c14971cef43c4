//! Schedules: the next beat against a search minute by minute, days on which clocks change, and
//! ended schedules.

use std::collections::BTreeSet;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tidewire_core::stream::recurrence::Timing;
use tidewire_core::stream::schedule::Schedules;

const MINUTE_US: u64 = 60_000_000;
const DAY_US: u64 = 86_400_000_000;
const MONTHS: [&str; 12] = ["JAN", "feb", "Mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "Mon", "TUE", "wed", "thu", "fri", "sat"];
/// Zones, and days on which they set their clocks: by an hour, at a quarter of one, by half an
/// hour; or never.
const ZONES: [(&str, [&str; 2]); 6] = [
    ("UTC", ["2028-02-27", "2027-12-30"]),
    ("Europe/Berlin", ["2027-03-28", "2027-10-31"]),
    ("America/New_York", ["2027-03-14", "2027-11-07"]),
    ("Pacific/Chatham", ["2027-04-04", "2027-09-26"]),
    ("Australia/Lord_Howe", ["2027-04-04", "2027-10-03"]),
    ("Asia/Kolkata", ["2026-12-30", "2027-02-27"]),
];
/// For how long the search looks.
const DAYS: u64 = 5;

fn us(text: &str) -> u64 {
    let time: Timestamp = text.parse().expect("a time");
    u64::try_from(time.as_microsecond()).expect("after 1970")
}

fn written(time_us: u64) -> String {
    Timestamp::from_microsecond(time_us as i64).expect("a time").to_string()
}

/// The beats of an expression between two times.
fn beats(text: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
    let timing = Timing::new(text, zone).unwrap_or_else(|error| panic!("{error}"));
    let (mut at, end) = (us(from), us(to));
    let next = std::iter::from_fn(|| {
        at = timing.next_us(0, at).filter(|next| *next <= end)?;
        Some(written(at))
    });
    next.collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }

    fn among(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}

/// A field as it is written, the numbers that it means, and whether it is a bare star.
struct Field {
    text: String,
    numbers: BTreeSet<u64>,
    is_any: bool,
}

fn field(random: &mut Random, (low, high): (u64, u64), names: &[&str]) -> Field {
    if random.below(3) == 0 {
        return Field { text: "*".to_owned(), numbers: (low..=high).collect(), is_any: true };
    }
    let spell = |random: &mut Random, number: u64| {
        let name = names.get((number - low) as usize).filter(|_| random.below(2) == 0);
        name.map_or_else(|| number.to_string(), |name| (*name).to_owned())
    };
    let (mut texts, mut numbers) = (Vec::new(), BTreeSet::new());
    for _ in 0..=random.below(3) {
        let (one, other) = (random.among(low, high), random.among(low, high));
        let (first, last, step) = (one.min(other), one.max(other), random.among(1, 9.min(high)));
        let wanted: Vec<u64> = match random.below(5) {
            0 => {
                texts.push(format!("*/{step}"));
                (low..=high).step_by(step as usize).collect()
            }
            1 => {
                texts.push(format!("{}-{}", spell(random, first), spell(random, last)));
                (first..=last).collect()
            }
            2 => {
                texts.push(format!("{first}-{last}/{step}"));
                (first..=last).step_by(step as usize).collect()
            }
            3 => {
                texts.push(format!("{first}/{step}"));
                (first..=high).step_by(step as usize).collect()
            }
            _ => {
                texts.push(spell(random, one));
                vec![one]
            }
        };
        numbers.extend(wanted);
    }
    Field { text: texts.join(","), numbers, is_any: false }
}

// Promises: P17.11, P17.12, P17.13, P17.14.
#[test]
fn the_next_beat_is_that_of_a_search_minute_by_minute() {
    let mut found = 0;
    for seed in 1..=1_000_u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let ranges = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
        let names: [&[&str]; 5] = [&[], &[], &[], &MONTHS, &WEEKDAYS];
        let fields: Vec<Field> =
            ranges.iter().zip(names).map(|(range, names)| field(&mut random, *range, names)).collect();
        let text = fields.iter().map(|field| field.text.as_str()).collect::<Vec<_>>().join(" ");
        let (name, days) = ZONES[random.below(ZONES.len() as u64) as usize];
        // Some have a day that none of their months has.
        let Ok(timing) = Timing::new(&text, name) else { continue };
        let zone = TimeZone::get(name).expect("a zone");
        let day = us(&format!("{}T00:00:00Z", days[random.below(2) as usize]));
        let after_us = day - DAY_US + random.below(DAY_US);
        let is_beat = |minute_us: u64| {
            let shown = zone.to_datetime(Timestamp::from_microsecond(minute_us as i64).expect("a time"));
            let has = |at: usize, number: i8| fields[at].numbers.contains(&(number as u64));
            let weekday = has(4, shown.weekday().to_sunday_zero_offset());
            let is_day = match (fields[2].is_any, fields[4].is_any) {
                (false, false) => has(2, shown.day()) || weekday,
                _ => has(2, shown.day()) && weekday,
            };
            has(0, shown.minute()) && has(1, shown.hour()) && is_day && has(3, shown.month())
        };
        let first = after_us / MINUTE_US + 1;
        let expected = (first..first + DAYS * 1_440).map(|minute| minute * MINUTE_US).find(|minute| is_beat(*minute));
        let next = timing.next_us(0, after_us);
        match expected {
            Some(_) => assert_eq!(next, expected, "seed {seed}: {text:?} in {name} after {}", written(after_us)),
            None => {
                assert!(next.is_none_or(|next| next >= (first + DAYS * 1_440) * MINUTE_US), "seed {seed}: {text:?}")
            }
        }
        found += usize::from(expected.is_some());
        // The numeric form for a server means the same.
        let numbers = Timing::new(&timing.in_numbers().expect("fields"), name).expect("numbers are fields as well");
        assert_eq!(numbers.next_us(0, after_us), next, "seed {seed}: {text:?} is {:?}", numbers.text());
    }
    assert!(found > 300, "only {found} of the expressions have a beat in {DAYS} days");
}

// Promises: P17.14.
#[test]
fn expressions_select_what_people_mean() {
    let week = |text: &str| beats(text, "UTC", "2026-11-23T00:00:00Z", "2026-11-29T23:59:59Z");
    // The Monday in question is November 23.
    assert_eq!(week("0 22 * * 1-5").len(), 5);
    assert_eq!(week("0 22 * * mon-fri"), week("0 22 * * 1-5"));
    assert_eq!(week("30 6 * * 7"), ["2026-11-29T06:30:00Z"]);
    assert_eq!(week("30 6 * * sun"), week("30 6 * * 0"));
    assert_eq!(week("0 0 * * fri-sun").len(), 3);
    assert_eq!(week("*/20 8-9 24 nov *").len(), 6);
    assert_eq!(week("@hourly").len(), 167);
    assert_eq!(week("@daily"), week("0 0 * * *"));
    // Both day fields restrict: either is enough. `*/2` restricts, too.
    assert_eq!(week("0 0 24 * fri"), ["2026-11-24T00:00:00Z", "2026-11-27T00:00:00Z"]);
    assert_eq!(week("0 0 */9 * fri"), ["2026-11-27T00:00:00Z", "2026-11-28T00:00:00Z"]);
    let leap = beats("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", "2034-01-01T00:00:00Z");
    assert_eq!(leap, ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]);
    let never_2100 = beats("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", "2105-01-01T00:00:00Z");
    assert_eq!(never_2100, ["2104-02-29T00:00:00Z"]);
}

// Promises: P17.15.
#[test]
fn an_interval_counts_from_its_beginning() {
    let timing = Timing::new("@every 1h30m", "UTC").expect("an interval");
    let (began, span) = (7, 5_400_000_000);
    assert_eq!(timing.next_us(began, began), Some(began + span));
    assert_eq!(timing.next_us(began, began + span - 1), Some(began + span));
    assert_eq!(timing.next_us(began, began + 10 * span), Some(began + 11 * span));
    // A clock that was set back.
    assert_eq!(timing.next_us(began, 0), Some(began + span));
}

#[test]
fn an_invalid_timing_is_refused_with_field_value_and_fix() {
    let refused = |text: &str, zone: &str| Timing::new(text, zone).expect_err(text);
    for (text, says) in [
        ("", "it has 0 fields: give five"),
        ("0 0 22 * * 1-5", "it has 6 fields: give five: minute, hour"),
        ("60 * * * *", "minute \"60\" is not allowed: give *, 0 to 59"),
        ("* * 0 * *", "day of the month \"0\" is not allowed: give *, 1 to 31"),
        ("* * * * mo", "day of the week \"mo\" is not allowed: give *, 0 to 7, sun to sat"),
        ("* * * 13 *", "month \"13\" is not allowed: give *, 1 to 12, jan to dec"),
        ("+5 * * * *", "minute \"+5\""),
        ("1, * * * *", "minute \"\""),
        ("5-1 * * * *", "\"5-1\" goes back"),
        ("*/0 * * * *", "minute steps by \"0\": give a whole number from 1"),
        ("0 0 31 2,4,6,9,11 *", "never comes"),
        ("@reboot", "it is no shorthand"),
        ("@every 0s", "from 1 s to 366 days"),
        ("@every 1.5s", "\"1.5s\" is no interval"),
        ("@every 99999999999999999999h", "is no interval"),
        ("@every s", "is no interval"),
        ("@every é", "is no interval"),
        (&"* ".repeat(300), "at most 512"),
    ] {
        let said = refused(text, "UTC");
        assert!(said.starts_with("when: ") && said.contains(says), "{said}");
    }
    assert!(refused("@daily", "Mars/Base").starts_with("time_zone: \"Mars/Base\" is none: give a name such as"));
    assert!(
        refused("@every 9s", "Europe/Berlin").starts_with("time_zone: \"Europe/Berlin\" is given with an interval")
    );
    let timing = Timing::new(" 0  22 * *  1-5 ", "europe/berlin").expect("it is fine");
    assert_eq!((timing.text(), timing.time_zone()), ("0 22 * * 1-5", "Europe/Berlin"));
}

// Promises: P17.17.
#[test]
fn many_missed_beats_are_one() {
    let mut schedules = Schedules::new();
    let every = |seconds: u64| Timing::new(&format!("@every {seconds}s"), "UTC").expect("an interval");
    schedules.set("a", every(10), 'a', (0, 0));
    schedules.set("b", every(4), 'b', (0, 0));
    assert_eq!((schedules.next_us(), schedules.due(3_999_999)), (Some(4_000_000), vec![]));
    assert_eq!(schedules.due(95_000_000), ["b", "a"]);
    schedules.beaten("a", 95_000_000);
    schedules.beaten("b", 95_000_000);
    assert_eq!((schedules.next_us(), schedules.due(95_000_000)), (Some(96_000_000), vec![]));
    // An older word of a beat changes nothing.
    schedules.beaten("a", 50_000_000);
    assert_eq!(schedules.get("a").and_then(|schedule| schedule.next_us), Some(100_000_000));
    assert!(schedules.remove("b") && !schedules.remove("b"));
    assert_eq!((schedules.len(), schedules.next_us()), (1, Some(100_000_000)));
}
