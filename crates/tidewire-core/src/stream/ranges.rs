//! Sets of sequences as ranges: small as long as the sequences are mostly consecutive.

use std::collections::BTreeMap;

/// A set of numbers, stored as disjoint ranges that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// True if a number is in the set.
    pub fn contains(&self, number: u64) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, last)| *last >= number)
    }

    /// Adds a number.
    pub fn insert(&mut self, number: u64) {
        self.insert_range(number, number);
    }

    /// Adds all numbers from `first` to `last`, both included.
    pub fn insert_range(&mut self, mut first: u64, mut last: u64) {
        if let Some((&begin, &end)) = self.0.range(..=first).next_back()
            && end.saturating_add(1) >= first
        {
            first = begin;
            last = last.max(end);
        }
        while let Some((&begin, &end)) = self.0.range(first..=last.saturating_add(1)).next() {
            self.0.remove(&begin);
            last = last.max(end);
        }
        self.0.insert(first, last);
    }

    /// Removes all numbers up to `upto`, and those that follow `upto` without a gap. Returns the
    /// last number that was removed or `upto`.
    pub fn advance(&mut self, mut upto: u64) -> u64 {
        while let Some((&begin, &end)) = self.0.first_key_value() {
            if begin > upto.saturating_add(1) {
                break;
            }
            self.0.remove(&begin);
            upto = upto.max(end);
        }
        upto
    }

    /// The ranges in order, both ends included.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(first, last)| (*first, *last))
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<u64> for Ranges {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut ranges = Self::default();
        numbers.into_iter().for_each(|number| ranges.insert(number));
        ranges
    }
}
