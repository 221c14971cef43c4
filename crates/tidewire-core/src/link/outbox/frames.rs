//! Storage of whole frames in a send queue: blocks of memory that are released as they are written.

use std::collections::VecDeque;

/// Bytes after which another block is begun. A frame lies in one block.
const BLOCK_BYTES: usize = 262_144;
/// Extra capacity of a block for its last frame: mostly no more than a chunk.
const BEYOND_BYTES: usize = BLOCK_BYTES / 4;

/// Whole frames one after the other, in blocks: what waits takes its own length of memory and at
/// most a block more, however much it is.
#[derive(Default)]
pub(super) struct Frames {
    blocks: VecDeque<Vec<u8>>,
    /// Consumed bytes at the front of the first block.
    consumed: usize,
    bytes: usize,
}

impl Frames {
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub(super) fn buffer_bytes(&self) -> usize {
        self.blocks.iter().map(Vec::capacity).sum()
    }

    /// Appends the bytes that `write` writes to a block.
    pub(super) fn add<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        if self.blocks.back().is_none_or(|block| block.len() >= BLOCK_BYTES) {
            // After a full block, another will soon be full. Its full capacity is allocated at
            // once, since growing would copy its content.
            let block_bytes = if self.blocks.is_empty() { 0 } else { BLOCK_BYTES + BEYOND_BYTES };
            self.blocks.push_back(Vec::with_capacity(block_bytes));
        }
        let at = self.blocks.len() - 1;
        let block = &mut self.blocks[at];
        let before = block.len();
        let written = write(block);
        self.bytes += block.len() - before;
        written
    }

    /// Adds a frame, and gives it back to be changed.
    pub(super) fn copy(&mut self, frame: &[u8]) -> &mut [u8] {
        self.add(|block| block.extend_from_slice(frame));
        let block = self.blocks.back_mut().map_or(&mut [][..], |block| &mut block[..]);
        let at = block.len() - frame.len();
        &mut block[at..]
    }

    /// Moves whole frames to the end of `out`: as many as fit the budget, and at least one, if it
    /// is not 0. Answers how many bytes. A block that is a quarter longer than the budget at most
    /// is not cut, which would copy it.
    pub(super) fn take(&mut self, out: &mut Vec<u8>, budget: usize) -> usize {
        let mut moved = 0;
        while let Some(block) = self.blocks.front_mut() {
            let waiting = &block[self.consumed..];
            let free = budget.saturating_sub(moved);
            let is_whole = out.is_empty() && self.consumed == 0;
            let fits = if is_whole { free + free / 4 } else { free };
            let count = if waiting.len() <= fits { waiting.len() } else { whole_frames(waiting, free, moved == 0) };
            if count == 0 && !waiting.is_empty() {
                break;
            }
            if is_whole && count == block.len() {
                std::mem::swap(out, block);
            } else {
                out.extend_from_slice(&waiting[..count]);
            }
            moved += count;
            self.bytes -= count;
            self.consumed += count;
            if self.consumed < block.len() {
                break;
            }
            self.next_block();
            if self.bytes == 0 || moved >= budget {
                break;
            }
        }
        moved
    }

    /// Releases the memory that a burst needed.
    pub(super) fn release(&mut self, limit: usize) {
        if self.is_empty() && self.buffer_bytes() > limit {
            *self = Self::default();
        }
    }

    /// The first block is used up. The last one is reused for the next frames.
    fn next_block(&mut self) {
        self.consumed = 0;
        if self.blocks.len() > 1 {
            self.blocks.pop_front();
        } else if let Some(block) = self.blocks.front_mut() {
            block.clear();
        }
    }
}

/// The bytes of the whole frames at the front that fit; of one that does not, if there must be one.
fn whole_frames(frames: &[u8], budget: usize, one: bool) -> usize {
    let mut at = 0;
    while let Some(&length) = frames[at..].first_chunk::<4>() {
        let end = at + 4 + u32::from_le_bytes(length) as usize;
        if end > budget && (at > 0 || !one) {
            break;
        }
        at = end;
    }
    at
}
