//! The files of one stream: its segments with an index beside each, recovered when they are opened.

use std::io;

use bytes::Bytes;
use tidewire_backend::home::{HomeError, HomeResult};
use tidewire_core::stream::compaction::Newest;
use tidewire_core::stream::log::{Options, SegmentInfo, StreamLog, Write};
use tidewire_core::stream::record::{Event, Kind, Parsed, SEGMENT_BYTES, Segment, headers_of, parse};
use tidewire_core::stream::scan::{Tail, scan};

use super::Notice;
use super::compaction::{Cleaning, remove_unfinished};
use super::errors::{corrupt, disk_error, foreign, sync_error};
use crate::disk::{Disk, File, read_all};

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// The most space that is reserved ahead of the writes.
const RESERVE_MAX: u64 = 16 << 20;

/// The segments of a stream.
pub struct StreamFiles {
    /// State machine of the log.
    pub log: StreamLog,
    pub(super) dir: String,
    reserve: u64,
    active: Option<Box<dyn File>>,
    reserved: u64,
    /// Beats in the newest segment, with the times up to which they are over, as it was found.
    beats: Vec<(String, u64)>,
    /// The sealed segment that was read last.
    sealed: Option<(u64, Box<dyn File>)>,
    /// The running compaction of the sealed segments.
    pub(super) cleaning: Option<Cleaning>,
}

/// A place in the segments of a stream, for reading on.
#[derive(Clone, Copy, Debug, Default)]
pub struct SegmentCursor {
    /// The id of a segment: a position in a rewritten segment is invalid.
    id: u64,
    offset: u64,
    /// The next event to be read.
    pub next: u64,
}

impl SegmentCursor {
    /// Before an event.
    pub const fn before(sequence: u64) -> Self {
        Self { id: 0, offset: 0, next: sequence }
    }
}

/// Visitor of events, each with its bytes, and true if a newer event hides it. The visitor returns
/// false to stop.
pub type Visit<'a> = dyn FnMut(&Event<'_>, &Bytes, bool) -> bool + 'a;

/// Settings of the files of a stream.
pub struct Keeping<'a> {
    /// Where.
    pub dir: &'a str,
    /// The space that is taken ahead, at least.
    pub reserve: u64,
    /// Events before it were purged.
    pub first: u64,
    /// The time.
    pub now_us: u64,
}

impl StreamFiles {
    /// Opens the segments of a stream. A write that a crash has torn is cut off, and noted.
    ///
    /// # Errors
    ///
    /// `Corrupt` for a file that has changed since it was synced, `Foreign` for a file of another
    /// version.
    pub fn recover(
        disk: &mut dyn Disk,
        keeping: &Keeping<'_>,
        options: Options,
        notices: &mut Vec<Notice>,
    ) -> HomeResult<Self> {
        remove_unfinished(disk, keeping.dir)?;
        let mut bases = Vec::new();
        for name in disk.names(keeping.dir).map_err(|error| disk_error("read", keeping.dir, &error))? {
            bases.extend(name.strip_suffix(".log").and_then(|base| base.parse::<u64>().ok()));
        }
        let mut segments: Vec<SegmentInfo> = Vec::new();
        let (mut active, mut reserved, mut ids) = (None, 0, Vec::new());
        let mut newest_names = options.compact.map(|by| Newest::new(by, options.names_max));
        let (mut replaced, mut beats) = (Vec::new(), Vec::new());
        for (place, base) in bases.iter().enumerate() {
            let newest = place + 1 == bases.len();
            if options.compact.is_some() && segments.last().is_some_and(|before| *base <= before.last) {
                // The segment was rewritten together with the one before.
                replaced.push(*base);
                continue;
            }
            let names = newest_names.as_mut();
            let mut opening = Opening { disk, keeping, base: *base, ids: &mut ids, names, notices, beats: Vec::new() };
            let found = if newest { opening.newest()? } else { Some((opening.sealed(options.dedupe_us)?, None)) };
            let opened = opening.beats;
            let Some((segment, file)) = found else { continue };
            beats = opened;
            if let Some(before) = segments.last().filter(|before| before.last + 1 != segment.base) {
                return Err(corrupt(keeping.dir, &missing(before.last + 1, segment.base)));
            }
            segments.push(segment);
            if let Some((file, length)) = file {
                (active, reserved) = (Some(file), length);
            }
        }
        if let Some(oldest) = segments.first().filter(|oldest| oldest.base > keeping.first) {
            return Err(corrupt(keeping.dir, &missing(keeping.first, oldest.base)));
        }
        let mut log = StreamLog::new(options, segments, keeping.first);
        newest_names.into_iter().for_each(|names| log.remember_names(names));
        ids.iter().for_each(|(id, sequence, time_us): &(String, u64, u64)| log.remember(id, *sequence, *time_us));
        let (dir, reserve) = (keeping.dir.to_owned(), keeping.reserve);
        let mut files = Self { log, dir, reserve, active, reserved, beats, sealed: None, cleaning: None };
        files.remove(disk, &replaced)?;
        Ok(files)
    }

