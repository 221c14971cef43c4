//! Storage backend of a hub: its streams, buckets and leases, by calls of the hub's storage
//! service.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
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

use super::conventions::{END_WAIT, LONG_WAIT, SERVICE, bucket_calls, lease_calls, method_of, micros, stream_calls};
use super::errors;
use super::serial_queue::SerialQueue;
use super::wire::{self, Wire};
use crate::calls::call::Call;
use crate::calls::call_options::DEFAULT_TIMEOUT;
use crate::calls::client::Client;
use crate::error::Error;
use crate::names;
use crate::node::core::Core;
use crate::node::runner::Returning;
use crate::pending::{Signal, WakerEntry};

/// Storage backend of the hub that a node has joined.
#[derive(Clone, derive_more::Debug)]
#[debug("HubHome({place})")]
pub(crate) struct HubHome {
    core: Arc<Core>,
    client: Client,
    place: String,
    capabilities: Capabilities,
    /// Of calls that publish.
    turns: Arc<SerialQueue>,
    /// Set once it is closed.
    end: Arc<Signal>,
}

/// Methods that make one call each.
macro_rules! client_calls {
    ($_:ident: $($loss:ident $name:ident($($text:ident),* $(; $($value:ident: $kind:ty),*)?) -> $result:ty;)*) => {$(
        fn $name(&self, $($text: &str,)* $($($value: $kind),*)?) -> Answer<$result> {
            self.$loss(stringify!($name), arguments!($($text,)* $($($value.out(),)*)?))
        }
    )*};
}

