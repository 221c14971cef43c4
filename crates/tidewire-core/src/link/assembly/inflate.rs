//! Assembly of compressed payloads: received data is inflated block by block, so that only one copy
//! of a payload is in memory.
//!
//! Inflating takes time, and other threads wait for the lock of the assemblies. So the compressed
//! data is taken out of them, inflated without the lock and given back afterwards.

use tidewire_proto::wire::Frame;

use super::super::compression::{Bound, Inflater, Unreadable};
use super::{Assemblies, Key, Message, Part};

/// The received part of a compressed payload, to be [inflated](Self::inflate).
pub struct Inflating {
    part: Part,
    bound: Bound,
    /// None: it came in one frame.
    key: Option<Key>,
    last: bool,
    done: Result<(), Unreadable>,
}

/// The result of inflating a part of a payload.
#[derive(Debug, PartialEq, Eq)]
pub enum Inflated {
    /// The payload is complete, in its uncompressed form.
    Whole(Message),
    /// More is to come.
    More,
    /// The data belongs to an ended exchange.
    Skipped,
    /// The payload is unreadable, and the message has none. Its further chunks are skipped.
    Unreadable {
        /// The message without its payload.
        message: Message,
        /// Why.
        why: Unreadable,
        /// True if all of it has arrived.
        last: bool,
    },
}

impl Inflating {
    pub(super) fn whole(frame: &Frame<'_>, most: usize) -> Self {
        let mut part = Part::new(Message::begun(frame, Vec::new()), 0);
        part.sink().extend_from_slice(frame.payload);
        Self { part, bound: Bound { most, capacity: usize::MAX }, key: None, last: true, done: Ok(()) }
    }

    /// Inflates it. This may take some milliseconds. Answers how many bytes it has made.
    pub fn inflate(&mut self) -> usize {
        let Part { message: Message { bytes, .. }, inflater: Some(inflater), .. } = &mut self.part else { return 0 };
        let before = bytes.len();
        self.done = inflater.inflate(self.bound, bytes);
        if self.last && self.done.is_ok() {
            self.done = inflater.end();
        }
        bytes.len() - before
    }
}

impl Part {
    /// The length of the payload once it is inflated, if it has been stated.
    pub(super) fn length(&self) -> Option<usize> {
        let remaining = self.inflater.as_ref()?.remaining()?;
        Some(self.message.payload().len() + remaining)
    }
}

impl Assemblies {
    /// The compressed data to inflate. Give it [back](Self::inflated) before another frame is
    /// taken.
    pub fn to_inflate(&mut self) -> Option<Inflating> {
        self.packed.take()
    }

    /// Takes the inflated data back.
    pub fn inflated(&mut self, inflating: Inflating) -> Inflated {
        let Inflating { mut part, key, last, done, .. } = inflating;
        if let Some(key) = key
            && !self.forget_away(key)
        {
            return Inflated::Skipped;
        }
        if let Err(why) = done {
            part.message.bytes.truncate(part.message.payload_at);
            return Inflated::Unreadable { message: part.message, why, last };
        }
        match key {
            Some(key) if !last => {
                part.counted = part.length().unwrap_or(part.total);
                self.bytes += part.counted;
                self.inflated_bytes += part.length().unwrap_or(0);
                self.parts.insert(key, part);
                Inflated::More
            }
            _ => Inflated::Whole(part.message),
        }
    }

    /// Schedules a part for inflating, if enough of it has arrived.
    pub(super) fn pick(&mut self, key: Key, last: bool) {
        let is_ready = |part: &mut Part| last || part.inflater.as_ref().is_some_and(Inflater::is_ready);
        if !self.parts.get_mut(&key).is_some_and(is_ready) {
            return;
        }
        let Some(part) = self.parts.remove(&key) else { return };
        self.away = Some((key, part.counted));
        self.inflated_bytes -= part.length().unwrap_or(0);
        let capacity = (self.capacity() + part.counted).min(self.payload_max.saturating_sub(self.inflated_bytes));
        let bound = Bound { most: self.payload_max, capacity };
        self.packed = Some(Inflating { part, bound, key: Some(key), last, done: Ok(()) });
    }

    /// Ends the absence of a part. False: it has been forgotten meanwhile.
    pub(super) fn forget_away(&mut self, key: Key) -> bool {
        let Some((_, counted)) = self.away.take_if(|(away, _)| *away == key) else { return false };
        self.bytes -= counted;
        self.packed.take_if(|packed| packed.key == Some(key));
        true
    }
}
