//! Calls of a storage backend, decoded by their name, and their answers encoded.

use std::convert::identity;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize};
use tidewire_backend::home::pending_answer::{self, PendingAnswer};
use tidewire_backend::home::{
    Answer, BucketInfo, BucketSettings, Capability, ConsumerInfo, ConsumerSettings, DeadLetter, Entry, Event, Expect,
    Fetch, Full, Grant, Home, HomeError, HomeErrorKind, HomeResult, LeaseInfo, NewMessage, Order, Page, Purge, Read,
    ScheduleInfo, Settle, Start, StreamInfo, StreamSettings, Watch,
};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::Subject;

use super::conventions::{END_WAIT, bucket_calls, lease_calls, method_of, stream_calls};
use super::errors;
use super::schedule;
use super::wire::{self, Wire};
use super::wire_maps::{self, StreamQuery};
use crate::node::stop_signal::StopSignal;
use crate::services::failure::Failure;
use crate::services::method::ReplyFuture;
use crate::values::{self, Blob};

pub(super) type HomeCall = Box<dyn FnOnce(&Arc<dyn Home>, &Arc<StopSignal>) -> Result<ReplyFuture, Failure> + Send>;

/// A call of a storage backend, decoded, with the method for calls of its right.
pub(super) struct Request(pub(super) &'static str, pub(super) HomeCall);

impl<'de> Deserialize<'de> for Request {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NameAndArguments;

        impl<'de> Visitor<'de> for NameAndArguments {
            type Value = Request;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("the name of a call and its arguments")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Request, A::Error> {
                let missing = || A::Error::custom("give the name of a call and its arguments");
                let name: String = parts.next_element()?.ok_or_else(missing)?;
                let call = parts.next_element_seed(Arguments(&name))?.ok_or_else(missing)?;
                Ok(Request(method_of(&name), call))
            }
        }

        from.deserialize_tuple(2, NameAndArguments)
    }
}

/// The arguments of a call of this name.
struct Arguments<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Arguments<'_> {
    type Value = HomeCall;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<HomeCall, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Arguments<'_> {
    type Value = HomeCall;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the arguments of {}", self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, arguments: A) -> Result<HomeCall, A::Error> {
        read(self.0, SeqAccessDeserializer::new(arguments))
    }
}

#[derive(DeriveDeserialize)]
struct NewStream {
    name: String,
    subjects: Vec<String>,
    max_age_us: Option<u64>,
    max_bytes: Option<u64>,
    max_messages: Option<u64>,
    drops_old: bool,
    dedupe_us: u64,
    replicas: u32,
    #[serde(default)]
    compact: Option<String>,
}

impl NewStream {
    fn settings(self) -> HomeResult<StreamSettings> {
        Ok(StreamSettings {
            subjects: wire::patterns("subjects", &self.subjects)?,
            full: if self.drops_old { Full::DropOld } else { Full::Refuse },
            compact: self.compact.as_deref().map(wire_maps::compact_named),
            name: self.name,
            max_age_us: self.max_age_us,
            max_bytes: self.max_bytes,
            max_messages: self.max_messages,
            dedupe_us: self.dedupe_us,
            replicas: self.replicas,
        })
    }
}

#[derive(DeriveDeserialize)]
struct NewFetch {
    stream: String,
    consumer: String,
    max_messages: u32,
    max_bytes: u32,
    wait_us: u64,
    #[serde(default)]
    token: u64,
}

#[derive(DeriveDeserialize)]
struct NewGrant {
    name: String,
    holder: String,
    ttl_us: u64,
    wait_us: u64,
    #[serde(default)]
    token: u64,
}

type NewConsumer = (String, String, Vec<String>, (String, u64), u64, u32, Vec<u64>, u32, bool, u64);

fn consumer_settings(new: NewConsumer) -> HomeResult<(String, ConsumerSettings)> {
    let (stream, name, filter, start, ack_wait_us, max_deliver, backoff_us, max_in_flight, by_key, inactive_us) = new;
    let (filter, start) = (wire::patterns("filter", &filter)?, Start::read(start)?);
    let order = if by_key { Order::Key } else { Order::None };
    let settings = ConsumerSettings {
        name,
        filter,
        start,
        ack_wait_us,
        max_deliver,
        backoff_us,
        max_in_flight,
        order,
        inactive_us,
    };
    Ok((stream, settings))
}

