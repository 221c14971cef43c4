//! Storage backend of a hub: its streams, buckets and leases, by calls of the hub's storage
//! service.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidewire_backend::home::{
    Ack, Answer, BucketInfo, BucketSettings, Capabilities, Capability, Change, Changes, Compact, ConsumerInfo,
    ConsumerSettings, DeadLetter, Delivery, Entry, Expect, Fetch, Full, Grant, Home, HomeError, HomeErrorKind,
    HomeResult, KeyValue, LeaseInfo, Leases, NewMessage, Order, Page, Purge, Read, ScheduleInfo, ScheduleSettings,
    Settle, Start, StreamInfo, StreamSettings, Streams, Watch, answer, pending_answer,
};
use tidewire_engine::raw::Mutex;
use tidewire_proto::subject::{Pattern, Subject};

use super::schedule::ScheduleMap;
use super::serial_queue::SerialQueue;
use super::wire::{self, AckResult, Each};
use super::wire_maps::{self, BucketMap, ConsumerMap, StreamMap};
use super::{CALL, END_WAIT, LONG_WAIT, SERVICE, errors, micros};
use crate::calls::call::Call;
use crate::calls::client::{Client, DEFAULT_TIMEOUT};
use crate::error::Error;
use crate::names;
use crate::node::core::{Core, Returning};
use crate::pending::Wakers;
use crate::values::Raw;

/// Storage backend of the hub that a node has joined.
#[derive(Clone, derive_more::Debug)]
#[debug("HubHome({place})")]
pub(super) struct HubHome {
    core: Arc<Core>,
    client: Client,
    place: String,
    capabilities: Capabilities,
    /// Of calls that publish.
    turns: Arc<SerialQueue>,
    end: Arc<End>,
}

/// Closed state of the storage backend, with the wakers of waiting calls.
#[derive(Default)]
struct End {
    is_closed: AtomicBool,
    wakers: Wakers,
}

/// Kind of a call: immediate, or long-polling.
enum BlockingCalls<B> {
    /// Nothing: it is answered at once.
    Not,
    /// Something to look at, for so long at most.
    ToSee(u64),
    /// A result with an owner. A result that arrives after its caller has left goes back.
    ToHave { us: u64, token: u64, back: B },
}

/// Returns a result whose caller has left, and marks the end of the return.
type ReturnCallback<T> = Box<dyn FnOnce(T, Returning) + Send>;

/// Policy for a call whose link is lost before its reply.
#[derive(Clone, Copy, PartialEq)]
enum Loss {
    /// It fails: it may have changed something.
    Told,
    /// It is made again when the link is back: twice does no harm.
    Again,
}

/// Set when a caller drops the answer of a long-polling call.
#[derive(Default)]
struct Dropped {
    flag: AtomicBool,
    waker: Wakers,
    /// Set while an unclaimed result of the call goes back.
    returning: Mutex<Option<Returning>>,
}

impl HubHome {
    /// Storage backend of the joined hub, not contacted yet. All capabilities are assumed: the hub
    /// itself refuses unsupported calls.
    pub fn new(core: &Arc<Core>) -> Self {
        let place =
            core.link.joined().map_or_else(|| "the hub".to_owned(), |joined| format!("the hub {:?}", joined.hub));
        let client = Client::new(Arc::clone(core), SERVICE);
        let (capabilities, turns, end) = (Capabilities::all(), Arc::default(), Arc::default());
        Self { core: Arc::clone(core), client, place, capabilities, turns, end }
    }

    /// The same, with the capabilities that the hub declares.
    pub async fn looked_at(mut self) -> HomeResult<Self> {
        let lacks: Vec<(String, String)> = self.ask("capabilities", [(); 0], Ok).await?;
        for (name, why) in lacks {
            if let Some(capability) = Capability::ALL.into_iter().find(|known| known.name() == name) {
                self.capabilities = self.capabilities.without(capability, why);
            }
        }
        Ok(self)
    }

    /// A call that may change something.
    fn call<R, T>(&self, name: &str, args: impl Serialize, read: fn(R) -> HomeResult<T>) -> Answer<T>
    where
        R: DeserializeOwned + Send + 'static,
        T: Send + 'static,
    {
        self.made((name, args), Loss::Told, BlockingCalls::Not, read)
    }

