//! Journal of a folder's state: its streams, consumers, buckets and leases, and all changes.
//!
//! A file begins with the whole state, and continues with changes. A large file is followed by a
//! new one, and removed once the new one is synced.

mod codec;
mod op;

use std::io;

use tidewire_backend::home::{HomeError, HomeErrorKind, HomeResult};
use tidewire_core::stream::record::{GROUP_BYTES, Group, Kind, SEGMENT_BYTES, Segment, put};
use tidewire_core::stream::scan::{Scanned, Tail, scan};

pub use op::Op;

use crate::disk::{Disk, File, read_all};
use crate::folder::Notice;
use crate::folder::errors::{corrupt, disk_error, foreign, sync_error};
use crate::folder::files::log_name;

/// Folder of the journal.
pub const DIR: &str = "state";

/// The newest file of the journal.
pub struct Journal {
    file: Box<dyn File>,
    id: u64,
    number: u64,
    end: u64,
    synced: u64,
    reserved: u64,
    reserve: u64,
    /// The end of the whole state in this file.
    whole: u64,
    compact_bytes: u64,
    group: Vec<u8>,
    count: u32,
    /// When something was written last.
    newest_us: u64,
}

/// Settings of a journal.
#[derive(Clone, Copy, Debug)]
pub struct Keeping {
    /// The space that is taken ahead.
    pub reserve: u64,
    /// A file that has grown by so much, and is twice as long as the whole state, is followed by a
    /// new one.
    pub compact_bytes: u64,
}

/// A recovered journal, with its operations.
pub type Recovered = (Option<Journal>, Vec<Op>);

/// Contents of a file of a journal.
struct Read {
    ops: Vec<Op>,
    /// Where the first change is that this version does not know, and why.
    wrong: Option<(u64, String)>,
    /// The end of the whole state; 0 if it was never written.
    whole: u64,
    newest_us: u64,
    scanned: Scanned,
}

fn read(bytes: &[u8]) -> Read {
    let (mut ops, mut wrong, mut whole, mut newest_us) = (Vec::new(), None, 0, 0);
    let scanned = scan(bytes, &mut |found| {
        newest_us = newest_us.max(found.group.time_us);
        match Op::read(found.body) {
            Ok(Op::Whole) => whole = found.group.offset + GROUP_BYTES as u64 + u64::from(found.group.bytes),
            Ok(op) => ops.push(op),
            Err(why) => wrong = wrong.take().or(Some((found.offset, why))),
        }
    });
    Read { ops, wrong, whole, newest_us, scanned }
}

impl Journal {
    /// Reads the newest file that has the whole state, and removes the others. None if there never
    /// was one.
    ///
    /// # Errors
    ///
    /// `Corrupt` and `Foreign`, as of segments.
    pub fn recover(disk: &mut dyn Disk, keeping: Keeping, notices: &mut Vec<Notice>) -> HomeResult<Recovered> {
        let mut numbers = Vec::new();
        for name in disk.names(DIR).map_err(|error| disk_error("read", DIR, &error))? {
            numbers.extend(name.strip_suffix(".log").and_then(|number| number.parse::<u64>().ok()));
        }
        let mut found = None;
        while let Some(number) = numbers.pop() {
            let name = log_name(DIR, number);
            if found.is_none() {
                found = Self::open(disk, keeping, number, notices)?;
                if found.is_some() {
                    continue;
                }
            }
            disk.remove(&name).map_err(|error| disk_error("remove", &name, &error))?;
        }
        Ok(found.map_or((None, Vec::new()), |(journal, ops)| (Some(journal), ops)))
    }

    /// None: the file was never whole, as a crash came before; the one before it counts.
    fn open(
        disk: &mut dyn Disk,
        keeping: Keeping,
        number: u64,
        notices: &mut Vec<Notice>,
    ) -> HomeResult<Option<(Self, Vec<Op>)>> {
        let name = log_name(DIR, number);
        let mut file = disk.open(&name).map_err(|error| disk_error("open", &name, &error))?;
        let bytes = read_all(file.as_ref()).map_err(|error| disk_error("read", &name, &error))?;
        let Read { ops, wrong, whole, newest_us, scanned } = read(&bytes);
        match scanned.tail {
            Tail::Corrupt { at, .. } => {
                return Err(corrupt(&name, &format!("what is at byte {at} is not what was written")));
            }
            Tail::Foreign(version) => return Err(foreign(&name, version)),
            _ => {}
        }
        if let Some((at, why)) = wrong {
            let text = format!("{name}: the change at byte {at} can't be read: {why}; install a newer Tidewire");
            return Err(HomeError::new(HomeErrorKind::Foreign, text));
        }
        let Some(segment) = scanned.segment.filter(|_| whole > 0) else { return Ok(None) };
        let mut reserved = bytes.len() as u64;
        if let Tail::Torn(torn) = scanned.tail {
            let cut = (|| {
                file.set_length(scanned.end)?;
                file.reserve(scanned.end + keeping.reserve)
            })();
            cut.map_err(|error| disk_error("cut", &name, &error))?;
            reserved = scanned.end + keeping.reserve;
            notices.push(Notice::torn(&name, scanned.end, torn));
        }
        // Writes without a sync survive a crash of the process alone: from now on they have to
        // stay.
        file.sync().map_err(|error| disk_error("sync", &name, &error))?;
        let (id, end) = (segment.id, scanned.end);
        let journal = Self {
            file,
            id,
            number,
            end,
            synced: end,
            reserved,
            reserve: keeping.reserve,
            whole,
            compact_bytes: keeping.compact_bytes,
            group: Vec::new(),
            count: 0,
            newest_us,
        };
        Ok(Some((journal, ops)))
    }

