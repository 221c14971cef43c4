//! Which of several instances gets a call: a machine that is told what began and what ended, and knows no clock.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Choice;

/// How much the last call counts for the average.
const WEIGHT: f64 = 0.2;
/// A failure may be quick, and must not draw calls: it counts as slower than what was before.
const FAILED_FACTOR: f64 = 2.0;
/// One of so many calls tries any instance, rather than the quickest.
const EXPLORES: u64 = 20;

/// The instances of one service, in the order in which they came.
#[derive(Default)]
pub(crate) struct Standings {
    all: Vec<Standing>,
    turn: usize,
}

struct Standing {
    id: Arc<str>,
    node: Arc<str>,
    outstanding: u32,
    /// A moving average, in seconds; None before the first call has ended.
    latency: Option<f64>,
}

type Named = (Arc<str>, Arc<str>);

impl Standing {
    fn named(&self) -> Named {
        (Arc::clone(&self.id), Arc::clone(&self.node))
    }

    /// How long a call may take there: it waits behind those that are under way.
    fn expected(&self) -> f64 {
        self.latency.map_or(f64::INFINITY, |latency| latency * f64::from(self.outstanding + 1))
    }
}

impl Standings {
    pub fn add(&mut self, id: &str, node: &str) {
        if !self.has(Some(id)) {
            self.all.push(Standing { id: id.into(), node: node.into(), outstanding: 0, latency: None });
        }
    }

    pub fn retain(&mut self, keeps: impl Fn(&str) -> bool) {
        self.all.retain(|one| keeps(&one.id));
    }

    /// Whether there is an instance: this one, or any.
    pub fn has(&self, id: Option<&str>) -> bool {
        self.all.iter().any(|one| id.is_none_or(|id| *one.id == *id))
    }

    /// The instance of an id, and its node.
    pub fn named(&self, id: &str) -> Option<Named> {
        self.all.iter().find(|one| *one.id == *id).map(Standing::named)
    }

    pub fn began(&mut self, id: &str) {
        if let Some(one) = self.all.iter_mut().find(|one| *one.id == *id) {
            one.outstanding += 1;
        }
    }

    /// A call has ended: how long it took and whether it failed, or None where that says nothing.
    pub fn ended(&mut self, id: &str, took: Option<(Duration, bool)>) {
        let Some(one) = self.all.iter_mut().find(|one| *one.id == *id) else { return };
        one.outstanding = one.outstanding.saturating_sub(1);
        let Some((took, failed)) = took else { return };
        let mut took = took.as_secs_f64();
        if failed {
            took = took.max(one.latency.unwrap_or(took) * FAILED_FACTOR);
        }
        one.latency = Some(one.latency.map_or(took, |before| before + WEIGHT * (took - before)));
    }

    /// The instance for the next call, without those that have refused it. `dice` is any number.
    pub fn choose(&mut self, choice: Choice, tried: &[Arc<str>], dice: u64) -> Option<Named> {
        let left: Vec<usize> = (0..self.all.len()).filter(|at| !tried.contains(&self.all[*at].id)).collect();
        let any = |dice: u64| left[(dice % left.len() as u64) as usize];
        let at = match (&*left, choice) {
            ([], _) => return None,
            ([only], _) => *only,
            ([first, ..], Choice::First) => *first,
            (_, Choice::Random) => any(dice),
            (_, Choice::LeastOutstanding) => self.least(&left),
            (_, Choice::LowestLatency) => match self.fresh(&left) {
                Some(fresh) => fresh,
                None if dice % EXPLORES == 0 => any(dice / EXPLORES),
                None => self.quickest(&left),
            },
        };
        Some(self.all[at].named())
    }

    /// One that nothing is known of is tried once; until its answer comes, others get the calls.
    fn fresh(&self, left: &[usize]) -> Option<usize> {
        left.iter().copied().find(|at| self.all[*at].latency.is_none() && self.all[*at].outstanding == 0)
    }

    fn quickest(&self, left: &[usize]) -> usize {
        let expected = |at: &&usize| self.all[**at].expected();
        left.iter().min_by(|one, other| expected(one).total_cmp(&expected(other))).copied().unwrap_or(0)
    }

    /// The one with the fewest calls; of equal ones, in turn.
    fn least(&mut self, left: &[usize]) -> usize {
        self.turn = self.turn.wrapping_add(1);
        let turned = (0..left.len()).map(|step| left[(self.turn + step) % left.len()]);
        turned.min_by_key(|at| self.all[*at].outstanding).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Standings;
    use crate::client::Choice;

    fn chosen(standings: &mut Standings, choice: Choice, dice: u64) -> String {
        standings.choose(choice, &[], dice).expect("there is one").0.to_string()
    }

    fn three() -> Standings {
        let mut standings = Standings::default();
        ["a", "b", "c"].iter().for_each(|id| standings.add(id, "node"));
        standings
    }

    #[test]
    fn each_is_tried_once_and_then_the_quickest_gets_the_calls() {
        let mut standings = three();
        for (id, ms) in [("a", 30), ("b", 10), ("c", 20)] {
            assert_eq!(chosen(&mut standings, Choice::LowestLatency, 1), id);
            standings.began(id);
            standings.ended(id, Some((Duration::from_millis(ms), false)));
        }
        assert_eq!(chosen(&mut standings, Choice::LowestLatency, 1), "b");
        // Two calls that it is at make it slower than the next one.
        ["b", "b"].iter().for_each(|id| standings.began(id));
        assert_eq!(chosen(&mut standings, Choice::LowestLatency, 1), "c");
        // One in twenty looks at another.
        assert_eq!(chosen(&mut standings, Choice::LowestLatency, 0), "a");
    }

    #[test]
    fn a_quick_failure_draws_no_calls() {
        let mut standings = three();
        for id in ["a", "b", "c"] {
            standings.began(id);
            standings.ended(id, Some((Duration::from_millis(10), false)));
        }
        for _ in 0..3 {
            standings.began("a");
            standings.ended("a", Some((Duration::from_micros(1), true)));
        }
        assert_eq!(chosen(&mut standings, Choice::LowestLatency, 1), "b");
    }

    #[test]
    fn the_least_busy_is_chosen_in_turn_and_who_has_refused_is_passed_over() {
        let mut standings = three();
        standings.began("a");
        let mut got: Vec<_> = (0..4).map(|_| chosen(&mut standings, Choice::LeastOutstanding, 0)).collect();
        got.sort_unstable();
        assert_eq!(got.iter().filter(|id| *id == "a").count(), 0, "{got:?}");
        let tried = ["a".into(), "b".into()];
        let left = standings.choose(Choice::First, &tried, 0).map(|(id, _)| id.to_string());
        assert_eq!(left.as_deref(), Some("c"));
        assert!(standings.choose(Choice::Random, &["a".into(), "b".into(), "c".into()], 7).is_none());
    }
}
