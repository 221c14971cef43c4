//! Check and salvage of a data folder: a report on its files, and the rescue of whole records from
//! damaged ones.

use std::path::Path;

use tidewire_backend::home::{Home as _, HomeResult, NewMessage, StreamSettings, Streams as _};
use tidewire_core::stream::record::{Event, Kind, Segment, headers_of};
use tidewire_core::stream::scan::{Tail, salvage as salvage_segment, scan};
use tidewire_proto::subject::{Pattern, Subject};

use crate::disk::{Disk, Real, read_all};
use crate::folder::beginnings;
use crate::folder::errors::disk_error;
use crate::folder::files::missing;

/// Check result of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Its name in the folder; that of a stream's folder if one of its files is missing.
    pub file: String,
    /// How many whole writes it has.
    pub groups: u64,
    /// How many whole events, or changes of the state.
    pub records: u64,
    /// The bytes of them.
    pub bytes: u64,
    /// The damage; None for an intact file.
    pub damage: Option<String>,
    /// A crash has torn its last write: so many bytes, of which nothing was acked. Opening the
    /// folder cuts them off.
    pub torn_bytes: u64,
}

impl Checked {
    fn missing(dir: &str, first: u64, next: u64) -> Self {
        let damage = Some(missing(first, next));
        Self { file: dir.to_owned(), groups: 0, records: 0, bytes: 0, damage, torn_bytes: 0 }
    }
}

/// Looks at every file of a folder, and for files that are missing. Changes nothing.
///
/// # Errors
///
/// `Disk`.
pub fn check(path: &Path) -> HomeResult<Vec<Checked>> {
    let mut disk = Real::new(path).map_err(|error| disk_error("open", &path.display().to_string(), &error))?;
    let mut all = Vec::new();
    // The next event of each stream, by its folder. The journal knows the first.
    let mut next = beginnings(&mut disk);
    for name in log_files(&mut disk)? {
        let bytes = load(&mut disk, &name)?;
        let (mut records, mut last) = (0, None);
        let scanned = scan(&bytes, &mut |found| {
            records += 1;
            last = Event::decode(found.body).filter(|_| found.kind == Kind::Event).map(|event| event.sequence);
        });
        if let Some((dir, segment)) = name.rsplit_once('/').map(|(dir, _)| dir).zip(scanned.segment)
            && let Some(expected) = next.remove(dir)
        {
            if segment.base > expected {
                all.push(Checked::missing(dir, expected, segment.base));
            }
            // Behind damage nothing is known.
            if matches!(scanned.tail, Tail::Clean | Tail::Torn(_)) {
                let ended = last.map_or(segment.base, |last| last + 1).max(scanned.closed.unwrap_or(0));
                next.insert(dir.to_owned(), ended.max(expected));
            }
        }
        let (damage, torn_bytes) = match scanned.tail {
            Tail::Clean if scanned.segment.is_none() => (Some("it has no head".to_owned()), 0),
            Tail::Clean => (None, 0),
            Tail::Torn(bytes) => (None, bytes),
            Tail::Corrupt { at, proof } => {
                (Some(format!("damaged at byte {at}: what was synced by byte {proof} has changed")), 0)
            }
            Tail::Foreign(version) => (Some(format!("its format is version {version}, of another Tidewire")), 0),
        };
        all.push(Checked { file: name, groups: scanned.groups, records, bytes: scanned.end, damage, torn_bytes });
    }
    Ok(all)
}

/// An event that was rescued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rescued {
    /// Name of its file.
    pub file: String,
    /// Its place in its stream.
    pub sequence: u64,
    /// When it was stored.
    pub time_us: u64,
    /// The stored message.
    pub message: NewMessage,
}

