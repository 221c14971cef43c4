//! Contents of a data folder, for one thread: streams with their consumers, buckets and leases.
//!
//! Calls change the state in memory, and buffer writes. [`Folder::commit`] writes and syncs the
//! buffer; results may be reported only afterwards. After an error of `commit` the folder must be
//! reopened: only the state on the disk counts.

mod agenda;
mod commit;
mod compaction;
mod consumers;
pub mod errors;
pub mod files;
mod keyvalue;
mod leases;
mod names;
mod publish;
mod read;
mod recover;
mod schedules;
mod streams;

use std::collections::{BTreeMap, BTreeSet};

use tidewire_backend::home::{BucketSettings, ConsumerSettings, HomeResult, ScheduleSettings, StreamSettings};
use tidewire_core::stream::consumer::Consumer;
use tidewire_core::stream::keyvalue::Bucket;
use tidewire_core::stream::lease::Leases;
use tidewire_core::stream::schedule::Schedules;

use crate::disk::Disk;
use crate::state::{Journal, Op};
use agenda::Agenda;
use files::{SegmentCursor, StreamFiles};

pub use consumers::Fetched;
pub use leases::Leased;
pub use names::capabilities;
pub(crate) use recover::beginnings;

/// Repair of a torn file when a folder was opened.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{file}: a crash has torn the last write, of which nothing was acked: {bytes} bytes from byte {at} on")]
pub struct Notice {
    /// Which file.
    pub file: String,
    /// From where on it was cut off.
    pub at: u64,
    /// How many bytes were written there.
    pub bytes: u64,
}

impl Notice {
    pub(crate) fn torn(file: &str, at: u64, bytes: u64) -> Self {
        Self { file: file.to_owned(), at, bytes }
    }
}

/// Sizes, which tests make small.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// A segment of a stream.
    pub segment_bytes: u64,
    /// The least space that is reserved ahead of the writes.
    pub reserve_bytes: u64,
    /// Growth after which a journal is rewritten.
    pub compact_bytes: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        let segment_bytes = tidewire_proto::generated::limits::SEGMENT_BYTES.default;
        Self { segment_bytes, reserve_bytes: 64 << 10, compact_bytes: 16 << 20 }
    }
}

/// An open data folder.
pub struct Folder {
    disk: Box<dyn Disk>,
    sizes: Sizes,
    journal: Journal,
    /// True if a caller waits for a buffered operation of the journal.
    urgent: bool,
    streams: BTreeMap<String, Stream>,
    /// How many of them forget events by their age.
    aging: usize,
    next_number: u64,
    buckets: BTreeMap<String, StoredConsumer>,
    leases: Leases,
    /// When something is due at a consumer at the earliest, with its stream and its name.
    due: BTreeSet<(u64, String, String)>,
    /// When a delayed message of a stream is due.
    delayed: Agenda,
    /// When a schedule of a stream beats, as a clock on the wall shows it.
    beating: Agenda,
    /// Beats for the journal, once their events are synced.
    beats: Vec<Op>,
    /// When an entry of a bucket expires.
    expiring: Agenda,
    /// Folders of streams that were deleted, to be removed once that is synced.
    doomed: Vec<String>,
    /// Streams whose segments may have expired.
    touched: BTreeSet<String>,
    random: u64,
    notices: Vec<Notice>,
    opened_us: u64,
}

struct Stream {
    number: u64,
    settings: StreamSettings,
    files: StreamFiles,
    cursors: BTreeMap<String, Cursor>,
    schedules: Schedules<ScheduleSettings>,
}

struct Cursor {
    settings: ConsumerSettings,
    machine: Consumer,
    /// Position of the next event of the state machine.
    place: SegmentCursor,
    used_us: u64,
    /// Its time in `Folder::due`; `u64::MAX` while it is not in there. Never later than the truth.
    planned_us: u64,
}

struct StoredConsumer {
    settings: BucketSettings,
    bucket: Bucket,
}

impl Folder {
    /// Repairs when the folder was opened.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Time of the folder when it was opened: the given time, or the newest stored time if the
    /// clock was set back. Later times must not go back before it.
    pub fn opened_us(&self) -> u64 {
        self.opened_us
    }

    /// A number that no two segments share.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Adds an operation to the journal for which a caller waits.
    fn keep(&mut self, op: &Op) {
        self.journal.append(op);
        self.urgent = true;
    }

    fn stream(&self, name: &str) -> HomeResult<&Stream> {
        self.streams.get(name).ok_or_else(|| errors::not_found("stream", name))
    }

    fn stream_mut(&mut self, name: &str) -> HomeResult<&mut Stream> {
        self.streams.get_mut(name).ok_or_else(|| errors::not_found("stream", name))
    }

    fn cursor_mut(&mut self, stream: &str, consumer: &str) -> HomeResult<(u64, &mut Cursor)> {
        let stream = self.stream_mut(stream)?;
        let number = stream.number;
        let cursor = stream.cursors.get_mut(consumer);
        Ok((number, cursor.ok_or_else(|| errors::not_found("consumer", consumer))?))
    }
}

impl Stream {
    fn dir(&self) -> String {
        stream_dir(&self.settings.name, self.number)
    }
}

/// Where the segments of a stream are.
fn stream_dir(name: &str, number: u64) -> String {
    format!("{STREAMS}/{name}.{number}")
}

const STREAMS: &str = "streams";