/// Decodes a call of a storage backend by its name.
fn read<'de, A: SeqAccess<'de>>(name: &str, from: SeqAccessDeserializer<A>) -> Result<HomeCall, A::Error> {
    Ok(match name {
        "create_stream" => {
            let new = NewStream::deserialize(from)?;
            act(|home| Ok(home.create_stream(new.settings()?)))
        }
        "page_streams" => {
            let (search, sort, is_down, has_own, first, limit) = Deserialize::deserialize(from)?;
            let query = StreamQuery { search, sort, is_down, has_own, first, limit };
            act(move |home| Ok(home.list_streams().map(query.checked()?)))
        }
        "purge" => {
            let (stream, before, keep, filter): (String, _, _, Option<String>) = Deserialize::deserialize(from)?;
            let begin = move |home: &dyn Home| {
                let filter = filter.map(|filter| wire::pattern("filter", &filter)).transpose()?;
                Ok(home.purge(&stream, Purge { before, keep, filter }))
            };
            act(begin)
        }
        "publish" => {
            let (stream, messages, whole): (String, _, bool) = Deserialize::deserialize(from)?;
            act(move |home| Ok(home.publish(&stream, Wire::read(messages)?, whole)))
        }
        "create_schedule" => {
            let (stream, name, when, time_zone, message) = Deserialize::deserialize(from)?;
            let (stream, when, time_zone): (String, String, String) = (stream, when, time_zone);
            let begin = move |home: &dyn Home| {
                let settings = schedule::settings(name, &when, &time_zone, NewMessage::read(message)?)?;
                Ok(home.create_schedule(&stream, settings))
            };
            act(begin)
        }
        "read" | "list_events" => {
            let (stream, start, stop, filter, max_messages, max_bytes, wait_us) = Deserialize::deserialize(from)?;
            let (stream, filter): (String, Vec<String>) = (stream, filter);
            let begin = move |home: &Arc<dyn Home>| {
                let (start, filter) = (Start::read(start)?, wire::patterns("filter", &filter)?);
                Ok(home.read(&stream, Read { start, stop, filter, max_messages, max_bytes, wait_us }).into())
            };
            let hides = name == "list_events";
            waiting(begin, move |mut page: Page| {
                page.events.iter_mut().filter(|_| hides).for_each(hide);
                page
            })
        }
        "create_consumer" => {
            let new: NewConsumer = Deserialize::deserialize(from)?;
            let begin = move |home: &dyn Home| {
                let (stream, settings) = consumer_settings(new)?;
                Ok(home.create_consumer(&stream, settings))
            };
            act(begin)
        }
        "fetch" => {
            let NewFetch { stream, consumer, max_messages, max_bytes, wait_us, token } =
                Deserialize::deserialize(from)?;
            let fetch = Fetch { max_messages, max_bytes, wait_us };
            let begin = move |home: &Arc<dyn Home>| Ok(pending_answer::fetch(home, &stream, &consumer, fetch));
            ended(token, begin, || Ok(Vec::new()))
        }
        "list_dead" => {
            let (stream, consumer, from, max): (String, String, u64, u32) = Deserialize::deserialize(from)?;
            let hidden = |mut all: Vec<DeadLetter>| {
                all.iter_mut().filter_map(|letter| letter.event.as_mut()).for_each(hide);
                all
            };
            act(move |home| Ok(home.dead_letters(&stream, &consumer, from, max).map(hidden)))
        }
        "create_bucket" => {
            let (name, history, ttl_us, max_bytes, replicas) = Deserialize::deserialize(from)?;
            let settings = BucketSettings { name, history, ttl_us, max_bytes, replicas };
            act(move |home| Ok(home.create_bucket(settings)))
        }
        "keys" => {
            let (bucket, filter, after, max): (String, String, Option<String>, _) = Deserialize::deserialize(from)?;
            let begin = move |home: &dyn Home| {
                let after = after.map(|after| wire::subject("after", &after)).transpose()?;
                Ok(home.keys(&bucket, wire::pattern("filter", &filter)?, after, max))
            };
            act(begin)
        }
        "watch" => {
            let (bucket, filter, after, max, wait_us): (String, String, _, _, _) = Deserialize::deserialize(from)?;
            let begin = move |home: &Arc<dyn Home>| {
                let filter = wire::pattern("filter", &filter)?;
                Ok(home.watch(&bucket, Watch { filter, after, max, wait_us }).into())
            };
            waiting(begin, identity)
        }
        "acquire" => {
            let NewGrant { name, holder, ttl_us, wait_us, token } = Deserialize::deserialize(from)?;
            let unheld = || Err(HomeError::new(HomeErrorKind::LeaseHeld, "nobody waits for it any more"));
            ended(token, move |home| Ok(pending_answer::acquire(home, &name, &holder, ttl_us, wait_us)), unheld)
        }
        END_WAIT => {
            let (token,) = Deserialize::deserialize(from)?;
            Box::new(move |_, leaving| {
                let was_there = leaving.end_wait(token);
                Ok(Box::pin(async move { written(&was_there) }))
            })
        }
        "capabilities" => act(|home| Ok(Answer::ready(Ok(lacking(home))))),
        name => return stream_call(name, from),
    })
}

