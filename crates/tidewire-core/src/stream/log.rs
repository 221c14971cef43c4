//! State machine of a stream's log: assigns sequences to messages, groups them for one write, and
//! decides which segments are deleted.
//!
//! One write is under way at a time. Messages that are appended meanwhile form the next group. A
//! message may be acknowledged, and read, once the write of its group was synced
//! ([`StreamLog::synced`]).

mod segment;

use std::collections::{BTreeSet, VecDeque};

pub use segment::{SegmentError, SegmentInfo};

use super::compaction::{By, Newest};
use super::dedupe::Window;
use super::record::{Event, GROUP_BYTES, Group, Kind, put};

/// How a log behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Events go when they are so old.
    pub max_age_us: Option<u64>,
    /// Bytes that its files may take.
    pub max_bytes: Option<u64>,
    /// How many events there may be.
    pub max_messages: Option<u64>,
    /// At a limit the oldest go; else nothing more is taken.
    pub drop_old: bool,
    /// For how long an id is remembered.
    pub dedupe_us: u64,
    /// How many ids are.
    pub ids_max: usize,
    /// Only the newest event of each key or subject stays.
    pub compact: Option<By>,
    /// How many keys or subjects there may be then.
    pub names_max: usize,
    /// A segment that is so long gets no further group.
    pub segment_bytes: u64,
}

/// A message to be appended.
#[derive(Clone, Copy, Debug, Default)]
pub struct New<'a> {
    /// Where it was published.
    pub subject: &'a str,
    /// The key of the event.
    pub key: Option<&'a str>,
    /// Its idempotency key.
    pub id: Option<&'a str>,
    /// As [`put_headers`](super::record::put_headers) wrote them.
    pub headers: &'a [u8],
    /// Delivered then.
    pub due_us: Option<u64>,
    /// Not delivered any more so long after it was stored, or after it was due.
    pub ttl_us: Option<u64>,
    /// The delayed message that it was.
    pub origin: Option<u64>,
    /// A beat of the schedule that its first header names: beats up to this time are over.
    pub beat_us: Option<u64>,
    /// The value.
    pub payload: &'a [u8],
}

/// A message that was appended, or was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its sequence, or that of the first with its id.
    pub sequence: u64,
    /// True if the message is a duplicate.
    pub duplicate: bool,
}

/// The stream is at a limit: which one, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// `max_messages`.
    Messages(u64),
    /// `max_bytes`.
    Bytes(u64),
    /// The keys or subjects of one that is compacted.
    Names(u64),
}

/// A group to be written to the newest segment, and synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where.
    pub offset: u64,
    /// The bytes to write.
    pub bytes: Vec<u8>,
}

/// Sequences, limits, ids and segments of one stream.
#[derive(Clone, Debug)]
pub struct StreamLog {
    options: Options,
    segments: VecDeque<SegmentInfo>,
    next: u64,
    /// The first sequence; purged and dropped events are before it.
    first: u64,
    /// No event is older than the one before.
    time_us: u64,
    durable: u64,
    window: Window,
    newest: Option<Newest>,
    delayed: BTreeSet<(u64, u64)>,
    group: Vec<u8>,
    count: u32,
}

impl StreamLog {
    /// A log with these segments, oldest first; the last one takes appended messages. `first` is
    /// the oldest event that was not purged.
    pub fn new(options: Options, segments: Vec<SegmentInfo>, first: u64) -> Self {
        let next = segments.last().map_or(1, |newest| newest.last + 1).max(first);
        let oldest = segments.first().map_or(next, |oldest| oldest.base);
        let time_us = segments.iter().map(|segment| segment.last_time_us).max().unwrap_or(0);
        let mut delayed: BTreeSet<_> = segments.iter().flat_map(|segment| segment.delayed.iter().copied()).collect();
        let released: BTreeSet<u64> = segments.iter().flat_map(|segment| segment.released.iter().copied()).collect();
        delayed.retain(|(_, sequence)| *sequence >= first && !released.contains(sequence));
        let window = Window::new(options.dedupe_us, options.ids_max);
        let newest = options.compact.map(|by| Newest::new(by, options.names_max));
        let dropped = options.max_messages.filter(|_| options.drop_old).map_or(0, |max| next.saturating_sub(max));
        Self {
            segments: segments.into(),
            next,
            first: first.max(oldest).max(dropped),
            time_us,
            durable: next - 1,
            window,
            newest,
            delayed,
            group: Vec::new(),
            count: 0,
            options,
        }
    }

