//! Calls of a storage backend, decoded by their name, and their answers encoded.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize};
use tidewire_backend::home::pending_answer::{self, PendingAnswer};
use tidewire_backend::home::{
    Answer, BucketSettings, Capability, Change, ConsumerSettings, Expect, Fetch, Full, Grant, Home, HomeError,
    HomeErrorKind, HomeResult, Order, Purge, Read, StreamSettings, Watch,
};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::Subject;

use super::schedule::{self, ScheduleMap};
use super::service::StopSignal;
use super::wire::{self, AckResult, Each};
use super::wire_maps::{self, BucketMap, ConsumerMap, StreamMap};
use super::{END_WAIT, errors};
use crate::services::failure::Failure;
use crate::services::service::ReplyFuture;
use crate::values::{self, Blob, Bytes};

pub(super) type HomeCall = Box<dyn FnOnce(&Arc<dyn Home>, &Arc<StopSignal>) -> Result<ReplyFuture, Failure> + Send>;

/// A call of a storage backend, decoded.
pub(super) struct Request(pub(super) HomeCall);

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
                parts.next_element_seed(Arguments(&name))?.map(Request).ok_or_else(missing)
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
    let (filter, start) = (wire::patterns("filter", &filter)?, wire::start(start)?);
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
            act(|home| Ok(home.create_stream(new.settings()?)), |info| written(&StreamMap::from(info)))
        }
        "stream_info" => {
            let (stream,): (String,) = Deserialize::deserialize(from)?;
            act(move |home| Ok(home.stream_info(&stream)), |info| written(&StreamMap::from(info)))
        }
        "list_streams" => act(|home| Ok(home.list_streams()), each(StreamMap::from)),
        "delete_stream" => {
            let (stream,): (String,) = Deserialize::deserialize(from)?;
            act(move |home| Ok(home.delete_stream(&stream)), plain)
        }
        "purge" => {
            let (stream, before, keep, filter): (String, _, _, Option<String>) = Deserialize::deserialize(from)?;
            let begin = move |home: &dyn Home| {
                let filter = filter.map(|filter| wire::pattern("filter", &filter)).transpose()?;
                Ok(home.purge(&stream, Purge { before, keep, filter }))
            };
            act(begin, plain)
        }
        "publish" => {
            let (stream, messages, whole): (String, Vec<wire::MessageIn>, bool) = Deserialize::deserialize(from)?;
            let begin = move |home: &dyn Home| Ok(home.publish(&stream, wire::messages(messages)?, whole));
            act(begin, each(AckResult))
        }
        "create_schedule" => {
            let (stream, name, when, time_zone, message) = Deserialize::deserialize(from)?;
            let (stream, when, time_zone): (String, String, String) = (stream, when, time_zone);
            let begin = move |home: &dyn Home| {
                let settings = schedule::settings(name, &when, &time_zone, wire::message(message)?)?;
                Ok(home.create_schedule(&stream, settings))
            };
            act(begin, |(info, change)| written(&ScheduleMap::of(info, change)))
        }
        "list_schedules" => {
            let (stream,): (String,) = Deserialize::deserialize(from)?;
            act(move |home| Ok(home.list_schedules(&stream)), each(|info| ScheduleMap::of(info, Change::Kept)))
        }
        "cancel_schedule" => {
            let (stream, name): (String, String) = Deserialize::deserialize(from)?;
            act(move |home| Ok(home.cancel_schedule(&stream, &name)), plain)
        }
        "read" => {
            let (stream, start, stop, filter, max_messages, max_bytes, wait_us) = Deserialize::deserialize(from)?;
            let (stream, filter): (String, Vec<String>) = (stream, filter);
            let begin = move |home: &Arc<dyn Home>| {
                let (start, filter) = (wire::start(start)?, wire::patterns("filter", &filter)?);
                Ok(home.read(&stream, Read { start, stop, filter, max_messages, max_bytes, wait_us }).into())
            };
            waiting(begin, |page| written(&wire::page_out(&page)))
        }
        "create_consumer" => {
            let new: NewConsumer = Deserialize::deserialize(from)?;
            let begin = move |home: &dyn Home| {
                let (stream, settings) = consumer_settings(new)?;
                Ok(home.create_consumer(&stream, settings))
            };
            act(begin, |info| written(&ConsumerMap::from(info)))
        }
        "fetch" => {
            let NewFetch { stream, consumer, max_messages, max_bytes, wait_us, token } =
                Deserialize::deserialize(from)?;
            let fetch = Fetch { max_messages, max_bytes, wait_us };
            let begin = move |home: &Arc<dyn Home>| Ok(pending_answer::fetch(home, &stream, &consumer, fetch));
            ended(token, begin, || Ok(Vec::new()), |all| written(&Each(&all, wire::delivery_out)))
        }
        "settle" => {
            let (stream, consumer, settled) = Deserialize::deserialize(from)?;
            let (stream, consumer, settled): (String, String, Vec<wire::SettleIn>) = (stream, consumer, settled);
            let begin = move |home: &dyn Home| {
                let settled = settled.into_iter().map(wire::settle).collect::<HomeResult<_>>()?;
                Ok(home.settle(&stream, &consumer, settled))
            };
            act(begin, |all| written(&Each(&all, wire::settled_out)))
        }
        "dead_letters" => {
            let (stream, consumer, from, max): (String, String, u64, u32) = Deserialize::deserialize(from)?;
            let begin = move |home: &dyn Home| Ok(home.dead_letters(&stream, &consumer, from, max));
            act(begin, |all| written(&Each(&all, wire::dead_letter_out)))
        }
        "list_consumers" => {
            let (stream,): (String,) = Deserialize::deserialize(from)?;
            act(move |home| Ok(home.list_consumers(&stream)), each(ConsumerMap::from))
        }
        "seek" => {
            let (stream, consumer, start): (String, String, _) = Deserialize::deserialize(from)?;
            act(move |home| Ok(home.seek(&stream, &consumer, wire::start(start)?)), plain)
        }
        "pause" => {
            let (stream, consumer, until_us): (String, String, _) = Deserialize::deserialize(from)?;
            act(move |home| Ok(home.pause(&stream, &consumer, until_us)), plain)
        }
        "requeue" | "drop_dead" => {
            let (stream, consumer, all): (String, String, Vec<u64>) = Deserialize::deserialize(from)?;
            let drops = name == "drop_dead";
            let begin = move |home: &dyn Home| {
                Ok(if drops { home.drop_dead(&stream, &consumer, all) } else { home.requeue(&stream, &consumer, all) })
            };
            act(begin, plain)
        }
        "consumer_info" => {
            let (stream, consumer): (String, String) = Deserialize::deserialize(from)?;
            act(move |home| Ok(home.consumer_info(&stream, &consumer)), |info| written(&ConsumerMap::from(info)))
        }
        "delete_consumer" | "resume" => {
            let (stream, consumer): (String, String) = Deserialize::deserialize(from)?;
            let resumes = name == "resume";
            let begin = move |home: &dyn Home| {
                Ok(if resumes { home.resume(&stream, &consumer) } else { home.delete_consumer(&stream, &consumer) })
            };
            act(begin, plain)
        }
        name => return read_other(name, from),
    })
}

