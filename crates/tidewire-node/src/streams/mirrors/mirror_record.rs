//! Record of a mirror: its positions in its sources, stored in a bucket beside the mirror.
//!
//! Each event of a mirror has its place in a header, and the record says which part of the mirror
//! it includes. Positions are those of the record and of the events behind that part, so neither a
//! crash between the two nor the retention of the mirror loses them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidewire_backend::home::{
    Answer, BucketSettings, Compact, Event, Expect, Full, Home, HomeError, HomeErrorKind, HomeResult, NewMessage, Read,
    Start, StreamInfo, StreamSettings,
};
use tidewire_core::federation::{HUBS, HubPath, MESSAGE_ID};
use tidewire_proto::subject::{Pattern, Subject};

use super::super::conventions::{PAGE, PAGE_BYTES};
use super::{FIRST_ID, PLACE};
use crate::values;

/// The bucket of the records, by the names of mirrors.
const BUCKET: &str = "tidewire-mirrors";

/// The most sources of one mirror.
const SOURCES_MAX: usize = 100;

/// A mirror, as its storage backend has it.
pub(super) struct MirrorRecord {
    mirror: String,
    subjects: Vec<Pattern>,
    /// The storage backend drops repeated ids, so each event needs one of its own.
    is_deduplicated: bool,
    /// The mirror may refuse a batch of which it has capacity for a part.
    pub is_bounded: bool,
    stored: StoredRecord,
    /// The running write of the record.
    pub write: Option<Answer<u64>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct StoredRecord {
    /// The last event of the mirror that the positions include.
    last: u64,
    /// By `hub:stream`, the last event of the source that was looked at.
    positions: BTreeMap<String, u64>,
}

impl MirrorRecord {
    /// Reads the record of a mirror, and the events behind it. A mirror that does not exist is made
    /// if `source` is given.
    pub async fn open(home: &dyn Home, mirror: &str, source: Option<&StreamInfo>) -> HomeResult<Self> {
        let info = match (home.stream_info(mirror).await, source) {
            (Err(error), Some(source)) if error.kind() == HomeErrorKind::NotFound => {
                create(home, mirror, &source.settings).await?
            }
            (info, _) => info?,
        };
        let entry = match home.get(BUCKET, key(mirror)?, None).await {
            Err(error) if error.kind() == HomeErrorKind::NotFound => {
                home.create_bucket(BucketSettings::new(BUCKET)).await?;
                None
            }
            entry => entry?,
        };
        let stored = entry.and_then(|entry| entry.value);
        let stored: Option<StoredRecord> = stored.map(|value| values::from_bytes(&value)).transpose()?;
        let is_first = stored.is_none();
        let stored = match stored {
            // The stream was made anew, or restored: its events tell.
            Some(stored) if stored.last > info.last => StoredRecord::default(),
            Some(stored) => stored,
            None => StoredRecord { last: info.last, ..StoredRecord::default() },
        };
        let StreamSettings { subjects, dedupe_us, max_bytes, max_messages, full, .. } = info.settings;
        let mut record = Self {
            mirror: mirror.to_owned(),
            subjects,
            is_deduplicated: dedupe_us > 0,
            is_bounded: full == Full::Refuse && (max_bytes.is_some() || max_messages.is_some()),
            stored,
            write: None,
        };
        let known = record.stored.last;
        record.read_on(home, info.last).await?;
        if is_first || record.stored.last > known {
            record.begin_write(home)?;
            if let Some(write) = record.write.take() {
                write.await?;
            }
        }
        Ok(record)
    }

    /// Reads the events that the record does not include.
    async fn read_on(&mut self, home: &dyn Home, last: u64) -> HomeResult<()> {
        let mut next = self.stored.last + 1;
        while next <= last {
            let read = Read {
                start: Start::Sequence(next),
                stop: Some(last),
                filter: Vec::new(),
                max_messages: PAGE,
                max_bytes: PAGE_BYTES,
                wait_us: 0,
            };
            let page = home.read(&self.mirror, read).await?;
            for event in &page.events {
                let place = header(event, PLACE).and_then(|place| place.rsplit_once(':'));
                if let Some((source, Ok(sequence))) = place.map(|(source, number)| (source, number.parse())) {
                    self.advance(source, sequence);
                }
            }
            next = page.next.max(next + 1);
        }
        self.stored.last = self.stored.last.max(last);
        Ok(())
    }

    /// The last event of a source that the mirror has looked at.
    pub fn position(&self, source: &str) -> u64 {
        self.stored.positions.get(source).copied().unwrap_or_default()
    }