    /// When the newest event was stored.
    pub fn newest_us(&self) -> u64 {
        self.time_us
    }

    /// Its segments, oldest first.
    pub fn segments(&self) -> &VecDeque<SegmentInfo> {
        &self.segments
    }

    /// The oldest event.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The newest event that was synced; 0 if there was none.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// How many events there are.
    pub fn messages(&self) -> u64 {
        match &self.newest {
            Some(newest) => newest.len() + self.delayed.len() as u64,
            None => self.next - self.first,
        }
    }

    /// True if a newer event has replaced this one, so that no reader sees it.
    pub fn hides(&self, event: &Event<'_>) -> bool {
        self.newest.as_ref().is_some_and(|newest| newest.hides(event))
    }

    /// True if newer events replace older ones of the same name.
    pub const fn is_compacted(&self) -> bool {
        self.newest.is_some()
    }

    /// Bytes of its files, including bytes that are not written yet.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum::<u64>() + self.group.len() as u64
    }

    /// How many messages wait for their time.
    pub fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// Events before this time are too old to be read.
    pub fn oldest_time_us(&self, now_us: u64) -> u64 {
        self.options.max_age_us.map_or(0, |age| now_us.saturating_sub(age))
    }

    /// Restores the id of an event from before a restart.
    pub fn remember(&mut self, id: &str, sequence: u64, time_us: u64) {
        self.window.insert(id, sequence, time_us);
    }

    /// Restores the names that were known before a restart.
    pub fn remember_names(&mut self, mut newest: Newest) {
        newest.purged(self.first);
        self.newest = self.newest.is_some().then_some(newest);
    }

    /// Assigns a message its sequence, and adds it to the group.
    ///
    /// # Errors
    ///
    /// [`Full`] if the log is at a limit and refuses.
    ///
    /// # Panics
    ///
    /// If there is no segment.
    pub fn append(&mut self, new: &New<'_>, now_us: u64) -> Result<Appended, Full> {
        let time_us = self.time_us.max(now_us);
        if let Some(id) = new.id
            && let Some(sequence) = self.window.find(id, time_us)
        {
            return Ok(Appended { sequence, duplicate: true });
        }
        if let Some(max) = self.newest.as_ref().and_then(|newest| newest.full(new.subject, new.key))
            && new.origin.is_none()
            && new.beat_us.is_none()
        {
            return Err(Full::Names(max));
        }
        if !self.options.drop_old {
            self.check_capacity(new)?;
        }
        let sequence = self.next;
        if self.group.is_empty() {
            self.group.resize(GROUP_BYTES, 0);
        }
        let newest = self.segments.back_mut().expect("a log has a segment");
        let offset = newest.bytes + self.group.len() as u64;
        let expires_us = new.ttl_us.map(|ttl| new.due_us.unwrap_or(time_us).saturating_add(ttl));
        put(&mut self.group, newest.id, offset, Kind::Event, |out| {
            let New { subject, key, id, headers, due_us, origin, beat_us, payload, .. } = *new;
            Event { sequence, time_us, subject, key, id, headers, due_us, expires_us, origin, beat_us, payload }
                .write_to(out);
        });
        newest.saw(sequence, time_us, offset, new.id.is_some());
        if let Some(names) = self.newest.as_mut().filter(|_| new.due_us.is_none()) {
            names.appended(new.subject, new.key, sequence);
        }
        if let Some(due_us) = new.due_us {
            newest.delayed.push((due_us, sequence));
            self.delayed.insert((due_us, sequence));
        }
        if let Some(origin) = new.origin {
            newest.released.push(origin);
            // Mostly it is the one that was due first.
            if self.delayed.first().is_some_and(|(_, first)| *first == origin) {
                self.delayed.pop_first();
            } else {
                self.delayed.retain(|(_, delayed)| *delayed != origin);
            }
        }
        if let Some(id) = new.id {
            self.window.insert(id, sequence, time_us);
        }
        self.time_us = time_us;
        self.next += 1;
        self.count += 1;
        Ok(Appended { sequence, duplicate: false })
    }

    fn check_capacity(&self, new: &New<'_>) -> Result<(), Full> {
        if let Some(max) = self.options.max_messages
            && self.messages() >= max
            && new.origin.is_none()
        {
            return Err(Full::Messages(max));
        }
        // An estimate suffices for the size of a record without its payload.
        let bytes = (new.payload.len() + new.headers.len() + new.subject.len() + 64) as u64;
        match self.options.max_bytes {
            Some(max) if self.bytes() + bytes > max && new.origin.is_none() => Err(Full::Bytes(max)),
            _ => Ok(()),
        }
    }

    /// The oldest delayed message that is due: to be read, and appended with its `origin`.
    pub fn due(&self, now_us: u64) -> Option<u64> {
        let (due_us, sequence) = *self.delayed.first()?;
        (due_us <= now_us && sequence <= self.durable).then_some(sequence)
    }

    /// When the next delayed message is due.
    pub fn next_due_us(&self) -> Option<u64> {
        self.delayed.first().map(|(due_us, _)| *due_us)
    }

    /// How many bytes wait to be written.
    pub fn group_bytes(&self) -> usize {
        self.group.len()
    }

    /// Ends the group, and returns the bytes to write now. None if nothing was appended.
    pub fn take_group(&mut self) -> Option<Write> {
        if self.group.is_empty() {
            return None;
        }
        let mut bytes = std::mem::take(&mut self.group);
        let newest = self.segments.back_mut().expect("a log has a segment");
        let count = std::mem::take(&mut self.count);
        let first = self.next - u64::from(count);
        let (id, offset, body) = (newest.id, newest.bytes, (bytes.len() - GROUP_BYTES) as u32);
        Group { id, offset, synced: offset, first, time_us: self.time_us, count, bytes: body }.write_to(&mut bytes);
        newest.bytes += bytes.len() as u64;
        Some(Write { offset, bytes })
    }

    /// The group that was taken last was written and synced.
    pub fn synced(&mut self) {
        self.durable = self.next - 1;
        self.newest.iter_mut().for_each(Newest::synced);
    }

    /// The last event of the sealed segments, if it is worth writing them anew without what newer
    /// events have replaced.
    pub fn wants_cleaning(&self) -> Option<u64> {
        let newest = self.newest.as_ref()?;
        let sealed = || self.segments.iter().rev().skip(1);
        let last = sealed().next()?.last;
        (last <= self.durable && newest.is_worth(sealed().map(|segment| segment.events).sum())).then_some(last)
    }

    /// True if an event of a sealed segment must stay: it is visible, waits for its time, or its id
    /// is still remembered.
    pub fn keeps(&self, event: &Event<'_>, now_us: u64) -> bool {
        if let Some(due_us) = event.due_us {
            return self.delayed.contains(&(due_us, event.sequence));
        }
        let recent = event.time_us.saturating_add(self.options.dedupe_us) > now_us;
        if recent && event.id.is_some() {
            return true;
        }
        // An expired event still hides older ones, whose ids may still be remembered.
        let past = event.time_us < self.oldest_time_us(now_us) || event.expires_us.is_some_and(|at| at <= now_us);
        event.sequence >= self.first && !self.hides(event) && (recent || !past)
    }

    /// The name that is free when an event of a sealed segment goes.
    pub fn freed_name<'a>(&self, event: &Event<'a>) -> Option<&'a str> {
        let newest = self.newest.as_ref().filter(|newest| event.due_us.is_none() && !newest.hides(event))?;
        newest.name(event.subject, event.key)
    }

    /// A new segment has replaced all sealed ones up to an event, without the newest events of
    /// these names. Returns the replaced segments, which must be removed.
    pub fn cleaned(&mut self, segment: SegmentInfo, freed: &[(Box<str>, u64)]) -> Vec<SegmentInfo> {
        let count = self.segments.iter().take_while(|sealed| sealed.base <= segment.last).count();
        if let Some(newest) = &mut self.newest {
            newest.cleaned(segment.events);
            freed.iter().for_each(|(name, sequence)| newest.remove(name, *sequence));
        }
        let replaced: Vec<_> = self.segments.drain(..count).collect();
        self.segments.push_front(segment);
        replaced
    }

    /// A mark that says that everything before it was synced. For a log that is closed: damage is
    /// seen everywhere then.
    pub fn closing_mark(&mut self) -> Option<Write> {
        let newest = self.segments.back_mut().filter(|newest| newest.last >= newest.base)?;
        let mut bytes = vec![0; GROUP_BYTES];
        let (id, offset) = (newest.id, newest.bytes);
        Group { id, offset, synced: offset, first: self.next, time_us: self.time_us, count: 0, bytes: 0 }
            .write_to(&mut bytes);
        newest.bytes += bytes.len() as u64;
        Some(Write { offset, bytes })
    }

    /// True if a new segment should be begun before the next group.
    pub fn should_roll(&self, now_us: u64) -> bool {
        let Some(newest) = self.segments.back() else { return true };
        let old = self.options.max_age_us.is_some_and(|age| newest.first_time_us.saturating_add(age / 8) <= now_us);
        newest.last >= newest.base && (newest.bytes >= self.options.segment_bytes || old)
    }

    /// A new segment was made, whose base is [`next`](Self::next). Nothing may be in the group.
    pub fn rolled(&mut self, segment: SegmentInfo) {
        assert!(self.group.is_empty() && segment.base == self.next, "segments follow each other without a gap");
        self.segments.push_back(segment);
    }

    /// The sequence of the next event.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Purges everything before a sequence. Gives how many events went.
    pub fn purge_before(&mut self, sequence: u64) -> u64 {
        let first = sequence.clamp(self.first, self.durable.max(self.first - 1) + 1);
        let before = self.messages();
        let purged = first - self.first;
        self.first = first;
        self.delayed.retain(|(_, sequence)| *sequence >= first);
        self.newest.iter_mut().for_each(|newest| newest.purged(first));
        if self.is_compacted() { before - self.messages() } else { purged }
    }

    /// Takes out the segments to delete by now.
    pub fn retire(&mut self, now_us: u64) -> Vec<SegmentInfo> {
        if let Some(max) = self.options.max_messages.filter(|_| self.options.drop_old) {
            self.first = self.first.max(self.next.saturating_sub(max));
        }
        let mut retired = Vec::new();
        while self.segments.len() > 1 && self.is_over(now_us) {
            let segment = self.segments.pop_front().expect("there are two");
            self.first = self.first.max(segment.last + 1);
            retired.push(segment);
        }
        if !retired.is_empty() {
            let first = self.first;
            self.newest.iter_mut().for_each(|newest| newest.purged(first));
        }
        retired
    }

    fn is_over(&self, now_us: u64) -> bool {
        let oldest = &self.segments[0];
        let purged = oldest.last < self.first;
        let old = self.options.max_age_us.is_some_and(|age| oldest.last_time_us.saturating_add(age) <= now_us);
        let oversized = self.options.drop_old && self.options.max_bytes.is_some_and(|max| self.bytes() > max);
        // The delayed messages of a segment keep it until they are due.
        (purged || old || oversized) && !self.delayed.iter().any(|(_, sequence)| *sequence <= oldest.last)
    }
}