/// The arguments of a call: no unit, which is no list.
macro_rules! arguments {
    () => { [(); 0] };
    ($($all:tt)+) => { ($($all)+) };
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
    signal: Signal,
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
    pub async fn with_capabilities(mut self) -> HomeResult<Self> {
        let missing = self.ask::<Vec<(String, String)>>("capabilities", [(); 0]).await?;
        for (name, why) in missing {
            if let Some(capability) = Capability::ALL.into_iter().find(|known| known.name() == name) {
                self.capabilities = self.capabilities.without(capability, why);
            }
        }
        Ok(self)
    }

    /// A call that may change something.
    fn call<T: Wire>(&self, name: &str, args: impl Serialize) -> Answer<T> {
        self.send_call((name, args), Loss::Told, BlockingCalls::Not)
    }

    /// The same, cancelled once its answer is dropped: a hub handles calls in any order, and it
    /// would change what its caller has written since.
    fn call_wanted<T: Wire>(&self, name: &str, args: impl Serialize) -> Answer<T> {
        self.send_call((name, args), Loss::Told, BlockingCalls::ToSee(0))
    }

    /// A call that may be made twice.
    fn ask<T: Wire>(&self, name: &str, args: impl Serialize) -> Answer<T> {
        self.send_call((name, args), Loss::Again, BlockingCalls::Not)
    }

    /// Sends a call to the hub.
    fn send_call<T: Wire>(
        &self,
        (name, args): (&str, impl Serialize),
        loss: Loss,
        waits: BlockingCalls<ReturnCallback<T>>,
    ) -> Answer<T> {
        if self.end.is_set() {
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
        let call = client.call::<T::In>(method_of(name), &(name, args));
        let (teller, answer) = answer();
        let (dropped, end) = (Arc::<Dropped>::default(), Arc::clone(&self.end));
        if wait_us.is_some() {
            let (notice, returning) = (Arc::clone(&dropped), back.as_ref().map(|_| Arc::clone(&self.core.runner)));
            teller.when_dropped(move || {
                *notice.returning.lock() = returning.map(Returning::begin);
                notice.signal.set();
            });
        }
        let (place, home) = (self.place.clone(), self.client.clone());
        self.core.runner.aside(Box::pin(async move {
            let (mut call, mut entry) = (pin!(call), WakerEntry::default());
            let ended = poll_fn(|context| {
                if let Poll::Ready(result) = call.as_mut().poll(context) {
                    return Poll::Ready(Some(explained(result)));
                }
                if dropped.signal.poll(context).is_ready() {
                    return Poll::Ready(None);
                }
                end.keep(&mut entry, context).map(|()| Some(Err(closed(&place))))
            });
            let (token, back) = back.unzip();
            let unwanted = match (ended.await, token) {
                (Some(result), _) => teller.tell(result).err(),
                // Dropping the call cancels it at the hub.
                (None, None) => return,
                // The reply may be on its way, and a cancelled call has no reply.
                (None, Some(token)) => ended_early(&home, token, call).await.map(explained),
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
    let mut end = pin!(home.call::<bool>(method_of(END_WAIT), &(END_WAIT, (token,))));
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

fn explained<T: Wire>(result: Result<T::In, Error>) -> HomeResult<T> {
    match result {
        Ok(raw) => T::read(raw),
        Err(error) => Err(errors::of_call(&error)),
    }
}

fn closed(place: &str) -> HomeError {
    HomeError::new(HomeErrorKind::Closed, format!("{place}: this home was closed: ask the node for another"))
}

/// The storage backend of the node, or that of the hub that it has joined.
pub(crate) fn own_or_hub(core: &Arc<Core>) -> Arc<dyn Home> {
    core.home.clone().unwrap_or_else(|| Arc::new(HubHome::new(core)))
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
        self.end.set();
        Answer::ready(Ok(()))
    }
}

impl Streams for HubHome {
    stream_calls!(client_calls);

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
        self.ask("create_stream", args)
    }

    fn purge(&self, stream: &str, purge: Purge) -> Answer<u64> {
        let filter = purge.filter.as_ref().map(Pattern::as_str);
        self.call("purge", (stream, purge.before, purge.keep, filter))
    }

    fn publish(&self, stream: &str, messages: Vec<NewMessage>, whole: bool) -> Answer<Vec<HomeResult<Ack>>> {
        let (home, stream) = (self.clone(), stream.to_owned());
        let (teller, answer) = answer();
        self.turns.take(move |turn| {
            let stored: Answer<Vec<HomeResult<Ack>>> = home.call("publish", (stream, messages.out(), whole));
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
        let args = (stream, start.out(), stop, wire::texts(filter), max_messages, max_bytes, wait_us);
        self.send_call(("read", args), Loss::Again, BlockingCalls::ToSee(wait_us))
    }

    fn create_schedule(&self, stream: &str, settings: ScheduleSettings) -> Answer<(ScheduleInfo, Change)> {
        let ScheduleSettings { name, timing, message } = &settings;
        let args = (stream, name, timing.text(), timing.time_zone(), message.out());
        self.ask("create_schedule", args)
    }

    fn create_consumer(&self, stream: &str, settings: ConsumerSettings) -> Answer<ConsumerInfo> {
        let ConsumerSettings { name, filter, start, ack_wait_us, max_deliver, backoff_us, .. } = &settings;
        let by_key = settings.order == Order::Key;
        let (start, filter) = (start.out(), wire::texts(filter));
        let (most, inactive_us) = (settings.max_in_flight, settings.inactive_us);
        let args = (stream, name, filter, start, ack_wait_us, max_deliver, backoff_us, most, by_key, inactive_us);
        self.ask("create_consumer", args)
    }

    fn fetch(&self, stream: &str, consumer: &str, fetch: Fetch) -> Answer<Vec<Delivery>> {
        let wait_us = bounded(fetch.wait_us);
        let token = names::dice();
        let args = (stream, consumer, fetch.max_messages, fetch.max_bytes, wait_us, token);
        let (home, stream, consumer) = (self.clone(), stream.to_owned(), consumer.to_owned());
        let back: ReturnCallback<Vec<_>> = Box::new(move |deliveries, returning| {
            pending_answer::release(&home, &stream, &consumer, deliveries, move || drop(returning));
        });
        self.send_call(("fetch", args), Loss::Again, BlockingCalls::ToHave { us: wait_us, token, back })
    }
}

impl KeyValue for HubHome {
    bucket_calls!(client_calls);

    fn create_bucket(&self, settings: BucketSettings) -> Answer<()> {
        let BucketSettings { name, history, ttl_us, max_bytes, replicas } = &settings;
        self.call("create_bucket", (name, history, ttl_us, max_bytes, replicas))
    }

    fn keys(&self, bucket: &str, filter: Pattern, after: Option<Subject>, max: u32) -> Answer<Vec<Subject>> {
        self.ask("keys", (bucket, filter.as_str(), after.out(), max))
    }

    fn watch(&self, bucket: &str, watch: Watch) -> Answer<Changes> {
        let wait_us = bounded(watch.wait_us);
        let args = (bucket, watch.filter.as_str(), watch.after, watch.max, wait_us);
        self.send_call(("watch", args), Loss::Again, BlockingCalls::ToSee(wait_us))
    }
}

impl Leases for HubHome {
    lease_calls!(client_calls);

    fn acquire(&self, name: &str, holder: &str, ttl_us: u64, wait_us: u64) -> Answer<Grant> {
        let wait_us = bounded(wait_us);
        let (home, lease) = (self.clone(), name.to_owned());
        // The TTL ends a lease whose release does not arrive.
        let back: ReturnCallback<Grant> = Box::new(move |grant, returning| {
            home.release(&lease, grant.fence).then(move |_| drop(returning));
        });
        let token = names::dice();
        let args = (name, holder, ttl_us, wait_us, token);
        self.send_call(("acquire", args), Loss::Told, BlockingCalls::ToHave { us: wait_us, token, back })
    }
}
