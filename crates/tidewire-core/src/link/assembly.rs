//! Assembly of long payloads from chunks.

mod inflate;

use std::collections::BTreeMap;

use tidewire_proto::generated::limits;
use tidewire_proto::wire::{Flags, Frame, Kind, MemoryLocation, WireError};

use super::compression::Inflater;
pub use inflate::{Inflated, Inflating};

/// Where a payload may begin, so that numbers in it can be used where they are.
const ALIGN: usize = 16;

/// Most that is read of a compressed form before it is inflated.
const PACKED_BYTES: usize = 65_536;

/// A message: the head and the payload of a frame, and of what followed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The kind of its frame.
    pub kind: Kind,
    /// The flags of its first frame.
    pub flags: Flags,
    /// The exchange.
    pub id: u64,
    bytes: Vec<u8>,
    head: usize,
    payload_at: usize,
}

impl Message {
    /// A frame whose payload is all there.
    pub fn whole(frame: &Frame<'_>) -> Self {
        let mut message = Self::begun(frame, Vec::with_capacity(aligned(frame.head.len()) + frame.payload.len()));
        message.bytes.extend_from_slice(frame.payload);
        message
    }

    /// The head.
    pub fn head(&self) -> &[u8] {
        &self.bytes[..self.head]
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[self.payload_at..]
    }

    /// The memory that holds it, and where in it the payload begins: it goes on to the end.
    pub fn into_payload(self) -> (Vec<u8>, usize) {
        (self.bytes, self.payload_at)
    }

    /// Takes the payload out, as [`into_payload`](Self::into_payload) gives it. The head stays,
    /// with an empty payload.
    pub fn take_payload(&mut self) -> (Vec<u8>, usize) {
        let head = self.bytes[..self.head].to_vec();
        let begin = std::mem::replace(&mut self.payload_at, head.len());
        (std::mem::replace(&mut self.bytes, head), begin)
    }

    fn begun(frame: &Frame<'_>, mut bytes: Vec<u8>) -> Self {
        bytes.extend_from_slice(frame.head);
        bytes.resize(aligned(frame.head.len()), 0);
        let (head, payload_at) = (frame.head.len(), bytes.len());
        Self { kind: frame.kind, flags: frame.flags.with_more(false), id: frame.id, bytes, head, payload_at }
    }
}

fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}

/// The id of an exchange, and whether it is the side that answers which sends.
type Key = (u64, bool);

struct Part {
    message: Message,
    /// The inflater, if the payload is compressed.
    inflater: Option<Inflater>,
    /// Bytes that come.
    total: usize,
    /// Bytes that have come.
    received: usize,
    /// Bytes that it counts among those under way.
    counted: usize,
    /// Received since the sender was last asked for more.
    unasked: usize,
    /// Bytes that the sender may have sent by now.
    allowed: usize,
    /// The payload lies in shared memory, and is not sent.
    placed: bool,
}

impl Part {
    fn new(mut message: Message, total: usize) -> Self {
        let inflater = message.flags.compressed().then(Inflater::default);
        message.flags = message.flags.with_compressed(false);
        let allowed = limits::LINK_WINDOW_BYTES.default as usize;
        Self { message, inflater, total, received: 0, counted: total, unasked: 0, allowed, placed: false }
    }

    /// The buffer for received bytes.
    fn sink(&mut self) -> &mut Vec<u8> {
        match &mut self.inflater {
            Some(inflater) => inflater.packed(),
            None => &mut self.message.bytes,
        }
    }

    /// Bytes that have not come.
    fn remaining(&self) -> usize {
        self.total - self.received
    }

    /// Bytes to ask for now. Never more than the rest: a surplus would count for the next payload
    /// of the exchange.
    fn asks(&mut self) -> usize {
        if self.unasked < limits::LINK_WINDOW_BYTES.default as usize / 2 {
            return 0;
        }
        // A published one is the only one of its exchange, and its hub collects what several
        // receivers ask for.
        let rest =
            if self.message.kind == Kind::Publish { usize::MAX } else { self.total.saturating_sub(self.allowed) };
        let asks = std::mem::take(&mut self.unasked).min(rest);
        self.allowed += asks;
        asks
    }
}