    /// A call that may be made twice.
    fn ask<R, T>(&self, name: &str, args: impl Serialize, read: fn(R) -> HomeResult<T>) -> Answer<T>
    where
        R: DeserializeOwned + Send + 'static,
        T: Send + 'static,
    {
        self.made((name, args), Loss::Again, BlockingCalls::Not, read)
    }

    /// Makes a call.
    fn made<R, T>(
        &self,
        (name, args): (&str, impl Serialize),
        loss: Loss,
        waits: BlockingCalls<ReturnCallback<T>>,
        read: fn(R) -> HomeResult<T>,
    ) -> Answer<T>
    where
        R: DeserializeOwned + Send + 'static,
        T: Send + 'static,
    {
        if self.end.is_closed.load(Ordering::Acquire) {
            return Answer::ready(Err(closed(&self.place)));
        }
        let mut client = self.client.clone();
        let (wait_us, back) = match waits {
            BlockingCalls::Not => (None, None),
            BlockingCalls::ToSee(us) => (Some(us), None),
            BlockingCalls::ToHave { us, token, back } => (Some(us), Some((token, back))),
        };
        if let Some(wait_us) = wait_us {
            client = client.timeout(Duration::from_micros(wait_us) + DEFAULT_TIMEOUT);
        }
        if loss == Loss::Again {
            client = client.idempotent();
        }
        let call = client.call::<R>(CALL, &(name, args));
        let (teller, answer) = answer();
        let (dropped, end) = (Arc::<Dropped>::default(), Arc::clone(&self.end));
        if wait_us.is_some() {
            let (notice, returning) = (Arc::clone(&dropped), back.as_ref().map(|_| Arc::clone(&self.core.runner)));
            teller.when_dropped(move || {
                *notice.returning.lock() = returning.map(Returning::begin);
                notice.flag.store(true, Ordering::Release);
                notice.waker.wake();
            });
        }
        let (place, home) = (self.place.clone(), self.client.clone());
        self.core.runner.aside(Box::pin(async move {
            let mut call = pin!(call);
            let ended = poll_fn(|context| {
                dropped.waker.add(context.waker());
                end.wakers.add(context.waker());
                if let Poll::Ready(result) = call.as_mut().poll(context) {
                    return Poll::Ready(Some(explained(result, read)));
                }
                if dropped.flag.load(Ordering::Acquire) {
                    return Poll::Ready(None);
                }
                if end.is_closed.load(Ordering::Acquire) {
                    return Poll::Ready(Some(Err(closed(&place))));
                }
                Poll::Pending
            });
            let (token, back) = back.unzip();
            let unwanted = match (ended.await, token) {
                (Some(result), _) => teller.tell(result).err(),
                // Dropping the call cancels it at the hub.
                (None, None) => return,
                // The reply may be on its way, and a cancelled call has no reply.
                (None, Some(token)) => ended_early(&home, token, call).await.map(|raw| explained(raw, read)),
            };
            let returning = dropped.returning.lock().take();
            if let (Some(Ok(unwanted)), Some(back), Some(returning)) = (unwanted, back, returning) {
                back(unwanted, returning);
            }
        }));
        answer
    }
}

/// Has the hub end the wait of a call, and returns the call's reply. None: the hub knows no such
/// wait, and the call is cancelled.
async fn ended_early<R: DeserializeOwned>(
    home: &Client,
    token: u64,
    mut call: Pin<&mut Call<R>>,
) -> Option<Result<R, Error>> {
    let mut end = pin!(home.call::<bool>(CALL, &(END_WAIT, (token,))));
    let mut is_ending = true;
    poll_fn(|context| {
        if is_ending && let Poll::Ready(had_wait) = end.as_mut().poll(context) {
            if !had_wait.unwrap_or(false) {
                // Replies of the hub arrive in order: one that was on its way is here.
                return match call.as_mut().poll(context) {
                    Poll::Ready(result) => Poll::Ready(Some(result)),
                    Poll::Pending => Poll::Ready(None),
                };
            }
            is_ending = false;
        }
        call.as_mut().poll(context).map(Some)
    })
    .await
}

