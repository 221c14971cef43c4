//! Recovery of a folder when it is opened, also after a crash.

use std::collections::{BTreeMap, BTreeSet};

use tidewire_backend::home::{HomeResult, ScheduleSettings, StreamSettings};
use tidewire_core::stream::lease::Leases;
use tidewire_core::stream::schedule::Schedules;

use super::agenda::Agenda;
use super::errors::{corrupt, disk_error};
use super::files::{Keeping as StreamKeeping, StreamFiles};
use super::streams::log_options;
use super::{Cursor, Folder, STREAMS, Sizes, StoredConsumer, Stream, stream_dir};
use crate::disk::Disk;
use crate::state::{Journal, Keeping, Op};

/// State of a folder, recovered from its journal.
#[derive(Default)]
struct RecoveredState {
    streams: BTreeMap<u64, RecoveredStream>,
    newest_number: u64,
    buckets: BTreeMap<String, StoredConsumer>,
    leases: Vec<Op>,
}

/// State of one stream in the journal.
struct RecoveredStream {
    settings: StreamSettings,
    first: u64,
    cursors: BTreeMap<String, Cursor>,
    schedules: Schedules<ScheduleSettings>,
}

impl Folder {
    /// Opens the folder of a disk; an empty disk becomes an empty folder. `random` makes the ids of
    /// segments.
    ///
    /// # Errors
    ///
    /// `Corrupt` for files that have changed since they were synced, `Foreign` for files of another
    /// version, `Disk`.
    pub fn open(mut disk: Box<dyn Disk>, sizes: Sizes, random: u64, now_us: u64) -> HomeResult<Self> {
        let mut notices = Vec::new();
        let keeping = Keeping { reserve: sizes.reserve_bytes, compact_bytes: sizes.compact_bytes };
        let (journal, ops) = Journal::recover(disk.as_mut(), keeping, &mut notices)?;
        let now_us = journal.as_ref().map_or(now_us, |journal| journal.newest_us().max(now_us));
        let mut recovered = RecoveredState::default();
        for op in ops {
            recovered.repeat(op, now_us);
        }
        let dirs = disk.names(STREAMS).map_err(|error| disk_error("read", "streams", &error))?;
        let journal = match journal {
            Some(journal) => journal,
            None if !dirs.is_empty() => {
                return Err(corrupt("state", "it is not there, but streams are"));
            }
            None => Journal::begin(disk.as_mut(), keeping, (1, random), std::iter::empty(), now_us)?,
        };
        let mut folder = Self {
            disk,
            sizes,
            journal,
            urgent: false,
            streams: BTreeMap::new(),
            aging: 0,
            next_number: recovered.newest_number + 1,
            buckets: recovered.buckets,
            leases: Leases::default(),
            due: BTreeSet::new(),
            delayed: Agenda::default(),
            beating: Agenda::default(),
            beats: Vec::new(),
            expiring: Agenda::default(),
            doomed: Vec::new(),
            touched: BTreeSet::new(),
            random,
            notices,
            opened_us: now_us,
        };
        for (number, record) in recovered.streams {
            folder.open_stream(number, record, now_us)?;
        }
        // Before anything else is written: with a new segment the next start would not find them.
        for beat in std::mem::take(&mut folder.beats) {
            folder.journal.append(&beat);
        }
        folder.journal.write(now_us)?;
        folder.journal.sync()?;
        folder.remove_orphans(&dirs)?;
        folder.begin_time(recovered.leases);
        let Self { streams, buckets, delayed, beating, expiring, .. } = &mut folder;
        for (name, stream) in streams.iter() {
            delayed.note(name, stream.files.log.next_due_us());
            beating.note(name, stream.schedules.next_us());
        }
        buckets.iter().for_each(|(name, stored)| expiring.note(name, stored.bucket.next_deadline_us()));
        let named = |(name, stream): (&String, &Stream)| {
            stream.cursors.keys().map(|consumer| (name.clone(), consumer.clone())).collect::<Vec<_>>()
        };
        let consumers: Vec<_> = folder.streams.iter().flat_map(named).collect();
        consumers.iter().for_each(|(stream, consumer)| folder.plan(stream, consumer));
        Ok(folder)
    }

    /// Continues time from the newest stored time: leases run their whole TTL again, and no
    /// consumer counts as idle for long.
    fn begin_time(&mut self, leases: Vec<Op>) {
        let newest_us = self.streams.values().map(|stream| stream.files.log.newest_us()).max();
        let now_us = self.opened_us.max(newest_us.unwrap_or(0));
        self.opened_us = now_us;
        for op in leases {
            match op {
                Op::Granted(granted) => self.leases.restore(granted, now_us),
                Op::Released(name, fence) => self.leases.restore_released(&name, fence),
                _ => {}
            }
        }
        let cursors = self.streams.values_mut().flat_map(|stream| stream.cursors.values_mut());
        cursors.for_each(|cursor| cursor.used_us = now_us);
    }