/// The effect of a frame on a payload.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// The payload is complete.
    Whole(Message),
    /// More is to come.
    More,
    /// More is to come, and the sender may be asked for so many further bytes.
    Ask(u32),
    /// The payload lies in shared memory; [`Assemblies::lend`] gives the memory to read it into.
    Placed(MemoryLocation, usize),
    /// The payload is longer than this side takes. Its further chunks are skipped.
    TooLong {
        /// The length that the sender stated.
        bytes: u64,
    },
    /// Too many other payloads are under way to take this one. Its further chunks are skipped.
    TooMany {
        /// The length that the sender stated.
        bytes: u64,
    },
    /// The frame belongs to an ended exchange.
    Skipped,
}

/// The long payloads that are under way on one link.
pub struct Assemblies {
    parts: BTreeMap<Key, Part>,
    payload_max: usize,
    bytes: usize,
    /// The part of `bytes` that belongs to compressed payloads: they cost their sender next to
    /// nothing.
    inflated_bytes: usize,
    /// Compressed data that must be inflated before another frame is taken.
    packed: Option<Inflating>,
    /// The long payload that is being inflated outside of the parts, and the bytes that it counts.
    away: Option<(Key, usize)>,
}

impl Assemblies {
    /// Takes payloads of at most `payload_max` bytes. All that are under way at once may state four
    /// times as much, those of them that are compressed no more than one of the longest.
    pub fn new(payload_max: usize) -> Self {
        Self { parts: BTreeMap::new(), payload_max, bytes: 0, inflated_bytes: 0, packed: None, away: None }
    }

    /// Takes a frame with a payload. If that is compressed, [`to_inflate`](Self::to_inflate) has
    /// it.
    ///
    /// # Errors
    /// [`WireError`] if it breaks the rules of long payloads.
    pub fn take(&mut self, frame: &Frame<'_>) -> Result<Progress, WireError> {
        if frame.kind == Kind::Chunk {
            return self.chunk(frame);
        }
        if frame.flags.more() {
            return self.begin(frame);
        }
        if frame.payload.len() > self.payload_max {
            return Ok(Progress::TooLong { bytes: frame.payload.len() as u64 });
        }
        if frame.flags.compressed() {
            self.packed = Some(Inflating::whole(frame, self.payload_max));
            return Ok(Progress::More);
        }
        Ok(Progress::Whole(Message::whole(frame)))
    }

    /// The longest payload that is taken.
    pub fn payload_max(&self) -> usize {
        self.payload_max
    }

    /// Drops the received part of a payload.
    pub fn forget(&mut self, id: u64, answer: bool) {
        let key = (id, answer);
        if let Some(part) = self.parts.remove(&key) {
            self.bytes -= part.counted;
            self.inflated_bytes -= part.length().unwrap_or(0);
        }
        self.forget_away(key);
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        *self = Self::new(self.payload_max);
    }

    /// Bytes that the payloads under way will have; of those that are compressed, as soon as it is
    /// known how much that is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if chunks of some payload are awaited.
    pub fn awaits_chunks(&self) -> bool {
        self.parts.values().any(|part| !part.placed)
    }

    fn begin(&mut self, frame: &Frame<'_>) -> Result<Progress, WireError> {
        let kind = frame.kind.name();
        let (stated, place) = frame.stated()?;
        let key = (frame.id, frame.flags.answer());
        if self.parts.contains_key(&key) {
            return Err(WireError::Unexpected { kind, problem: "the payload before it is not complete" });
        }
        let total = usize::try_from(stated).ok().filter(|&total| total <= self.payload_max);
        let Some(total) = total else { return Ok(Progress::TooLong { bytes: stated }) };
        let mut bytes = Vec::new();
        // The memory is used as the bytes come; a length that is only stated costs addresses.
        let reserved = if frame.flags.compressed() { 0 } else { total };
        if total > self.capacity() || bytes.try_reserve_exact(aligned(frame.head.len()) + reserved).is_err() {
            return Ok(Progress::TooMany { bytes: stated });
        }
        self.bytes += total;
        // Even an empty one is complete only with its last chunk: the exchange is open until then.
        self.parts.insert(key, Part { placed: place.is_some(), ..Part::new(Message::begun(frame, bytes), total) });
        Ok(place.map_or(Progress::More, |place| Progress::Placed(place, total)))
    }

