//! Read buffer of a link: bytes from the socket, split into frames and chunks.

use std::io::{self, IoSliceMut};

use tidewire_proto::wire::{self, BegunChunk, FRAME_HEAD, Frame, Kind, WireError};

use crate::malloc_tuning::keep_freed;

/// Capacity for four chunks of the usual greatest length, each with its head.
pub const READ_BYTES: usize = 272 * 1024;

/// Capacity of a link whose peer is not known yet.
const SMALL_BYTES: usize = 4 * 1024;

/// Capacity for the head of the next chunk, and for short frames between chunks.
const BETWEEN_BYTES: usize = 4 * 1024;

/// Bytes that were read and are not yet frames.
pub struct FrameReader {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
    frame_max: usize,
    /// Capacity of the buffer when nothing needs more.
    default_bytes: usize,
    /// True if the buffer may grow when many bytes arrive at once.
    widens: bool,
    /// Whole frames may be left that were not visited.
    has_frames: bool,
    /// A chunk that has arrived in part; this part has been visited.
    begun: Option<BegunChunk>,
}

/// True if the visitor wants no more frames for now.
pub struct StopReading(pub bool);

/// How much was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadProgress {
    /// Nothing: the other side has closed.
    Closed,
    /// All available bytes.
    All,
    /// As many bytes as the capacity allows.
    Some,
}

impl FrameReader {
    pub fn new(frame_max: usize) -> Self {
        Self::with_capacity(READ_BYTES, frame_max)
    }

    /// A reader with a small capacity, for short frames: the sender is not known yet.
    pub fn small(frame_max: usize) -> Self {
        Self::with_capacity(SMALL_BYTES, frame_max)
    }

    /// Allows longer frames and a greater capacity, once the sender is known.
    pub fn widen(&mut self, frame_max: usize) {
        (self.frame_max, self.widens) = (frame_max, true);
    }

    /// True while the sender is not known.
    pub fn is_small(&self) -> bool {
        !self.widens
    }

    fn with_capacity(default_bytes: usize, frame_max: usize) -> Self {
        Self {
            bytes: vec![0; default_bytes],
            from: 0,
            to: 0,
            frame_max,
            default_bytes,
            widens: default_bytes > SMALL_BYTES,
            has_frames: false,
            begun: None,
        }
    }

    /// Reads what there is.
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing, or whatever reading fails with.
    pub fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<ReadProgress> {
        self.reserve();
        self.fill_most(READ_BYTES, read)
    }

    /// Reads little: long payloads are under way, and most of what comes is
    /// [`beside`](Self::beside).
    ///
    /// # Errors
    /// As for [`fill`](Self::fill).
    pub fn fill_between(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<ReadProgress> {
        self.reserve();
        self.fill_most(BETWEEN_BYTES, read)
    }

    /// Reads the rest of a chunk to `chunk`, and a little of what follows. Answers how much of the
    /// chunk came.
    ///
    /// # Errors
    /// As for [`fill`](Self::fill).
    pub fn beside(
        &mut self,
        chunk: &mut [u8],
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<(usize, ReadProgress)> {
        debug_assert!(self.from == self.to, "what came of the chunk has been visited");
        let chunk_bytes = chunk.len();
        let mut count = 0;
        self.reserve();
        let filled = self.fill_most(BETWEEN_BYTES, |between| {
            count = read(&mut [IoSliceMut::new(chunk), IoSliceMut::new(between)])?;
            Ok(count.saturating_sub(chunk_bytes))
        })?;
        Ok((
            count.min(chunk_bytes),
            if count > 0 && filled == ReadProgress::Closed { ReadProgress::All } else { filled },
        ))
    }

    /// The chunk whose rest comes next.
    pub fn begun(&self) -> Option<BegunChunk> {
        self.begun.filter(|chunk| chunk.left > 0)
    }

    /// Some of the rest of it was read [`beside`](Self::beside): this is what is left.
    pub fn set_begun(&mut self, chunk: BegunChunk) {
        self.begun = Some(chunk);
    }

    /// Bytes that were read and have not been visited.
    pub fn waiting(&self) -> usize {
        self.to - self.from
    }

    fn fill_most(
        &mut self,
        most: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<ReadProgress> {
        let end = self.bytes.len().min(self.to.saturating_add(most));
        let spare = &mut self.bytes[self.to..end];
        let most = spare.len();
        let count = read(spare)?;
        keep_freed(count);
        self.to += count;
        if count == most && self.widens {
            self.default_bytes = READ_BYTES;
        }
        Ok(match count {
            0 => ReadProgress::Closed,
            count if count < most => ReadProgress::All,
            _ => ReadProgress::Some,
        })
    }

    /// Gives whole frames to `visit`, until that says that it was enough. Answers whether none is
    /// left.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are no frame.
    pub fn some_frames(&mut self, mut visit: impl FnMut(&Frame<'_>) -> StopReading) -> Result<bool, WireError> {
        while let Some(frame) = wire::read(&self.bytes[self.from..self.to], self.frame_max)? {
            let enough = visit(&frame);
            self.from += frame.bytes.len();
            if enough.0 {
                self.has_frames = true;
                return Ok(false);
            }
        }
        self.has_frames = false;
        Ok(true)
    }

    /// True if the visitor stopped before the last frame. The caller visits the other frames before
    /// it reads again.
    pub fn is_left(&self) -> bool {
        self.has_frames
    }

    /// Gives every whole frame to `visit`.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are no frame.
    pub fn frames(&mut self, mut visit: impl FnMut(&Frame<'_>)) -> Result<(), WireError> {
        while let Some(frame) = wire::read(&self.bytes[self.from..self.to], self.frame_max)? {
            visit(&frame);
            self.from += frame.bytes.len();
        }
        Ok(())
    }

    /// As [`frames`](Self::frames), and gives what has come of a chunk as a chunk of its own.
    ///
    /// # Errors
    /// As for [`frames`](Self::frames).
    pub fn frames_and_begun(&mut self, mut visit: impl FnMut(&Frame<'_>)) -> Result<(), WireError> {
        loop {
            if let Some(chunk) = &mut self.begun {
                let count = chunk.left.min(self.to - self.from);
                if count > 0 {
                    let (id, flags) = (chunk.id, chunk.take(count));
                    let payload = &self.bytes[self.from..self.from + count];
                    visit(&Frame { kind: Kind::Chunk, flags, id, head: &[], payload, bytes: payload });
                    self.from += count;
                }
                if chunk.left > 0 {
                    return Ok(());
                }
            }
            self.frames(&mut visit)?;
            self.begun = BegunChunk::of(&self.bytes[self.from..self.to]);
            if self.begun.is_none() {
                return Ok(());
            }
            self.from += FRAME_HEAD;
        }
    }

    fn reserve(&mut self) {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
            if self.bytes.len() != self.default_bytes {
                // A long frame needed more, and that is over; or much comes at once.
                self.bytes = vec![0; self.default_bytes];
            }
        } else if self.bytes.len() - self.to < self.default_bytes / 4 {
            self.bytes.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
            if self.bytes.len() - self.to < self.default_bytes / 4 {
                // A frame is at most frame_max long, so this ends.
                self.bytes.resize(self.bytes.len() * 2, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests;
