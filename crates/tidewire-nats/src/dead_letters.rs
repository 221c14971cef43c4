//! Dead letters: events that a consumer has given up, in a separate stream beside their own.
//!
//! A client stores a dead letter after the last failure of a handler, with error and traceback. The
//! server reports the death of the process of the last delivery itself: the separate stream
//! captures this advisory, too.

use std::collections::BTreeMap;

use async_nats::{HeaderMap, Message};
use serde_json::{Value, json};
use tidewire_backend::home::{DeadLetter, Fault, HomeErrorKind, HomeResult};

use crate::clock;
use crate::connection::Failure;
use crate::cursor::{From, Selection, scan};
use crate::message::{self, AckSubject};
use crate::names;
use crate::shared::Shared;
use crate::stream_cache::CachedStream;

/// Longest stored text of a fault.
const TEXT_MAX: usize = 256 * 1_024;

#[derive(Debug)]
struct StoredDeadLetter {
    /// Its place in the stream of dead letters.
    at: u64,
    deliveries: u32,
    dead_at_us: u64,
    reason: String,
    fault: Fault,
}

/// Keeps an event as a dead letter. Kept twice, it is there once.
pub(crate) async fn keep(
    shared: &Shared,
    stream: &str,
    consumer: &str,
    sequence: u64,
    deliveries: u32,
    reason: &str,
    fault: &Fault,
) -> HomeResult<()> {
    let now_us = clock::now_us();
    let entry = json!({
        "stream": stream,
        "consumer": consumer,
        "stream_seq": sequence,
        "deliveries": deliveries,
        "dead_at_us": now_us,
        "reason": cut(reason),
        "error": cut(&fault.error),
        "traceback": cut(&fault.traceback),
    });
    let body = bytes::Bytes::from(entry.to_string());
    let subject = names::dead_subject(stream, consumer);
    let dead = names::dead(stream);
    let mut headers = HeaderMap::new();
    headers.insert(names::MSG_ID, format!("{consumer}.{sequence}.{deliveries}.{now_us}").as_str());
    let put = async || shared.put(&dead, &subject, headers.clone(), body.clone()).await;
    let stored = match put().await {
        Err(Failure::Refused { code: 10_059, .. }) => {
            // A consumer of others has none yet.
            let replicas = crate::streams::info(shared, stream).await?.settings.replicas;
            crate::streams::create_dead(shared, stream, replicas.into()).await?;
            put().await
        }
        other => other,
    };
    stored.map(|_| ()).map_err(|failure| failure.plain(&shared.connection, "dead letters"))
}

/// Dead letters of a consumer, in order of sequence.
pub(crate) async fn list(
    shared: &Shared,
    stream: &str,
    consumer: &str,
    from: u64,
    max: u32,
) -> HomeResult<Vec<DeadLetter>> {
    let mut letters = Vec::new();
    let all_entries = all(shared, stream, consumer).await?;
    for (sequence, mut entries) in all_entries.into_iter().filter(|(sequence, _)| *sequence >= from).take(max as usize)
    {
        let newest = entries.pop().unwrap_or_else(|| unreachable!("a sequence is listed with an entry"));
        let event = shared.stored(stream, &json!({"seq": sequence})).await?;
        letters.push(DeadLetter {
            event: event.and_then(|stored| message::event(stored.message, stored.sequence, stored.time_us)),
            sequence,
            deliveries: newest.deliveries,
            dead_at_us: newest.dead_at_us,
            reason: newest.reason,
            fault: newest.fault,
        });
    }
    Ok(letters)
}

/// Redelivers dead letters to their consumer.
pub(crate) async fn requeue(shared: &Shared, stream: &str, consumer: &str, sequences: Vec<u64>) -> HomeResult<u64> {
    let letters = all(shared, stream, consumer).await?;
    let known = shared.streams.find(&shared.connection, stream).await?;
    if !known.again {
        let words = format!(
            "requeue: stream {stream:?} was not made by Tidewire: add {} to its subjects",
            known.again_of(stream, "*")
        );
        return Err(shared.connection.error(HomeErrorKind::Unsupported, &words));
    }
    let mut count = 0;
    for sequence in sequences {
        let Some(entries) = letters.get(&sequence) else { continue };
        if !deliver_anew(shared, &known, stream, consumer, sequence).await? {
            let words =
                format!("sequences: event {sequence} is not in stream {stream:?} any more: drop its dead letter");
            return Err(shared.connection.error(HomeErrorKind::NotFound, &words));
        }
        forget(shared, stream, entries).await?;
        count += 1;
    }
    Ok(count)
}