    /// Beats of schedules that the newest segment had when it was opened, with the times up to
    /// which they are over.
    pub fn take_beats(&mut self) -> Vec<(String, u64)> {
        std::mem::take(&mut self.beats)
    }

    /// Makes the first segment, or a new one if it is time for it.
    pub fn prepare(&mut self, disk: &mut dyn Disk, id: u64, now_us: u64) -> HomeResult<()> {
        let full = self.log.should_roll(now_us);
        // After a purge the next sequence may be beyond the newest segment.
        let beyond = self.log.segments().back().is_some_and(|newest| newest.last + 1 != self.log.next());
        if full || beyond || self.active.is_none() { self.roll(disk, id, now_us) } else { Ok(()) }
    }

    fn roll(&mut self, disk: &mut dyn Disk, id: u64, now_us: u64) -> HomeResult<()> {
        self.seal(disk);
        let base = self.log.next();
        let name = log_name(&self.dir, base);
        let created = (|| {
            disk.make_dir(&self.dir)?;
            let mut file = disk.create(&name)?;
            let head = Segment { id, base, created_us: now_us }.encode();
            file.reserve(self.reserve.max(head.len() as u64))?;
            file.write_at(0, &head)?;
            file.sync()?;
            disk.sync_dir(&self.dir)?;
            Ok::<_, io::Error>(file)
        })();
        let file = created.map_err(|error| disk_error("make", &name, &error))?;
        self.reserved = self.reserve.max(SEGMENT_BYTES as u64);
        self.log.rolled(SegmentInfo::new(id, base, SEGMENT_BYTES as u64));
        self.active = Some(file);
        Ok(())
    }

    /// Writes the index of the newest segment beside it. A lost index is rebuilt from the segment.
    fn seal(&mut self, disk: &mut dyn Disk) {
        let Some(newest) = self.log.segments().back() else { return };
        let Some(mut file) = self.active.take() else { return };
        // Not essential: the space is freed sooner, and the next start is faster.
        let _cut = file.set_length(newest.bytes);
        if self.log.is_compacted() {
            // Its names have to be read anyway, and the index will be rebuilt.
            return;
        }
        let written = disk.create(&index_name(&self.dir, newest.base));
        let _written = written.and_then(|mut index| index.write_at(0, &newest.encode()));
    }

    /// Writes and syncs appended events. False without any.
    pub fn commit(&mut self) -> HomeResult<bool> {
        let Some(write) = self.log.take_group() else { return Ok(false) };
        self.write(&write)?;
        self.log.synced();
        Ok(true)
    }

    /// Says at the end that everything is synced.
    pub fn close(&mut self) -> HomeResult<()> {
        if self.active.is_none() {
            return Ok(());
        }
        self.log.closing_mark().map_or(Ok(()), |write| self.write(&write))
    }