fn explained<R, T>(result: Result<R, Error>, read: fn(R) -> HomeResult<T>) -> HomeResult<T> {
    match result {
        Ok(raw) => read(raw),
        Err(error) => Err(errors::of_call(&error, &format!("{SERVICE}.{CALL}"))),
    }
}

fn closed(place: &str) -> HomeError {
    HomeError::new(HomeErrorKind::Closed, format!("{place}: this home was closed: ask the node for another"))
}

/// A call waits for so long at most.
fn bounded(wait_us: u64) -> u64 {
    wait_us.min(micros(LONG_WAIT))
}

impl Home for HubHome {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn place(&self) -> &str {
        &self.place
    }

    /// Closes this handle; the storage backend of the hub stays open.
    fn close(&self) -> Answer<()> {
        self.end.is_closed.store(true, Ordering::Release);
        self.end.wakers.wake();
        Answer::ready(Ok(()))
    }
}

impl Streams for HubHome {
    fn create_stream(&self, settings: StreamSettings) -> Answer<StreamInfo> {
        let StreamSettings { name, subjects, max_age_us, max_bytes, max_messages, .. } = &settings;
        let drops = settings.full == Full::DropOld;
        let compact = settings.compact.map(Compact::name);
        let limits = (max_age_us, max_bytes, max_messages);
        let args = (
            name,
            wire::texts(subjects),
            limits.0,
            limits.1,
            limits.2,
            drops,
            settings.dedupe_us,
            settings.replicas,
            compact,
        );
        self.ask("create_stream", args, |map: StreamMap| wire_maps::stream_info(map))
    }

    fn stream_info(&self, stream: &str) -> Answer<StreamInfo> {
        self.ask("stream_info", (stream,), |map: StreamMap| wire_maps::stream_info(map))
    }

    fn list_streams(&self) -> Answer<Vec<StreamInfo>> {
        self.ask("list_streams", [(); 0], |all: Vec<StreamMap>| all.into_iter().map(wire_maps::stream_info).collect())
    }

    fn delete_stream(&self, stream: &str) -> Answer<()> {
        self.call("delete_stream", (stream,), Ok)
    }

    fn purge(&self, stream: &str, purge: Purge) -> Answer<u64> {
        let filter = purge.filter.as_ref().map(Pattern::as_str);
        self.call("purge", (stream, purge.before, purge.keep, filter), Ok)
    }

    fn publish(&self, stream: &str, messages: Vec<NewMessage>, whole: bool) -> Answer<Vec<HomeResult<Ack>>> {
        let (home, stream) = (self.clone(), stream.to_owned());
        let (teller, answer) = answer();
        self.turns.take(move |turn| {
            let read = |acks: Vec<AckResult>| Ok(acks.into_iter().map(|ack| ack.0).collect());
            let stored = home.call("publish", (stream, Each(&messages, wire::message_out), whole), read);
            stored.then(move |result| {
                drop(turn);
                drop(teller.tell(result));
            });
        });
        answer
    }

    fn read(&self, stream: &str, read: Read) -> Answer<Page> {
        let Read { start, stop, filter, max_messages, max_bytes, wait_us } = &read;
        let wait_us = bounded(*wait_us);
        let args = (stream, wire::start_out(*start), stop, wire::texts(filter), max_messages, max_bytes, wait_us);
        self.made(("read", args), Loss::Again, BlockingCalls::ToSee(wait_us), wire::page)
    }

    fn create_schedule(&self, stream: &str, settings: ScheduleSettings) -> Answer<(ScheduleInfo, Change)> {
        let ScheduleSettings { name, timing, message } = &settings;
        let args = (stream, name, timing.text(), timing.time_zone(), wire::message_out(message));
        self.ask("create_schedule", args, ScheduleMap::info)
    }

    fn list_schedules(&self, stream: &str) -> Answer<Vec<ScheduleInfo>> {
        let read = |all: Vec<ScheduleMap>| all.into_iter().map(|map| Ok(map.info()?.0)).collect();
        self.ask("list_schedules", (stream,), read)
    }

