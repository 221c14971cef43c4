//! Sources of the reader: memory that stays, or a long payload that is used up by its value.

use std::ops::Range;

use tidewire_link::Message;

use super::blob::Layout;
use super::decode_error::DecodeError;

/// Payloads from this length on are consumed. For shorter ones, moving the rest costs more than
/// storing it for a moment.
const LONG_BYTES: usize = 4 << 20;
/// Bytes to read before memory is released, and the smallest part that is taken out rather than
/// copied. The shorter values of tests have shorter steps.
const STEP_BYTES: usize = if cfg!(test) { 64 } else { 1 << 20 };
/// Number of parts in which a payload is consumed: more parts move the rest more often, fewer parts
/// store more of it.
const PARTS: usize = 8;

/// A payload that is decoded into a value.
pub(crate) enum Input<'de> {
    Kept(&'de [u8]),
    /// Owned memory, and the position of the payload in it. Values that are read from it borrow
    /// nothing.
    Passing(Vec<u8>, usize),
}

impl<'de> From<&'de [u8]> for Input<'de> {
    fn from(payload: &'de [u8]) -> Self {
        Self::Kept(payload)
    }
}

impl<'de> Input<'de> {
    /// The payload in memory from a position on. A long payload is taken, and leaves the memory
    /// empty.
    pub fn of_memory(memory: &'de mut Vec<u8>, begin: usize) -> Self {
        if memory.len() - begin < LONG_BYTES {
            return Self::Kept(&memory[begin..]);
        }
        Self::Passing(std::mem::take(memory), begin)
    }

    /// The payload of a message, which is taken out if it is long.
    pub fn of_message(message: &'de mut Message) -> Self {
        if message.payload().len() < LONG_BYTES {
            return Self::Kept(message.payload());
        }
        let (memory, begin) = message.take_payload();
        Self::Passing(memory, begin)
    }
}

/// A stretch of a payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    pub at: usize,
    pub bytes: usize,
}

/// Something within a payload, for as long as it is there.
pub(crate) enum SourceChunk<'a, 'de, T: ?Sized> {
    Kept(&'de T),
    Passing(&'a T),
}

impl<T: ?Sized> std::ops::Deref for SourceChunk<'_, '_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Kept(piece) => piece,
            Self::Passing(piece) => piece,
        }
    }
}

/// A buffer of a blob.
pub(crate) enum Part<'de> {
    Kept(&'de [u8]),
    Passing(Vec<u8>),
}

/// Source of the bytes of a reader.
pub(crate) enum Source<'de> {
    Kept(&'de [u8], Vec<Range<usize>>),
    /// The head, and the buffers that were not taken out.
    Passing(FrontBuffer, Vec<Option<Vec<u8>>>),
}

impl<'de> Source<'de> {
    /// Finds the head and the buffers; answers where the head is, too.
    pub fn of(input: Input<'de>) -> Result<(Self, Range<usize>), DecodeError> {
        match input {
            Input::Kept(blob) => {
                let Layout { head, parts } = Layout::of(blob)?;
                Ok((Self::Kept(blob, parts), head))
            }
            Input::Passing(memory, begin) => {
                let Layout { head, parts } = Layout::of(&memory[begin..])?;
                let (memory, parts) = split(memory, begin, head.end, parts);
                Ok((Self::Passing(FrontBuffer::new(memory, begin), parts), head))
            }
        }
    }

    pub fn parts(&self) -> usize {
        match self {
            Self::Kept(_, parts) => parts.len(),
            Self::Passing(_, parts) => parts.len(),
        }
    }

    #[inline]
    pub fn piece(&self, span: Span) -> SourceChunk<'_, 'de, [u8]> {
        match self {
            Self::Kept(blob, _) => SourceChunk::Kept(&blob[span.at..span.at + span.bytes]),
            Self::Passing(head, _) => SourceChunk::Passing(head.piece(span)),
        }
    }

    /// A buffer, which can be had once. None: there is none of this number.
    pub fn part(&mut self, number: usize) -> Option<Part<'de>> {
        match self {
            Self::Kept(blob, parts) => parts.get(number).map(|range| Part::Kept(&blob[range.clone()])),
            Self::Passing(_, parts) => parts.get_mut(number).and_then(Option::take).map(Part::Passing),
        }
    }
}

