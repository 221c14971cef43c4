//! Wire format of the calls of a storage backend: messages, events and settlements as tuples,
//! descriptions as maps.
//!
//! Hubs of Python and clients of TypeScript use the same format.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use tidewire_backend::home::{
    Ack, Changes, DeadLetter, Delivery, Durability, Entry, Event, Fault, HomeError, HomeErrorKind, HomeResult,
    LeaseInfo, NewMessage, Page, Settle, Settlement, Start,
};
use tidewire_proto::subject::{Pattern, Subject};

use crate::values::Bytes;

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

/// Borrowed bytes, encoded as bytes.
pub(super) struct Raw<'a>(pub &'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(self.0)
    }
}

/// A message for a storage backend, as it is encoded.
pub(super) struct MessageOut<'a>(pub &'a NewMessage);

impl Serialize for MessageOut<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let NewMessage { subject, payload, key, id, headers, deliver_at_us, ttl_us } = self.0;
        (subject.as_str(), Raw(payload), key, id, headers, deliver_at_us, ttl_us).serialize(to)
    }
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
enum First {
    Sequence(u64),
    Kind(String),
}

impl<'de> Deserialize<'de> for First {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = First;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a sequence or a kind of error")
            }

            fn visit_u64<E>(self, sequence: u64) -> Result<First, E> {
                Ok(First::Sequence(sequence))
            }

            fn visit_i64<E: serde::de::Error>(self, sequence: i64) -> Result<First, E> {
                u64::try_from(sequence).map(First::Sequence).map_err(E::custom)
            }

            fn visit_str<E>(self, kind: &str) -> Result<First, E> {
                Ok(First::Kind(kind.to_owned()))
            }
        }

        from.deserialize_any(Either)
    }
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

/// An event, or a delivery of one, from a storage backend. A replay has neither a delivery nor a
/// ticket: both are 0.
pub(super) struct EventOut<'a>(pub &'a Event, pub u32, pub u64);

impl<'a> EventOut<'a> {
    pub const fn of(delivery: &'a Delivery) -> Self {
        Self(&delivery.event, delivery.delivery, delivery.ticket)
    }
}

impl Serialize for EventOut<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Event { sequence, time_us, subject, payload, key, id, headers } = self.0;
        (subject.as_str(), Raw(payload), key, id, headers, sequence, time_us, self.1, self.2).serialize(to)
    }
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

pub(super) struct PageOut<'a>(pub &'a Page);

impl Serialize for PageOut<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Page { events, next, last } = self.0;
        (Each(events, |event| EventOut(event, 0, 0)), next, last).serialize(to)
    }
}

pub(super) type PageIn = (Vec<EventIn>, u64, u64);

pub(super) fn page((events, next, last): PageIn) -> HomeResult<Page> {
    Ok(Page { events: events.into_iter().map(event).collect::<HomeResult<_>>()?, next, last })
}

/// Settlement of a delivery, as it is encoded.
pub(super) struct SettleOut<'a>(pub &'a Settle);

impl Serialize for SettleOut<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Settle { sequence, ticket, how } = self.0;
        let (how, delay_us, reason, fault) = match how {
            Settlement::Ack => ("ack", None, "", None),
            Settlement::Nak { delay_us, fault } => ("nak", *delay_us, "", fault.as_ref()),
            Settlement::Term { reason, fault } => ("term", None, reason.as_str(), fault.as_ref()),
            Settlement::Working => ("working", None, "", None),
            Settlement::Release => ("release", None, "", None),
        };
        let fault = fault.map(|fault| (&fault.error, &fault.traceback));
        (sequence, ticket, how, delay_us, reason, fault).serialize(to)
    }
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
pub(super) struct SettledOut<'a>(pub &'a HomeResult<()>);

impl Serialize for SettledOut<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().err().map(|error| (error.kind().name(), error.message())).serialize(to)
    }
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

pub(super) struct DeadLetterOut<'a>(pub &'a DeadLetter);

impl Serialize for DeadLetterOut<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let DeadLetter { event, sequence, deliveries, dead_at_us, reason, fault } = self.0;
        let event = event.as_ref().map(|event| EventOut(event, *deliveries, 0));
        (event, sequence, deliveries, dead_at_us, reason, &fault.error, &fault.traceback).serialize(to)
    }
}

pub(super) type DeadLetterIn = (Option<EventIn>, u64, u32, u64, String, String, String);

pub(super) fn dead_letter(raw: DeadLetterIn) -> HomeResult<DeadLetter> {
    let (found, sequence, deliveries, dead_at_us, reason, error, traceback) = raw;
    let event = found.map(event).transpose()?;
    Ok(DeadLetter { event, sequence, deliveries, dead_at_us, reason, fault: Fault { error, traceback } })
}

pub(super) struct EntryOut<'a>(pub &'a Entry);

impl Serialize for EntryOut<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Entry { key, value, revision, time_us } = self.0;
        (key.as_str(), value.as_deref().map(Raw), revision, time_us).serialize(to)
    }
}

pub(super) type EntryIn = (String, Option<Bytes>, u64, u64);

pub(super) fn entry((key, value, revision, time_us): EntryIn) -> HomeResult<Entry> {
    Ok(Entry { key: subject("key", &key)?, value: value.map(|value| value.0.into()), revision, time_us })
}

pub(super) fn entries(all: Vec<EntryIn>) -> HomeResult<Vec<Entry>> {
    all.into_iter().map(entry).collect()
}

pub(super) struct ChangesOut<'a>(pub &'a Changes);

impl Serialize for ChangesOut<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Changes { entries, upto, more } = self.0;
        (Each(entries, EntryOut), upto, more).serialize(to)
    }
}

pub(super) type LeaseInfoParts = (String, Option<String>, u64, u64);

pub(super) fn lease_info((name, holder, fence, remaining_us): LeaseInfoParts) -> LeaseInfo {
    LeaseInfo { name, holder, fence, remaining_us }
}

pub(super) fn lease_info_parts(info: LeaseInfo) -> LeaseInfoParts {
    (info.name, info.holder, info.fence, info.remaining_us)
}
