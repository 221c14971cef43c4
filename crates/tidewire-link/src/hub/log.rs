//! The log of a hub: strangers cause its lines, so that it has a bound, and their text is escaped.

use tidewire_sync::Mutex;

use crate::clock::now_us;

/// Lines at one go, and in each second after that; the rest is counted.
const LINES: u64 = 1_000;
const LINES_A_SECOND: u64 = 20;
/// Characters of one line.
const CHARACTERS: usize = 1_000;
const SECOND_US: u64 = 1_000_000;

/// Where the lines go.
pub(super) type Sink = Box<dyn Fn(&str) + Send + Sync>;

/// A log with a bound.
pub(super) struct Log {
    sink: Sink,
    pace: Mutex<LogPace>,
}

struct LogPace {
    /// Lines that may be logged now.
    budget: u64,
    /// When there was one more last.
    grown_us: u64,
    left_out: u64,
    /// When lines were counted first since they were summed up.
    since_us: u64,
}

impl Log {
    pub fn new(sink: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { sink: Box::new(sink), pace: Mutex::new(LogPace::new(now_us())) }
    }

    /// Logs one line, or counts it.
    pub fn line(&self, text: &str) {
        let (is_logged, left_out) = self.pace.lock().one_more(now_us());
        self.summed_up(left_out);
        if is_logged {
            (self.sink)(&shown(text));
        }
    }

    /// When something is to be summed up; and sums it up if it is time.
    pub fn tick(&self) -> u64 {
        let (left_out, next_us) = self.pace.lock().tick(now_us());
        self.summed_up(left_out);
        next_us
    }

    fn summed_up(&self, left_out: u64) {
        if left_out > 0 {
            (self.sink)(&format!(
                "{left_out} more lines like those before are left out: at most {LINES_A_SECOND} are logged in a second"
            ));
        }
    }
}

impl LogPace {
    fn new(now_us: u64) -> Self {
        Self { budget: LINES, grown_us: now_us, left_out: 0, since_us: 0 }
    }

    /// True if another line may be logged, and the number of omitted lines to report before it.
    fn one_more(&mut self, now_us: u64) -> (bool, u64) {
        let (left_out, _) = self.tick(now_us);
        if self.budget > 0 {
            self.budget -= 1;
            return (true, left_out);
        }
        if self.left_out == 0 {
            self.since_us = now_us;
        }
        self.left_out += 1;
        (false, left_out)
    }

    /// How many lines are summed up now, and when it is time for that next.
    fn tick(&mut self, now_us: u64) -> (u64, u64) {
        let more = now_us.saturating_sub(self.grown_us) / (SECOND_US / LINES_A_SECOND);
        self.budget = (self.budget + more).min(LINES);
        self.grown_us += more * (SECOND_US / LINES_A_SECOND);
        let next_us = if self.left_out > 0 { self.since_us + SECOND_US } else { u64::MAX };
        if now_us < next_us {
            return (0, next_us);
        }
        (std::mem::take(&mut self.left_out), u64::MAX)
    }
}

/// The text as one line: what would move a cursor, or begin another line, is written out.
fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(CHARACTERS));
    let mut budget = CHARACTERS;
    for character in text.chars() {
        let is_plain = !character.is_control()
            && !matches!(character, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        let characters = if is_plain { 1 } else { character.escape_debug().count() };
        if characters > budget {
            out.push_str("...");
            break;
        }
        budget -= characters;
        if is_plain {
            out.push(character);
        } else {
            out.extend(character.escape_debug());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_of_strangers_is_one_log_line_of_bounded_length() {
        assert_eq!(shown("plain \"text\", \u{e9}"), "plain \"text\", \u{e9}");
        assert_eq!(shown("a\nINFO forged\r\u{1b}[2J\u{202e}"), "a\\nINFO forged\\r\\u{1b}[2J\\u{202e}");
        assert_eq!(shown(&"x".repeat(5_000)).len(), CHARACTERS + 3);
        assert_eq!(shown(&"\n".repeat(5_000)).len(), CHARACTERS + 3);
    }

    #[test]
    fn many_lines_are_counted_and_the_count_is_said_a_second_later() {
        let mut pace = LogPace::new(5_000_000);
        let lines = (0..LINES + 80).filter(|_| pace.one_more(5_000_001).0).count() as u64;
        assert_eq!(lines, LINES);
        assert_eq!(pace.tick(5_900_000), (0, 6_000_001));
        assert_eq!(pace.tick(6_000_001), (80, u64::MAX));
        let lines = (0..100).filter(|_| pace.one_more(6_000_002).0).count() as u64;
        assert_eq!(lines, LINES_A_SECOND);
    }
}
