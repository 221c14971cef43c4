//! Wire format of the calls of a storage backend: messages, events and settlements as tuples,
//! descriptions as maps.
//!
//! Hubs of Python and clients of TypeScript use the same format.

use std::fmt;

use serde::Deserialize as DeriveDeserialize;
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use tidewire_backend::home::{
    Ack, Changes, DeadLetter, Delivery, Durability, Entry, Event, Fault, HomeError, HomeErrorKind, HomeResult,
    LeaseInfo, NewMessage, Page, Settle, Settlement, Start,
};
use tidewire_proto::subject::{Pattern, Subject};

use crate::values::{Bytes, Raw};

/// A part of a call that is no such thing.
fn wrong(field: &str, problem: &dyn fmt::Display) -> HomeError {
    HomeError::new(HomeErrorKind::Invalid, format!("{field}: {problem}"))
}

pub(super) fn subject(field: &str, text: &str) -> HomeResult<Subject> {
    Subject::new(text).map_err(|problem| wrong(field, &problem))
}

pub(super) fn pattern(field: &str, text: &str) -> HomeResult<Pattern> {
    Pattern::new(text).map_err(|problem| wrong(field, &problem))
}

pub(super) fn patterns(field: &str, texts: &[String]) -> HomeResult<Vec<Pattern>> {
    texts.iter().map(|text| pattern(field, text)).collect()
}

pub(super) fn texts(patterns: &[Pattern]) -> Vec<&str> {
    patterns.iter().map(Pattern::as_str).collect()
}

/// A message for a storage backend, as it is encoded.
pub(super) fn message_out(message: &NewMessage) -> impl Serialize {
    let NewMessage { subject, payload, key, id, headers, deliver_at_us, ttl_us } = message;
    (subject.as_str(), Raw(payload), key, id, headers, deliver_at_us, ttl_us)
}

pub(super) type MessageIn =
    (String, Bytes, Option<String>, Option<String>, Vec<(String, String)>, Option<u64>, Option<u64>);

/// A message of a call.
pub(super) fn message((name, payload, key, id, headers, deliver_at_us, ttl_us): MessageIn) -> HomeResult<NewMessage> {
    let subject = subject("subject", &name)?;
    Ok(NewMessage { subject, payload: payload.0.into(), key, id, headers, deliver_at_us, ttl_us })
}

/// The messages of a call.
pub(super) fn messages(all: Vec<MessageIn>) -> HomeResult<Vec<NewMessage>> {
    all.into_iter().map(message).collect()
}

/// The result of one message: its ack, or the kind and the text of its error.
pub(super) struct AckResult(pub HomeResult<Ack>);

impl Serialize for AckResult {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Ok(Ack { sequence, durability, duplicate }) => (sequence, durability.name(), duplicate).serialize(to),
            Err(error) => (error.kind().name(), error.message()).serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for AckResult {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Parts;

        impl<'de> Visitor<'de> for Parts {
            type Value = AckResult;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an ack or an error")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<AckResult, A::Error> {
                let missing = || A::Error::custom("an ack has three parts, an error two");
                match parts.next_element()?.ok_or_else(missing)? {
                    First::Sequence(sequence) => {
                        let Durable(durability) = parts.next_element()?.ok_or_else(missing)?;
                        let duplicate = parts.next_element()?.ok_or_else(missing)?;
                        Ok(AckResult(Ok(Ack { sequence, durability, duplicate })))
                    }
                    First::Kind(kind) => {
                        let text: String = parts.next_element()?.ok_or_else(missing)?;
                        Ok(AckResult(Err(refusal(&kind, text))))
                    }
                }
            }
        }

        from.deserialize_any(Parts)
    }
}

/// An error in place of one result.
fn refusal(kind: &str, text: String) -> HomeError {
    let known = HomeErrorKind::ALL.into_iter().find(|known| known.name() == kind);
    // A storage backend of a newer version may have unknown kinds.
    HomeError::new(known.unwrap_or(HomeErrorKind::Invalid), text)
}

/// First element of a result: a sequence or the kind of an error.
#[derive(DeriveDeserialize)]
#[serde(untagged, expecting = "a sequence or a kind of error")]
enum First {
    Sequence(u64),
    Kind(String),
}

struct Durable(Durability);

impl<'de> Deserialize<'de> for Durable {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Name;

        impl Visitor<'_> for Name {
            type Value = Durable;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("\"memory\", \"disk\" or \"replicated\"")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Durable, E> {
                let all = [Durability::Memory, Durability::Disk, Durability::Replicated];
                let known = all.into_iter().find(|known| known.name() == name);
                known.map(Durable).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(name), &self))
            }
        }

        from.deserialize_str(Name)
    }
}

/// An event of a storage backend, as it is encoded. A replay has neither a delivery nor a ticket:
/// both are 0.
fn event_out(event: &Event, delivery: u32, ticket: u64) -> impl Serialize {
    let Event { sequence, time_us, subject, payload, key, id, headers } = event;
    (subject.as_str(), Raw(payload), key, id, headers, sequence, time_us, delivery, ticket)
}

pub(super) fn delivery_out(delivery: &Delivery) -> impl Serialize {
    event_out(&delivery.event, delivery.delivery, delivery.ticket)
}

pub(super) type EventIn = (String, Bytes, Option<String>, Option<String>, Vec<(String, String)>, u64, u64, u32, u64);

pub(super) fn delivery(raw: EventIn) -> HomeResult<Delivery> {
    let (name, payload, key, id, headers, sequence, time_us, delivery, ticket) = raw;
    let subject = subject("subject", &name)?;
    let event = Event { sequence, time_us, subject, payload: payload.0.into(), key, id, headers };
    Ok(Delivery { event, delivery, ticket })
}

