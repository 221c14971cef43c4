//! The blob: a head alone, or a header, a head and buffers. Its form is in `spec/values.md`.

use std::ops::Range;
use std::sync::Arc;

use tidewire_link::{OutgoingPayload, PayloadParts};
use tidewire_proto::generated::limits;

use super::decode_error::DecodeError;
use crate::objects::KeyedReference;

/// First byte of a blob with buffers; no value begins with it.
const MARK: u8 = 0xc1;
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 16;
const ALIGNMENT: usize = 8;

/// A value as it is sent. Its buffers stay where they are, and clones share them.
#[derive(Clone)]
pub(crate) struct Blob {
    pieces: Arc<Vec<Vec<u8>>>,
    bytes: usize,
    /// References in the value, until its receiver is known.
    pub offered: Vec<KeyedReference>,
}

impl Blob {
    /// A head, and the buffers that it refers to.
    pub fn new(head: Vec<u8>, parts: Vec<Vec<u8>>) -> Self {
        if parts.is_empty() {
            return Self { bytes: head.len(), pieces: Arc::new(vec![head]), offered: Vec::new() };
        }
        let mut bytes = 0;
        let mut pieces = Vec::with_capacity(2 * parts.len());
        let mut start = header(&head, &parts);
        for part in parts {
            start.resize(start.len() + gap(bytes + start.len()), 0);
            bytes += start.len() + part.len();
            pieces.extend([std::mem::take(&mut start), part]);
        }
        Self { pieces: Arc::new(pieces), bytes, offered: Vec::new() }
    }

    /// All of it in one piece.
    pub fn into_bytes(self) -> Vec<u8> {
        let mut pieces = Arc::unwrap_or_clone(self.pieces);
        if pieces.len() == 1 { pieces.swap_remove(0) } else { pieces.concat() }
    }

    /// Puts a key in the place of another one of the same length, which is in it once.
    pub fn rename(&mut self, from: &str, to: &str) {
        for piece in Arc::make_mut(&mut self.pieces) {
            if let Some(at) = piece.windows(from.len()).position(|part| part == from.as_bytes()) {
                piece[at..at + from.len()].copy_from_slice(to.as_bytes());
                return;
            }
        }
    }

    /// The payload for a link: a short one is copied, a long one is shared until its last chunk is
    /// sent.
    pub fn sending(&mut self) -> OutgoingPayload<'_> {
        if self.bytes > limits::LINK_CHUNK_BYTES.default as usize {
            let empty = Self { pieces: Arc::default(), bytes: 0, offered: Vec::new() };
            return OutgoingPayload::Long(Box::new(std::mem::replace(self, empty)));
        }
        match &self.pieces[..] {
            [] => OutgoingPayload::Short(&[]),
            [one] => OutgoingPayload::Short(one),
            _ => OutgoingPayload::Pieces(self),
        }
    }
}

impl PayloadParts for Blob {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn piece(&self, mut at: usize) -> &[u8] {
        for piece in self.pieces.iter() {
            if at < piece.len() {
                return &piece[at..];
            }
            at -= piece.len();
        }
        &[]
    }
}

/// Where the head and the buffers of a blob are.
pub(crate) struct Layout {
    pub head: Range<usize>,
    pub parts: Vec<Range<usize>>,
}

impl Layout {
    /// Finds them.
    pub fn of(blob: &[u8]) -> Result<Self, DecodeError> {
        if blob.first() != Some(&MARK) {
            return Ok(Self { head: 0..blob.len(), parts: Vec::new() });
        }
        Self::parse(blob).map_err(|problem| DecodeError::malformed(problem, 0))
    }

    fn parse(blob: &[u8]) -> Result<Self, &'static str> {
        if blob.len() < HEADER_BYTES {
            return Err("it ends inside of the header");
        }
        if blob[1..4] != [VERSION, 0, 0] {
            return Err("it has a version of the form that is not known here");
        }
        let count = u32::from_be_bytes([blob[4], blob[5], blob[6], blob[7]]) as usize;
        let table_end = count.checked_mul(8).map_or(usize::MAX, |bytes| bytes.saturating_add(HEADER_BYTES));
        if count == 0 || table_end > blob.len() {
            return Err("its number of buffers is wrong");
        }
        let mut at = table_end;
        let head = take(&mut at, length(blob, 8), blob.len()).ok_or("its head is longer than the whole")?;
        let mut parts = Vec::with_capacity(count);
        for number in 0..count {
            let skipped = gap(at);
            let gaps = take(&mut at, skipped, blob.len()).ok_or("it ends before its last buffer")?;
            if blob[gaps].iter().any(|byte| *byte != 0) {
                return Err("the gap before a buffer is not zero");
            }
            let bytes = length(blob, HEADER_BYTES + 8 * number);
            parts.push(take(&mut at, bytes, blob.len()).ok_or("it ends before its last buffer")?);
        }
        if at == blob.len() { Ok(Self { head, parts }) } else { Err("bytes follow its last buffer") }
    }
}

fn header(head: &[u8], parts: &[Vec<u8>]) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES + 8 * parts.len() + head.len() + ALIGNMENT);
    header.extend_from_slice(&[MARK, VERSION, 0, 0]);
    header.extend_from_slice(&(parts.len() as u32).to_be_bytes());
    header.extend_from_slice(&(head.len() as u64).to_be_bytes());
    for part in parts {
        header.extend_from_slice(&(part.len() as u64).to_be_bytes());
    }
    header.extend_from_slice(head);
    header
}

fn gap(at: usize) -> usize {
    at.next_multiple_of(ALIGNMENT) - at
}

fn length(blob: &[u8], at: usize) -> usize {
    let bytes = blob[at..at + 8].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn take(at: &mut usize, bytes: usize, end: usize) -> Option<Range<usize>> {
    let start = *at;
    let stop = start.checked_add(bytes).filter(|stop| *stop <= end)?;
    *at = stop;
    Some(start..stop)
}
