//! Storage backend on one connection to NATS: each call is a task of its runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidewire_backend::home::{
    Ack, Answer, BucketInfo, BucketSettings, Capabilities, Capability, Change, Changes, Compact, ConsumerInfo,
    ConsumerSettings, DeadLetter, Delivery, Entry, Expect, Fetch, Grant, Home, HomeError, HomeErrorKind, HomeResult,
    KeyValue, LeaseInfo, Leases, NATS_LACKS, NATS_SINCE, NewMessage, Order, Page, Purge, Read, ScheduleInfo,
    ScheduleSettings, Settle, Start, StreamInfo, StreamSettings, Streams, Watch, answer,
};
use tidewire_proto::subject::{Pattern, Subject};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, RwLock, watch};
use tokio::time::timeout;

use crate::connection::Connection;
use crate::publishing::Publisher;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::version::Version;
use crate::{consumers, dead_letters, fetch, keyvalue, leases, names, schedules, settle, stream_reader, streams};

/// How long the end waits for the release of deliveries that nobody has received.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// Methods that begin one call each: texts first, then arguments that are handed over.
macro_rules! forwards {
    ($($name:ident($($text:ident),*; $($value:ident: $kind:ty),*) -> $result:ty = $($call:ident)::+;)*) => {$(
        fn $name(&self, $($text: &str,)* $($value: $kind),*) -> Answer<$result> {
            $(let $text = $text.to_owned();)*
            self.run(false, |shared| async move { $($call)::+(&shared, $(&$text,)* $($value),*).await })
        }
    )*};
}

/// Streams, buckets and leases on NATS.
#[derive(derive_more::Debug)]
#[debug("Nats {{ place: {place:?}, .. }}")]
pub struct Nats {
    shared: Arc<Shared>,
    publisher: Publisher,
    capabilities: Capabilities,
    place: String,
    closed: watch::Sender<bool>,
    /// Read by each fetch until its deliveries have a receiver. Its writer is the end.
    fetches: Arc<RwLock<()>>,
    /// Taken when the storage backend is dropped, possibly within another runtime.
    runtime: Option<Runtime>,
}

impl Nats {
    /// Connects.
    ///
    /// # Errors
    ///
    /// As [`open`](crate::open).
    pub fn connect(settings: Settings) -> HomeResult<Self> {
        Self::begin(settings).wait()
    }

    /// Connects without blocking: the answer comes when the connection is there.
    pub fn begin(settings: Settings) -> Answer<Self> {
        let place = settings.shown();
        let mut threads = Builder::new_multi_thread();
        threads.worker_threads(1).thread_name("tidewire-nats").on_thread_start(tidewire_sync::leave_signals);
        let runtime = threads.enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => {
                let words = format!("{place}: no thread can be begun ({error}): end others, then try again");
                return Answer::ready(Err(HomeError::new(HomeErrorKind::Busy, words)));
            }
        };
        // On a thread of the runtime: this one may belong to another.
        let (teller, opened) = answer();
        runtime.spawn(async move {
            let opened = async {
                let connection = Arc::new(Connection::open(settings).await?);
                let streams = Arc::default();
                let publisher = Publisher::start(Arc::clone(&connection), Arc::clone(&streams)).await?;
                Ok((Arc::new(Shared::new(connection, streams)), publisher))
            };
            drop(teller.tell(opened.await));
        });
        let (home_teller, connected) = answer();
        opened.then(move |opened| {
            let home = match opened {
                Ok((shared, publisher)) => {
                    let capabilities = capabilities(&shared.connection);
                    let closed = watch::Sender::new(false);
                    let fetches = Arc::default();
                    Ok(Self { shared, publisher, capabilities, place, closed, fetches, runtime: Some(runtime) })
                }
                Err(error) => {
                    // This is one of its threads, on which it can't be waited for.
                    runtime.shutdown_background();
                    Err(error)
                }
            };
            drop(home_teller.tell(home));
        });
        connected
    }

    /// Begins a call. The call ends when the storage backend is closed; `while_wanted`: also when
    /// its answer is dropped.
    fn run<T, F>(&self, while_wanted: bool, call: impl FnOnce(Arc<Shared>) -> F) -> Answer<T>
    where
        T: Send + 'static,
        F: Future<Output = HomeResult<T>> + Send + 'static,
    {
        let Some(runtime) = self.runtime.as_ref().filter(|_| !*self.closed.borrow()) else {
            return Answer::ready(Err(self.ended()));
        };
        let (teller, answer) = answer();
        let (call, ended) = (call(Arc::clone(&self.shared)), self.ended());
        let (mut closed, dropped) = (self.closed.subscribe(), Arc::new(Notify::new()));
        if while_wanted {
            let notify = Arc::clone(&dropped);
            teller.when_dropped(move || notify.notify_one());
        }
        runtime.spawn(async move {
            let result = tokio::select! {
                result = call => result,
                _ = closed.wait_for(|closed| *closed) => Err(ended),
                () = dropped.notified() => return,
            };
            drop(teller.tell(result));
        });
        answer
    }

    fn ended(&self) -> HomeError {
        self.shared.connection.error(HomeErrorKind::Closed, "the home was closed: open it again")
    }
}

