//! The records of a log: a checksum, a length, a kind, a body.
//!
//! ```text
//! record    crc u32 | length of the body u32 | kind u8 | body
//! segment   magic 8 | version u32 | id u64 | base u64 | created_us u64            the first record of a file
//! group     id u64 | offset u64 | synced u64 | first u64 | time_us u64 | count u32 | bytes u32     begins each write; `bytes` follow it
//! event     sequence u64 | time_us u64 | flags u8 | subject | [key] [id] [headers] [due u64] [expires u64] [origin u64] [beat u64] | payload
//! ```
//!
//! All numbers are little-endian. The checksum covers the id of the segment and the offset in the
//! file as well. So a record that was copied to another place, into a payload for example, is no
//! valid record there. No record is all zeros at its head: zeros are space that was not written
//! yet.

use crc32fast::Hasher;

/// Bytes before a body.
pub const HEAD: usize = 9;
/// Bytes of a segment record.
pub const SEGMENT_BYTES: usize = HEAD + 36;
/// Bytes of a group record.
pub const GROUP_BYTES: usize = HEAD + 48;
/// The longest body that is believed.
pub const BODY_BYTES_MAX: usize = 64 << 20;
/// The version of this format.
pub const VERSION: u32 = 2;

const MAGIC: &[u8; 8] = b"TIDEWIRE";

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The head of a file.
    Segment = 1,
    /// The head of one write.
    Group = 2,
    /// A message of a stream.
    Event = 3,
    /// A change of the state of a storage backend.
    Change = 4,
}

impl Kind {
    const fn of(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Segment),
            2 => Some(Self::Group),
            3 => Some(Self::Event),
            4 => Some(Self::Change),
            _ => None,
        }
    }
}

/// The result of reading a record at an offset of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A whole record.
    Record {
        /// The kind.
        kind: Kind,
        /// The body.
        body: &'a [u8],
        /// How many bytes it takes, its head included.
        length: usize,
    },
    /// Nothing: the head is zeros.
    Empty,
    /// A head, or the beginning of one, whose body reaches beyond the given bytes. At least so many
    /// are needed.
    Short(usize),
    /// No record.
    Bad,
}

/// Appends a record that will lie at `offset` of the segment `id`.
pub fn put(out: &mut Vec<u8>, id: u64, offset: u64, kind: Kind, body: impl FnOnce(&mut Vec<u8>)) {
    let head = out.len();
    out.extend_from_slice(&[0; HEAD]);
    body(out);
    let length = u32::try_from(out.len() - head - HEAD).expect("a body has at most 64 MiB");
    let crc = checksum(id, offset, kind as u8, &out[head + HEAD..]);
    out[head..head + 4].copy_from_slice(&crc.to_le_bytes());
    out[head + 4..head + 8].copy_from_slice(&length.to_le_bytes());
    out[head + 8] = kind as u8;
}

/// Reads the record at the beginning of `bytes`, which lies at `offset` of the segment `id`.
pub fn parse(bytes: &[u8], id: u64, offset: u64) -> Parsed<'_> {
    let Some(head) = bytes.get(..HEAD) else {
        return if bytes.iter().all(|byte| *byte == 0) { Parsed::Empty } else { Parsed::Short(HEAD) };
    };
    if head == [0; HEAD] {
        return Parsed::Empty;
    }
    let length = u32_at(head, 4) as usize;
    let Some(kind) = Kind::of(head[8]).filter(|_| length <= BODY_BYTES_MAX) else { return Parsed::Bad };
    let Some(body) = bytes.get(HEAD..HEAD + length) else { return Parsed::Short(HEAD + length) };
    if u32_at(head, 0) != checksum(id, offset, kind as u8, body) {
        return Parsed::Bad;
    }
    Parsed::Record { kind, body, length: HEAD + length }
}

fn checksum(id: u64, offset: u64, kind: u8, body: &[u8]) -> u32 {
    let mut salt = [0; 17];
    salt[..8].copy_from_slice(&id.to_le_bytes());
    salt[8..16].copy_from_slice(&offset.to_le_bytes());
    salt[16] = kind;
    let mut hasher = Hasher::new();
    hasher.update(&salt);
    hasher.update(body);
    hasher.finalize()
}

/// The head of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Drawn when it was made; no two segments share one.
    pub id: u64,
    /// The sequence of its first event, or its number.
    pub base: u64,
    /// When it was made.
    pub created_us: u64,
}

impl Segment {
    /// The bytes at the beginning of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_BYTES);
        put(&mut out, 0, 0, Kind::Segment, |out| {
            out.extend_from_slice(MAGIC);
            out.extend_from_slice(&VERSION.to_le_bytes());
            for number in [self.id, self.base, self.created_us] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        });
        out
    }

    /// Reads the beginning of a file. The error is the version of a file that another version of
    /// this program wrote, if it is that.
    ///
    /// # Errors
    ///
    /// `None` for a file that is no segment.
    pub fn decode(bytes: &[u8]) -> Result<Self, Option<u32>> {
        let Parsed::Record { kind: Kind::Segment, body, .. } = parse(bytes, 0, 0) else { return Err(None) };
        if body.len() < 12 || &body[..8] != MAGIC {
            return Err(None);
        }
        match u32_at(body, 8) {
            VERSION if body.len() == 36 => {
                Ok(Self { id: u64_at(body, 12), base: u64_at(body, 20), created_us: u64_at(body, 28) })
            }
            VERSION => Err(None),
            other => Err(Some(other)),
        }
    }
}

/// The head of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The segment that it lies in.
    pub id: u64,
    /// Where in it.
    pub offset: u64,
    /// Everything before this place was synced when the group was written.
    pub synced: u64,
    /// The sequence of the first event, or the next one if there is none.
    pub first: u64,
    /// When it was written.
    pub time_us: u64,
    /// How many records follow.
    pub count: u32,
    /// How many bytes they take.
    pub bytes: u32,
}

