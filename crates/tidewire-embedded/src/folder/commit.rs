//! Group commit: one write and one sync for all calls since the last commit.

use tidewire_backend::home::HomeResult;
use tidewire_core::stream::lease::Granted;

use super::errors::disk_error;
use super::{Folder, Stream};
use crate::state::{Journal, Keeping, Op};

impl Folder {
    /// Writes and syncs all calls since the last commit: they survive a loss of power when this
    /// returns. Returns the streams that have new events.
    ///
    /// # Errors
    ///
    /// `Disk`: the state on the disk is unknown; reopen the folder.
    pub fn commit(&mut self, now_us: u64) -> HomeResult<Vec<String>> {
        let mut published = Vec::new();
        let touched = std::mem::take(&mut self.touched);
        for name in &touched {
            if let Some(stream) = self.streams.get_mut(name)
                && stream.files.commit()?
            {
                published.push(name.clone());
            }
        }
        // The event of a beat must be on the disk before the journal records the beat as over.
        for beat in std::mem::take(&mut self.beats) {
            self.keep(&beat);
        }
        self.journal.write(now_us)?;
        if self.urgent {
            self.journal.sync()?;
            self.urgent = false;
        }
        // Only now: that they were purged is on the disk.
        self.retire_all(touched, now_us)?;
        self.remove_doomed()?;
        if self.journal.has_grown() {
            self.compact(now_us)?;
        }
        self.clean(now_us)?;
        Ok(published)
    }

    /// Writes all calls without a sync: they survive the end of this process, and the next sync
    /// includes them.
    ///
    /// # Errors
    ///
    /// `Disk`, as of `commit`.
    pub fn write(&mut self, now_us: u64) -> HomeResult<()> {
        self.journal.write(now_us)
    }

    /// True if `commit` has work to do.
    pub fn has_urgent(&self) -> bool {
        self.urgent || !self.touched.is_empty() || self.is_cleaning()
    }

    /// When something is due next; `u64::MAX`: nothing is. Beats follow the clock on the wall,
    /// which shows `wall_us` now.
    pub fn next_us(&self, now_us: u64, wall_us: u64) -> u64 {
        let beat_us = self.beating.next_us().map(|at_us| now_us + at_us.saturating_sub(wall_us));
        let (delayed_us, bucket_us) = (self.delayed.next_us(), self.expiring.next_us());
        let due = [delayed_us, self.next_consumer_us(), bucket_us, self.leases.next_deadline_us(), beat_us];
        due.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// True if a stream has a limit of age.
    pub const fn has_aging(&self) -> bool {
        self.aging > 0
    }

    /// Removes expired events. To be called every few seconds.
    ///
    /// # Errors
    ///
    /// `Disk`, as of `commit`.
    pub fn retire(&mut self, now_us: u64) -> HomeResult<()> {
        let aging = |stream: &&Stream| stream.settings.max_age_us.is_some() && stream.files.log.group_bytes() == 0;
        let names: Vec<String> =
            self.streams.values().filter(aging).map(|stream| stream.settings.name.clone()).collect();
        self.retire_all(names, now_us)
    }

    /// Removes the expired segments of streams. The journal first records the new beginning of each
    /// stream, to tell a lost file from a removed one.
    fn retire_all(&mut self, names: impl IntoIterator<Item = String>, now_us: u64) -> HomeResult<()> {
        let mut retired = Vec::new();
        for name in names {
            let id = self.draw();
            let Self { disk, streams, journal, .. } = self;
            let Some(stream) = streams.get_mut(&name) else { continue };
            let bases = stream.files.retire(disk.as_mut(), id, now_us)?;
            if !bases.is_empty() {
                journal.append(&Op::First(stream.number, stream.files.log.first()));
                retired.push((name, bases));
            }
        }
        if retired.is_empty() {
            return Ok(());
        }
        self.journal.write(now_us)?;
        self.journal.sync()?;
        let Self { disk, streams, .. } = self;
        retired.into_iter().try_for_each(|(name, bases)| {
            streams.get_mut(&name).map_or(Ok(()), |stream| stream.files.remove(disk.as_mut(), &bases))
        })
    }

    /// Writes and syncs everything, and marks the folder on the disk as closed.
    ///
    /// # Errors
    ///
    /// `Disk`, as of `commit`.
    pub fn close(&mut self, now_us: u64) -> HomeResult<()> {
        self.commit(now_us)?;
        self.journal.close(now_us)?;
        self.streams.values_mut().try_for_each(|stream| stream.files.close())
    }

    fn remove_doomed(&mut self) -> HomeResult<()> {
        for dir in std::mem::take(&mut self.doomed) {
            self.disk.remove_dir(&dir).map_err(|error| disk_error("remove", &dir, &error))?;
        }
        Ok(())
    }

    /// Begins a new journal with the whole state, and removes the old one.
    fn compact(&mut self, now_us: u64) -> HomeResult<()> {
        let old = self.journal.number();
        let keeping = Keeping { reserve: self.sizes.reserve_bytes, compact_bytes: self.sizes.compact_bytes };
        let numbers = (old + 1, self.draw());
        let state = self.whole_state(now_us);
        self.journal = Journal::begin(self.disk.as_mut(), keeping, numbers, state.into_iter(), now_us)?;
        let name = super::files::log_name(crate::state::DIR, old);
        self.disk.remove(&name).map_err(|error| disk_error("remove", &name, &error))
    }

    fn whole_state(&self, now_us: u64) -> Vec<Op> {
        let mut ops = Vec::new();
        for stream in self.streams.values() {
            ops.push(Op::Stream(stream.number, stream.settings.clone()));
            ops.push(Op::First(stream.number, stream.files.log.first()));
            for (_, schedule) in stream.schedules.iter() {
                let times = (schedule.began_us, schedule.over_us);
                ops.push(Op::Schedule(stream.number, schedule.what.clone(), times));
            }
            for (name, cursor) in &stream.cursors {
                ops.push(Op::Consumer(stream.number, cursor.settings.clone(), cursor.machine.acked_to() + 1));
                ops.push(Op::Cursor(stream.number, name.clone(), cursor.machine.snapshot()));
            }
        }
        for (name, stored) in &self.buckets {
            ops.push(Op::Bucket(stored.settings.clone()));
            ops.extend(stored.bucket.entries().map(|entry| Op::Entry(name.clone(), entry.clone())));
            ops.push(Op::Revision(name.clone(), stored.bucket.revision()));
        }
        for (name, lease) in self.leases.iter() {
            let (name, fence) = (name.to_owned(), lease.fence);
            ops.push(match lease.active.as_ref().filter(|active| active.until_us > now_us) {
                Some(lease) => Op::Granted(Granted { name, fence, holder: lease.holder.clone(), ttl_us: lease.ttl_us }),
                None => Op::Released(name, fence),
            });
        }
        // Numbers of deleted streams must not be reused.
        ops.push(Op::Newest(self.next_number - 1));
        ops
    }
}
