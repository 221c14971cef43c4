//! Names, limits and units of the calls of a storage backend.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidewire_backend::home::Answer;
use tidewire_proto::subject::Pattern;
use tidewire_proto::subject::grammar::{ACT, CALL, LOOK, READ, STREAMS};

use crate::error::Error;
use crate::names;
use crate::pending::Pending;

/// The name under which a hub offers its storage backend to its nodes.
pub(super) const SERVICE: &str = STREAMS;
/// The method whose stream holds a lease for as long as it is read.
pub(super) const HOLD: &str = "hold";
/// The call that ends the wait of another one, which has a token as its last argument: the stopping
/// caller still gets the result on its way, and gives it back.
pub(super) const END_WAIT: &str = "end_wait";
/// How long one call waits for events or changes at most; then it is made again. The end of a wait
/// is heard of.
pub(crate) const LONG_WAIT: Duration = Duration::from_secs(600);
/// The same for a lease.
pub(super) const ACQUIRE_WAIT_US: u64 = 4_000_000;
/// Limits of the events and entries of one call, and of their bytes.
pub(super) const PAGE: u32 = 1_000;
pub(super) const PAGE_BYTES: u32 = 4 << 20;

/// The calls of streams that need no care, for a macro of the client or the server: `ask` may be
/// made twice, `call` may change something. Texts come first.
macro_rules! stream_calls {
    ($with:ident) => {
        $with! { stream_call:
            ask stream_info(stream) -> StreamInfo;
            ask list_streams() -> Vec<StreamInfo>;
            call delete_stream(stream) -> ();
            ask list_schedules(stream) -> Vec<ScheduleInfo>;
            call cancel_schedule(stream, schedule) -> bool;
            ask consumer_info(stream, consumer) -> ConsumerInfo;
            ask list_consumers(stream) -> Vec<ConsumerInfo>;
            call delete_consumer(stream, consumer) -> ();
            ask settle(stream, consumer; settled: Vec<Settle>) -> Vec<HomeResult<()>>;
            ask pause(stream, consumer; until_us: Option<u64>) -> ();
            ask resume(stream, consumer) -> ();
            call seek(stream, consumer; start: Start) -> ();
            ask dead_letters(stream, consumer; from: u64, max: u32) -> Vec<DeadLetter>;
            call requeue(stream, consumer; sequences: Vec<u64>) -> u64;
            call drop_dead(stream, consumer; sequences: Vec<u64>) -> u64;
        }
    };
}
pub(super) use stream_calls;

/// The calls of buckets. `call_wanted` is cancelled with its caller.
macro_rules! bucket_calls {
    ($with:ident) => {
        $with! { bucket_call:
            ask bucket_info(bucket) -> BucketInfo;
            ask list_buckets() -> Vec<BucketInfo>;
            call delete_bucket(bucket) -> ();
            call_wanted put(bucket; key: Subject, value: Bytes, expect: Expect, ttl_us: Option<u64>) -> u64;
            ask get(bucket; key: Subject, revision: Option<u64>) -> Option<Entry>;
            call_wanted delete(bucket; key: Subject, expect: Expect, purge: bool) -> u64;
            ask history(bucket; key: Subject) -> Vec<Entry>;
        }
    };
}
pub(super) use bucket_calls;

/// The calls of leases.
macro_rules! lease_calls {
    ($with:ident) => {
        $with! { lease_call:
            ask renew(name; fence: u64) -> Grant;
            call release(name; fence: u64) -> bool;
            ask lease_info(name) -> Option<LeaseInfo>;
            ask list_leases() -> Vec<LeaseInfo>;
        }
    };
}
pub(super) use lease_calls;

/// The method of the service that takes a call, by the right that the call needs.
pub(super) fn method_of(call: &str) -> &'static str {
    match call {
        "stream_info" | "list_streams" | "page_streams" | "list_consumers" | "consumer_info" | "list_dead"
        | "list_events" | "bucket_info" | "list_buckets" | "keys" | "lease_info" | "list_leases" | "capabilities" => {
            LOOK
        }
        "list_schedules" | "read" | "dead_letters" | "get" | "history" | "watch" => READ,
        "delete_stream" | "purge" | "cancel_schedule" | "seek" | "pause" | "resume" | "requeue" | "drop_dead"
        | "delete_consumer" | "delete_bucket" | "put" | "delete" | "release" => ACT,
        _ => CALL,
    }
}

/// The answer of a storage backend, as a pending operation of a node.
pub(crate) fn answered<T: Send + 'static>(answer: Answer<T>) -> Pending<T> {
    Pending::new(async move { Ok(answer.await?) })
}

/// Patterns of subjects, checked.
pub(super) fn patterns(field: &str, texts: &[String]) -> Result<Vec<Pattern>, Error> {
    let checked = texts.iter().map(|text| names::pattern(text));
    checked.collect::<Result<_, _>>().map_err(|wrong| Error::new(wrong.code(), format!("{field}: {}", wrong.message())))
}

pub(super) fn texts_of<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Vec<String> {
    texts.into_iter().map(Into::into).collect()
}

pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn time_of(time_us: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(time_us)
}

/// Microseconds since 1970; 0 before that.
pub(super) fn micros_at(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, micros)
}