impl Group {
    /// Writes it in front of its records. `out` begins with [`GROUP_BYTES`] bytes for it.
    pub fn write_to(&self, out: &mut [u8]) {
        let mut head = Vec::with_capacity(GROUP_BYTES);
        put(&mut head, self.id, self.offset, Kind::Group, |out| {
            for number in [self.id, self.offset, self.synced, self.first, self.time_us] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.extend_from_slice(&self.count.to_le_bytes());
            out.extend_from_slice(&self.bytes.to_le_bytes());
        });
        out[..GROUP_BYTES].copy_from_slice(&head);
    }

    /// Reads a body. None if it is not where it says.
    pub fn decode(body: &[u8], id: u64, offset: u64) -> Option<Self> {
        if body.len() != GROUP_BYTES - HEAD || u64_at(body, 0) != id || u64_at(body, 8) != offset {
            return None;
        }
        let (synced, first, time_us) = (u64_at(body, 16), u64_at(body, 24), u64_at(body, 32));
        Some(Self { id, offset, synced, first, time_us, count: u32_at(body, 40), bytes: u32_at(body, 44) })
    }
}

/// A message as it lies in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its place in the stream.
    pub sequence: u64,
    /// When it was stored.
    pub time_us: u64,
    /// Where it was published.
    pub subject: &'a str,
    /// The key of the event.
    pub key: Option<&'a str>,
    /// Its idempotency key.
    pub id: Option<&'a str>,
    /// Further headers, as [`put_headers`] wrote them.
    pub headers: &'a [u8],
    /// Delivered then, under another sequence; hidden itself.
    pub due_us: Option<u64>,
    /// Not delivered from then on.
    pub expires_us: Option<u64>,
    /// The delayed message that became this one.
    pub origin: Option<u64>,
    /// A beat of the schedule that its first header names: beats up to this time are over.
    pub beat_us: Option<u64>,
    /// The value.
    pub payload: &'a [u8],
}

const KEY: u8 = 1;
const ID: u8 = 2;
const HEADERS: u8 = 4;
const DUE: u8 = 8;
const EXPIRES: u8 = 16;
const ORIGIN: u8 = 32;
const BEAT: u8 = 64;

impl<'a> Event<'a> {
    /// Appends the body.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.time_us.to_le_bytes());
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        out.push(
            flag(self.key.is_some(), KEY)
                | flag(self.id.is_some(), ID)
                | flag(!self.headers.is_empty(), HEADERS)
                | flag(self.due_us.is_some(), DUE)
                | flag(self.expires_us.is_some(), EXPIRES)
                | flag(self.origin.is_some(), ORIGIN)
                | flag(self.beat_us.is_some(), BEAT),
        );
        put_short(out, self.subject);
        [self.key, self.id].into_iter().flatten().for_each(|text| put_short(out, text));
        if !self.headers.is_empty() {
            out.extend_from_slice(&(self.headers.len() as u32).to_le_bytes());
            out.extend_from_slice(self.headers);
        }
        for number in [self.due_us, self.expires_us, self.origin, self.beat_us].into_iter().flatten() {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(self.payload);
    }

    /// Reads a body whose checksum was right. None if it is not one of an event nevertheless.
    pub fn decode(body: &'a [u8]) -> Option<Self> {
        let mut rest = RecordTail(body);
        let (sequence, time_us, flags) = (rest.u64()?, rest.u64()?, rest.bytes(1)?[0]);
        let subject = rest.short()?;
        let key = if flags & KEY != 0 { Some(rest.short()?) } else { None };
        let id = if flags & ID != 0 { Some(rest.short()?) } else { None };
        let headers = if flags & HEADERS != 0 {
            let length = u32::from_le_bytes(rest.bytes(4)?.try_into().ok()?);
            rest.bytes(length as usize)?
        } else {
            &[]
        };
        let due_us = if flags & DUE != 0 { Some(rest.u64()?) } else { None };
        let expires_us = if flags & EXPIRES != 0 { Some(rest.u64()?) } else { None };
        let origin = if flags & ORIGIN != 0 { Some(rest.u64()?) } else { None };
        let beat_us = if flags & BEAT != 0 { Some(rest.u64()?) } else { None };
        Some(Self {
            sequence,
            time_us,
            subject,
            key,
            id,
            headers,
            due_us,
            expires_us,
            origin,
            beat_us,
            payload: rest.0,
        })
    }
}

/// Appends headers: each name and value with its length.
pub fn put_headers(out: &mut Vec<u8>, headers: &[(String, String)]) {
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
}

/// Reads what [`put_headers`] wrote. None if it did not.
pub fn headers_of(bytes: &[u8]) -> Option<Vec<(String, String)>> {
    let mut rest = RecordTail(bytes);
    let mut headers = Vec::new();
    while !rest.0.is_empty() {
        headers.push((rest.long()?.to_owned(), rest.long()?.to_owned()));
    }
    Some(headers)
}

fn put_short(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// The unread rest of a record.
struct RecordTail<'a>(&'a [u8]);

impl<'a> RecordTail<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes(8).map(|bytes| u64_at(bytes, 0))
    }

    fn short(&mut self) -> Option<&'a str> {
        let length = u16::from_le_bytes(self.bytes(2)?.try_into().ok()?);
        std::str::from_utf8(self.bytes(length.into())?).ok()
    }

    fn long(&mut self) -> Option<&'a str> {
        let length = u32::from_le_bytes(self.bytes(4)?.try_into().ok()?);
        std::str::from_utf8(self.bytes(length as usize)?).ok()
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
