//! Reader of the head, byte by byte. It trusts no length before the bytes are there.

use std::ops::Range;

use crate::values::consumable_buffer::ConsumableBuffer;
use crate::values::memory::LONG_BYTES;

/// A head, and whose it is.
pub enum Head<'a> {
    /// Memory that does not change.
    Kept(&'a [u8]),
    /// Memory that is consumed.
    Passing(ConsumableBuffer<'a>),
}

/// A place in the head.
pub struct Reader<'a> {
    head: Head<'a>,
    at: usize,
    /// Values that were promised and have not begun. Each takes a byte at least, so there are never
    /// more than bytes left.
    owed: usize,
}

impl<'a> Reader<'a> {
    pub fn new(head: Head<'a>) -> Self {
        Self { head, at: 0, owed: 0 }
    }

    /// Bytes that have been [taken](Self::take), until the next value is read.
    #[inline]
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.head()[range]
    }

    /// The same, to be used up; None if they are short, or not to be used up.
    #[inline]
    pub fn long(&mut self, range: Range<usize>) -> Option<&mut [u8]> {
        match &mut self.head {
            Head::Passing(head) if range.len() >= LONG_BYTES => Some(head.part(range)),
            _ => None,
        }
    }

    #[inline]
    fn head(&self) -> &[u8] {
        match &self.head {
            Head::Kept(head) => head,
            Head::Passing(head) => head,
        }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn left(&self) -> usize {
        self.head().len() - self.at
    }

    /// Range of the next bytes, if there are so many.
    #[inline]
    pub fn take(&mut self, length: usize) -> Option<Range<usize>> {
        let from = self.at;
        if length > self.left() {
            return None;
        }
        self.at += length;
        Some(from..self.at)
    }

    /// The first byte of a value.
    #[inline]
    pub fn marker(&mut self) -> Option<u8> {
        if let Head::Passing(head) = &mut self.head {
            head.pass(self.at);
        }
        let marker = *self.head().get(self.at)?;
        self.at += 1;
        self.owed = self.owed.saturating_sub(1);
        Some(marker)
    }

    /// The first byte of the next value, which stays there.
    #[inline]
    pub fn next(&self) -> Option<u8> {
        self.head().get(self.at).copied()
    }

    /// Takes note of values that must follow. False if there can't be so many.
    #[inline]
    #[must_use]
    pub fn promise(&mut self, values: usize) -> bool {
        if values > self.left().saturating_sub(self.owed) {
            return false;
        }
        self.owed += values;
        true
    }

    /// A number of so many bytes, without sign.
    #[inline]
    pub fn number<const N: usize>(&mut self) -> Option<u64> {
        let bytes = self.take(N)?;
        Some(self.bytes(bytes).iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub fn length<const N: usize>(&mut self) -> Option<usize> {
        self.number::<N>().and_then(|length| usize::try_from(length).ok())
    }

    /// A number of so many bytes, with sign.
    pub fn signed<const N: usize>(&mut self) -> Option<i64> {
        let shift = 64 - 8 * N as u32;
        self.number::<N>().map(|number| (number << shift) as i64 >> shift)
    }
}
