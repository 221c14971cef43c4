//! Agenda: names ordered by their due times, so that idle names cost nothing.

use std::collections::{BTreeMap, BTreeSet};

/// The earliest time of each name. It may be earlier than the truth, never later.
#[derive(Debug, Default)]
pub struct Agenda {
    times: BTreeMap<String, u64>,
    due: BTreeSet<(u64, String)>,
}

impl Agenda {
    /// Something is due at a name then, if nothing is earlier.
    pub fn note(&mut self, name: &str, at_us: Option<u64>) {
        let Some(at_us) = at_us else { return };
        match self.times.get_mut(name) {
            Some(before) if *before <= at_us => return,
            Some(before) => {
                self.due.remove(&(*before, name.to_owned()));
                *before = at_us;
            }
            None => drop(self.times.insert(name.to_owned(), at_us)),
        }
        self.due.insert((at_us, name.to_owned()));
    }

    /// Takes the name with the earliest due time. The caller notes it again if more is due.
    pub fn take(&mut self, now_us: u64) -> Option<String> {
        let (at_us, name) = self.due.pop_first()?;
        if at_us > now_us {
            self.due.insert((at_us, name));
            return None;
        }
        self.times.remove(&name);
        Some(name)
    }

    /// The earliest time.
    pub fn next_us(&self) -> Option<u64> {
        self.due.first().map(|(at_us, _)| *at_us)
    }
}

#[cfg(test)]
mod tests {
    use super::Agenda;

    #[test]
    fn names_come_in_the_order_of_their_times_and_once() {
        let mut agenda = Agenda::default();
        agenda.note("b", Some(20));
        agenda.note("a", Some(30));
        agenda.note("a", Some(10));
        agenda.note("a", Some(15));
        agenda.note("c", None);
        assert_eq!((agenda.next_us(), agenda.take(9)), (Some(10), None));
        assert_eq!(agenda.take(20).as_deref(), Some("a"));
        assert_eq!(agenda.take(20).as_deref(), Some("b"));
        assert_eq!((agenda.take(99), agenda.next_us()), (None, None));
    }
}