    fn cancel_schedule(&self, stream: &str, schedule: &str) -> Answer<bool> {
        self.call("cancel_schedule", (stream, schedule), Ok)
    }

    fn create_consumer(&self, stream: &str, settings: ConsumerSettings) -> Answer<ConsumerInfo> {
        let ConsumerSettings { name, filter, start, ack_wait_us, max_deliver, backoff_us, .. } = &settings;
        let by_key = settings.order == Order::Key;
        let (start, filter) = (wire::start_out(*start), wire::texts(filter));
        let (most, inactive_us) = (settings.max_in_flight, settings.inactive_us);
        let args = (stream, name, filter, start, ack_wait_us, max_deliver, backoff_us, most, by_key, inactive_us);
        self.ask("create_consumer", args, |map: ConsumerMap| wire_maps::consumer_info(map))
    }

    fn consumer_info(&self, stream: &str, consumer: &str) -> Answer<ConsumerInfo> {
        self.ask("consumer_info", (stream, consumer), |map: ConsumerMap| wire_maps::consumer_info(map))
    }

    fn list_consumers(&self, stream: &str) -> Answer<Vec<ConsumerInfo>> {
        let read = |all: Vec<ConsumerMap>| all.into_iter().map(wire_maps::consumer_info).collect();
        self.ask("list_consumers", (stream,), read)
    }

    fn delete_consumer(&self, stream: &str, consumer: &str) -> Answer<()> {
        self.call("delete_consumer", (stream, consumer), Ok)
    }

    fn fetch(&self, stream: &str, consumer: &str, fetch: Fetch) -> Answer<Vec<Delivery>> {
        let wait_us = bounded(fetch.wait_us);
        let token = names::dice();
        let args = (stream, consumer, fetch.max_messages, fetch.max_bytes, wait_us, token);
        let (home, stream, consumer) = (self.clone(), stream.to_owned(), consumer.to_owned());
        let back: ReturnCallback<Vec<_>> = Box::new(move |deliveries, returning| {
            pending_answer::release(&home, &stream, &consumer, deliveries, move || drop(returning));
        });
        self.made(("fetch", args), Loss::Again, BlockingCalls::ToHave { us: wait_us, token, back }, wire::deliveries)
    }

    fn settle(&self, stream: &str, consumer: &str, settled: Vec<Settle>) -> Answer<Vec<HomeResult<()>>> {
        self.ask("settle", (stream, consumer, Each(&settled, wire::settle_out)), |all| Ok(wire::settled(all)))
    }

    fn pause(&self, stream: &str, consumer: &str, until_us: Option<u64>) -> Answer<()> {
        self.ask("pause", (stream, consumer, until_us), Ok)
    }

    fn resume(&self, stream: &str, consumer: &str) -> Answer<()> {
        self.ask("resume", (stream, consumer), Ok)
    }

    fn seek(&self, stream: &str, consumer: &str, start: Start) -> Answer<()> {
        self.call("seek", (stream, consumer, wire::start_out(start)), Ok)
    }

    fn dead_letters(&self, stream: &str, consumer: &str, from: u64, max: u32) -> Answer<Vec<DeadLetter>> {
        let read = |all: Vec<wire::DeadLetterIn>| all.into_iter().map(wire::dead_letter).collect();
        self.ask("dead_letters", (stream, consumer, from, max), read)
    }

    fn requeue(&self, stream: &str, consumer: &str, sequences: Vec<u64>) -> Answer<u64> {
        self.call("requeue", (stream, consumer, sequences), Ok)
    }

    fn drop_dead(&self, stream: &str, consumer: &str, sequences: Vec<u64>) -> Answer<u64> {
        self.call("drop_dead", (stream, consumer, sequences), Ok)
    }
}

impl KeyValue for HubHome {
    fn create_bucket(&self, settings: BucketSettings) -> Answer<()> {
        let BucketSettings { name, history, ttl_us, max_bytes, replicas } = &settings;
        let args = (name, history, ttl_us, max_bytes, replicas);
        self.call("create_bucket", args, Ok)
    }

