//! Streams of a folder: create, inspect, purge and delete.

use std::collections::BTreeMap;

use tidewire_backend::home::{
    Capability, Compact, Full, HomeError, HomeErrorKind, HomeResult, Purge, StreamInfo, StreamSettings,
};
use tidewire_core::stream::compaction::By;
use tidewire_core::stream::log::Options;
use tidewire_core::stream::schedule::Schedules;
use tidewire_proto::generated::limits;

use super::errors::invalid;
use super::files::{Keeping, StreamFiles};
use super::names::{capabilities, check_count, check_stream};
use super::{Folder, Sizes, Stream, stream_dir};
use crate::state::Op;

impl Folder {
    /// Makes a stream, or finds that it is there.
    ///
    /// # Errors
    ///
    /// `Invalid`, `Differs`, `Unsupported`, `Limit`.
    pub fn create_stream(&mut self, settings: StreamSettings, now_us: u64) -> HomeResult<StreamInfo> {
        check_stream(&settings)?;
        let name = settings.name.clone();
        if let Some(stream) = self.streams.get(&name) {
            same(stream.settings.difference(&settings))?;
            return self.stream_info(&name);
        }
        check_count("streams", self.streams.len(), &limits::STREAMS)?;
        let number = self.next_number;
        self.next_number += 1;
        self.keep(&Op::Stream(number, settings.clone()));
        let dir = stream_dir(&name, number);
        let keeping = Keeping { dir: &dir, reserve: self.sizes.reserve_bytes, first: 1, now_us };
        let options = log_options(&settings, self.sizes);
        let files = StreamFiles::recover(self.disk.as_mut(), &keeping, options, &mut self.notices)?;
        self.aging += usize::from(settings.max_age_us.is_some());
        self.streams.insert(
            name.clone(),
            Stream { number, settings, files, cursors: BTreeMap::new(), schedules: Schedules::default() },
        );
        self.stream_info(&name)
    }

    /// The state of a stream.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn stream_info(&self, name: &str) -> HomeResult<StreamInfo> {
        let stream = self.stream(name)?;
        let log = &stream.files.log;
        let filled = || log.segments().iter().filter(|segment| segment.last >= segment.base);
        let has = log.messages() > 0;
        Ok(StreamInfo {
            settings: stream.settings.clone(),
            messages: log.messages(),
            bytes: log.bytes(),
            first: log.first(),
            last: log.durable(),
            first_time_us: filled().next().map(|segment| segment.first_time_us).filter(|_| has),
            last_time_us: filled().next_back().map(|segment| segment.last_time_us),
            delayed: log.delayed() as u64,
            dead: stream.cursors.values().map(|cursor| cursor.machine.dead().len() as u64).sum(),
            consumers: stream.cursors.len() as u32,
        })
    }

    /// Every stream.
    pub fn list_streams(&self) -> Vec<StreamInfo> {
        self.streams.keys().filter_map(|name| self.stream_info(name).ok()).collect()
    }

    /// Deletes a stream with all it has.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn delete_stream(&mut self, name: &str) -> HomeResult<()> {
        let consumers: Vec<String> = self.stream(name)?.cursors.keys().cloned().collect();
        consumers.iter().for_each(|consumer| self.unplan(name, consumer));
        let stream = self.streams.remove(name).expect("it is there");
        self.aging -= usize::from(stream.settings.max_age_us.is_some());
        self.doomed.push(stream.dir());
        self.keep(&Op::StreamGone(stream.number));
        Ok(())
    }

    /// Removes events. Returns how many.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unsupported` with a filter.
    pub fn purge(&mut self, name: &str, purge: &Purge) -> HomeResult<u64> {
        if purge.filter.is_some() {
            capabilities().need(Capability::PurgeFilter, "filter")?;
        }
        if purge.before.is_some() && purge.keep.is_some() {
            return Err(invalid("purge: both before and keep are given; give one of them"));
        }
        let stream = self.stream_mut(name)?;
        let log = &mut stream.files.log;
        let end = log.durable() + 1;
        let before = purge.before.unwrap_or_else(|| end.saturating_sub(purge.keep.unwrap_or(0)));
        let purged = log.purge_before(before);
        let op = Op::First(stream.number, log.first());
        self.touched.insert(name.to_owned());
        self.keep(&op);
        Ok(purged)
    }
}

/// How the log of a stream behaves.
pub fn log_options(settings: &StreamSettings, sizes: Sizes) -> Options {
    let eighth = settings.max_bytes.map_or(u64::MAX, |max| (max / 8).max(4_096));
    Options {
        max_age_us: settings.max_age_us,
        max_bytes: settings.max_bytes,
        max_messages: settings.max_messages,
        drop_old: settings.full == Full::DropOld,
        dedupe_us: settings.dedupe_us,
        compact: settings.compact.map(|compact| match compact {
            Compact::Key => By::Key,
            Compact::Subject => By::Subject,
        }),
        names_max: limits::COMPACT_NAMES.max as usize,
        ids_max: limits::DEDUPE_IDS.max as usize,
        segment_bytes: sizes.segment_bytes.min(eighth),
    }
}

/// Refuses settings that differ from those of an existing object.
pub fn same(difference: Option<String>) -> HomeResult<()> {
    difference.map_or(Ok(()), |text| Err(HomeError::new(HomeErrorKind::Differs, text)))
}

/// The error of a stream at its limit.
pub fn full(name: &str, field: &str, limit: u64) -> HomeError {
    let text =
        format!("stream {name:?}: {field} is {limit}, and it has as much; purge it, or make it with a larger limit");
    HomeError::new(HomeErrorKind::Full, text)
}
