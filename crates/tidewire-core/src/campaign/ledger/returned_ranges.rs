//! Returned ranges: leased runs without results, in order of run.

use serde::{Deserialize, Serialize};

/// Consecutive runs that wait for another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReturnedRange {
    pub first: u64,
    pub count: u32,
    /// How often a worker was lost with these runs, and nobody knows in which of them.
    pub losses: u32,
}

/// Ranges that came back, apart from each other, in order. Those that touch and were given back in
/// peace are one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ReturnedRanges(Vec<ReturnedRange>);

impl ReturnedRanges {
    /// The number of ranges from which no range is halved any more.
    pub const MANY: usize = 4_096;

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// How many runs they have together.
    pub fn runs(&self) -> u64 {
        self.0.iter().map(|piece| u64::from(piece.count)).sum()
    }

    pub fn put(&mut self, first: u64, count: u32, losses: u32) {
        if count == 0 {
            return;
        }
        let at = self.0.partition_point(|piece| piece.first < first);
        self.0.insert(at, ReturnedRange { first, count, losses });
        self.join(at);
        if at > 0 {
            self.join(at - 1);
        }
    }

    /// The first piece in which no worker was lost, cut to at most `most` runs.
    pub fn take_calm(&mut self, most: u32) -> Option<ReturnedRange> {
        let at = self.0.iter().position(|piece| piece.losses == 0)?;
        Some(self.cut(at, most))
    }

    /// The first piece in which a worker was lost, cut to at most `most` runs.
    pub fn take_suspect(&mut self, most: u32) -> Option<ReturnedRange> {
        let at = self.0.iter().position(|piece| piece.losses > 0)?;
        Some(self.cut(at, most))
    }

    /// The first piece, cut to at most `most` runs.
    pub fn take(&mut self, most: u32) -> Option<ReturnedRange> {
        if self.is_empty() { None } else { Some(self.cut(0, most)) }
    }

    fn cut(&mut self, at: usize, most: u32) -> ReturnedRange {
        let piece = &mut self.0[at];
        if piece.count <= most {
            return self.0.remove(at);
        }
        let taken = ReturnedRange { count: most, ..*piece };
        piece.first += u64::from(most);
        piece.count -= most;
        taken
    }

    /// Makes one piece of that at `at` and the next, if nothing speaks against it.
    fn join(&mut self, at: usize) {
        let Some(&[left, right]) = self.0.get(at..at + 2).and_then(|two| two.first_chunk::<2>()) else { return };
        let peaceful = left.losses == 0 && right.losses == 0;
        if !peaceful || left.first + u64::from(left.count) != right.first {
            return;
        }
        if let Some(count) = left.count.checked_add(right.count) {
            self.0[at].count = count;
            self.0.remove(at + 1);
        }
    }
}