/// Capabilities of servers of this version.
fn capabilities(connection: &Connection) -> Capabilities {
    let version = connection.version;
    let newer =
        NATS_SINCE.iter().map(|(capability, major, minor, patch)| (*capability, Version(*major, *minor, *patch)));
    newer.filter(|(_, since)| version < *since).fold(Capabilities::lacking(NATS_LACKS), |rest, (capability, since)| {
        rest.without(capability, format!("nats-server {version} can't do it: install {since} or newer"))
    })
}

impl Home for Nats {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn place(&self) -> &str {
        &self.place
    }

    fn close(&self) -> Answer<()> {
        let Some(runtime) = &self.runtime else { return Answer::ready(Ok(())) };
        let (teller, answer) = answer();
        let (shared, idle) = (Arc::clone(&self.shared), self.publisher.idle());
        let fetches = Arc::clone(&self.fetches);
        self.closed.send_replace(true);
        runtime.spawn(async move {
            idle.await;
            drop(timeout(RELEASE_TIMEOUT, fetches.write()).await);
            // A connection that is lost has nothing to be drained.
            drop(shared.connection.client.drain().await);
            drop(teller.tell(Ok(())));
        });
        answer
    }
}

impl Streams for Nats {
    forwards! {
        stream_info(stream;) -> StreamInfo = streams::info;
        list_streams(;) -> Vec<StreamInfo> = streams::list;
        delete_stream(stream;) -> () = streams::delete;
        purge(stream; purge: Purge) -> u64 = streams::purge;
        read(stream; read: Read) -> Page = stream_reader::read;
        list_schedules(stream;) -> Vec<ScheduleInfo> = schedules::list;
        cancel_schedule(stream, schedule;) -> bool = schedules::cancel;
        consumer_info(stream, consumer;) -> ConsumerInfo = consumers::info;
        list_consumers(stream;) -> Vec<ConsumerInfo> = consumers::list;
        delete_consumer(stream, consumer;) -> () = consumers::delete;
        settle(stream, consumer; settled: Vec<Settle>) -> Vec<HomeResult<()>> = settle::settle;
        pause(stream, consumer; until_us: Option<u64>) -> () = consumers::pause;
        resume(stream, consumer;) -> () = consumers::resume;
        seek(stream, consumer; start: Start) -> () = consumers::seek;
        dead_letters(stream, consumer; from: u64, max: u32) -> Vec<DeadLetter> = dead_letters::list;
        requeue(stream, consumer; sequences: Vec<u64>) -> u64 = dead_letters::requeue;
        drop_dead(stream, consumer; sequences: Vec<u64>) -> u64 = dead_letters::discard;
    }

    fn create_stream(&self, settings: StreamSettings) -> Answer<StreamInfo> {
        if settings.compact == Some(Compact::Key)
            && let Err(error) = self.capabilities.need(Capability::CompactKey, "compact")
        {
            return Answer::ready(Err(error));
        }
        self.run(false, |shared| async move { streams::create(&shared, settings).await })
    }

    fn publish(&self, stream: &str, messages: Vec<NewMessage>, whole: bool) -> Answer<Vec<HomeResult<Ack>>> {
        if *self.closed.borrow() {
            return Answer::ready(Err(self.ended()));
        }
        if let Err(error) = names::check("stream", stream) {
            return Answer::ready(Err(error));
        }
        self.publisher.publish(&self.shared.connection, stream, messages, whole)
    }

    fn create_schedule(&self, stream: &str, settings: ScheduleSettings) -> Answer<(ScheduleInfo, Change)> {
        if let Err(error) = self.capabilities.need(Capability::Schedule, "schedule") {
            return Answer::ready(Err(error));
        }
        let (stream, capabilities) = (stream.to_owned(), self.capabilities.clone());
        self.run(false, |shared| async move { schedules::create(&shared, &capabilities, &stream, settings).await })
    }

    fn create_consumer(&self, stream: &str, settings: ConsumerSettings) -> Answer<ConsumerInfo> {
        if settings.order == Order::Key
            && let Err(error) = self.capabilities.need(Capability::KeyOrder, "order")
        {
            return Answer::ready(Err(error));
        }
        let stream = stream.to_owned();
        self.run(false, |shared| async move { consumers::create(&shared, &stream, settings).await })
    }