/// Memory that is used up from front to back.
pub(crate) struct FrontBuffer {
    memory: Vec<u8>,
    /// Where in its memory the payload began.
    begin: usize,
    /// Bytes by which the memory was shortened.
    gone: usize,
    /// Bytes to read before they are released.
    step: usize,
}

impl FrontBuffer {
    pub fn new(memory: Vec<u8>, begin: usize) -> Self {
        let step = STEP_BYTES.max(memory.len() / PARTS);
        Self { memory, begin, gone: 0, step }
    }

    /// Nothing before `at` is needed any more.
    #[inline]
    pub fn pass(&mut self, at: usize) {
        if self.begin + at >= self.gone + self.step {
            self.release(at);
        }
    }

    /// Takes out a span that is a large part of the rest, with its memory; the bytes before it are
    /// released. None: the span is small enough to be copied.
    pub fn take_out(&mut self, span: Span) -> Option<Vec<u8>> {
        let from = self.place(span.at);
        if span.bytes < STEP_BYTES || span.bytes < self.memory.len() / PARTS {
            self.pass_for(span);
            return None;
        }
        let rest = split_off(&mut self.memory, from + span.bytes);
        let mut taken = std::mem::replace(&mut self.memory, rest);
        self.gone += taken.len();
        taken.drain(..from);
        taken.shrink_to_fit();
        Some(taken)
    }

    /// Releases the bytes that were read before a copy, so that they do not add to the peak of
    /// memory.
    fn pass_for(&mut self, span: Span) {
        if self.place(span.at) + span.bytes >= self.step {
            self.release(span.at);
        }
    }

    #[cold]
    fn release(&mut self, at: usize) {
        let place = self.place(at);
        self.memory.drain(..place);
        self.memory.shrink_to_fit();
        self.gone += place;
    }

    fn place(&self, at: usize) -> usize {
        self.begin + at - self.gone
    }

    fn piece(&self, span: Span) -> &[u8] {
        &self.memory[self.place(span.at)..][..span.bytes]
    }
}

/// The bytes of a buffer, one by one.
pub(crate) struct Bytewise {
    memory: FrontBuffer,
    left: Range<usize>,
}

impl Bytewise {
    pub fn new(memory: Vec<u8>) -> Self {
        let left = 0..memory.len();
        Self { memory: FrontBuffer::new(memory, 0), left }
    }
}

impl Iterator for Bytewise {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let at = self.left.next()?;
        self.memory.pass(at);
        Some(self.memory.piece(Span { at, bytes: 1 })[0])
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

/// Moves each buffer into separate memory, and leaves the head.
fn split(
    mut memory: Vec<u8>,
    begin: usize,
    head_end: usize,
    ranges: Vec<Range<usize>>,
) -> (Vec<u8>, Vec<Option<Vec<u8>>>) {
    let little = memory.len() / PARTS / 2;
    let mut parts = Vec::with_capacity(ranges.len());
    for range in ranges.into_iter().rev() {
        memory.truncate(begin + range.end);
        let at = begin + range.start;
        let part = if at <= little {
            // It is nearly all that is left: it keeps the memory, and what lies before it moves.
            let before = memory[..at].to_vec();
            memory.drain(..at);
            std::mem::replace(&mut memory, before)
        } else {
            split_off(&mut memory, at)
        };
        parts.push(Some(part));
    }
    parts.reverse();
    memory.truncate(begin + head_end);
    (memory, parts)
}

/// As [`Vec::split_off`], but releases copied bytes in the meantime.
fn split_off(memory: &mut Vec<u8>, at: usize) -> Vec<u8> {
    // Zeros are had from the system without being written; it is filled from its end.
    let mut back = vec![0; memory.len() - at];
    while memory.len() > at {
        let begin = memory.len().saturating_sub(STEP_BYTES).max(at);
        back[begin - at..][..memory.len() - begin].copy_from_slice(&memory[begin..]);
        memory.truncate(begin);
        if memory.capacity() - begin >= STEP_BYTES {
            memory.shrink_to_fit();
        }
    }
    back
}