    fn bucket_info(&self, bucket: &str) -> Answer<BucketInfo> {
        self.ask("bucket_info", (bucket,), |map: BucketMap| wire_maps::bucket_info(map))
    }

    fn list_buckets(&self) -> Answer<Vec<BucketInfo>> {
        self.ask("list_buckets", [(); 0], |all: Vec<BucketMap>| all.into_iter().map(wire_maps::bucket_info).collect())
    }

    fn delete_bucket(&self, bucket: &str) -> Answer<()> {
        self.call("delete_bucket", (bucket,), Ok)
    }

    fn put(&self, bucket: &str, key: Subject, value: Bytes, expect: Expect, ttl_us: Option<u64>) -> Answer<u64> {
        self.call("put", (bucket, key.as_str(), Raw(&value), expected(expect), ttl_us), Ok)
    }

    fn get(&self, bucket: &str, key: Subject, revision: Option<u64>) -> Answer<Option<Entry>> {
        let read = |found: Option<wire::EntryIn>| found.map(wire::entry).transpose();
        self.ask("get", (bucket, key.as_str(), revision), read)
    }

    fn delete(&self, bucket: &str, key: Subject, expect: Expect, purge: bool) -> Answer<u64> {
        self.call("delete", (bucket, key.as_str(), expected(expect), purge), Ok)
    }

    fn keys(&self, bucket: &str, filter: Pattern, after: Option<Subject>, max: u32) -> Answer<Vec<Subject>> {
        let read = |all: Vec<String>| all.iter().map(|key| wire::subject("key", key)).collect();
        self.ask("keys", (bucket, filter.as_str(), after.as_ref().map(Subject::as_str), max), read)
    }

    fn history(&self, bucket: &str, key: Subject) -> Answer<Vec<Entry>> {
        self.ask("history", (bucket, key.as_str()), wire::entries)
    }

    fn watch(&self, bucket: &str, watch: Watch) -> Answer<Changes> {
        let wait_us = bounded(watch.wait_us);
        let args = (bucket, watch.filter.as_str(), watch.after, watch.max, wait_us);
        let read = |(entries, upto, more): (Vec<wire::EntryIn>, u64, bool)| {
            Ok(Changes { entries: wire::entries(entries)?, upto, more })
        };
        self.made(("watch", args), Loss::Again, BlockingCalls::ToSee(wait_us), read)
    }
}

impl Leases for HubHome {
    fn acquire(&self, name: &str, holder: &str, ttl_us: u64, wait_us: u64) -> Answer<Grant> {
        let wait_us = bounded(wait_us);
        let (home, lease) = (self.clone(), name.to_owned());
        // The TTL ends a lease whose release does not arrive.
        let back: ReturnCallback<Grant> = Box::new(move |grant, returning| {
            home.release(&lease, grant.fence).then(move |_| drop(returning));
        });
        let token = names::dice();
        let args = (name, holder, ttl_us, wait_us, token);
        self.made(("acquire", args), Loss::Told, BlockingCalls::ToHave { us: wait_us, token, back }, grant)
    }

    fn renew(&self, name: &str, fence: u64) -> Answer<Grant> {
        self.ask("renew", (name, fence), grant)
    }

    fn release(&self, name: &str, fence: u64) -> Answer<bool> {
        self.call("release", (name, fence), Ok)
    }

    fn lease_info(&self, name: &str) -> Answer<Option<LeaseInfo>> {
        self.ask("lease_info", (name,), |found: Option<_>| Ok(found.map(wire::lease_info)))
    }

    fn list_leases(&self) -> Answer<Vec<LeaseInfo>> {
        self.ask("list_leases", [(); 0], |all: Vec<_>| Ok(all.into_iter().map(wire::lease_info).collect()))
    }
}

fn grant((fence, ttl_us): (u64, u64)) -> HomeResult<Grant> {
    Ok(Grant { fence, ttl_us })
}

/// None: anything. 0: no value. Else a revision.
const fn expected(expect: Expect) -> Option<u64> {
    match expect {
        Expect::Any => None,
        Expect::Absent => Some(0),
        Expect::Revision(revision) => Some(revision),
    }
}