/// Visits every intact event of the streams of a folder, in order of file and position. Changes
/// nothing.
///
/// # Errors
///
/// `Disk`.
pub fn salvage(path: &Path, visit: &mut dyn FnMut(&str, Rescued)) -> HomeResult<u64> {
    let mut disk = Real::new(path).map_err(|error| disk_error("open", &path.display().to_string(), &error))?;
    let mut count = 0;
    for name in log_files(&mut disk)? {
        let Some(stream) = name.strip_prefix("streams/").and_then(|rest| rest.split('.').next()) else { continue };
        let bytes = load(&mut disk, &name)?;
        let Some(id) = Segment::decode(&bytes).ok().map(|segment| segment.id).or_else(|| id_of_groups(&bytes)) else {
            continue;
        };
        salvage_segment(&bytes, id, &mut |_, event| {
            if let Some(rescued) = rescued(&name, event) {
                count += 1;
                visit(stream, rescued);
            }
        });
    }
    Ok(count)
}

/// Publishes every intact event of a folder's streams into another folder, in streams of the same
/// names that accept every subject. Returns how many.
///
/// # Errors
///
/// `Disk`, `Locked`; `Invalid` if the other folder has such a stream with other settings.
pub fn salvage_into(path: &Path, into: &Path) -> HomeResult<u64> {
    let home = crate::open(into, crate::Options::default())?;
    let mut waiting: Vec<NewMessage> = Vec::new();
    let (mut stream, mut failed) = (String::new(), Ok(()));
    let store = |stream: &str, messages: &mut Vec<NewMessage>| -> HomeResult<()> {
        if messages.is_empty() {
            return Ok(());
        }
        let everything = vec![Pattern::new(">").expect("a pattern")];
        let settings = StreamSettings { dedupe_us: 0, ..StreamSettings::new(stream, everything) };
        home.create_stream(settings).wait()?;
        home.publish(stream, std::mem::take(messages), false).wait()?.into_iter().try_for_each(|ack| ack.map(drop))
    };
    let count = salvage(path, &mut |of, rescued| {
        if failed.is_ok() && (of != stream || waiting.len() >= 1_000) {
            failed = store(&stream, &mut waiting);
        }
        of.clone_into(&mut stream);
        waiting.push(rescued.message);
    })?;
    failed?;
    store(&stream, &mut waiting)?;
    home.close().wait()?;
    Ok(count)
}

/// The id of a segment whose header is damaged, from the header of its first group, which repeats
/// the id.
fn id_of_groups(bytes: &[u8]) -> Option<u64> {
    use tidewire_core::stream::record::{GROUP_BYTES, Group, HEAD, Kind, Parsed, parse};
    (0..bytes.len().saturating_sub(GROUP_BYTES)).find_map(|at| {
        let id = u64::from_le_bytes(bytes[at + HEAD..at + HEAD + 8].try_into().ok()?);
        match parse(&bytes[at..], id, at as u64) {
            Parsed::Record { kind: Kind::Group, body, .. } => Group::decode(body, id, at as u64).map(|_| id),
            _ => None,
        }
    })
}

fn rescued(file: &str, event: Event<'_>) -> Option<Rescued> {
    let subject = Subject::new(event.subject).ok()?;
    let message = NewMessage {
        subject,
        payload: bytes::Bytes::copy_from_slice(event.payload),
        key: event.key.map(str::to_owned),
        id: event.id.map(str::to_owned),
        headers: headers_of(event.headers).unwrap_or_default(),
        deliver_at_us: event.due_us,
        ttl_us: event.expires_us.map(|expires| expires.saturating_sub(event.due_us.unwrap_or(event.time_us))),
    };
    Some(Rescued { file: file.to_owned(), sequence: event.sequence, time_us: event.time_us, message })
}

fn log_files(disk: &mut Real) -> HomeResult<Vec<String>> {
    let mut names = Vec::new();
    let mut dirs = vec!["state".to_owned()];
    let streams = disk.names("streams").map_err(|error| disk_error("read", "streams", &error))?;
    dirs.extend(streams.into_iter().map(|stream| format!("streams/{stream}")));
    for dir in dirs {
        let inside = disk.names(&dir).map_err(|error| disk_error("read", &dir, &error))?;
        names.extend(inside.into_iter().filter(|name| name.ends_with(".log")).map(|name| format!("{dir}/{name}")));
    }
    Ok(names)
}

fn load(disk: &mut Real, name: &str) -> HomeResult<Vec<u8>> {
    let file = disk.open(name).map_err(|error| disk_error("open", name, &error))?;
    read_all(file.as_ref()).map_err(|error| disk_error("read", name, &error))
}
