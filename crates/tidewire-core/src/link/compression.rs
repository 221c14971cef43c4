//! Compression of payloads, as section 11 of `spec/wire.md` defines it: independent LZ4 blocks.

use lz4_flex::block;
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;

use super::outbox::PayloadParts;

/// Bytes of a payload that make one block.
const BLOCK_BYTES: usize = 65_536;
const STATED_BYTES: usize = 8;
const PREFIX_BYTES: usize = 4;
/// The least saving, as a fraction of the bytes compressed so far. Below it, the rest of the
/// payload stays uncompressed.
const SAVED_PART: usize = 8;
const COMPRESSED_MAX: usize = limits::LINK_COMPRESSED_BYTES.default as usize;

/// A payload that has got shorter.
#[derive(Debug, PartialEq, Eq)]
pub struct Packed {
    bytes: Vec<u8>,
    inflated: usize,
}

impl Packed {
    /// Compresses a payload. None: it is too long for that, or would not get shorter by an eighth.
    pub fn of(payload: &dyn PayloadParts) -> Option<Self> {
        let inflated = payload.bytes();
        if inflated > COMPRESSED_MAX {
            return None;
        }
        let mut bytes = (inflated as u64).to_le_bytes().to_vec();
        let mut block_buffer = vec![0; block::get_maximum_output_size(BLOCK_BYTES)];
        let mut gathered = Vec::new();
        let mut at = 0;
        while at < inflated {
            let plain = block_at(payload, at, &mut gathered);
            let count = block::compress_into(plain, &mut block_buffer).ok()?;
            bytes.extend_from_slice(&(count as u32).to_le_bytes());
            bytes.extend_from_slice(&block_buffer[..count]);
            at += plain.len();
            if bytes.len() > at - at / SAVED_PART {
                return None;
            }
        }
        (inflated > 0).then_some(Self { bytes, inflated })
    }

    /// The compressed form.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The compressed form, to be stored.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The length of the payload that it was made of.
    pub fn inflated_bytes(&self) -> usize {
        self.inflated
    }
}

/// A block of a payload: a slice of one piece, or a copy gathered from several pieces.
fn block_at<'a>(payload: &'a dyn PayloadParts, at: usize, gathered: &'a mut Vec<u8>) -> &'a [u8] {
    let length = BLOCK_BYTES.min(payload.bytes() - at);
    let piece = payload.piece(at);
    if piece.len() >= length {
        return &piece[..length];
    }
    gathered.clear();
    while gathered.len() < length {
        let piece = payload.piece(at + gathered.len());
        let count = piece.len().min(length - gathered.len());
        gathered.extend_from_slice(&piece[..count]);
    }
    gathered
}

/// Why a compressed payload is not taken.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub enum Unreadable {
    /// When inflated it would be longer than this side takes.
    #[display("{}", too_long(*bytes, *max))]
    TooLong {
        /// The length that it states.
        bytes: u64,
        /// The most that this side takes.
        max: usize,
    },
    /// The data breaks a rule of the format.
    #[display("the compressed payload (lz4) can't be read: {_0}")]
    Broken(&'static str),
    /// There is no memory for it.
    #[display("the receiver has no memory for {bytes} bytes at present: try again later")]
    NoMemory {
        /// The length that it states.
        bytes: u64,
    },
}

impl Unreadable {
    /// The error that a call fails with.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::TooLong { .. } => ErrorCode::PayloadTooLarge,
            Self::Broken(_) => ErrorCode::WireError,
            Self::NoMemory { .. } => ErrorCode::LimitExceeded,
        }
    }
}

/// The error text for the sender of a payload that is too long for this side.
pub(super) fn too_long(bytes: u64, max: usize) -> String {
    format!("{bytes} bytes are more than payload_bytes={max} of the receiver: send less, or raise the limit there")
}

/// Inflates a compressed payload to the end of `out`: at most `most` bytes.
///
/// # Errors
/// [`Unreadable`]; the bytes added by then are useless.
pub fn inflate(packed: &[u8], most: usize, out: &mut Vec<u8>) -> Result<(), Unreadable> {
    let (mut remaining, bound) = (None, Bound { most, capacity: usize::MAX });
    let used = inflate_blocks(&mut remaining, packed, bound, out)?;
    is_whole(remaining, &packed[used..])
}

/// Bounds of the inflated length of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Bytes that this side takes.
    pub most: usize,
    /// Bytes of capacity at present.
    pub capacity: usize,
}

/// Inflates a payload while its compressed form comes.
#[derive(Debug, Default)]
pub struct Inflater {
    packed: Vec<u8>,
    remaining: Option<usize>,
}

