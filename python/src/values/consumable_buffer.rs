//! A buffer that is consumed from front to back.

use std::ops::{Deref, Range};

use crate::values::memory::{LONG_BYTES, STEP_BYTES, release_pages};

/// Bytes whose consumed front part is released, if the bytes are many.
pub struct ConsumableBuffer<'a> {
    bytes: &'a mut [u8],
    released: usize,
    /// The position at which the consumed part is released.
    next_step: usize,
}

impl<'a> ConsumableBuffer<'a> {
    pub fn new(bytes: &'a mut [u8]) -> Self {
        let next_step = if bytes.len() >= LONG_BYTES { STEP_BYTES } else { usize::MAX };
        Self { bytes, released: 0, next_step }
    }

    /// Nothing before `at` is needed any more.
    #[inline]
    pub fn pass(&mut self, at: usize) {
        if at >= self.next_step {
            self.release_pages(at);
        }
    }

    /// Bytes that are used up by the caller.
    pub fn part(&mut self, range: Range<usize>) -> &mut [u8] {
        &mut self.bytes[range]
    }

    #[cold]
    fn release_pages(&mut self, at: usize) {
        release_pages(&mut self.bytes[self.released..at]);
        self.released = at;
        self.next_step = at + STEP_BYTES;
    }
}

impl Deref for ConsumableBuffer<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}