pub(super) fn deliveries(all: Vec<EventIn>) -> HomeResult<Vec<Delivery>> {
    all.into_iter().map(delivery).collect()
}

fn event(raw: EventIn) -> HomeResult<Event> {
    delivery(raw).map(|delivery| delivery.event)
}

/// A list, written item by item.
pub(super) struct Each<'a, T, F>(pub &'a [T], pub F);

impl<'a, T, O: Serialize, F: Fn(&'a T) -> O> Serialize for Each<'a, T, F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(&self.1))
    }
}

pub(super) fn page_out(page: &Page) -> impl Serialize {
    (Each(&page.events, |event| event_out(event, 0, 0)), page.next, page.last)
}

pub(super) type PageIn = (Vec<EventIn>, u64, u64);

pub(super) fn page((events, next, last): PageIn) -> HomeResult<Page> {
    Ok(Page { events: events.into_iter().map(event).collect::<HomeResult<_>>()?, next, last })
}

/// Settlement of a delivery, as it is encoded.
pub(super) fn settle_out(settle: &Settle) -> impl Serialize {
    let (how, delay_us, reason, fault) = match &settle.how {
        Settlement::Ack => ("ack", None, "", None),
        Settlement::Nak { delay_us, fault } => ("nak", *delay_us, "", fault.as_ref()),
        Settlement::Term { reason, fault } => ("term", None, reason.as_str(), fault.as_ref()),
        Settlement::Working => ("working", None, "", None),
        Settlement::Release => ("release", None, "", None),
    };
    let fault = fault.map(|fault| (&fault.error, &fault.traceback));
    (settle.sequence, settle.ticket, how, delay_us, reason, fault)
}

pub(super) type SettleIn = (u64, u64, String, Option<u64>, String, Option<(String, String)>);

pub(super) fn settle((sequence, ticket, how, delay_us, reason, fault): SettleIn) -> HomeResult<Settle> {
    let fault = fault.map(|(error, traceback)| Fault { error, traceback });
    let how = match how.as_str() {
        "ack" => Settlement::Ack,
        "nak" => Settlement::Nak { delay_us, fault },
        "term" => Settlement::Term { reason, fault },
        "working" => Settlement::Working,
        "release" => Settlement::Release,
        other => return Err(wrong("how", &format_args!("{other:?} is not known: use the same version on both sides"))),
    };
    Ok(Settle { sequence, ticket, how })
}

/// The result for one settlement: nothing, or the kind and the text of its error.
pub(super) fn settled_out(result: &HomeResult<()>) -> impl Serialize {
    result.as_ref().err().map(|error| (error.kind().name(), error.message()))
}

pub(super) type SettledIn = Option<(String, String)>;

pub(super) fn settled(all: Vec<SettledIn>) -> Vec<HomeResult<()>> {
    let one = |result: SettledIn| result.map_or(Ok(()), |(kind, text)| Err(refusal(&kind, text)));
    all.into_iter().map(one).collect()
}

pub(super) const fn start_out(start: Start) -> (&'static str, u64) {
    match start {
        Start::New => ("new", 0),
        Start::All => ("all", 0),
        Start::Sequence(sequence) => ("sequence", sequence),
        Start::Time(time_us) => ("time", time_us),
    }
}

pub(super) fn start((name, number): (String, u64)) -> HomeResult<Start> {
    match name.as_str() {
        "new" => Ok(Start::New),
        "all" => Ok(Start::All),
        "sequence" => Ok(Start::Sequence(number)),
        "time" => Ok(Start::Time(number)),
        other => Err(wrong("start", &format_args!("{other:?} is not known: use the same version on both sides"))),
    }
}

pub(super) fn dead_letter_out(letter: &DeadLetter) -> impl Serialize {
    let DeadLetter { event, sequence, deliveries, dead_at_us, reason, fault } = letter;
    let event = event.as_ref().map(|event| event_out(event, *deliveries, 0));
    (event, sequence, deliveries, dead_at_us, reason, &fault.error, &fault.traceback)
}

pub(super) type DeadLetterIn = (Option<EventIn>, u64, u32, u64, String, String, String);

pub(super) fn dead_letter(raw: DeadLetterIn) -> HomeResult<DeadLetter> {
    let (found, sequence, deliveries, dead_at_us, reason, error, traceback) = raw;
    let event = found.map(event).transpose()?;
    Ok(DeadLetter { event, sequence, deliveries, dead_at_us, reason, fault: Fault { error, traceback } })
}

pub(super) fn entry_out(entry: &Entry) -> impl Serialize {
    (entry.key.as_str(), entry.value.as_deref().map(Raw), entry.revision, entry.time_us)
}

pub(super) type EntryIn = (String, Option<Bytes>, u64, u64);

pub(super) fn entry((key, value, revision, time_us): EntryIn) -> HomeResult<Entry> {
    Ok(Entry { key: subject("key", &key)?, value: value.map(|value| value.0.into()), revision, time_us })
}

pub(super) fn entries(all: Vec<EntryIn>) -> HomeResult<Vec<Entry>> {
    all.into_iter().map(entry).collect()
}

pub(super) fn changes_out(changes: &Changes) -> impl Serialize {
    (Each(&changes.entries, entry_out), changes.upto, changes.more)
}

pub(super) type LeaseInfoParts = (String, Option<String>, u64, u64);

pub(super) fn lease_info((name, holder, fence, remaining_us): LeaseInfoParts) -> LeaseInfo {
    LeaseInfo { name, holder, fence, remaining_us }
}

pub(super) fn lease_info_parts(info: LeaseInfo) -> LeaseInfoParts {
    (info.name, info.holder, info.fence, info.remaining_us)
}
