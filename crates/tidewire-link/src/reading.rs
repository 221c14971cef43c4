use std::io;

use tidewire_proto::wire::{self, Frame, WireError};

/// Room for four of the longest chunks that are usual, with what comes before each.
const READ_BYTES: usize = 272 * 1024;

/// Bytes that were read and are not yet frames.
pub struct Reading {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
    frame_max: usize,
}

/// How much was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// Nothing: the other side has closed.
    Closed,
    /// All that there was.
    All,
    /// As much as there was room for.
    Some,
}

impl Reading {
    pub fn new(frame_max: usize) -> Self {
        Self { bytes: vec![0; READ_BYTES], from: 0, to: 0, frame_max }
    }

    /// Reads what there is.
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing, or whatever reading fails with.
    pub fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<Filled> {
        self.make_room();
        let room = &mut self.bytes[self.to..];
        let most = room.len();
        let count = read(room)?;
        self.to += count;
        Ok(match count {
            0 => Filled::Closed,
            count if count < most => Filled::All,
            _ => Filled::Some,
        })
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

    fn make_room(&mut self) {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
            if self.bytes.len() > READ_BYTES {
                // A long frame needed more; that is over.
                self.bytes = vec![0; READ_BYTES];
            }
        } else if self.bytes.len() - self.to < READ_BYTES / 4 {
            self.bytes.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
            if self.bytes.len() - self.to < READ_BYTES / 4 {
                // A frame is at most frame_max long, so this ends.
                self.bytes.resize(self.bytes.len() * 2, 0);
            }
        }
    }
}
