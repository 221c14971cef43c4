//! Wire format of the calls of a storage backend: messages, events and settlements as tuples,
//! descriptions as maps.
//!
//! Hubs of Python and clients of TypeScript use the same format.

use std::fmt;

use serde::Deserialize as DeriveDeserialize;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use tidewire_backend::home::{
    Ack, Changes, DeadLetter, Delivery, Durability, Entry, Event, Expect, Fault, Grant, HomeError, HomeErrorKind,
    HomeResult, LeaseInfo, NewMessage, Page, Settle, Settlement, Start,
};
use tidewire_proto::subject::{Pattern, Subject};

use crate::values::{Bytes, Raw};

/// A part of a call, or of its answer.
pub(super) trait Wire: Sized + Send + 'static {
    /// The part as it is read.
    type In: DeserializeOwned + Send + 'static;

    /// The part as it is written.
    fn out(&self) -> impl Serialize;

    /// Checks what was read.
    fn read(raw: Self::In) -> HomeResult<Self>;
}

/// A type, the form in which it is read, how it is written, and how it is checked.
macro_rules! wire {
    ($kind:ty as $in:ty: $part:ident => $out:expr, $raw:pat => $read:expr) => {
        impl Wire for $kind {
            type In = $in;

            fn out(&self) -> impl Serialize {
                let $part = self;
                $out
            }

            fn read($raw: $in) -> HomeResult<Self> {
                $read
            }
        }
    };
}
pub(super) use wire;

wire!(() as (): part => part, raw => Ok(raw));
wire!(bool as Self: part => part, raw => Ok(raw));
wire!(u32 as Self: part => part, raw => Ok(raw));
wire!(u64 as Self: part => part, raw => Ok(raw));
wire!((String, String) as Self: part => part, raw => Ok(raw));
wire!(Subject as String: key => key.as_str(), text => subject("key", &text));
wire!(bytes::Bytes as Bytes: bytes => Raw(bytes), raw => Ok(raw.0.into()));
wire!(Grant as (u64, u64): grant => (grant.fence, grant.ttl_us), (fence, ttl_us) => Ok(Self { fence, ttl_us }));

impl<T: Wire> Wire for Option<T> {
    type In = Option<T::In>;

    fn out(&self) -> impl Serialize {
        self.as_ref().map(T::out)
    }

    fn read(raw: Self::In) -> HomeResult<Self> {
        raw.map(T::read).transpose()
    }
}

impl<T: Wire> Wire for Vec<T> {
    type In = Vec<T::In>;

    fn out(&self) -> impl Serialize {
        Each(self, T::out)
    }

    fn read(raw: Self::In) -> HomeResult<Self> {
        raw.into_iter().map(T::read).collect()
    }
}

// None: anything. 0: no value. Else a revision.
wire!(Expect as Option<u64>:
    expect => match expect {
        Self::Any => None,
        Self::Absent => Some(0),
        Self::Revision(revision) => Some(*revision),
    },
    revision => Ok(match revision {
        None => Self::Any,
        Some(0) => Self::Absent,
        Some(revision) => Self::Revision(revision),
    })
);

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

type MessageIn = (String, Bytes, Option<String>, Option<String>, Vec<(String, String)>, Option<u64>, Option<u64>);

wire!(NewMessage as MessageIn:
    message => {
        let Self { subject, payload, key, id, headers, deliver_at_us, ttl_us } = message;
        (subject.as_str(), Raw(payload), key, id, headers, deliver_at_us, ttl_us)
    },
    (name, payload, key, id, headers, deliver_at_us, ttl_us) => {
        let subject = subject("subject", &name)?;
        Ok(Self { subject, payload: payload.0.into(), key, id, headers, deliver_at_us, ttl_us })
    }
);

/// The result of one message: its ack, or the kind and the text of its error.
pub(super) struct AckResult<R>(R);

wire!(HomeResult<Ack> as AckResult<Self>: result => AckResult(result), raw => Ok(raw.0));

impl Serialize for AckResult<&HomeResult<Ack>> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Ok(Ack { sequence, durability, duplicate }) => (sequence, durability.name(), duplicate).serialize(to),
            Err(error) => (error.kind().name(), error.message()).serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for AckResult<HomeResult<Ack>> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Parts;

        impl<'de> Visitor<'de> for Parts {
            type Value = AckResult<HomeResult<Ack>>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an ack or an error")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
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

type EventIn = (String, Bytes, Option<String>, Option<String>, Vec<(String, String)>, u64, u64, u32, u64);

wire!(Delivery as EventIn:
    delivery => event_out(&delivery.event, delivery.delivery, delivery.ticket),
    (name, payload, key, id, headers, sequence, time_us, delivery, ticket) => {
        let subject = subject("subject", &name)?;
        let event = Event { sequence, time_us, subject, payload: payload.0.into(), key, id, headers };
        Ok(Self { event, delivery, ticket })
    }
);

fn event(raw: EventIn) -> HomeResult<Event> {
    Delivery::read(raw).map(|delivery| delivery.event)
}

/// A list, written item by item.
struct Each<'a, T, F>(&'a [T], F);

