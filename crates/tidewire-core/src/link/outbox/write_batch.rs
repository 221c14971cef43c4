//! Batches of one write: frames taken out of a send queue, and parts of long payloads without a
//! copy.

use std::sync::Arc;

use super::PayloadParts;

/// Parts of payloads that are shorter are copied: that costs less than to keep them.
const COPIED_BYTES: usize = 4_096;
/// Memory that a batch keeps when all of it has been written.
const KEPT_BYTES: usize = 1 << 20;

/// A sink for the frames of an outbox: plain bytes, or a [`WriteBatch`].
pub trait FrameSink {
    /// The length of all that has been taken.
    fn length(&self) -> usize;

    /// Bytes, to add frames to.
    fn bytes(&mut self) -> &mut Vec<u8>;

    /// Adds `count` bytes of a payload.
    fn part(&mut self, payload: &Arc<dyn PayloadParts>, from: usize, count: usize);
}

impl FrameSink for Vec<u8> {
    fn length(&self) -> usize {
        self.len()
    }

    fn bytes(&mut self) -> &mut Vec<u8> {
        self
    }

    fn part(&mut self, payload: &Arc<dyn PayloadParts>, from: usize, count: usize) {
        payload.copy_to(self, from..from + count);
    }
}

/// The content of one write: frames, and between them parts of long payloads, which are not copied.
#[derive(Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    payload_slices: Vec<PayloadSlice>,
    slice_bytes: usize,
    /// So much of it has been written.
    written: usize,
}

/// A part of a payload that lies in one of its pieces.
struct PayloadSlice {
    payload: Arc<dyn PayloadParts>,
    from: usize,
    count: usize,
    /// It comes before this one of the bytes.
    before: usize,
}

impl WriteBatch {
    /// True if all of it has been written.
    pub fn is_written(&self) -> bool {
        self.written == self.bytes.len() + self.slice_bytes
    }

    /// Takes note of bytes that have been written.
    pub fn advance(&mut self, count: usize) {
        self.written += count;
    }

    /// Empties it, and releases memory that was needed for a very long frame.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.payload_slices.clear();
        (self.slice_bytes, self.written) = (0, 0);
    }

    /// The unwritten bytes, if no parts of payloads were added.
    pub fn frames(&self) -> &[u8] {
        debug_assert!(self.payload_slices.is_empty(), "frames alone were taken");
        &self.bytes[self.written..]
    }

    /// The unwritten bytes, in order. Without parts of payloads there is one slice.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut skipped = self.written;
        let all = (0..=self.payload_slices.len()).flat_map(|number| [self.frames_before(number), self.part_at(number)]);
        all.filter_map(move |slice| {
            let consumed = skipped.min(slice.len());
            skipped -= consumed;
            (consumed < slice.len()).then(|| &slice[consumed..])
        })
    }

    fn frames_before(&self, number: usize) -> &[u8] {
        let from = if number == 0 { 0 } else { self.payload_slices[number - 1].before };
        let to = self.payload_slices.get(number).map_or(self.bytes.len(), |slice| slice.before);
        &self.bytes[from..to]
    }

    fn part_at(&self, number: usize) -> &[u8] {
        self.payload_slices.get(number).map_or(&[], |slice| &slice.payload.piece(slice.from)[..slice.count])
    }
}

impl FrameSink for WriteBatch {
    fn length(&self) -> usize {
        self.bytes.len() + self.slice_bytes
    }

    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    fn part(&mut self, payload: &Arc<dyn PayloadParts>, from: usize, count: usize) {
        let end = from + count;
        let mut at = from;
        while at < end {
            let piece = payload.piece(at);
            let count = piece.len().min(end - at);
            if count < COPIED_BYTES {
                self.bytes.extend_from_slice(&piece[..count]);
            } else {
                self.payload_slices.push(PayloadSlice {
                    payload: Arc::clone(payload),
                    from: at,
                    count,
                    before: self.bytes.len(),
                });
                self.slice_bytes += count;
            }
            at += count;
        }
    }
}

#[cfg(test)]
mod tests;