    fn write(&mut self, write: &Write) -> HomeResult<()> {
        let file = self.active.as_mut().expect("what was appended has a segment");
        let end = write.offset + write.bytes.len() as u64;
        let written = (|| {
            if end > self.reserved {
                let ahead = write.offset.clamp(self.reserve, RESERVE_MAX.max(self.reserve));
                file.reserve(end + ahead)?;
                self.reserved = end + ahead;
            }
            file.write_at(write.offset, &write.bytes)
        })();
        written.map_err(|error| disk_error("write", &self.dir, &error))?;
        file.sync().map_err(|error| sync_error(&self.dir, &error))
    }

    /// Finds the expired segments. They are no longer read. Their files may be removed once the
    /// beginning behind them would survive a loss of power.
    pub fn retire(&mut self, disk: &mut dyn Disk, id: u64, now_us: u64) -> HomeResult<Vec<u64>> {
        // A segment with purged events only is removed too, once there is another segment for the
        // next event.
        let newest = self.log.segments().back();
        if newest.is_some_and(|newest| newest.last >= newest.base && newest.last < self.log.first())
            || (self.log.should_roll(now_us) && self.active.is_some())
        {
            self.roll(disk, id, now_us)?;
        }
        let retired = self.log.retire(now_us);
        if !retired.is_empty() {
            self.stop_cleaning(disk)?;
        }
        Ok(retired.into_iter().map(|segment| segment.base).collect())
    }

    /// Removes the files of segments.
    pub fn remove(&mut self, disk: &mut dyn Disk, bases: &[u64]) -> HomeResult<()> {
        for base in bases {
            self.sealed = None;
            for name in [index_name(&self.dir, *base), log_name(&self.dir, *base)] {
                disk.remove(&name).map_err(|error| disk_error("remove", &name, &error))?;
            }
            // One after another: a loss of power must not bring one back and leave a gap behind it.
            disk.sync_dir(&self.dir).map_err(|error| sync_error(&self.dir, &error))?;
        }
        Ok(())
    }