/// The calls of buckets and leases, and the capabilities of the storage backend.
fn read_other<'de, A: SeqAccess<'de>>(name: &str, from: SeqAccessDeserializer<A>) -> Result<HomeCall, A::Error> {
    Ok(match name {
        "create_bucket" => {
            let (name, history, ttl_us, max_bytes, replicas) = Deserialize::deserialize(from)?;
            let settings = BucketSettings { name, history, ttl_us, max_bytes, replicas };
            act(move |home| Ok(home.create_bucket(settings)), plain)
        }
        "bucket_info" => {
            let (bucket,): (String,) = Deserialize::deserialize(from)?;
            act(move |home| Ok(home.bucket_info(&bucket)), |info| written(&BucketMap::from(info)))
        }
        "list_buckets" => act(|home| Ok(home.list_buckets()), each(BucketMap::from)),
        "delete_bucket" => {
            let (bucket,): (String,) = Deserialize::deserialize(from)?;
            act(move |home| Ok(home.delete_bucket(&bucket)), plain)
        }
        "put" => {
            let (bucket, key, value, expect, ttl_us) = Deserialize::deserialize(from)?;
            let (bucket, key, value): (String, String, Bytes) = (bucket, key, value);
            let begin = move |home: &dyn Home| {
                Ok(home.put(&bucket, wire::subject("key", &key)?, value.0.into(), expected(expect), ttl_us))
            };
            act(begin, plain)
        }
        "get" => {
            let (bucket, key, revision): (String, String, _) = Deserialize::deserialize(from)?;
            let begin = move |home: &dyn Home| Ok(home.get(&bucket, wire::subject("key", &key)?, revision));
            act(begin, |found| written(&found.as_ref().map(wire::entry_out)))
        }
        "delete" => {
            let (bucket, key, expect, purge): (String, String, _, _) = Deserialize::deserialize(from)?;
            let begin =
                move |home: &dyn Home| Ok(home.delete(&bucket, wire::subject("key", &key)?, expected(expect), purge));
            act(begin, plain)
        }
        "keys" => {
            let (bucket, filter, after, max) = Deserialize::deserialize(from)?;
            let (bucket, filter, after): (String, String, Option<String>) = (bucket, filter, after);
            let begin = move |home: &dyn Home| {
                let after = after.map(|after| wire::subject("after", &after)).transpose()?;
                Ok(home.keys(&bucket, wire::pattern("filter", &filter)?, after, max))
            };
            act(begin, |keys| written(&Each(&keys, Subject::as_str)))
        }
        "history" => {
            let (bucket, key): (String, String) = Deserialize::deserialize(from)?;
            let begin = move |home: &dyn Home| Ok(home.history(&bucket, wire::subject("key", &key)?));
            act(begin, |all| written(&Each(&all, wire::entry_out)))
        }
        "watch" => {
            let (bucket, filter, after, max, wait_us): (String, String, _, _, _) = Deserialize::deserialize(from)?;
            let begin = move |home: &Arc<dyn Home>| {
                let filter = wire::pattern("filter", &filter)?;
                Ok(home.watch(&bucket, Watch { filter, after, max, wait_us }).into())
            };
            waiting(begin, |changes| written(&wire::changes_out(&changes)))
        }
        "acquire" => {
            let NewGrant { name, holder, ttl_us, wait_us, token } = Deserialize::deserialize(from)?;
            let unheld = || Err(HomeError::new(HomeErrorKind::LeaseHeld, "nobody waits for it any more"));
            ended(
                token,
                move |home| Ok(pending_answer::acquire(home, &name, &holder, ttl_us, wait_us)),
                unheld,
                granted,
            )
        }
        "renew" => {
            let (name, fence): (String, _) = Deserialize::deserialize(from)?;
            act(move |home| Ok(home.renew(&name, fence)), granted)
        }
        "release" => {
            let (name, fence): (String, _) = Deserialize::deserialize(from)?;
            act(move |home| Ok(home.release(&name, fence)), plain)
        }
        "lease_info" => {
            let (name,): (String,) = Deserialize::deserialize(from)?;
            act(move |home| Ok(home.lease_info(&name)), |found| written(&found.map(wire::lease_info_parts)))
        }
        "list_leases" => act(|home| Ok(home.list_leases()), each(wire::lease_info_parts)),
        END_WAIT => {
            let (token,) = Deserialize::deserialize(from)?;
            Box::new(move |_, leaving| {
                let was_there = leaving.end_wait(token);
                Ok(Box::pin(async move { plain(was_there) }))
            })
        }
        "capabilities" => act(|home| Ok(Answer::ready(Ok(lacking(home)))), plain),
        other => {
            let fix = "use the same version of Tidewire on both sides";
            return Err(A::Error::custom(format!("{other:?} is no call of a home: {fix}")));
        }
    })
}

