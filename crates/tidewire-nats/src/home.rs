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

    /// Begins a call. The call ends when the storage backend is closed.
    fn run<T, F>(&self, call: impl FnOnce(Arc<Shared>) -> F) -> Answer<T>
    where
        T: Send + 'static,
        F: Future<Output = HomeResult<T>> + Send + 'static,
    {
        let Some(runtime) = self.runtime.as_ref().filter(|_| !*self.closed.borrow()) else {
            return Answer::ready(Err(self.ended()));
        };
        let (teller, answer) = answer();
        let (call, ended) = (call(Arc::clone(&self.shared)), self.ended());
        let mut closed = self.closed.subscribe();
        runtime.spawn(async move {
            let result = tokio::select! {
                result = call => result,
                _ = closed.wait_for(|closed| *closed) => Err(ended),
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
    fn create_stream(&self, settings: StreamSettings) -> Answer<StreamInfo> {
        if settings.compact == Some(Compact::Key)
            && let Err(error) = self.capabilities.need(Capability::CompactKey, "compact")
        {
            return Answer::ready(Err(error));
        }
        self.run(|shared| async move { streams::create(&shared, settings).await })
    }

    fn stream_info(&self, stream: &str) -> Answer<StreamInfo> {
        let stream = stream.to_owned();
        self.run(|shared| async move { streams::info(&shared, &stream).await })
    }

    fn list_streams(&self) -> Answer<Vec<StreamInfo>> {
        self.run(|shared| async move { streams::list(&shared).await })
    }

    fn delete_stream(&self, stream: &str) -> Answer<()> {
        let stream = stream.to_owned();
        self.run(|shared| async move { streams::delete(&shared, &stream).await })
    }

    fn purge(&self, stream: &str, purge: Purge) -> Answer<u64> {
        let stream = stream.to_owned();
        self.run(|shared| async move { streams::purge(&shared, &stream, purge).await })
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

    fn read(&self, stream: &str, read: Read) -> Answer<Page> {
        let stream = stream.to_owned();
        self.run(|shared| async move { stream_reader::read(&shared, &stream, read).await })
    }

    fn create_schedule(&self, stream: &str, settings: ScheduleSettings) -> Answer<(ScheduleInfo, Change)> {
        if let Err(error) = self.capabilities.need(Capability::Schedule, "schedule") {
            return Answer::ready(Err(error));
        }
        let (stream, capabilities) = (stream.to_owned(), self.capabilities.clone());
        self.run(|shared| async move { schedules::create(&shared, &capabilities, &stream, settings).await })
    }

    fn list_schedules(&self, stream: &str) -> Answer<Vec<ScheduleInfo>> {
        let stream = stream.to_owned();
        self.run(|shared| async move { schedules::list(&shared, &stream).await })
    }

    fn cancel_schedule(&self, stream: &str, schedule: &str) -> Answer<bool> {
        let (stream, schedule) = (stream.to_owned(), schedule.to_owned());
        self.run(|shared| async move { schedules::cancel(&shared, &stream, &schedule).await })
    }

    fn create_consumer(&self, stream: &str, settings: ConsumerSettings) -> Answer<ConsumerInfo> {
        if settings.order == Order::Key
            && let Err(error) = self.capabilities.need(Capability::KeyOrder, "order")
        {
            return Answer::ready(Err(error));
        }
        let stream = stream.to_owned();
        self.run(|shared| async move { consumers::create(&shared, &stream, settings).await })
    }

    fn consumer_info(&self, stream: &str, consumer: &str) -> Answer<ConsumerInfo> {
        let (stream, consumer) = (stream.to_owned(), consumer.to_owned());
        self.run(|shared| async move { consumers::info(&shared, &stream, &consumer).await })
    }

    fn list_consumers(&self, stream: &str) -> Answer<Vec<ConsumerInfo>> {
        let stream = stream.to_owned();
        self.run(|shared| async move { consumers::list(&shared, &stream).await })
    }

    fn delete_consumer(&self, stream: &str, consumer: &str) -> Answer<()> {
        let (stream, consumer) = (stream.to_owned(), consumer.to_owned());
        self.run(|shared| async move { consumers::delete(&shared, &stream, &consumer).await })
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

    fn settle(&self, stream: &str, consumer: &str, settled: Vec<Settle>) -> Answer<Vec<HomeResult<()>>> {
        let (stream, consumer) = (stream.to_owned(), consumer.to_owned());
        self.run(|shared| async move { settle::settle(&shared, &stream, &consumer, settled).await })
    }

    fn pause(&self, stream: &str, consumer: &str, until_us: Option<u64>) -> Answer<()> {
        let (stream, consumer) = (stream.to_owned(), consumer.to_owned());
        self.run(|shared| async move { consumers::pause(&shared, &stream, &consumer, until_us).await })
    }

    fn resume(&self, stream: &str, consumer: &str) -> Answer<()> {
        let (stream, consumer) = (stream.to_owned(), consumer.to_owned());
        self.run(|shared| async move { consumers::resume(&shared, &stream, &consumer).await })
    }

    fn seek(&self, stream: &str, consumer: &str, start: Start) -> Answer<()> {
        let (stream, consumer) = (stream.to_owned(), consumer.to_owned());
        self.run(|shared| async move { consumers::seek(&shared, &stream, &consumer, start).await })
    }

    fn dead_letters(&self, stream: &str, consumer: &str, from: u64, max: u32) -> Answer<Vec<DeadLetter>> {
        let (stream, consumer) = (stream.to_owned(), consumer.to_owned());
        self.run(|shared| async move { dead_letters::list(&shared, &stream, &consumer, from, max).await })
    }

    fn requeue(&self, stream: &str, consumer: &str, sequences: Vec<u64>) -> Answer<u64> {
        let (stream, consumer) = (stream.to_owned(), consumer.to_owned());
        self.run(|shared| async move { dead_letters::requeue(&shared, &stream, &consumer, sequences).await })
    }

    fn drop_dead(&self, stream: &str, consumer: &str, sequences: Vec<u64>) -> Answer<u64> {
        let (stream, consumer) = (stream.to_owned(), consumer.to_owned());
        self.run(|shared| async move { dead_letters::discard(&shared, &stream, &consumer, sequences).await })
    }
}

impl KeyValue for Nats {
    fn create_bucket(&self, settings: BucketSettings) -> Answer<()> {
        self.run(|shared| async move { keyvalue::create(&shared, settings).await })
    }

    fn bucket_info(&self, bucket: &str) -> Answer<BucketInfo> {
        let bucket = bucket.to_owned();
        self.run(|shared| async move { keyvalue::info(&shared, &bucket).await })
    }

    fn list_buckets(&self) -> Answer<Vec<BucketInfo>> {
        self.run(|shared| async move { keyvalue::list(&shared).await })
    }

    fn delete_bucket(&self, bucket: &str) -> Answer<()> {
        let bucket = bucket.to_owned();
        self.run(|shared| async move { keyvalue::delete_bucket(&shared, &bucket).await })
    }

    fn put(&self, bucket: &str, key: Subject, value: Bytes, expect: Expect, ttl_us: Option<u64>) -> Answer<u64> {
        let bucket = bucket.to_owned();
        self.run(|shared| async move { keyvalue::put(&shared, &bucket, &key, value, expect, ttl_us).await })
    }

    fn get(&self, bucket: &str, key: Subject, revision: Option<u64>) -> Answer<Option<Entry>> {
        let bucket = bucket.to_owned();
        self.run(|shared| async move { keyvalue::get(&shared, &bucket, &key, revision).await })
    }

    fn delete(&self, bucket: &str, key: Subject, expect: Expect, purge: bool) -> Answer<u64> {
        let bucket = bucket.to_owned();
        self.run(|shared| async move { keyvalue::delete(&shared, &bucket, &key, expect, purge).await })
    }

    fn keys(&self, bucket: &str, filter: Pattern, after: Option<Subject>, max: u32) -> Answer<Vec<Subject>> {
        let bucket = bucket.to_owned();
        self.run(|shared| async move { keyvalue::keys(&shared, &bucket, &filter, after, max).await })
    }

    fn history(&self, bucket: &str, key: Subject) -> Answer<Vec<Entry>> {
        let bucket = bucket.to_owned();
        self.run(|shared| async move { keyvalue::history(&shared, &bucket, &key).await })
    }

    fn watch(&self, bucket: &str, watch: Watch) -> Answer<Changes> {
        let bucket = bucket.to_owned();
        self.run(|shared| async move { keyvalue::watch(&shared, &bucket, watch).await })
    }
}

impl Leases for Nats {
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

    fn renew(&self, name: &str, fence: u64) -> Answer<Grant> {
        let name = name.to_owned();
        self.run(|shared| async move { leases::renew(&shared, &name, fence).await })
    }

    fn release(&self, name: &str, fence: u64) -> Answer<bool> {
        let name = name.to_owned();
        self.run(|shared| async move { leases::release(&shared, &name, fence).await })
    }

    fn lease_info(&self, name: &str) -> Answer<Option<LeaseInfo>> {
        let name = name.to_owned();
        self.run(|shared| async move { leases::info(&shared, &name).await })
    }

    fn list_leases(&self) -> Answer<Vec<LeaseInfo>> {
        self.run(|shared| async move { leases::list(&shared).await })
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