    fn fetch(&self, stream: &str, consumer: &str, fetch: Fetch) -> Answer<Vec<Delivery>> {
        let Some(runtime) = self.runtime.as_ref().filter(|_| !*self.closed.borrow()) else {
            return Answer::ready(Err(self.ended()));
        };
        let Ok(running) = Arc::clone(&self.fetches).try_read_owned() else {
            return Answer::ready(Err(self.ended()));
        };
        let (teller, answer) = answer();
        let (shared, stream, consumer) = (Arc::clone(&self.shared), stream.to_owned(), consumer.to_owned());
        let (mut closed, ended) = (self.closed.subscribe(), self.ended());
        let dropped = Arc::new(Notify::new());
        let notify = Arc::clone(&dropped);
        teller.when_dropped(move || notify.notify_one());
        runtime.spawn(async move {
            let mut fetching = pin!(fetch::fetch(&shared, &stream, &consumer, fetch, &dropped));
            let mut ends = pin!(async move { drop(closed.wait_for(|closed| *closed).await) });
            let fetched = tokio::select! {
                fetched = &mut fetching => Some(fetched),
                () = &mut ends => None,
            };
            let Some(fetched) = fetched else {
                // Events on their way have no receiver: the server delivers them anew at once.
                dropped.notify_one();
                if let Ok(unwanted) = fetching.await {
                    fetch::release(&shared, &stream, &consumer, unwanted).await;
                }
                drop(teller.tell(Err(ended)));
                return;
            };
            if let Err(Ok(unwanted)) = teller.tell(fetched) {
                fetch::hold(&shared, &stream, &consumer, unwanted, ends).await;
            }
            drop(running);
        });
        answer
    }
}

impl KeyValue for Nats {
    forwards! {
        create_bucket(; settings: BucketSettings) -> () = keyvalue::create;
        bucket_info(bucket;) -> BucketInfo = keyvalue::info;
        list_buckets(;) -> Vec<BucketInfo> = keyvalue::list;
        delete_bucket(bucket;) -> () = keyvalue::delete_bucket;
    }

    fn put(&self, bucket: &str, key: Subject, value: Bytes, expect: Expect, ttl_us: Option<u64>) -> Answer<u64> {
        let bucket = bucket.to_owned();
        self.run(false, |shared| async move { keyvalue::put(&shared, &bucket, &key, value, expect, ttl_us).await })
    }

    fn get(&self, bucket: &str, key: Subject, revision: Option<u64>) -> Answer<Option<Entry>> {
        let bucket = bucket.to_owned();
        self.run(false, |shared| async move { keyvalue::get(&shared, &bucket, &key, revision).await })
    }

    fn delete(&self, bucket: &str, key: Subject, expect: Expect, purge: bool) -> Answer<u64> {
        let bucket = bucket.to_owned();
        // Its next attempt would delete what was written after its caller was gone.
        self.run(true, |shared| async move { keyvalue::delete(&shared, &bucket, &key, expect, purge).await })
    }

    fn keys(&self, bucket: &str, filter: Pattern, after: Option<Subject>, max: u32) -> Answer<Vec<Subject>> {
        let bucket = bucket.to_owned();
        self.run(false, |shared| async move { keyvalue::keys(&shared, &bucket, &filter, after, max).await })
    }

    fn history(&self, bucket: &str, key: Subject) -> Answer<Vec<Entry>> {
        let bucket = bucket.to_owned();
        self.run(false, |shared| async move { keyvalue::history(&shared, &bucket, &key).await })
    }

    fn watch(&self, bucket: &str, watch: Watch) -> Answer<Changes> {
        let bucket = bucket.to_owned();
        self.run(true, |shared| async move { keyvalue::watch(&shared, &bucket, watch).await })
    }
}

impl Leases for Nats {
    forwards! {
        renew(name; fence: u64) -> Grant = leases::renew;
        release(name; fence: u64) -> bool = leases::release;
        lease_info(name;) -> Option<LeaseInfo> = leases::info;
        list_leases(;) -> Vec<LeaseInfo> = leases::list;
    }

    fn acquire(&self, name: &str, holder: &str, ttl_us: u64, wait_us: u64) -> Answer<Grant> {
        let Some(runtime) = self.runtime.as_ref().filter(|_| !*self.closed.borrow()) else {
            return Answer::ready(Err(self.ended()));
        };
        let (teller, answer) = answer();
        let (shared, name, holder) = (Arc::clone(&self.shared), name.to_owned(), holder.to_owned());
        let (mut closed, ended) = (self.closed.subscribe(), self.ended());
        runtime.spawn(async move {
            let granted = tokio::select! {
                granted = leases::acquire(&shared, &name, &holder, ttl_us, wait_us) => granted,
                _ = closed.wait_for(|closed| *closed) => Err(ended),
            };
            // The caller is gone: the next holder gets the lease.
            if let Err(Ok(unwanted)) = teller.tell(granted) {
                drop(leases::release(&shared, &name, unwanted.fence).await);
            }
        });
        answer
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.closed.send_replace(true);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