/// Missing capabilities of a storage backend, with the reasons.
fn lacking(home: &dyn Home) -> Vec<(&'static str, String)> {
    let why = |capability: Capability| Some((capability.name(), home.capabilities().why_not(capability)?.to_owned()));
    Capability::ALL.into_iter().filter_map(why).collect()
}

/// A call, and how its answer is written.
fn act<T: Send + 'static>(
    begin: impl FnOnce(&dyn Home) -> HomeResult<Answer<T>> + Send + 'static,
    write: impl FnOnce(T) -> Result<Blob, Failure> + Send + 'static,
) -> HomeCall {
    Box::new(move |home, _| {
        let answer = begin(&**home).map_err(refused)?;
        Ok(Box::pin(async move { write(answer.await.map_err(refused)?) }))
    })
}

/// A long-polling call: it ends when the node stops, and returns a late result to the storage
/// backend.
fn waiting<T: Send + 'static>(
    begin: impl FnOnce(&Arc<dyn Home>) -> HomeResult<PendingAnswer<T>> + Send + 'static,
    write: impl FnOnce(T) -> Result<Blob, Failure> + Send + 'static,
) -> HomeCall {
    Box::new(move |home, leaving| {
        let mut answer = begin(home).map_err(refused)?;
        let leaving = Arc::clone(leaving);
        Ok(Box::pin(async move {
            let got = poll_fn(|context| match Pin::new(&mut answer).poll(context) {
                Poll::Pending => leaving.poll(context).map(Err),
                ready => ready,
            });
            write(got.await.map_err(refused)?)
        }))
    })
}

/// The same, for a call whose wait can be ended: the caller gets the results so far.
fn ended<T: Send + 'static>(
    token: u64,
    begin: impl FnOnce(&Arc<dyn Home>) -> HomeResult<PendingAnswer<T>> + Send + 'static,
    nothing: fn() -> HomeResult<T>,
    write: impl FnOnce(T) -> Result<Blob, Failure> + Send + 'static,
) -> HomeCall {
    Box::new(move |home, leaving| {
        let (mut answer, leaving, wait) = (begin(home).map_err(refused)?, Arc::clone(leaving), leaving.wait(token));
        Ok(Box::pin(async move {
            let got = poll_fn(|context| match Pin::new(&mut answer).poll(context) {
                Poll::Pending if wait.poll(context).is_ready() => Poll::Ready(nothing()),
                Poll::Pending => leaving.poll(context).map(Err),
                ready => ready,
            });
            write(got.await.map_err(refused)?)
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

fn written<T: Serialize + ?Sized>(value: &T) -> Result<Blob, Failure> {
    values::write("the result", value).map_err(Failure::from)
}

fn plain<T: Serialize>(value: T) -> Result<Blob, Failure> {
    written(&value)
}

fn each<T, O: Serialize>(change: fn(T) -> O) -> impl FnOnce(Vec<T>) -> Result<Blob, Failure> + Send {
    move |all| written(&all.into_iter().map(change).collect::<Vec<_>>())
}

fn granted(grant: Grant) -> Result<Blob, Failure> {
    written(&(grant.fence, grant.ttl_us))
}

const fn expected(revision: Option<u64>) -> Expect {
    match revision {
        None => Expect::Any,
        Some(0) => Expect::Absent,
        Some(revision) => Expect::Revision(revision),
    }
}
