//! Schedules: messages of a stream under a subject of their own each, which the server publishes at
//! their times.

use async_nats::HeaderMap;
use serde_json::json;
use tidewire_backend::home::{
    Capabilities, Capability, Change, HomeErrorKind, HomeResult, NewMessage, SCHEDULE_HEADER, ScheduleInfo,
    ScheduleSettings,
};
use tidewire_core::stream::recurrence::Timing;
use tidewire_proto::generated::limits::SCHEDULES;
use tidewire_proto::subject::Subject;

use crate::shared::{Shared, Stored};
use crate::stream_cache::CachedStream;
use crate::{clock, message, names};

const PATTERN: &str = "Nats-Schedule";
const TARGET: &str = "Nats-Schedule-Target";
const ZONE: &str = "Nats-Schedule-Time-Zone";
const BEAT_TTL: &str = "Nats-Schedule-TTL";
const SECOND_US: u64 = 1_000_000;

/// Makes a schedule, or takes the place of one of this name with other settings.
pub(crate) async fn create(
    shared: &Shared,
    capabilities: &Capabilities,
    stream: &str,
    mut settings: ScheduleSettings,
) -> HomeResult<(ScheduleInfo, Change)> {
    names::check("stream", stream)?;
    names::check("schedule", &settings.name)?;
    settings.check()?;
    // A time to live is whole seconds there, rounded up.
    settings.message.ttl_us = settings.message.ttl_us.map(|ttl_us| ttl_us.div_ceil(SECOND_US).max(1) * SECOND_US);
    let known = shared.streams.find(&shared.connection, stream).await?;
    allowed(shared, capabilities, &known, stream, &settings)?;
    let subject = names::schedule(stream, &settings.name);
    let counts = shared.counts(stream, &names::schedule(stream, "*")).await?;
    let before = if counts.contains_key(&subject) { find(shared, stream, &subject).await? } else { None };
    if let Some(info) = before.as_ref().and_then(read).filter(|info| info.settings == settings) {
        return Ok((info, Change::Kept));
    }
    if before.is_none() && counts.len() as u64 >= SCHEDULES.max {
        let words = format!("schedules: stream {stream:?} has {} (schedules): cancel some first", counts.len());
        return Err(shared.connection.error(HomeErrorKind::Limit, &words));
    }
    let change = if before.is_some() { Change::Replaced } else { Change::Made };
    let (headers, payload) = (headers(&settings, &known)?, settings.message.payload.clone());
    let stored = shared.put(stream, &subject, headers, payload).await;
    stored.map_err(|failure| failure.plain(&shared.connection, "schedule"))?;
    let next_us = settings.timing.next_us(rounded(clock::now_us()), clock::now_us());
    Ok((ScheduleInfo { settings, next_us }, change))
}

pub(crate) async fn list(shared: &Shared, stream: &str) -> HomeResult<Vec<ScheduleInfo>> {
    names::check("stream", stream)?;
    shared.streams.find(&shared.connection, stream).await?;
    let mut found = Vec::new();
    for subject in shared.counts(stream, &names::schedule(stream, "*")).await?.into_keys() {
        found.extend(find(shared, stream, &subject).await?.as_ref().and_then(read));
    }
    Ok(found)
}

/// Ends a schedule. False: there was none.
pub(crate) async fn cancel(shared: &Shared, stream: &str, name: &str) -> HomeResult<bool> {
    names::check("stream", stream)?;
    names::check("schedule", name)?;
    let body = json!({"filter": names::schedule(stream, name)});
    let purged = shared.connection.api(&format!("STREAM.PURGE.{stream}"), &body).await;
    let purged = purged.map_err(|failure| failure.of_stream(&shared.connection, stream))?;
    Ok(purged["purged"].as_u64().unwrap_or_default() > 0)
}

fn allowed(
    shared: &Shared,
    capabilities: &Capabilities,
    known: &CachedStream,
    stream: &str,
    settings: &ScheduleSettings,
) -> HomeResult<()> {
    let subject = settings.message.subject.as_str();
    if !known.takes(subject) {
        return Err(known.takes_not(&shared.connection, stream, subject));
    }
    if !known.schedules {
        let words = format!(
            "schedule: stream {stream:?} has no schedules: make it with full=\"drop_old\" or without limits, on nats-server 2.14 or newer"
        );
        return Err(shared.connection.error(HomeErrorKind::Unsupported, &words));
    }
    if known.limited {
        capabilities.need(Capability::ScheduleLimits, &format!("schedule: stream {stream:?} has limits"))?;
    }
    Ok(())
}

async fn find(shared: &Shared, stream: &str, subject: &str) -> HomeResult<Option<Stored>> {
    shared.stored(stream, &json!({"last_by_subj": subject})).await
}

/// The headers of a schedule as the server takes it. Its own are not on the beats; those of the
/// message are.
fn headers(settings: &ScheduleSettings, known: &CachedStream) -> HomeResult<HeaderMap> {
    let ScheduleSettings { name, timing, message } = settings;
    let mut beat = NewMessage { ttl_us: None, ..message.clone() };
    beat.headers.insert(0, (SCHEDULE_HEADER.to_owned(), name.clone()));
    let mut map = message::headers(&beat, known.dedupe)?.unwrap_or_default();
    let pattern = timing.in_numbers().map_or_else(|| timing.text().to_owned(), |fields| format!("0 {fields}"));
    message::append(&mut map, "when", PATTERN, &pattern)?;
    message::append(&mut map, "when", names::WHEN, timing.text())?;
    message::append(&mut map, "subject", TARGET, message.subject.as_str())?;
    if timing.time_zone() != "UTC" {
        message::append(&mut map, "time_zone", ZONE, timing.time_zone())?;
    }
    if let Some(ttl_us) = message.ttl_us {
        message::append(&mut map, "ttl", BEAT_TTL, &clock::ttl_header(ttl_us))?;
    }
    // It must not grow too old with the events.
    message::append(&mut map, "ttl", names::TTL, "never")?;
    Ok(map)
}

/// A schedule as the stream has it. None for one that others have made.
fn read(stored: &Stored) -> Option<ScheduleInfo> {
    let headers = stored.message.headers.as_ref()?;
    let text = |name: &str| headers.get(name).map(|value| value.as_str().to_owned());
    let timing = Timing::new(&text(names::WHEN)?, text(ZONE).as_deref().unwrap_or("UTC")).ok()?;
    let event = message::event(stored.message.clone(), stored.sequence, stored.time_us)?;
    let seconds = text(BEAT_TTL).and_then(|ttl| ttl.strip_suffix('s')?.parse::<u64>().ok());
    let message = NewMessage {
        key: event.key,
        headers: event.headers.into_iter().filter(|(name, _)| name != SCHEDULE_HEADER).collect(),
        ttl_us: seconds.map(|seconds| seconds * SECOND_US),
        ..NewMessage::new(Subject::new(&text(TARGET)?).ok()?, event.payload)
    };
    let next_us = timing.next_us(rounded(stored.time_us), clock::now_us());
    let name = stored.message.subject.rsplit('.').next()?.to_owned();
    Some(ScheduleInfo { settings: ScheduleSettings { name, timing, message }, next_us })
}

/// From when on the server counts the intervals of a schedule that was stored then.
const fn rounded(time_us: u64) -> u64 {
    (time_us + SECOND_US / 2) / SECOND_US * SECOND_US
}
