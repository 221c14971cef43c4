//! Lets so many calls in at once; others wait in order of their lanes, up to a limit.

use std::collections::VecDeque;

const LANES: usize = 4;

/// A door. It knows no clock and no threads.
pub(crate) struct Gate<T> {
    inside: usize,
    inside_max: usize,
    waiting: [VecDeque<T>; LANES],
    waiting_max: usize,
}

/// What becomes of one that comes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry<T> {
    /// It is in.
    Enters(T),
    Waits,
    /// Too many wait.
    Full(T),
}

impl<T> Gate<T> {
    pub fn new(inside_max: usize, waiting_max: usize) -> Self {
        Self { inside: 0, inside_max, waiting: Default::default(), waiting_max }
    }

    pub fn come(&mut self, one: T, lane: usize) -> Entry<T> {
        if self.inside < self.inside_max {
            self.inside += 1;
            return Entry::Enters(one);
        }
        if self.waiting() >= self.waiting_max {
            return Entry::Full(one);
        }
        self.waiting[lane.min(LANES - 1)].push_back(one);
        Entry::Waits
    }

    /// One has left; the next one is in.
    pub fn leave(&mut self) -> Option<T> {
        let next = self.next_waiting();
        if next.is_none() {
            self.inside = self.inside.saturating_sub(1);
        }
        next
    }

    /// Takes one out that waits, without letting it in.
    pub fn next_waiting(&mut self) -> Option<T> {
        self.waiting.iter_mut().find_map(VecDeque::pop_front)
    }

    /// Takes out the first of those that wait of which this is true.
    pub fn remove(&mut self, is_it: impl Fn(&T) -> bool) -> Option<T> {
        self.waiting.iter_mut().find_map(|line| line.iter().position(&is_it).and_then(|at| line.remove(at)))
    }

    #[cfg(test)]
    fn inside(&self) -> usize {
        self.inside
    }

    pub fn waiting(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Gate};

    #[test]
    fn the_third_waits_and_the_fourth_is_turned_away() {
        let mut gate = Gate::new(2, 1);
        assert_eq!(gate.come('a', 2), Entry::Enters('a'));
        assert_eq!(gate.come('b', 2), Entry::Enters('b'));
        assert_eq!(gate.come('c', 2), Entry::Waits);
        assert_eq!(gate.come('d', 2), Entry::Full('d'));
        assert_eq!((gate.leave(), gate.inside()), (Some('c'), 2));
        assert_eq!((gate.leave(), gate.leave(), gate.inside()), (None, None, 0));
    }

    #[test]
    fn one_that_waits_can_give_up() {
        let mut gate = Gate::new(1, 10);
        for (name, lane) in [("inside", 2), ("low", 3), ("normal", 2)] {
            gate.come(name, lane);
        }
        assert_eq!((gate.remove(|name| *name == "low"), gate.remove(|name| *name == "inside")), (Some("low"), None));
        assert_eq!((gate.leave(), gate.leave()), (Some("normal"), None));
    }

    #[test]
    fn urgent_ones_go_before_others_that_came_earlier() {
        let mut gate = Gate::new(1, 10);
        assert_eq!(gate.come("first", 3), Entry::Enters("first"));
        for (name, lane) in [("low", 3), ("normal", 2), ("urgent", 0), ("urgent too", 0)] {
            assert_eq!(gate.come(name, lane), Entry::Waits);
        }
        let order: Vec<_> = std::iter::from_fn(|| gate.leave()).collect();
        assert_eq!(order, ["urgent", "urgent too", "normal", "low"]);
    }
}