    /// Reads synced events from a position on, as long as `visit` returns true.
    ///
    /// # Errors
    ///
    /// `Corrupt` at an event whose checksum is wrong.
    pub fn read(&mut self, disk: &mut dyn Disk, place: &mut SegmentCursor, visit: &mut Visit<'_>) -> HomeResult<()> {
        place.next = place.next.max(self.log.segments().front().map_or(1, |oldest| oldest.base));
        while place.next <= self.log.durable() {
            let after = self.log.segments().partition_point(|segment| segment.base <= place.next);
            let segment = &self.log.segments()[after - 1];
            if place.id != segment.id {
                let offset = segment.place_of(place.next).unwrap_or(SEGMENT_BYTES as u64);
                (place.id, place.offset) = (segment.id, offset);
            }
            // An appended event is invisible until it is synced.
            let (base, last, end) = (segment.base, segment.last.min(self.log.durable()), segment.bytes);
            if place.next > last {
                return Err(corrupt(&self.dir, &format!("event {} is in no segment", place.next)));
            }
            if !self.read_segment(disk, place, (base, last, end), visit)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads on within one segment. False if `visit` has had enough before its end, or with it.
    fn read_segment(
        &mut self,
        disk: &mut dyn Disk,
        place: &mut SegmentCursor,
        (base, last, end): (u64, u64, u64),
        visit: &mut Visit<'_>,
    ) -> HomeResult<bool> {
        let name = log_name(&self.dir, base);
        let mut size = CHUNK;
        while place.next <= last {
            if place.offset >= end && self.log.is_compacted() {
                // The last events were compacted away.
                place.next = last + 1;
                return Ok(true);
            }
            let chunk_bytes = usize::try_from(end.saturating_sub(place.offset)).unwrap_or(usize::MAX).min(size);
            let mut chunk = vec![0; chunk_bytes];
            let file = self.file(disk, base, &name)?;
            let read = file.read_at(place.offset, &mut chunk).map_err(|error| disk_error("read", &name, &error))?;
            chunk.truncate(read);
            let chunk = Bytes::from(chunk);
            let mut at = 0;
            loop {
                match parse(&chunk[at..], place.id, place.offset + at as u64) {
                    Parsed::Record { kind: Kind::Event, body, length } => {
                        let event = Event::decode(body).ok_or_else(|| damaged(&name, place.offset + at as u64))?;
                        at += length;
                        if event.sequence >= place.next {
                            place.next = event.sequence + 1;
                            if !visit(&event, &chunk, self.log.hides(&event)) {
                                place.offset += at as u64;
                                return Ok(false);
                            }
                        }
                        if place.next > last {
                            break;
                        }
                    }
                    Parsed::Record { length, .. } => at += length,
                    Parsed::Short(needed) if at > 0 || chunk.len() < needed && chunk_bytes == size => {
                        size = needed.max(CHUNK);
                        break;
                    }
                    // A chunk may end between two records.
                    Parsed::Empty if at == chunk.len() && at > 0 => break,
                    _ => return Err(damaged(&name, place.offset + at as u64)),
                }
            }
            place.offset += at as u64;
        }
        Ok(true)
    }

    /// Closes the files of sealed segments: they were replaced.
    pub(super) fn reopen_sealed(&mut self) {
        self.sealed = None;
    }

    fn file(&mut self, disk: &mut dyn Disk, base: u64, name: &str) -> HomeResult<&dyn File> {
        if self.log.segments().back().is_some_and(|newest| newest.base == base)
            && let Some(active) = &self.active
        {
            return Ok(active.as_ref());
        }
        if self.sealed.as_ref().is_none_or(|(sealed, _)| *sealed != base) {
            let file = disk.open(name).map_err(|error| disk_error("open", name, &error))?;
            self.sealed = Some((base, file));
        }
        Ok(self.sealed.as_ref().expect("it was opened").1.as_ref())
    }

    /// A place at which the first event of this time or later is, or before it by a few.
    pub fn place_at_time(&self, time_us: u64) -> SegmentCursor {
        let segments = self.log.segments();
        let at = segments.partition_point(|segment| segment.last_time_us < time_us && segment.last >= segment.base);
        SegmentCursor::before(segments.get(at).map_or(self.log.next(), |segment| segment.base).max(self.log.first()))
    }
}

/// One segment while it is opened.
struct Opening<'a, 'b> {
    disk: &'a mut dyn Disk,
    keeping: &'a Keeping<'b>,
    base: u64,
    ids: &'a mut Vec<(String, u64, u64)>,
    names: Option<&'a mut Newest>,
    /// Beats of schedules.
    beats: Vec<(String, u64)>,
    notices: &'a mut Vec<Notice>,
}

type Active = Option<(Box<dyn File>, u64)>;

impl Opening<'_, '_> {
    /// The newest segment, which a crash may have torn. None if it was never written whole: it is
    /// removed then.
    fn newest(&mut self) -> HomeResult<Option<(SegmentInfo, Active)>> {
        let name = log_name(self.keeping.dir, self.base);
        let (mut file, bytes) = self.load(&name)?;
        let (info, tail, end) = self.scan(&name, &bytes)?;
        let Some(info) = info else {
            self.disk.remove(&name).map_err(|error| disk_error("remove", &name, &error))?;
            self.notices.push(Notice::torn(&name, 0, bytes.len() as u64));
            return Ok(None);
        };
        // An index is written when a segment gets no more: this one does.
        let index = index_name(self.keeping.dir, self.base);
        self.disk.remove(&index).map_err(|error| disk_error("remove", &index, &error))?;
        let mut length = bytes.len() as u64;
        if let Tail::Torn(torn) = tail {
            let cut = (|| {
                file.set_length(end)?;
                file.reserve(end + self.keeping.reserve)?;
                file.sync()
            })();
            cut.map_err(|error| disk_error("cut", &name, &error))?;
            length = end + self.keeping.reserve;
            self.notices.push(Notice::torn(&name, end, torn));
        }
        Ok(Some((info, Some((file, length)))))
    }

    /// Opens a sealed segment: its index is enough, unless it is lost or ids have to be remembered.
    fn sealed(&mut self, dedupe_us: u64) -> HomeResult<SegmentInfo> {
        let name = log_name(self.keeping.dir, self.base);
        let index = self.disk.open(&index_name(self.keeping.dir, self.base));
        let index = index.and_then(|file| read_all(file.as_ref())).unwrap_or_default();
        if self.names.is_none()
            && let Ok(info) = SegmentInfo::decode(&index)
            && info.base == self.base
            && (info.ids == 0 || info.last_time_us.saturating_add(dedupe_us) <= self.keeping.now_us)
        {
            let file = self.disk.open(&name).map_err(|error| disk_error("open", &name, &error))?;
            let length = file.length().map_err(|error| disk_error("read", &name, &error))?;
            if length < info.bytes {
                return Err(corrupt(&name, &format!("it has {length} bytes of {}", info.bytes)));
            }
            return Ok(info);
        }
        let (_, bytes) = self.load(&name)?;
        let (info, tail, end) = self.scan(&name, &bytes)?;
        match (info, tail) {
            (Some(info), Tail::Clean) => Ok(info),
            // It was synced before the next was made.
            _ => Err(damaged(&name, end)),
        }
    }

    fn load(&mut self, name: &str) -> HomeResult<(Box<dyn File>, Vec<u8>)> {
        let file = self.disk.open(name).map_err(|error| disk_error("open", name, &error))?;
        let bytes = read_all(file.as_ref()).map_err(|error| disk_error("read", name, &error))?;
        Ok((file, bytes))
    }

    fn scan(&mut self, name: &str, bytes: &[u8]) -> HomeResult<(Option<SegmentInfo>, Tail, u64)> {
        let head = Segment::decode(bytes).ok();
        let mut info = head.map(|head| SegmentInfo::new(head.id, head.base, SEGMENT_BYTES as u64));
        let mut misplaced = head.is_some_and(|head| head.base != self.base).then_some(0);
        let scanned = scan(bytes, &mut |found| {
            let (Some(info), Some(event)) = (&mut info, Event::decode(found.body)) else { return };
            let follows = event.sequence == info.last + 1;
            if !follows && (self.names.is_none() || event.sequence <= info.last) {
                misplaced = misplaced.or(Some(found.offset));
            }
            info.saw(event.sequence, event.time_us, found.offset, event.id.is_some());
            info.delayed.extend(event.due_us.map(|due_us| (due_us, event.sequence)));
            info.released.extend(event.origin);
            let schedule = event.beat_us.and_then(|_| headers_of(event.headers)?.into_iter().next());
            self.beats.extend(schedule.zip(event.beat_us).map(|((_, name), over_us)| (name, over_us)));
            self.names.iter_mut().for_each(|names| names.remember(&event));
            self.ids.extend(event.id.map(|id| (id.to_owned(), event.sequence, event.time_us)));
        });
        if let Some(info) = &mut info {
            info.bytes = scanned.end;
            let closed = scanned.closed.filter(|_| self.names.is_some());
            info.last = closed.map_or(info.last, |next| info.last.max(next - 1));
        }
        match scanned.tail {
            Tail::Corrupt { at, .. } => Err(damaged(name, at)),
            Tail::Foreign(version) => Err(foreign(name, version)),
            _ if misplaced.is_some() => Err(damaged(name, misplaced.unwrap_or(0))),
            tail => Ok((info, tail, scanned.end)),
        }
    }
}

/// Description of a missing segment, by its first event and the first event behind it.
pub fn missing(first: u64, next: u64) -> String {
    format!("a segment is missing: events {first} to {}", next - 1)
}

fn damaged(name: &str, at: u64) -> HomeError {
    corrupt(name, &format!("what is at byte {at} is not what was written"))
}

/// The name of a segment.
pub fn log_name(dir: &str, base: u64) -> String {
    format!("{dir}/{base:020}.log")
}

fn index_name(dir: &str, base: u64) -> String {
    format!("{dir}/{base:020}.idx")
}
