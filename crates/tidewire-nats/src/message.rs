//! Messages of NATS as events, and the other way round.

use std::collections::BTreeMap;

use async_nats::{HeaderMap, HeaderName, HeaderValue, Message};
use bytes::Bytes;
use tidewire_backend::home::{Event, Headers, HomeError, HomeErrorKind, HomeResult, NewMessage, SCHEDULE_HEADER};
use tidewire_proto::subject::Subject;

use crate::clock;
use crate::names::{ID, KEY, MSG_ID, ORDER, ORIGIN, TTL};

/// Position of a delivered message, from its reply subject:
/// `$JS.ACK.[domain.account.]stream.consumer.deliveries.sequence.number.time.pending[.random]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckSubject {
    pub sequence: u64,
    pub delivery: u32,
    pub time_us: u64,
    pub pending: u64,
}

impl AckSubject {
    pub fn read(reply: &str) -> Option<Self> {
        let tokens: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        let tokens = match tokens.len() {
            7 => &tokens[2..],
            9 | 10 => &tokens[4..],
            _ => return None,
        };
        Some(Self {
            delivery: tokens[0].parse().ok()?,
            sequence: tokens[1].parse().ok()?,
            time_us: tokens[3].parse::<u64>().ok()? / 1_000,
            pending: tokens[4].parse().ok()?,
        })
    }
}

/// The event of a message of a stream. A redelivered message has its original event.
pub(crate) fn event(message: Message, sequence: u64, time_us: u64) -> Option<Event> {
    let headers = message.headers.unwrap_or_default();
    let text = |name: &str| headers.get(name).map(|value| value.as_str().to_owned());
    let (sequence, time_us, subject) = text(ORIGIN).and_then(|origin| read_origin(&origin)).unwrap_or((
        sequence,
        time_us,
        message.subject.to_string(),
    ));
    let (key, id) = (text(KEY), text(ID).or_else(|| text(MSG_ID)));
    Some(Event {
        sequence,
        time_us,
        subject: Subject::new(&subject).ok()?,
        payload: message.payload,
        key,
        id,
        headers: plain(&headers),
    })
}

/// Headers of the user, in their original order.
fn plain(headers: &HeaderMap) -> Headers {
    let value = |value: &HeaderValue| value.as_str().to_owned();
    if let Some(order) = headers.get(ORDER) {
        let mut counts = BTreeMap::<&str, usize>::new();
        let mut found = Headers::new();
        for name in order.as_str().split(':') {
            let at = counts.entry(name).or_default();
            found.extend(headers.get_all(name).nth(*at).map(|one| (name.to_owned(), value(one))));
            *at += 1;
        }
        return found;
    }
    let names = headers.iter().filter(|(name, _)| !is_reserved(name.as_ref()));
    // The driver does not preserve the order of names.
    let mut found: Headers =
        names.flat_map(|(name, values)| values.iter().map(|one| (name.to_string(), value(one)))).collect();
    found.sort_by(|(left, _), (right, _)| left.cmp(right));
    found
}

fn is_reserved(name: &str) -> bool {
    let ours = ["nats-", "tidewire-"];
    name != SCHEDULE_HEADER
        && ours.iter().any(|start| name.get(..start.len()).is_some_and(|part| part.eq_ignore_ascii_case(start)))
}

/// Headers of a message for a stream; None without headers.
///
/// `dedupe`: the server deduplicates ids.
pub(crate) fn headers(message: &NewMessage, dedupe: bool) -> HomeResult<Option<HeaderMap>> {
    if message.key.is_none() && message.id.is_none() && message.headers.is_empty() && message.ttl_us.is_none() {
        return Ok(None);
    }
    let mut map = HeaderMap::new();
    for (name, value) in &message.headers {
        if is_reserved(name) {
            let fix = "names that begin with Nats- and Tidewire- are taken: choose another";
            return Err(HomeError::new(HomeErrorKind::Invalid, format!("headers: {name:?}: {fix}")));
        }
        append(&mut map, "headers", name, value)?;
    }
    if !message.headers.is_sorted_by(|(left, _), (right, _)| left <= right) {
        let names: Vec<_> = message.headers.iter().map(|(name, _)| name.as_str()).collect();
        append(&mut map, "headers", ORDER, &names.join(":"))?;
    }
    if let Some(key) = &message.key {
        append(&mut map, "key", KEY, key)?;
    }
    if let Some(id) = &message.id {
        append(&mut map, "id", if dedupe { MSG_ID } else { ID }, id)?;
    }
    if let Some(ttl_us) = message.ttl_us {
        append(&mut map, "ttl", TTL, &clock::ttl_header(ttl_us))?;
    }
    Ok(Some(map))
}

/// Adds a header that NATS can carry.
pub(crate) fn append(map: &mut HeaderMap, field: &str, name: &str, value: &str) -> HomeResult<()> {
    let refuse = |what: &str, fix: &str| {
        Err(HomeError::new(HomeErrorKind::Invalid, format!("{field}: {what:?} can't be a header of NATS: {fix}")))
    };
    let Some(header) = name.parse::<HeaderName>().ok().filter(|_| !name.is_empty()) else {
        return refuse(name, "write a name of visible ASCII characters without a colon");
    };
    // The protocol strips leading and trailing blanks.
    let Ok(header_value) = value.parse::<HeaderValue>() else { return refuse(value, "write it without line breaks") };
    if value.trim() != value {
        return refuse(value, "write it without blanks at its ends");
    }
    map.append(header, header_value);
    Ok(())
}

/// Original sequence, time and subject of a redelivered event.
pub(crate) fn origin(event: &Event) -> String {
    format!("{} {} {}", event.sequence, event.time_us, event.subject)
}

fn read_origin(text: &str) -> Option<(u64, u64, String)> {
    let mut parts = text.splitn(3, ' ');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.to_owned()))
}

/// Bytes of a message, as limits count them.
pub(crate) const fn weight(message: &NewMessage) -> u64 {
    message.payload.len() as u64 + 64
}

/// An event as the message that it came from.
pub(crate) fn again(event: &Event) -> NewMessage {
    NewMessage {
        key: event.key.clone(),
        headers: event.headers.clone(),
        ..NewMessage::new(event.subject.clone(), Bytes::clone(&event.payload))
    }
}

#[cfg(test)]
mod tests;
