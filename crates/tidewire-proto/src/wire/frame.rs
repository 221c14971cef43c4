//! Frames of a link: a borrowed view of the received bytes, and the writer of new frames.

use alloc::vec::Vec;

use super::{Flags, Kind, WireError};
use crate::generated::limits;

/// Bytes before the head.
pub const FRAME_HEAD: usize = 16;
/// Bytes of the length field, which it does not count itself.
pub const LENGTH_BYTES: usize = 4;

/// The least value of a length field.
const FIXED: usize = FRAME_HEAD - LENGTH_BYTES;
const KIND_AT: usize = 4;
pub(super) const FLAGS_AT: usize = 5;
const ID_AT: usize = 8;

/// One frame, borrowed from the bytes that it was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The kind.
    pub kind: Kind,
    /// Its lane, and the marks of its payload.
    pub flags: Flags,
    /// The exchange that it belongs to, or 0.
    pub id: u64,
    /// The head, which the hub reads.
    pub head: &'a [u8],
    /// The payload, which the two ends read.
    pub payload: &'a [u8],
    /// All bytes of the frame.
    pub bytes: &'a [u8],
}

/// Reads the frame at the front of `bytes`, or answers None if it is not all there. Its length is
/// `frame.bytes.len()`.
///
/// The head and the payload are not looked into: [`Frame::check`] does that. A `length_max` above
/// the greatest `link_frame_bytes` counts as that, so that a length never exceeds what 32 bits can
/// address.
///
/// # Errors
/// [`WireError`] if no frame can begin so. A length is refused with its fourth byte and the rest
/// with the 16th, so that nobody waits for a frame that would be refused.
pub fn read(bytes: &[u8], length_max: usize) -> Result<Option<Frame<'_>>, WireError> {
    let Some(&length) = bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes(length) as usize;
    let length_max = length_max.min(limits::LINK_FRAME_BYTES.max as usize);
    if length > length_max {
        return Err(WireError::FrameTooLong { bytes: length as u64, max: length_max as u64 });
    }
    if length < FIXED {
        return Err(WireError::FrameTooShort { bytes: length as u64 });
    }
    let Some(&fixed) = bytes.first_chunk::<FRAME_HEAD>() else { return Ok(None) };
    let kind = Kind::of(fixed[KIND_AT])?;
    let flags = Flags::of(fixed[FLAGS_AT])?;
    let head_length = usize::from(u16::from_le_bytes([fixed[6], fixed[7]]));
    if length < FIXED + head_length {
        return Err(WireError::FrameTooShort { bytes: length as u64 });
    }
    if head_length as u64 > limits::LINK_HEAD_BYTES.default {
        return Err(WireError::Limit { name: "link_head_bytes", max: limits::LINK_HEAD_BYTES.default });
    }
    let Some(bytes) = bytes.get(..LENGTH_BYTES + length) else { return Ok(None) };
    let id = u64::from_le_bytes([fixed[8], fixed[9], fixed[10], fixed[11], fixed[12], fixed[13], fixed[14], fixed[15]]);
    let (head, payload) = bytes[FRAME_HEAD..].split_at(head_length);
    Ok(Some(Frame { kind, flags, id, head, payload, bytes }))
}

/// A chunk that has not all come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BegunChunk {
    /// The flags of the whole chunk.
    pub flags: Flags,
    /// The exchange that it belongs to.
    pub id: u64,
    /// Bytes of its payload that have not been taken.
    pub left: usize,
}

impl BegunChunk {
    /// The chunk at the front of `bytes`, for which [`read`] answered None. Its payload follows the
    /// first [`FRAME_HEAD`] bytes. None for another frame, or if too few bytes have arrived.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let fixed = bytes.first_chunk::<FRAME_HEAD>()?;
        if fixed[KIND_AT] != Kind::Chunk as u8 || fixed[6..ID_AT] != [0, 0] {
            return None;
        }
        let length = u32::from_le_bytes([fixed[0], fixed[1], fixed[2], fixed[3]]) as usize;
        let id = u64::from_le_bytes(*fixed[ID_AT..].first_chunk()?);
        Some(Self { flags: Flags::of(fixed[5]).ok()?, id, left: length.checked_sub(FIXED)? })
    }

    /// Takes so much of its payload, and answers with the flags that this has as a chunk of its
    /// own.
    pub fn take(&mut self, count: usize) -> Flags {
        self.left -= count;
        self.flags.with_more(self.left > 0 || self.flags.more())
    }
}

/// Writes a frame to the end of `out`: its head by a function, then its payload.
///
/// # Errors
/// [`WireError::Limit`] if the head is too long, [`WireError::FrameTooLong`] if the frame exceeds
/// the greatest `link_frame_bytes`, or the error of writing the head. Nothing is written then.
pub fn write(
    out: &mut Vec<u8>,
    kind: Kind,
    flags: Flags,
    id: u64,
    head: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>,
    payload: &[u8],
) -> Result<(), WireError> {
    begin(out, kind, flags, id, head, payload.len())?;
    out.extend_from_slice(payload);
    Ok(())
}

/// Writes the beginning of a frame whose payload will have so many bytes.
///
/// # Errors
/// As for [`write()`].
pub fn begin(
    out: &mut Vec<u8>,
    kind: Kind,
    flags: Flags,
    id: u64,
    head: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>,
    payload_bytes: usize,
) -> Result<(), WireError> {
    let at = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, kind as u8, flags.byte(), 0, 0]);
    out.extend_from_slice(&id.to_le_bytes());
    let begun = head(out).and_then(|()| finish_head(out, at, payload_bytes));
    if begun.is_err() {
        out.truncate(at);
    }
    begun
}

/// Sets the id of the frame at the front of `bytes`.
///
/// # Panics
/// If `bytes` are fewer than [`FRAME_HEAD`].
pub fn set_id(bytes: &mut [u8], id: u64) {
    bytes[ID_AT..FRAME_HEAD].copy_from_slice(&id.to_le_bytes());
}

/// Sets the origin and the target subscription of the CALL or PUBLISH at the front of `bytes`.
///
/// # Panics
/// If `bytes` are too few for that. With debug assertions, also if the frame is of another kind.
pub fn set_route(bytes: &mut [u8], origin: u32, to: u64) {
    debug_assert!(
        [Kind::Call as u8, Kind::Publish as u8].contains(&bytes[KIND_AT]),
        "only CALL and PUBLISH have a route"
    );
    bytes[FRAME_HEAD..FRAME_HEAD + 4].copy_from_slice(&origin.to_le_bytes());
    bytes[FRAME_HEAD + 4..FRAME_HEAD + 12].copy_from_slice(&to.to_le_bytes());
}

fn finish_head(out: &mut [u8], at: usize, payload: usize) -> Result<(), WireError> {
    let head = out.len() - at - FRAME_HEAD;
    let too_long = WireError::Limit { name: "link_head_bytes", max: limits::LINK_HEAD_BYTES.default };
    let head_length = u16::try_from(head).ok().filter(|&bytes| u64::from(bytes) <= limits::LINK_HEAD_BYTES.default);
    let Some(head_length) = head_length else { return Err(too_long) };
    let length = FIXED + head + payload;
    let Some(length) = u32::try_from(length).ok().filter(|&bytes| limits::LINK_FRAME_BYTES.max >= u64::from(bytes))
    else {
        return Err(WireError::FrameTooLong { bytes: length as u64, max: limits::LINK_FRAME_BYTES.max });
    };
    out[at..at + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    out[at + 6..at + 8].copy_from_slice(&head_length.to_le_bytes());
    Ok(())
}