    /// Operations of the newest file with the whole state, as far as readable. Changes nothing.
    pub fn peek(disk: &mut dyn Disk) -> Vec<Op> {
        let names = disk.names(DIR).unwrap_or_default();
        let newest_first = names.iter().filter(|name| name.ends_with(".log")).rev();
        let mut files = newest_first.filter_map(|name| {
            let file = disk.open(&format!("{DIR}/{name}")).ok()?;
            Some(read(&read_all(file.as_ref()).ok()?))
        });
        files.find(|read| read.whole > 0).map(|read| read.ops).unwrap_or_default()
    }

    /// Begins a new file with the whole state.
    pub fn begin(
        disk: &mut dyn Disk,
        keeping: Keeping,
        (number, id): (u64, u64),
        whole: impl Iterator<Item = Op>,
        now_us: u64,
    ) -> HomeResult<Self> {
        let name = log_name(DIR, number);
        let head = Segment { id, base: number, created_us: now_us }.encode();
        let created = (|| {
            disk.make_dir(DIR)?;
            let mut file = disk.create(&name)?;
            file.write_at(0, &head)?;
            Ok::<_, io::Error>(file)
        })();
        let mut journal = Self {
            file: created.map_err(|error| disk_error("make", &name, &error))?,
            id,
            number,
            end: SEGMENT_BYTES as u64,
            synced: SEGMENT_BYTES as u64,
            reserved: SEGMENT_BYTES as u64,
            reserve: keeping.reserve,
            whole: 0,
            compact_bytes: keeping.compact_bytes,
            group: Vec::new(),
            count: 0,
            newest_us: now_us,
        };
        for op in whole {
            journal.append(&op);
            if journal.group.len() > 1 << 20 {
                journal.write(now_us)?;
            }
        }
        journal.append(&Op::Whole);
        journal.write(now_us)?;
        journal.sync()?;
        disk.sync_dir(DIR).map_err(|error| disk_error("sync", DIR, &error))?;
        journal.whole = journal.end;
        Ok(journal)
    }

    /// When something was written last.
    pub const fn newest_us(&self) -> u64 {
        self.newest_us
    }

    /// The number of its file.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// True if a new file should be begun.
    pub const fn has_grown(&self) -> bool {
        self.end - self.whole > self.compact_bytes && self.end > 2 * self.whole
    }

    /// Takes a change into the group.
    pub fn append(&mut self, op: &Op) {
        if self.group.is_empty() {
            self.group.resize(GROUP_BYTES, 0);
        }
        let offset = self.end + self.group.len() as u64;
        put(&mut self.group, self.id, offset, Kind::Change, |out| {
            let mut writer = codec::Writer(std::mem::take(out));
            op.write_to(&mut writer);
            *out = writer.0;
        });
        self.count += 1;
    }

    /// Writes appended operations: they survive the end of the process.
    pub fn write(&mut self, now_us: u64) -> HomeResult<()> {
        if self.group.is_empty() {
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut self.group);
        let (offset, body) = (self.end, (bytes.len() - GROUP_BYTES) as u32);
        let count = std::mem::take(&mut self.count);
        let (id, synced) = (self.id, self.synced);
        self.newest_us = self.newest_us.max(now_us);
        Group { id, offset, synced, first: 0, time_us: now_us, count, bytes: body }.write_to(&mut bytes);
        self.end += bytes.len() as u64;
        let written = (|| {
            if self.end > self.reserved {
                self.file.reserve(self.end + self.reserve)?;
                self.reserved = self.end + self.reserve;
            }
            self.file.write_at(offset, &bytes)
        })();
        written.map_err(|error| disk_error("write", &log_name(DIR, self.number), &error))
    }

    /// True if some writes are not synced.
    pub const fn is_dirty(&self) -> bool {
        self.synced != self.end
    }

    /// Waits until everything that was written survives a loss of power.
    pub fn sync(&mut self) -> HomeResult<()> {
        if self.is_dirty() {
            self.file.sync().map_err(|error| sync_error(&log_name(DIR, self.number), &error))?;
            self.synced = self.end;
        }
        Ok(())
    }

    /// Says at the end that everything is synced: damage is seen everywhere then.
    pub fn close(&mut self, now_us: u64) -> HomeResult<()> {
        self.write(now_us)?;
        self.sync()?;
        self.group.resize(GROUP_BYTES, 0);
        self.write(now_us)?;
        self.sync()
    }
}
