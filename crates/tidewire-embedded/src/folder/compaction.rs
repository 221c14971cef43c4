//! Compaction of a stream: its sealed segments are rewritten as one, without events that newer ones
//! have replaced.
//!
//! Compaction proceeds in steps, between calls. The new file is synced under a name of its own, and
//! then replaces the first old segment. The other old segments are removed afterwards, or by
//! recovery after a crash.

use std::io;

use tidewire_backend::home::HomeResult;
use tidewire_core::stream::log::SegmentInfo;
use tidewire_core::stream::record::{Event, GROUP_BYTES, Group, Kind, SEGMENT_BYTES, Segment, put};

use super::Folder;
use super::errors::{disk_error, sync_error};
use super::files::{SegmentCursor, StreamFiles, log_name};
use crate::disk::{Disk, File};

/// Events that are scanned in one step, and bytes that one writes, so that calls get their turn.
const SCANNED_MAX: u32 = 10_000;
const STEP_BYTES: usize = 1 << 20;
const UNFINISHED: &str = ".new";

/// The new segment while it is written.
pub struct Cleaning {
    file: Box<dyn File>,
    info: SegmentInfo,
    /// The last replaced event.
    upto: u64,
    place: SegmentCursor,
    /// Names whose newest event is removed.
    freed: Vec<(Box<str>, u64)>,
}

impl Folder {
    /// Continues to rewrite sealed segments where this saves enough space.
    ///
    /// # Errors
    ///
    /// `Disk`, `Corrupt`.
    pub(super) fn clean(&mut self, now_us: u64) -> HomeResult<()> {
        let wants = self.streams.iter().find(|(_, stream)| stream.files.wants_cleaning());
        let Some(name) = wants.map(|(name, _)| name.clone()) else { return Ok(()) };
        let id = self.draw();
        let Self { disk, streams, .. } = self;
        let stream = streams.get_mut(&name).expect("it was found");
        stream.files.clean(disk.as_mut(), id, now_us)
    }

    /// True if sealed segments wait for compaction.
    pub(super) fn is_cleaning(&self) -> bool {
        self.streams.values().any(|stream| stream.files.wants_cleaning())
    }
}

impl StreamFiles {
    fn wants_cleaning(&self) -> bool {
        self.log.is_compacted() && (self.cleaning.is_some() || self.log.wants_cleaning().is_some())
    }

    fn clean(&mut self, disk: &mut dyn Disk, id: u64, now_us: u64) -> HomeResult<()> {
        let mut cleaning = match self.cleaning.take() {
            Some(cleaning) => cleaning,
            None => match self.log.wants_cleaning() {
                Some(upto) => Cleaning::begin(disk, self, (id, upto), now_us)?,
                None => return Ok(()),
            },
        };
        if cleaning.step(disk, self, now_us)? {
            return self.replace(disk, cleaning);
        }
        self.cleaning = Some(cleaning);
        Ok(())
    }

    /// Puts the new segment in the place of the old ones.
    fn replace(&mut self, disk: &mut dyn Disk, mut cleaning: Cleaning) -> HomeResult<()> {
        cleaning.close()?;
        let name = log_name(&self.dir, cleaning.info.base);
        disk.rename(&unfinished(&self.dir), &name).map_err(|error| disk_error("rename", &name, &error))?;
        disk.sync_dir(&self.dir).map_err(|error| sync_error(&self.dir, &error))?;
        let base = cleaning.info.base;
        let replaced = self.log.cleaned(cleaning.info, &cleaning.freed);
        self.reopen_sealed();
        let behind: Vec<u64> = replaced.iter().map(|segment| segment.base).filter(|old| *old != base).collect();
        self.remove(disk, &behind)
    }

    /// Abandons the running compaction: the segments have changed.
    pub(super) fn stop_cleaning(&mut self, disk: &mut dyn Disk) -> HomeResult<()> {
        if self.cleaning.take().is_none() {
            return Ok(());
        }
        let name = unfinished(&self.dir);
        disk.remove(&name).map_err(|error| disk_error("remove", &name, &error))
    }
}

