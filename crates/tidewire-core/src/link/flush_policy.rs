//! The write size of a link: how much of its queue makes one write.

use tidewire_proto::generated::limits;

/// How much makes one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Most bytes of one write, as [`write_bytes`](Self::write_bytes) counts them.
    pub bytes: usize,
    /// Frames that are written although others might follow in the same round of an event loop.
    pub frames: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Self { bytes: limits::LINK_BATCH_BYTES.default as usize, frames: limits::LINK_BATCH_FRAMES.default as usize }
    }
}

impl Batch {
    /// Most bytes of one write, including the headers of chunks: as many chunks as their payloads
    /// fill make one write.
    pub fn write_bytes(&self) -> usize {
        self.bytes + self.bytes / 64
    }
}
