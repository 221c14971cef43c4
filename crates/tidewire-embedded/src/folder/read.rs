//! Reads of the events of a stream.

use bytes::Bytes;
use tidewire_backend::home::{Event, HomeResult, Page, Read, Start};
use tidewire_core::stream::record::{self, headers_of};
use tidewire_proto::subject::{Pattern, Subject};

use super::files::SegmentCursor;
use super::{Folder, Stream};

/// How many events are scanned in one call, so that others get their turn.
const SCANNED_MAX: u32 = 20_000;

impl Folder {
    /// Reads events. `start` must be a sequence or a time by now.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Disk`, `Corrupt`.
    pub fn read(&mut self, name: &str, read: &Read, now_us: u64) -> HomeResult<Page> {
        let Self { disk, streams, .. } = self;
        let stream = streams.get_mut(name).ok_or_else(|| super::errors::not_found("stream", name))?;
        let last = stream.files.log.durable();
        let (first, oldest_time_us) = (stream.files.log.first(), stream.files.log.oldest_time_us(now_us));
        let (mut place, from_us) = match read.start {
            Start::New => (SegmentCursor::before(last + 1), 0),
            Start::All => (SegmentCursor::before(first), 0),
            Start::Sequence(sequence) => (SegmentCursor::before(sequence.max(first)), 0),
            Start::Time(time_us) => (stream.files.place_at_time(time_us), time_us),
        };
        let stop = read.stop.unwrap_or(u64::MAX);
        let (mut events, mut bytes, mut remaining) = (Vec::new(), 0, SCANNED_MAX);
        let mut subjects = Subjects::default();
        let oldest_us = oldest_time_us.max(from_us);
        let begin = place.next;
        if begin <= stop {
            stream.files.read(disk.as_mut(), &mut place, &mut |event, chunk, hidden| {
                if event.sequence > stop {
                    return false;
                }
                if !hidden && is_shown(event, oldest_us, now_us) && selects(&read.filter, event.subject) {
                    bytes += event.payload.len();
                    events.extend(to_event(event, chunk, &mut subjects));
                }
                remaining -= 1;
                remaining > 0 && events.len() < read.max_messages.max(1) as usize && bytes < read.max_bytes as usize
            })?;
        }
        let next = if place.next > stop { stop.max(last) + 1 } else { place.next };
        Ok(Page { events, next, last })
    }

    /// The sequence at which something begins.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Disk`, `Corrupt`.
    pub fn sequence_of(&mut self, name: &str, start: Start) -> HomeResult<u64> {
        let Self { disk, streams, .. } = self;
        let stream = streams.get_mut(name).ok_or_else(|| super::errors::not_found("stream", name))?;
        let log = &stream.files.log;
        match start {
            // Events that are not synced are not part of the stream yet.
            Start::New => Ok(log.durable() + 1),
            Start::All => Ok(log.first()),
            Start::Sequence(sequence) => Ok(sequence.clamp(log.first(), log.durable() + 1)),
            Start::Time(time_us) => {
                let mut place = stream.files.place_at_time(time_us);
                let mut found = None;
                stream.files.read(disk.as_mut(), &mut place, &mut |event, _, _| {
                    found = (event.time_us >= time_us).then_some(event.sequence);
                    found.is_none()
                })?;
                Ok(found.unwrap_or_else(|| stream.files.log.durable() + 1))
            }
        }
    }
}

impl Stream {
    /// One event, if the stream has it and shows it.
    pub(super) fn event(
        &mut self,
        disk: &mut dyn crate::disk::Disk,
        sequence: u64,
        now_us: u64,
    ) -> HomeResult<Option<Event>> {
        if sequence < self.files.log.first() {
            return Ok(None);
        }
        let oldest_us = self.files.log.oldest_time_us(now_us);
        let mut found = None;
        self.files.read(disk, &mut SegmentCursor::before(sequence), &mut |event, chunk, hidden| {
            if event.sequence == sequence && !hidden && is_shown(event, oldest_us, now_us) {
                found = to_event(event, chunk, &mut Subjects::default());
            }
            false
        })?;
        Ok(found)
    }
}

/// True if readers see an event: neither delayed nor expired.
pub fn is_shown(event: &record::Event<'_>, oldest_us: u64, now_us: u64) -> bool {
    event.due_us.is_none() && event.time_us >= oldest_us && event.expires_us.is_none_or(|expires| expires > now_us)
}

/// True if a filter selects a subject.
pub fn selects(filter: &[Pattern], subject: &str) -> bool {
    filter.is_empty() || filter.iter().any(|pattern| pattern.matches_str(subject))
}

/// The subject of the event before: most have the same.
#[derive(Default)]
pub struct Subjects(Option<Subject>);

impl Subjects {
    fn of(&mut self, text: &str) -> Option<Subject> {
        if self.0.as_ref().is_none_or(|subject| subject.as_str() != text) {
            self.0 = Some(Subject::new(text).ok()?);
        }
        self.0.clone()
    }
}

/// An event whose payload is in the read chunk. None for an invalid subject, which was never
/// accepted.
pub fn to_event(event: &record::Event<'_>, chunk: &Bytes, subjects: &mut Subjects) -> Option<Event> {
    Some(Event {
        sequence: event.sequence,
        time_us: event.time_us,
        subject: subjects.of(event.subject)?,
        payload: chunk.slice_ref(event.payload),
        key: event.key.map(str::to_owned),
        id: event.id.map(str::to_owned),
        headers: headers_of(event.headers).unwrap_or_default(),
    })
}