/// Publishes a copy of an event for one consumer, whose deliveries count from 1. False if the
/// stream does not have the event any more, or takes no copies as Tidewire did not make it.
pub(crate) async fn deliver_anew(
    shared: &Shared,
    known: &CachedStream,
    stream: &str,
    consumer: &str,
    sequence: u64,
) -> HomeResult<bool> {
    if !known.again {
        return Ok(false);
    }
    let stored = shared.stored(stream, &json!({"seq": sequence})).await?;
    let Some(event) = stored.and_then(|stored| message::event(stored.message, stored.sequence, stored.time_us)) else {
        return Ok(false);
    };
    let mut headers = message::headers(&message::again(&event), false)?.unwrap_or_default();
    headers.insert(names::ORIGIN, message::origin(&event).as_str());
    if let Some(id) = &event.id {
        headers.insert(names::ID, id.as_str());
    }
    let of_its_own = known.compact.then(|| names::again_each(stream, consumer, sequence));
    let subject = of_its_own.unwrap_or_else(|| names::again(stream, consumer));
    let put = shared.put(stream, &subject, headers, event.payload).await;
    put.map_err(|failure| failure.of_stream(&shared.connection, stream))?;
    Ok(true)
}

/// Forgets dead letters.
pub(crate) async fn discard(shared: &Shared, stream: &str, consumer: &str, sequences: Vec<u64>) -> HomeResult<u64> {
    let letters = all(shared, stream, consumer).await?;
    let mut count = 0;
    for entries in sequences.iter().filter_map(|sequence| letters.get(sequence)) {
        forget(shared, stream, entries).await?;
        count += 1;
    }
    Ok(count)
}

async fn forget(shared: &Shared, stream: &str, entries: &[StoredDeadLetter]) -> HomeResult<()> {
    let dead = names::dead(stream);
    for entry in entries {
        let body = json!({"seq": entry.at, "no_erase": true});
        match shared.connection.api(&format!("STREAM.MSG.DELETE.{dead}"), &body).await {
            // Somebody else was faster.
            Ok(_) | Err(Failure::Refused { code: 10_043 | 10_057, .. }) => (),
            Err(failure) => return Err(failure.plain(&shared.connection, "dead letters")),
        }
    }
    Ok(())
}

/// All dead letters of a consumer by sequence; of a letter stored twice, the newest last.
async fn all(shared: &Shared, stream: &str, consumer: &str) -> HomeResult<BTreeMap<u64, Vec<StoredDeadLetter>>> {
    let settings = shared.consumers.settings(shared, stream, consumer).await?;
    let filter = vec![names::dead_subject(stream, consumer), names::given_up(stream, consumer)];
    let selection = Selection { stream: names::dead(stream), filter };
    let mut found = BTreeMap::<u64, Vec<StoredDeadLetter>>::new();
    let wait = format!("no ack within {} s", settings.ack_wait_us as f64 / 1e6);
    let scanned = scan(&shared.connection, &selection, From::Sequence(1), |place, message| {
        if let Some((sequence, letter)) = read(place, &message, &wait) {
            found.entry(sequence).or_default().push(letter);
        }
        true
    });
    match scanned.await {
        // A consumer of others has none.
        Err(error) if error.kind() == HomeErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error),
        Ok(()) => Ok(found),
    }
}

fn read(place: AckSubject, message: &Message, no_ack: &str) -> Option<(u64, StoredDeadLetter)> {
    let entry: Value = serde_json::from_slice(&message.payload).ok()?;
    let text = |name: &str, missing: &str| entry[name].as_str().unwrap_or(missing).to_owned();
    let letter = StoredDeadLetter {
        at: place.sequence,
        deliveries: entry["deliveries"].as_u64()? as u32,
        dead_at_us: entry["dead_at_us"].as_u64().unwrap_or(place.time_us),
        reason: text("reason", "max_deliver"),
        fault: Fault { error: text("error", no_ack), traceback: text("traceback", "") },
    };
    Some((entry["stream_seq"].as_u64()?, letter))
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
