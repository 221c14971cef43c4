//! Locations of payloads in shared memory, as section 12 of `spec/wire.md` describes them.

use alloc::vec::Vec;

use super::flags::PLACED;
use super::frame::{FLAGS_AT, LENGTH_BYTES};
use super::head_reader::HeadReader;
use super::{Frame, Kind, WireError, write};

/// Bytes of a place on the wire.
pub const PLACE_BYTES: usize = 32;

/// Bytes of the length that the first frame of a long payload states.
const LENGTH_OF_WHOLE: usize = 8;

/// Where a payload lies in the memory that processes of one machine share: section 12 of
/// `spec/wire.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryLocation {
    /// The process that keeps it.
    pub process: u32,
    /// The number of the file there.
    pub file: u32,
    /// Where in the file its mark begins; the payload follows.
    pub at: u64,
    /// Bytes in front of the payload that are there as long as the payload is.
    pub mark: [u8; 16],
}

impl MemoryLocation {
    /// Writes it to the end of `out`.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.process.to_le_bytes());
        out.extend_from_slice(&self.file.to_le_bytes());
        out.extend_from_slice(&self.at.to_le_bytes());
        out.extend_from_slice(&self.mark);
    }

    pub(super) fn of(pieces: &mut HeadReader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            process: pieces.u32("the process of the place")?,
            file: pieces.u32("the file of the place")?,
            at: pieces.u64("where the place begins")?,
            mark: pieces.array("the mark of the place")?,
        })
    }
}

/// Sets the location of a long payload in its first frame, which is all of `frame`.
///
/// # Panics
/// If `frame` is shorter than the least of its kind.
pub fn set_place(frame: &mut Vec<u8>, place: &MemoryLocation) {
    frame[FLAGS_AT] |= PLACED;
    place.put(frame);
    let length = (frame.len() - LENGTH_BYTES) as u32;
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
}

impl Frame<'_> {
    /// True if its payload lies in shared memory. PLACED counts only together with MORE, and only
    /// for some kinds.
    pub fn is_placed(&self) -> bool {
        self.flags.placed() && self.flags.more() && matches!(self.kind, Kind::Call | Kind::Reply | Kind::Item)
    }

    /// The same frame as one whose payload comes in chunks.
    pub fn unplaced(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes.len());
        let head = |out: &mut Vec<u8>| {
            out.extend_from_slice(self.head);
            Ok(())
        };
        let length = &self.payload[..self.payload.len().min(LENGTH_OF_WHOLE)];
        let written = write(&mut out, self.kind, self.flags.with_placed(false), self.id, head, length);
        debug_assert!(written.is_ok(), "a part of a frame is short enough for one");
        out
    }

    /// The length of a payload that continues in other frames or in shared memory, as its first
    /// frame states it, and its location if it is placed.
    ///
    /// # Errors
    /// [`WireError`] if the frame does not state exactly this.
    pub fn stated(&self) -> Result<(u64, Option<MemoryLocation>), WireError> {
        let mut pieces = HeadReader::new(self.kind.name(), self.payload);
        let bytes = pieces.u64("the length of the whole")?;
        let place = if self.is_placed() { Some(self.place(&mut pieces)?) } else { None };
        pieces.end()?;
        Ok((bytes, place))
    }

    fn place(&self, pieces: &mut HeadReader<'_>) -> Result<MemoryLocation, WireError> {
        if self.flags.compressed() {
            let fix = "clear this flag: what is PLACED is not compressed";
            return Err(WireError::NotAllowed { kind: self.kind.name(), field: "COMPRESSED", value: 1, fix });
        }
        MemoryLocation::of(pieces)
    }
}