impl<'a, T, O: Serialize, F: Fn(&'a T) -> O> Serialize for Each<'a, T, F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(&self.1))
    }
}

wire!(Page as (Vec<EventIn>, u64, u64):
    page => (Each(&page.events, |event| event_out(event, 0, 0)), page.next, page.last),
    (events, next, last) => Ok(Self { events: events.into_iter().map(event).collect::<HomeResult<_>>()?, next, last })
);

type SettleIn = (u64, u64, String, Option<u64>, String, Option<(String, String)>);

impl Wire for Settle {
    type In = SettleIn;

    fn out(&self) -> impl Serialize {
        let (how, delay_us, reason, fault) = match &self.how {
            Settlement::Ack => ("ack", None, "", None),
            Settlement::Nak { delay_us, fault } => ("nak", *delay_us, "", fault.as_ref()),
            Settlement::Term { reason, fault } => ("term", None, reason.as_str(), fault.as_ref()),
            Settlement::Working => ("working", None, "", None),
            Settlement::Release => ("release", None, "", None),
        };
        let fault = fault.map(|fault| (&fault.error, &fault.traceback));
        (self.sequence, self.ticket, how, delay_us, reason, fault)
    }

    fn read((sequence, ticket, how, delay_us, reason, fault): SettleIn) -> HomeResult<Self> {
        let fault = fault.map(|(error, traceback)| Fault { error, traceback });
        let how = match how.as_str() {
            "ack" => Settlement::Ack,
            "nak" => Settlement::Nak { delay_us, fault },
            "term" => Settlement::Term { reason, fault },
            "working" => Settlement::Working,
            "release" => Settlement::Release,
            other => return Err(unknown("how", other)),
        };
        Ok(Self { sequence, ticket, how })
    }
}

// The result for one settlement: nothing, or the kind and the text of its error.
wire!(HomeResult<()> as Option<(String, String)>:
    result => result.as_ref().err().map(|error| (error.kind().name(), error.message())),
    raw => Ok(raw.map_or(Ok(()), |(kind, text)| Err(refusal(&kind, text))))
);

wire!(Start as (String, u64):
    start => match *start {
        Self::New => ("new", 0),
        Self::All => ("all", 0),
        Self::Sequence(sequence) => ("sequence", sequence),
        Self::Time(time_us) => ("time", time_us),
    },
    (name, number) => match name.as_str() {
        "new" => Ok(Self::New),
        "all" => Ok(Self::All),
        "sequence" => Ok(Self::Sequence(number)),
        "time" => Ok(Self::Time(number)),
        other => Err(unknown("start", other)),
    }
);

fn unknown(field: &str, word: &str) -> HomeError {
    wrong(field, &format_args!("{word:?} is not known: use the same version on both sides"))
}

wire!(DeadLetter as (Option<EventIn>, u64, u32, u64, String, String, String):
    letter => {
        let Self { event, sequence, deliveries, dead_at_us, reason, fault } = letter;
        let event = event.as_ref().map(|event| event_out(event, *deliveries, 0));
        (event, sequence, deliveries, dead_at_us, reason, &fault.error, &fault.traceback)
    },
    (found, sequence, deliveries, dead_at_us, reason, error, traceback) => {
        let event = found.map(event).transpose()?;
        Ok(Self { event, sequence, deliveries, dead_at_us, reason, fault: Fault { error, traceback } })
    }
);

type EntryIn = (String, Option<Bytes>, u64, u64);

wire!(Entry as EntryIn:
    entry => (entry.key.as_str(), entry.value.as_deref().map(Raw), entry.revision, entry.time_us),
    (key, value, revision, time_us) => {
        Ok(Self { key: Subject::read(key)?, value: value.map(|value| value.0.into()), revision, time_us })
    }
);

wire!(Changes as (Vec<EntryIn>, u64, bool):
    changes => (Each(&changes.entries, Entry::out), changes.upto, changes.more),
    (entries, upto, more) => Ok(Self { entries: Wire::read(entries)?, upto, more })
);

wire!(LeaseInfo as (String, Option<String>, u64, u64):
    lease => (&lease.name, &lease.holder, lease.fence, lease.remaining_us),
    (name, holder, fence, remaining_us) => Ok(Self { name, holder, fence, remaining_us })
);