/// A function that decodes the calls of a table, and leaves others to the next table.
macro_rules! server_calls {
    ($table:ident: $($_:ident $call:ident($($text:ident),* $(; $($value:ident: $kind:ty),*)?) -> $result:ty;)*) => {
        fn $table<'de, A: SeqAccess<'de>>(name: &str, from: SeqAccessDeserializer<A>) -> Result<HomeCall, A::Error> {
            match name {
                $(stringify!($call) => {
                    decoded!(from, $($text: String,)* $($($value: <$kind as Wire>::In,)*)?);
                    Ok(act::<$result>(move |home| Ok(home.$call($(&$text,)* $($(Wire::read($value)?),*)?))))
                })*
                _ => next_table!($table, name, from),
            }
        }
    };
}

macro_rules! decoded {
    ($from:ident,) => { drop($from); };
    ($from:ident, $($name:ident: $kind:ty,)+) => {
        let ($($name,)+): ($($kind,)+) = Deserialize::deserialize($from)?;
    };
}

macro_rules! next_table {
    (stream_call, $name:ident, $from:ident) => {
        bucket_call($name, $from)
    };
    (bucket_call, $name:ident, $from:ident) => {
        lease_call($name, $from)
    };
    (lease_call, $name:ident, $from:ident) => {{
        let fix = "use the same version of Tidewire on both sides";
        Err(A::Error::custom(format!("{:?} is no call of a home: {fix}", $name)))
    }};
}

stream_calls!(server_calls);
bucket_calls!(server_calls);
lease_calls!(server_calls);

/// Missing capabilities of a storage backend, with the reasons.
fn lacking(home: &dyn Home) -> Vec<(String, String)> {
    let why = |capability: Capability| {
        Some((capability.name().to_owned(), home.capabilities().why_not(capability)?.to_owned()))
    };
    Capability::ALL.into_iter().filter_map(why).collect()
}

/// A call that is answered at once.
fn act<T: Wire>(begin: impl FnOnce(&dyn Home) -> HomeResult<Answer<T>> + Send + 'static) -> HomeCall {
    Box::new(move |home, _| {
        let answer = begin(&**home).map_err(refused)?;
        Ok(Box::pin(async move { written(&answer.await.map_err(refused)?.out()) }))
    })
}

/// A long-polling call: it ends when the node stops, and returns a late result to the storage
/// backend.
fn waiting<T: Wire>(
    begin: impl FnOnce(&Arc<dyn Home>) -> HomeResult<PendingAnswer<T>> + Send + 'static,
    change: impl FnOnce(T) -> T + Send + 'static,
) -> HomeCall {
    Box::new(move |home, leaving| {
        let answer = begin(home).map_err(refused)?;
        let leaving = Arc::clone(leaving);
        Ok(Box::pin(async move { written(&change(leaving.until(answer).await.map_err(refused)?).out()) }))
    })
}

/// The same, for a call whose wait can be ended: the caller gets the results so far.
fn ended<T: Wire>(
    token: u64,
    begin: impl FnOnce(&Arc<dyn Home>) -> HomeResult<PendingAnswer<T>> + Send + 'static,
    nothing: fn() -> HomeResult<T>,
) -> HomeCall {
    Box::new(move |home, leaving| {
        let (mut answer, leaving, wait) = (begin(home).map_err(refused)?, Arc::clone(leaving), leaving.wait(token));
        Ok(Box::pin(async move {
            let got = poll_fn(|context| match Pin::new(&mut answer).poll(context) {
                Poll::Pending => wait.poll(context).map(|()| nothing()),
                ready => ready,
            });
            written(&leaving.until(got).await.map_err(refused)?.out())
        }))
    })
}

pub(crate) fn refused(error: HomeError) -> Failure {
    let code = match error.kind() {
        HomeErrorKind::Closed => ErrorCode::HomeUnavailable,
        kind => errors::code_of(kind),
    };
    Failure::of(code, error.message())
}

pub(super) fn written<T: Serialize + ?Sized>(value: &T) -> Result<Blob, Failure> {
    values::write("the result", value).map_err(Failure::from)
}

/// Removes the payload for a caller that may only look.
fn hide(event: &mut Event) {
    event.payload = Vec::new().into();
}
