//! Writer of the mirrors of a storage backend: one append to a mirror at a time, however many hubs
//! ask for it, and whether or not they wait for its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidewire_backend::home::{
    Answer, Capability, Home, HomeError, HomeErrorKind, HomeResult, NewMessage, Page, StreamInfo, answer,
};
use tidewire_core::federation::{HUBS, qualified};
use tidewire_engine::raw::Mutex;
use tidewire_proto::generated::errors::ErrorCode;

use super::super::home_request::{HomeCall, refused, written};
use super::super::serial_queue::SerialQueue;
use super::super::wire::Wire;
use super::mirror_record::MirrorRecord;
use super::mirror_stream::AppendIn;
use crate::inline_task::InlineTask;
use crate::services::context::Context;
use crate::services::failure::Failure;

/// Mirrors of one storage backend, and appends that wait for one of them.
const MIRRORS_MAX: usize = 10_000;
const WAITING_MAX: usize = 16;

/// The mirrors of a storage backend, by name.
#[derive(Default)]
pub(super) struct MirrorWriter(Mutex<BTreeMap<String, Arc<Mirror>>>);

#[derive(Default)]
struct Mirror {
    turns: Arc<SerialQueue>,
    waiting: AtomicUsize,
    /// None: it is read at the next append.
    record: Mutex<Option<MirrorRecord>>,
}

/// Page that follows a position in a source, or the state of the source to open its mirror.
struct Append {
    hubs: (String, String),
    source: String,
    after: u64,
    page: Option<Page>,
    info: Option<StreamInfo>,
}

impl MirrorWriter {
    /// Appends to a mirror. The reply is its position in the source.
    ///
    /// # Errors
    /// `unauthorized` if the call does not come from the hub of the source: no hub moves the
    /// position of another.
    pub fn append(
        self: &Arc<Self>,
        context: &Context,
        mirror: String,
        (hubs, source, after, page, info): AppendIn,
    ) -> Result<HomeCall, Failure> {
        let sender = context.headers().get(HUBS).and_then(|path| path.rsplit(' ').next());
        if sender != Some(&*hubs.0) {
            let text = format!("hubs: {:?} is not the hub that sends the call: a hub sends its own events", hubs.0);
            return Err(Failure::refusal(ErrorCode::Unauthorized, text));
        }
        let source = qualified(&hubs.0, &source);
        let (page, info) = (Option::<Page>::read(page), Option::<StreamInfo>::read(info));
        let append = Append { hubs, source, after, page: page.map_err(refused)?, info: info.map_err(refused)? };
        let writer = Arc::clone(self);
        Ok(Box::new(move |home, _| {
            let appended = writer.enqueue(home, mirror, append).map_err(refused)?;
            Ok(Box::pin(async move { written(&appended.await.map_err(refused)?) }))
        }))
    }

    fn enqueue(&self, home: &Arc<dyn Home>, name: String, append: Append) -> HomeResult<Answer<u64>> {
        let mirror = {
            let mut mirrors = self.0.lock();
            if mirrors.len() >= MIRRORS_MAX && !mirrors.contains_key(&name) {
                return Err(limit(&name, &format!("this hub has {MIRRORS_MAX} mirrors already")));
            }
            Arc::clone(mirrors.entry(name.clone()).or_default())
        };
        if mirror.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            mirror.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(limit(&name, &format!("{WAITING_MAX} appends wait already: wait for their ends")));
        }
        let (home, turns) = (Arc::clone(home), Arc::clone(&mirror.turns));
        let (teller, answer) = answer();
        turns.take(move |turn| {
            // An append ends even if its caller has gone: the next one looks at what it has stored.
            InlineTask::spawn(Box::pin(async move {
                let known = mirror.record.lock().take();
                let (record, appended) = match appended(&*home, &name, known, append).await {
                    Ok((record, position)) => (Some(record), Ok(position)),
                    // A part of it may be stored. The record includes that before retention does.
                    Err(error) => (MirrorRecord::open(&*home, &name, None).await.ok(), Err(error)),
                };
                *mirror.record.lock() = record;
                mirror.waiting.fetch_sub(1, Ordering::Relaxed);
                drop(turn);
                drop(teller.tell(appended));
            }));
        });
        Ok(answer)
    }
}

/// Stores the events of a page that the mirror does not have. After an error a part of
/// them may be stored.
async fn appended(
    home: &dyn Home,
    mirror: &str,
    known: Option<MirrorRecord>,
    append: Append,
) -> HomeResult<(MirrorRecord, u64)> {
    let Append { hubs, source, after, page, info } = append;
    let mut known = known;
    let written = known.as_mut().and_then(|record| record.write.take());
    if let Some(write) = written
        && write.await.is_err()
    {
        known = None;
    }
    let mut record = match known {
        Some(record) if info.is_none() => record,
        _ => MirrorRecord::open(home, mirror, info.as_ref()).await?,
    };
    record.check(&source)?;
    let position = record.position(&source);
    let Some(page) = page.filter(|page| after <= position && page.next > position + 1) else {
        return Ok((record, position));
    };
    let fresh = page.events.into_iter().filter(|event| event.sequence > position);
    let messages = fresh.map(|event| record.message(event, &hubs, &source)).filter_map(Result::transpose);
    let messages = messages.collect::<HomeResult<Vec<_>>>()?;
    let last = store(home, mirror, messages, record.is_bounded).await?;
    let position = page.next - 1;
    record.note(&source, position, last);
    record.begin_write(home)?;
    Ok((record, position))
}

/// Stores messages in order, and returns the sequence of the last one. None is stored behind one
/// that is refused.
async fn store(home: &dyn Home, mirror: &str, messages: Vec<NewMessage>, is_bounded: bool) -> HomeResult<u64> {
    let mut last = 0;
    if messages.is_empty() {
        return Ok(last);
    }
    let one_by_one = if home.capabilities().has(Capability::Batch) {
        let again = if is_bounded { messages.clone() } else { Vec::new() };
        let stored: HomeResult<Vec<_>> = home.publish(mirror, messages, true).await?.into_iter().collect();
        match stored {
            Err(error) if error.kind() == HomeErrorKind::Full => again,
            acks => return Ok(acks?.iter().map(|ack| ack.sequence).max().unwrap_or_default()),
        }
    } else {
        messages
    };
    for message in one_by_one {
        for ack in home.publish(mirror, vec![message], false).await? {
            last = ack?.sequence.max(last);
        }
    }
    Ok(last)
}

fn limit(mirror: &str, problem: &str) -> HomeError {
    HomeError::new(HomeErrorKind::Limit, format!("mirror {mirror:?}: {problem}"))
}