impl Cleaning {
    fn begin(disk: &mut dyn Disk, files: &StreamFiles, (id, upto): (u64, u64), now_us: u64) -> HomeResult<Self> {
        let name = unfinished(&files.dir);
        let segments = files.log.segments();
        let (oldest, newest) = (&segments[0], segments.iter().rev().find(|segment| segment.base <= upto));
        let mut info = SegmentInfo::new(id, oldest.base, SEGMENT_BYTES as u64);
        info.first_time_us = oldest.first_time_us;
        info.last_time_us = newest.map_or(now_us, |newest| newest.last_time_us);
        let created = (|| {
            let mut file = disk.create(&name)?;
            file.write_at(0, &Segment { id, base: oldest.base, created_us: now_us }.encode())?;
            Ok::<_, io::Error>(file)
        })();
        let file = created.map_err(|error| disk_error("make", &name, &error))?;
        Ok(Self { file, upto, place: SegmentCursor::before(info.base), info, freed: Vec::new() })
    }

    /// Copies some events that stay. True: those were the last.
    fn step(&mut self, disk: &mut dyn Disk, files: &mut StreamFiles, now_us: u64) -> HomeResult<bool> {
        let (mut place, mut remaining) = (self.place, SCANNED_MAX);
        let (upto, mut bytes) = (self.upto, 0);
        let mut read = Vec::new();
        files.read(disk, &mut place, &mut |event, _, _| {
            if event.sequence > upto {
                return false;
            }
            let mut body = Vec::new();
            event.write_to(&mut body);
            bytes += body.len();
            read.push(body);
            remaining -= 1;
            remaining > 0 && bytes < STEP_BYTES
        })?;
        self.place = place;
        self.copy(&read, files, now_us)?;
        Ok(place.next > upto)
    }

    fn copy(&mut self, read: &[Vec<u8>], files: &StreamFiles, now_us: u64) -> HomeResult<()> {
        let (mut group, mut count, mut first, mut time_us) = (vec![0; GROUP_BYTES], 0, 0, 0);
        let (id, at) = (self.info.id, self.info.bytes);
        for event in read.iter().filter_map(|body| Event::decode(body)) {
            if !files.log.keeps(&event, now_us) {
                let freed = files.log.freed_name(&event);
                self.freed.extend(freed.map(|name| (name.into(), event.sequence)));
                continue;
            }
            let offset = at + group.len() as u64;
            put(&mut group, id, offset, Kind::Event, |out| event.write_to(out));
            self.info.saw(event.sequence, event.time_us, offset, event.id.is_some());
            self.info.delayed.extend(event.due_us.map(|due_us| (due_us, event.sequence)));
            self.info.released.extend(event.origin);
            (first, time_us) = (if count == 0 { event.sequence } else { first }, event.time_us);
            count += 1;
        }
        if count > 0 { self.write(group, (first, time_us, count)) } else { Ok(()) }
    }

    fn write(&mut self, mut group: Vec<u8>, (first, time_us, count): (u64, u64, u32)) -> HomeResult<()> {
        let (id, offset, bytes) = (self.info.id, self.info.bytes, (group.len() - GROUP_BYTES) as u32);
        Group { id, offset, synced: offset, first, time_us, count, bytes }.write_to(&mut group);
        let written = self.file.write_at(offset, &group).and_then(|()| self.file.sync());
        written.map_err(|error| disk_error("write", UNFINISHED, &error))?;
        self.info.bytes += group.len() as u64;
        Ok(())
    }

    /// Records the end of the segment: missing events before it are gone.
    fn close(&mut self) -> HomeResult<()> {
        self.write(vec![0; GROUP_BYTES], (self.upto + 1, self.info.last_time_us, 0))?;
        self.info.last = self.upto;
        Ok(())
    }
}

/// Removes a segment that was not written to its end.
pub fn remove_unfinished(disk: &mut dyn Disk, dir: &str) -> HomeResult<()> {
    let names = disk.names(dir).map_err(|error| disk_error("read", dir, &error))?;
    if names.iter().any(|name| name == UNFINISHED) {
        let name = unfinished(dir);
        disk.remove(&name).map_err(|error| disk_error("remove", &name, &error))?;
    }
    Ok(())
}

fn unfinished(dir: &str) -> String {
    format!("{dir}/{UNFINISHED}")
}