    /// Fails for one source too many.
    pub fn check(&self, source: &str) -> HomeResult<()> {
        let positions = &self.stored.positions;
        if positions.len() < SOURCES_MAX || positions.contains_key(source) {
            return Ok(());
        }
        let fix = "give some of them a mirror of another name";
        let text = format!("mirror {:?}: it has {SOURCES_MAX} sources already: {fix}", self.mirror);
        Err(HomeError::new(HomeErrorKind::Limit, text))
    }

    /// Notes that the mirror has all of a source up to a sequence, in its own events up to `last`.
    pub fn note(&mut self, source: &str, position: u64, last: u64) {
        self.advance(source, position);
        self.stored.last = self.stored.last.max(last);
    }

    fn advance(&mut self, source: &str, position: u64) {
        let known = self.stored.positions.entry(source.to_owned()).or_default();
        *known = position.max(*known);
    }

    /// Begins to write the record.
    pub fn begin_write(&mut self, home: &dyn Home) -> HomeResult<()> {
        let value = values::to_bytes(&self.stored)?;
        self.write = Some(home.put(BUCKET, key(&self.mirror)?, value.into(), Expect::Any, None));
        Ok(())
    }

    /// The event of a source as a message of the mirror. None: it would go in a circle.
    pub fn message(&self, event: Event, hubs: &(String, String), source: &str) -> HomeResult<Option<NewMessage>> {
        // The path of a message that was published and then stored ends where it was stored.
        let is_mirrored = header(&event, PLACE).is_some();
        let passed = HubPath::parse(header(&event, HUBS).filter(|_| is_mirrored).unwrap_or_default());
        let Ok(path) = passed.step(&hubs.0, &hubs.1) else { return Ok(None) };
        let place = format!("{source}:{}", event.sequence);
        let first = header(&event, MESSAGE_ID).filter(|_| is_mirrored).unwrap_or(&place).to_owned();
        let own_id = header(&event, FIRST_ID).map(str::to_owned).or(event.id);
        let ours = [HUBS, MESSAGE_ID, PLACE, FIRST_ID];
        let mut headers: Vec<_> =
            event.headers.into_iter().filter(|(name, _)| !ours.contains(&name.as_str())).collect();
        let mut add = |name: &str, value| headers.push((name.to_owned(), value));
        add(HUBS, path.to_string());
        add(MESSAGE_ID, first.clone());
        add(PLACE, place);
        let id = if self.is_deduplicated {
            own_id.into_iter().for_each(|id| add(FIRST_ID, id));
            Some(first)
        } else {
            own_id
        };
        let subject = self.subject(event.subject)?;
        Ok(Some(NewMessage { id, key: event.key, headers, ..NewMessage::new(subject, event.payload) }))
    }

    /// The subject of an event, or behind the name of the mirror if the mirror does not take it.
    fn subject(&self, subject: Subject) -> HomeResult<Subject> {
        if self.subjects.iter().any(|pattern| pattern.matches(&subject)) {
            return Ok(subject);
        }
        let text = format!("{}.{subject}", self.mirror);
        Subject::new(&text).map_err(|wrong| invalid(&text, &wrong))
    }
}

/// Makes a mirror, with the limits of its source. Its own name comes before other subjects, so that
/// it has no subject of another stream.
async fn create(home: &dyn Home, mirror: &str, source: &StreamSettings) -> HomeResult<StreamInfo> {
    let pattern = |text: &str| Pattern::new(text).map_err(|wrong| invalid(text, &wrong));
    let settings = StreamSettings {
        max_age_us: source.max_age_us,
        max_bytes: source.max_bytes,
        max_messages: source.max_messages,
        full: Full::DropOld,
        // Ids were unique at the source for a time, and here events may come faster.
        dedupe_us: 0,
        compact: source.compact,
        ..StreamSettings::new(mirror, vec![pattern(mirror)?, pattern(&format!("{mirror}.>"))?])
    };
    match home.create_stream(settings.clone()).await {
        Err(error) if error.kind() == HomeErrorKind::Unsupported && settings.compact.is_some() => {
            home.create_stream(StreamSettings { compact: None::<Compact>, ..settings }).await
        }
        result => result,
    }
}

fn header<'a>(event: &'a Event, name: &str) -> Option<&'a str> {
    event.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn key(mirror: &str) -> HomeResult<Subject> {
    Subject::new(mirror).map_err(|wrong| invalid(mirror, &wrong))
}

fn invalid(text: &str, wrong: &dyn std::fmt::Display) -> HomeError {
    HomeError::new(HomeErrorKind::Invalid, format!("mirror: {text:?}: {wrong}"))
}
