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
    left: bool,
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
            left: false,
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
    pub fn came(&mut self, chunk: BegunChunk) {
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
                self.left = true;
                return Ok(false);
            }
        }
        self.left = false;
        Ok(true)
    }

    /// True if the visitor stopped before the last frame. The caller visits the other frames before
    /// it reads again.
    pub fn is_left(&self) -> bool {
        self.left
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
mod tests {
    use super::*;

    use tidewire_core::link::assembly::{Assemblies, Inflated, Progress};
    use tidewire_core::link::compression::Packed;
    use tidewire_proto::wire::Flags;

    const ID: u64 = 1 << 32;

    fn frame(kind: Kind, flags: Flags, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        wire::write(&mut out, kind, flags, ID, |_| Ok(()), payload).expect("it is short enough");
        out
    }

    fn payload(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at % 251) as u8).collect()
    }

    /// A payload of three chunks, with a short frame before each, and one after all.
    fn sent(payload: &[u8]) -> Vec<u8> {
        sent_with(Flags::NORMAL.with_answer(true), payload)
    }

    fn sent_with(flags: Flags, payload: &[u8]) -> Vec<u8> {
        let mut out = frame(Kind::Reply, flags.with_more(true), &(payload.len() as u64).to_le_bytes());
        let answer = flags.with_compressed(false);
        let chunks = payload.chunks(payload.len().div_ceil(3));
        for (number, chunk) in chunks.enumerate() {
            out.extend(frame(Kind::Ping, Flags::URGENT, &[]));
            out.extend(frame(Kind::Chunk, answer.with_more(number < 2), chunk));
        }
        out.extend(frame(Kind::Ping, Flags::URGENT, &[]));
        out
    }

    /// Reads as a node does, at most `step` bytes at a time. Answers the payload that came, and
    /// after how many pings.
    fn received(mut sent: &[u8], step: usize, straight: bool) -> (Vec<u8>, usize, usize) {
        let (mut reading, mut parts) = (FrameReader::new(1 << 20), Assemblies::new(1 << 20));
        let (mut whole, mut pings, mut beside) = (None, 0, 0);
        let came = |parts: &mut Assemblies, progress| {
            let inflated = parts.to_inflate().map(|mut inflating| {
                inflating.inflate();
                parts.inflated(inflating)
            });
            match (progress, inflated) {
                (Progress::Whole(message), None) | (_, Some(Inflated::Whole(message))) => {
                    Some(message.payload().to_vec())
                }
                _ => None,
            }
        };
        while !sent.is_empty() {
            let mut give = |places: &mut [IoSliceMut<'_>]| {
                let mut given = 0;
                for place in places {
                    let count = place.len().min(sent.len()).min(step - given);
                    place[..count].copy_from_slice(&sent[..count]);
                    (sent, given) = (&sent[count..], given + count);
                }
                Ok(given)
            };
            match reading.begun().filter(|_| straight) {
                Some(mut chunk) => {
                    let key = (ID, chunk.flags.answer());
                    let filled =
                        parts.fill(key, chunk.left, |spare| reading.beside(spare, give).map(|(count, _)| count));
                    let count = filled.expect("it is awaited").expect("it can be read");
                    beside += count;
                    let flags = chunk.take(count);
                    reading.came(chunk);
                    let progress = parts.filled(ID, flags, count).expect("it is as was stated");
                    whole = came(&mut parts, progress).map(|payload| (payload, pings)).or(whole);
                }
                None => {
                    let filled = reading.fill_between(|spare| give(&mut [IoSliceMut::new(spare)]));
                    assert_ne!(filled.expect("it can be read"), ReadProgress::Closed);
                }
            }
            let visited = reading.frames_and_begun(|frame| match frame.kind {
                Kind::Ping => pings += 1,
                _ => {
                    let progress = parts.take(frame).expect("it is as was stated");
                    whole = came(&mut parts, progress).map(|payload| (payload, pings)).or(whole.take());
                }
            });
            visited.expect("they are frames");
        }
        assert_eq!(pings, 4, "a short frame was lost");
        let (whole, before) = whole.expect("it is complete");
        (whole, before, beside)
    }

    #[test]
    fn a_payload_is_whole_and_in_its_place_however_its_bytes_come() {
        let payload = payload(30_000);
        let sent = sent(&payload);
        for straight in [false, true] {
            for step in [1, 7, 15, 16, 17, 4_095, 4_096, 4_097, 10_000, 10_016, 14_000, 1 << 20] {
                let (whole, before, beside) = received(&sent, step, straight);
                assert!(whole == payload, "other bytes came with steps of {step}");
                assert_eq!(before, 3, "a frame overtook another one with steps of {step}");
                assert_eq!(beside > payload.len() / 2, straight, "copied with steps of {step}");
            }
        }
    }

    #[test]
    fn a_payload_that_is_compressed_is_inflated_however_its_bytes_come() {
        let payload: Vec<u8> =
            (0..200_000_u32).map(|at| if at % 3 == 0 { (at.wrapping_mul(at) >> 7) as u8 } else { 0 }).collect();
        let packed = Packed::of(&&payload[..]).expect("it gets shorter");
        let sent = sent_with(Flags::NORMAL.with_answer(true).with_compressed(true), packed.bytes());
        for straight in [false, true] {
            for step in [1, 7, 4_095, 4_097, 30_000, 1 << 20] {
                let (whole, before, beside) = received(&sent, step, straight);
                assert!(whole == payload, "other bytes came with steps of {step}");
                assert_eq!(before, 3, "a frame overtook another one with steps of {step}");
                assert_eq!(beside > packed.bytes().len() / 2, straight, "copied with steps of {step}");
            }
        }
    }

    #[test]
    fn chunks_of_an_abandoned_payload_are_passed_over() {
        let (sent, mut pings) = (sent(&payload(30_000)), 0);
        let (mut reading, mut left) = (FrameReader::new(1 << 20), &sent[..]);
        while !left.is_empty() {
            let filled = reading.fill(|spare| {
                let count = spare.len().min(left.len()).min(900);
                spare[..count].copy_from_slice(&left[..count]);
                left = &left[count..];
                Ok(count)
            });
            filled.expect("it can be read");
            reading.frames_and_begun(|frame| pings += usize::from(frame.kind == Kind::Ping)).expect("they are frames");
        }
        assert_eq!((pings, reading.waiting()), (4, 0));
    }

    #[test]
    fn a_chunk_that_is_read_beside_tells_of_the_end() {
        let mut reading = FrameReader::new(1 << 20);
        let (mut chunk, most) = ([0; 100], 100 + BETWEEN_BYTES);
        for (count, filled) in
            [(0, ReadProgress::Closed), (40, ReadProgress::All), (100, ReadProgress::All), (101, ReadProgress::All)]
        {
            let read = reading.beside(&mut chunk, |_| Ok(count)).expect("it can be read");
            assert_eq!(read, (count.min(100), filled));
            (reading.from, reading.to) = (0, 0);
        }
        assert_eq!(reading.beside(&mut chunk, |_| Ok(most)).expect("it can be read"), (100, ReadProgress::Some));
    }
}
