//! The form of a value that travels: its blob, which is a head alone or a header, a head and
//! buffers, and its extensions. It is described in `spec/values.md`.

use alloc::vec::Vec;
use core::ops::Range;

/// First byte of a blob with buffers; no value begins with it.
const MARK: u8 = 0xc1;
const VERSION: u8 = 1;
/// Bytes of the header, without the lengths of the buffers.
pub const HEADER_BYTES: usize = 16;
/// Buffers begin at multiples of this.
pub const ALIGNMENT: usize = 8;

/// The numbers of the extensions.
#[allow(missing_docs, reason = "the table in the specification describes each")]
pub mod extension {
    pub const TIMESTAMP: i8 = -1;
    pub const TUPLE: i8 = 1;
    pub const SET: i8 = 2;
    pub const FROZENSET: i8 = 3;
    pub const BYTEARRAY: i8 = 4;
    pub const BUFFER: i8 = 5;
    pub const BYTEARRAY_BUFFER: i8 = 6;
    pub const MOMENT: i8 = 7;
    pub const LOCAL_TIME: i8 = 8;
    pub const DATE: i8 = 9;
    pub const TIME: i8 = 10;
    pub const DURATION: i8 = 11;
    pub const DECIMAL: i8 = 12;
    pub const UUID: i8 = 13;
    pub const COMPLEX: i8 = 15;
    pub const RECORD: i8 = 16;
    pub const ENUM: i8 = 17;
    pub const ERROR: i8 = 18;
    pub const ARRAY: i8 = 19;
    pub const SCALAR: i8 = 20;
    pub const REFERENCE: i8 = 21;

    /// True if the content of an extension is a value.
    #[must_use]
    pub const fn holds_values(code: i8) -> bool {
        matches!(code, TUPLE | SET | FROZENSET | RECORD | ENUM | ERROR | ARRAY | SCALAR | REFERENCE)
    }
}

/// Where the head and the buffers of a blob are.
#[derive(Debug)]
pub struct Layout {
    /// The head.
    pub head: Range<usize>,
    /// The buffers, in their order.
    pub parts: Vec<Range<usize>>,
}

impl Layout {
    /// Reads the layout of a blob of `length` bytes. `start` holds the blob up to the
    /// [end of the head](Self::head_end), or further.
    ///
    /// # Errors
    /// The problem, if it is no blob.
    pub fn of(start: &[u8], length: usize) -> Result<Self, &'static str> {
        if start.first() != Some(&MARK) {
            return Ok(Self { head: 0..length, parts: Vec::new() });
        }
        if start.len() < HEADER_BYTES {
            return Err("it ends inside of the header");
        }
        if start[1..4] != [VERSION, 0, 0] {
            return Err("it has a version of the form that is not known here");
        }
        let table = table_end(start);
        if table == HEADER_BYTES || table > start.len() {
            return Err("its number of buffers is wrong");
        }
        let mut at = table;
        let head = take(&mut at, number(start, 8), start.len()).ok_or("its head is cut off")?;
        let lengths = (HEADER_BYTES..table).step_by(8).map(|offset| number(start, offset));
        let mut parts = Vec::with_capacity(lengths.len());
        for bytes in lengths {
            let skipped = gap(at);
            let skipped = take(&mut at, skipped, length).ok_or("a buffer is cut off")?;
            if start.get(skipped).is_some_and(|gap| gap.iter().any(|byte| *byte != 0)) {
                return Err("the gap before a buffer is not zero");
            }
            parts.push(take(&mut at, bytes, length).ok_or("a buffer is cut off")?);
        }
        if at == length { Ok(Self { head, parts }) } else { Err("there are bytes after its end") }
    }

    /// End of the head of a blob of `length` bytes that begins with `start`, which is all of it or
    /// [`HEADER_BYTES`] of it.
    #[must_use]
    pub fn head_end(start: &[u8], length: usize) -> usize {
        if start.len() < HEADER_BYTES || start[0] != MARK {
            return length;
        }
        table_end(start).saturating_add(number(start, 8)).min(length)
    }
}

/// The header and the head, up to where the first of the buffers with these lengths begins.
pub fn header(head: &[u8], lengths: impl ExactSizeIterator<Item = usize>) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES + 8 * lengths.len() + head.len() + ALIGNMENT);
    header.extend_from_slice(&[MARK, VERSION, 0, 0]);
    header.extend_from_slice(&(lengths.len() as u32).to_be_bytes());
    header.extend_from_slice(&(head.len() as u64).to_be_bytes());
    for length in lengths {
        header.extend_from_slice(&(length as u64).to_be_bytes());
    }
    header.extend_from_slice(head);
    header.resize(header.len() + gap(header.len()), 0);
    header
}

/// Padding after so many bytes, up to where the next buffer may begin.
#[must_use]
pub const fn gap(bytes: usize) -> usize {
    bytes.wrapping_neg() % ALIGNMENT
}

fn table_end(start: &[u8]) -> usize {
    let count = u32::from_be_bytes([start[4], start[5], start[6], start[7]]) as usize;
    count.checked_mul(8).map_or(usize::MAX, |bytes| bytes.saturating_add(HEADER_BYTES))
}

fn number(bytes: &[u8], at: usize) -> usize {
    let number = bytes[at..at + 8].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn take(at: &mut usize, bytes: usize, end: usize) -> Option<Range<usize>> {
    let start = *at;
    *at = start.checked_add(bytes).filter(|stop| *stop <= end)?;
    Some(start..*at)
}