    fn open_stream(&mut self, number: u64, record: RecoveredStream, now_us: u64) -> HomeResult<()> {
        let RecoveredStream { settings, first, cursors, mut schedules } = record;
        let dir = stream_dir(&settings.name, number);
        let keeping = StreamKeeping { dir: &dir, reserve: self.sizes.reserve_bytes, first, now_us };
        let options = log_options(&settings, self.sizes);
        let mut files = StreamFiles::recover(self.disk.as_mut(), &keeping, options, &mut self.notices)?;
        for (name, over_us) in files.take_beats() {
            if schedules.get(&name).is_some_and(|schedule| schedule.over_us < over_us) {
                schedules.beaten(&name, over_us);
                self.beats.push(Op::Beat(number, name, over_us));
            }
        }
        let last = files.log.durable();
        if let Some((name, cursor)) = cursors.iter().find(|(_, cursor)| cursor.machine.acked_to() > last) {
            let acked = cursor.machine.acked_to();
            return Err(corrupt(
                &dir,
                &format!("consumer {name:?} has acked event {acked}, and the last there is is {last}"),
            ));
        }
        self.aging += usize::from(settings.max_age_us.is_some());
        self.streams.insert(settings.name.clone(), Stream { number, settings, files, cursors, schedules });
        Ok(())
    }

    /// Removes files of deleted or incomplete streams.
    fn remove_orphans(&mut self, dirs: &[String]) -> HomeResult<()> {
        let known: BTreeSet<String> = self.streams.values().map(Stream::dir).collect();
        for dir in dirs {
            let dir = format!("{}/{dir}", STREAMS);
            if !known.contains(&dir) {
                self.disk.remove_dir(&dir).map_err(|error| disk_error("remove", &dir, &error))?;
            }
        }
        Ok(())
    }
}

/// The first event of each stream according to the journal, by folder.
pub fn beginnings(disk: &mut dyn Disk) -> BTreeMap<String, u64> {
    let mut recovered = RecoveredState::default();
    Journal::peek(disk).into_iter().for_each(|op| recovered.repeat(op, 0));
    let begins = |(number, record): (u64, RecoveredStream)| (stream_dir(&record.settings.name, number), record.first);
    recovered.streams.into_iter().map(begins).collect()
}

impl RecoveredState {
    /// Changes a stream, if it is there.
    fn at<T>(&mut self, number: u64, change: impl FnOnce(&mut RecoveredStream) -> T) {
        drop(self.streams.get_mut(&number).map(change));
    }

    fn repeat(&mut self, op: Op, now_us: u64) {
        match op {
            Op::Stream(number, settings) => {
                self.newest_number = self.newest_number.max(number);
                let (cursors, schedules) = (BTreeMap::new(), Schedules::default());
                self.streams.insert(number, RecoveredStream { settings, first: 1, cursors, schedules });
            }
            Op::StreamGone(number) => {
                self.newest_number = self.newest_number.max(number);
                self.streams.remove(&number);
            }
            Op::First(number, first) => self.at(number, |stream| stream.first = first),
            Op::Consumer(number, settings, next) => self
                .at(number, |stream| stream.cursors.insert(settings.name.clone(), Cursor::new(settings, next, now_us))),
            Op::ConsumerGone(number, name) => self.at(number, |stream| stream.cursors.remove(&name)),
            Op::Cursor(number, name, changes) => {
                let cursor = self.streams.get_mut(&number).and_then(|stream| stream.cursors.get_mut(&name));
                if let Some(cursor) = cursor {
                    changes.into_iter().for_each(|change| cursor.machine.restore(change, now_us));
                }
            }
            Op::Schedule(number, settings, times) => {
                let (name, timing) = (settings.name.clone(), settings.timing.clone());
                self.at(number, |stream| {
                    stream.schedules.set(&name, timing, settings, times);
                });
            }
            Op::ScheduleGone(number, name) => self.at(number, |stream| stream.schedules.remove(&name)),
            Op::Beat(number, name, over_us) => self.at(number, |stream| stream.schedules.beaten(&name, over_us)),
            Op::Bucket(settings) => drop(self.buckets.insert(settings.name.clone(), StoredConsumer::new(settings))),
            Op::BucketGone(name) => drop(self.buckets.remove(&name)),
            Op::Entry(name, entry) => {
                if let Some(stored) = self.buckets.get_mut(&name) {
                    stored.bucket.restore(entry);
                }
            }
            Op::Revision(name, revision) => {
                if let Some(stored) = self.buckets.get_mut(&name) {
                    stored.bucket.restore_revision(revision);
                }
            }
            op @ (Op::Granted(_) | Op::Released(..)) => self.leases.push(op),
            Op::Newest(number) => self.newest_number = self.newest_number.max(number),
            Op::Whole => {}
        }
    }
}