    /// Bytes that further payloads may have.
    fn capacity(&self) -> usize {
        self.payload_max.saturating_mul(4).saturating_sub(self.bytes)
    }

    fn chunk(&mut self, frame: &Frame<'_>) -> Result<Progress, WireError> {
        let key = (frame.id, frame.flags.answer());
        let Some(part) = self.parts.get_mut(&key) else { return Ok(Progress::Skipped) };
        if part.placed {
            let problem = "the payload is placed, and nobody has asked for it in chunks";
            return Err(WireError::Unexpected { kind: "CHUNK", problem });
        }
        if frame.payload.len() > part.remaining() {
            return Err(WireError::Malformed { kind: "CHUNK", problem: "the payload is longer than was stated" });
        }
        part.sink().extend_from_slice(frame.payload);
        self.filled(frame.id, frame.flags, frame.payload.len())
    }

    /// Calls `read` to write the next bytes of a payload, at most `most`, to their destination.
    /// `read` returns the number of bytes; the caller passes it to [`filled`](Self::filled). None:
    /// no chunk of such a payload is awaited.
    pub fn fill<E>(
        &mut self,
        (id, answer): (u64, bool),
        most: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Option<Result<usize, E>> {
        let part = self.parts.get_mut(&(id, answer)).filter(|part| !part.placed)?;
        let most = most.min(part.remaining()).min(if part.inflater.is_some() { PACKED_BYTES } else { usize::MAX });
        if most == 0 {
            return None;
        }
        let bytes = part.sink();
        let begin = bytes.len();
        bytes.resize(begin + most, 0);
        let count = read(&mut bytes[begin..]).map(|count| count.min(most));
        bytes.truncate(begin + count.as_ref().map_or(0, |count| *count));
        Some(count)
    }

    /// Records a chunk of so many bytes, with these flags, that was written to its destination.
    ///
    /// # Errors
    /// As for [`take`](Self::take).
    pub fn filled(&mut self, id: u64, flags: Flags, count: usize) -> Result<Progress, WireError> {
        let key = (id, flags.answer());
        let Some(part) = self.parts.get_mut(&key) else { return Ok(Progress::Skipped) };
        part.received += count;
        if !flags.more() && part.remaining() > 0 {
            return Err(WireError::Malformed { kind: "CHUNK", problem: "the payload is shorter than was stated" });
        }
        if flags.more() && count == 0 {
            return Err(WireError::Malformed { kind: "CHUNK", problem: "a chunk that is not the last one is empty" });
        }
        part.unasked += count;
        let (asks, is_packed) = (if flags.more() { part.asks() } else { 0 }, part.inflater.is_some());
        if is_packed {
            self.pick(key, !flags.more());
        } else if !flags.more() {
            return Ok(self.finish(key));
        }
        match asks {
            0 => Ok(Progress::More),
            bytes => Ok(Progress::Ask(u32::try_from(bytes).unwrap_or(u32::MAX))),
        }
    }

    /// Memory for a payload in shared memory, which must be read to its end.
    /// [`give_back`](Self::give_back) takes the memory back. None: nobody awaits this payload.
    pub fn lend(&mut self, id: u64, answer: bool) -> Option<Vec<u8>> {
        let part = self.parts.get_mut(&(id, answer)).filter(|part| part.placed)?;
        Some(std::mem::take(&mut part.message.bytes))
    }

    /// The memory comes back. If the payload could not be read whole, its sender is to send it.
    pub fn give_back(&mut self, id: u64, answer: bool, mut bytes: Vec<u8>) -> Progress {
        let key = (id, answer);
        let Some(part) = self.parts.get_mut(&key).filter(|part| part.placed) else { return Progress::Skipped };
        let begin = part.message.payload_at;
        let whole = bytes.len() == begin + part.total;
        bytes.truncate(if whole { bytes.len() } else { begin });
        part.message.bytes = bytes;
        part.placed = false;
        if whole { self.finish(key) } else { Progress::Ask(part.allowed.min(part.total) as u32) }
    }

    fn finish(&mut self, key: (u64, bool)) -> Progress {
        let Some(part) = self.parts.remove(&key) else { return Progress::Skipped };
        self.bytes -= part.counted;
        Progress::Whole(part.message)
    }
}