impl Inflater {
    /// The buffer for received compressed bytes.
    pub fn packed(&mut self) -> &mut Vec<u8> {
        &mut self.packed
    }

    /// Bytes of the payload that are missing. None: its length has not been stated.
    pub fn remaining(&self) -> Option<usize> {
        self.remaining
    }

    /// True if [`inflate`](Self::inflate) would make progress or report a fault.
    pub fn is_ready(&self) -> bool {
        match self.remaining {
            None => self.packed.len() >= STATED_BYTES,
            Some(0) => !self.packed.is_empty(),
            Some(remaining) => !matches!(first_block(&self.packed, remaining.min(BLOCK_BYTES)), Ok(None)),
        }
    }

    /// Inflates all whole blocks to the end of `out`. Less than a block of the compressed form
    /// stays.
    ///
    /// # Errors
    /// [`Unreadable`]; the bytes added by then are useless.
    pub fn inflate(&mut self, bound: Bound, out: &mut Vec<u8>) -> Result<(), Unreadable> {
        let used = inflate_blocks(&mut self.remaining, &self.packed, bound, out)?;
        self.packed.drain(..used);
        Ok(())
    }

    /// Nothing more comes.
    ///
    /// # Errors
    /// [`Unreadable`] if something is missing.
    pub fn end(&self) -> Result<(), Unreadable> {
        is_whole(self.remaining, &self.packed)
    }
}

/// Inflates the whole blocks at the beginning of `packed`, and answers how many bytes of it they
/// had.
fn inflate_blocks(
    remaining: &mut Option<usize>,
    packed: &[u8],
    bound: Bound,
    out: &mut Vec<u8>,
) -> Result<usize, Unreadable> {
    let mut rest = packed;
    if remaining.is_none() {
        let Some((stated, after)) = packed.split_first_chunk::<STATED_BYTES>() else { return Ok(0) };
        let stated = stated_length(u64::from_le_bytes(*stated), bound)?;
        if out.try_reserve_exact(stated).is_err() {
            return Err(Unreadable::NoMemory { bytes: stated as u64 });
        }
        (*remaining, rest) = (Some(stated), after);
    }
    while let Some(missing) = remaining.filter(|missing| *missing > 0) {
        let share = missing.min(BLOCK_BYTES);
        let Some(block) = first_block(rest, share)? else { break };
        inflate_block(block, share, out)?;
        (*remaining, rest) = (Some(missing - share), &rest[PREFIX_BYTES + block.len()..]);
    }
    if *remaining == Some(0) && !rest.is_empty() {
        return Err(Unreadable::Broken("bytes follow its last block"));
    }
    Ok(packed.len() - rest.len())
}

fn is_whole(remaining: Option<usize>, rest: &[u8]) -> Result<(), Unreadable> {
    match remaining {
        None => Err(Unreadable::Broken("it is shorter than the 8 bytes that state its length")),
        Some(0) if rest.is_empty() => Ok(()),
        Some(_) => Err(Unreadable::Broken("it ends before the length that it states is reached")),
    }
}

fn stated_length(stated: u64, bound: Bound) -> Result<usize, Unreadable> {
    if stated > bound.most as u64 {
        return Err(Unreadable::TooLong { bytes: stated, max: bound.most });
    }
    if stated > COMPRESSED_MAX as u64 {
        return Err(Unreadable::Broken("it states more than link_compressed_bytes: send it as it is"));
    }
    if stated > bound.capacity as u64 {
        return Err(Unreadable::NoMemory { bytes: stated });
    }
    Ok(stated as usize)
}

/// The block that `rest` begins with. None: it is not all there.
fn first_block(rest: &[u8], share: usize) -> Result<Option<&[u8]>, Unreadable> {
    let Some((count, rest)) = rest.split_first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
    let count = u32::from_le_bytes(*count) as usize;
    // Even what does not get shorter has no more: a length for each 255 bytes, and the first and
    // the last ones.
    if count > share + share / 255 + 16 {
        return Err(Unreadable::Broken("a block is longer than any that inflates to its share"));
    }
    Ok(rest.get(..count))
}

/// Memory is used block by block, so that a length which is only stated costs addresses.
fn inflate_block(block: &[u8], share: usize, out: &mut Vec<u8>) -> Result<(), Unreadable> {
    let from = out.len();
    out.resize(from + share, 0);
    match block::decompress_into(block, &mut out[from..]) {
        Ok(count) if count == share => Ok(()),
        Ok(_) => Err(Unreadable::Broken("a block inflates to less than its share")),
        Err(block::DecompressError::OutputTooSmall { .. }) => {
            Err(Unreadable::Broken("a block inflates to more than its share"))
        }
        Err(_) => Err(Unreadable::Broken("a block is not LZ4")),
    }
}
