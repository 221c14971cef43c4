//! `StreamHome`: a storage backend of streams, buckets and leases, for Python. Everything crosses
//! the language border in batches of plain data.

mod arguments;
pub mod command;
pub mod command_worker;
pub mod durable_subscription;
pub mod inboxes;
pub mod lease;
mod loop_queue;
pub mod publisher;
pub mod reader;
mod results;
pub mod schedules;
pub mod stream_worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;
use tidewire_backend::home::{
    Ack, BucketSettings, Capability, Change, Compact, ConsumerSettings, Full, Home, HomeError, HomeResult, Order,
    Purge, StreamSettings,
};
use tidewire_node::Node;
use tidewire_node::streams::{
    CommandRecord, CommandStore, Consumer, Lease, LeaseOptions, NewCommand, ReadOptions, Replay, Watch, find_stream,
};
use tidewire_proto::subject::Subject;

use crate::actors::engine::Engine;
use crate::change_counter::PyChangeCounter;
use crate::interpreter::PerProcessOwned;
use crate::interpreter::attach::{detach, try_attach};
use crate::interpreter::py_ref::PyRef;
use crate::link::Link;
use crate::pending::Pending;

pub use arguments::subject;
use arguments::{expected, pattern, patterns};
use lease::{HeldLease, seconds};
use publisher::{Message, MessageMaker, PublishQueue, StreamPublisher};
use reader::{Kind as ReaderKind, StreamReader};
use results::{
    ack, bucket_info, consumer_info, dead_letter, each, entry, nothing, number, pending, raise, stream_info, truth,
};
use stream_worker::{Kind, StreamWorker};

/// A storage backend. Each call returns a `Pending`, unless it says that it blocks.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct StreamHome {
    pub home: PerProcessOwned<Arc<dyn Home>>,
    notices: Vec<String>,
    /// The node over the link to the hub that has the storage backend.
    node: Option<PerProcessOwned<Node>>,
    commands: OnceLock<PerProcessOwned<Arc<CommandStore>>>,
}

impl StreamHome {
    fn new(home: Arc<dyn Home>, notices: Vec<String>) -> Self {
        Self { home: PerProcessOwned::new(home), notices, node: None, commands: OnceLock::new() }
    }

    fn commands(&self) -> Arc<CommandStore> {
        let make = || PerProcessOwned::new(Arc::new(CommandStore::new(Arc::clone(&self.home))));
        Arc::clone(self.commands.get_or_init(make))
    }

    /// A call of the store of commands.
    fn command<T: Send + 'static, F>(
        &self,
        what: &'static str,
        call: impl FnOnce(Arc<CommandStore>) -> F,
        convert: fn(Python<'_>, T) -> PyResult<Py<PyAny>>,
    ) -> Pending
    where
        F: Future<Output = HomeResult<T>> + Send + 'static,
    {
        pending(what, call(self.commands()), convert)
    }
}

#[pymethods]
impl StreamHome {
    /// Opens a data folder. Blocks.
    #[staticmethod]
    fn open_folder(py: Python<'_>, path: &str) -> PyResult<Self> {
        let opened = detach(py, || tidewire_embedded::open(Path::new(path), tidewire_embedded::Options::default()));
        let home = opened.map_err(|failure| raise(py, &failure))?;
        let notices = home.notices().iter().map(ToString::to_string).collect();
        Ok(Self::new(home, notices))
    }

    /// Connects to the servers of a NATS URL. Returns the storage backend.
    #[staticmethod]
    fn open_nats(url: &str) -> Pending {
        pending("connect", tidewire_nats::begin(url), |py, home| Self::new(home, Vec::new()).into_py_any(py))
    }

    /// The storage backend of the hub that a link has joined. Each handle stores its publications
    /// in their order.
    #[staticmethod]
    fn at_hub(py: Python<'_>, link: &Link, engine: &Engine, name: &str) -> PyResult<Self> {
        let node = link.node(py, engine, name)?;
        Ok(Self { node: Some(PerProcessOwned::new(node.clone())), ..Self::new(node.hub_home(), Vec::new()) })
    }

    /// Buckets and sum of the microseconds of commits, and the calls that they answered.
    fn commits(&self) -> Option<(Vec<u64>, u64, u64)> {
        self.home.commits().map(|all| (all.times.buckets.to_vec(), all.times.sum_us, all.calls))
    }

    /// Repairs made when the storage backend was opened.
    fn notices(&self) -> Vec<String> {
        self.notices.clone()
    }

    /// Stores accepted data, and releases the folder. Blocks.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(home) = self.home.mine() else { return Ok(()) };
        detach(py, || home.close().wait()).map_err(|failure| raise(py, &failure))
    }

    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (name, subjects, max_age_us, max_bytes, max_messages, drop_old, dedupe_us, replicas, compact=None))]
    fn create_stream(
        &self,
        py: Python<'_>,
        name: String,
        subjects: Vec<String>,
        max_age_us: Option<u64>,
        max_bytes: Option<u64>,
        max_messages: Option<u64>,
        drop_old: bool,
        dedupe_us: u64,
        replicas: u32,
        compact: Option<&str>,
    ) -> PyResult<Pending> {
        let subjects = patterns(py, &subjects)?;
        let full = if drop_old { Full::DropOld } else { Full::Refuse };
        let compact = compact.map(|by| if by == "key" { Compact::Key } else { Compact::Subject });
        let settings =
            StreamSettings { name, subjects, max_age_us, max_bytes, max_messages, full, dedupe_us, replicas, compact };
        Ok(pending("stream", self.home.create_stream(settings), stream_info))
    }

    fn stream_info(&self, stream: &str) -> Pending {
        pending("info", self.home.stream_info(stream), stream_info)
    }

    fn list_streams(&self) -> Pending {
        pending("streams", self.home.list_streams(), |py, all| each(py, all, stream_info))
    }

    fn delete_stream(&self, stream: &str) -> Pending {
        pending("delete", self.home.delete_stream(stream), nothing)
    }

    fn purge(
        &self,
        py: Python<'_>,
        stream: &str,
        before: Option<u64>,
        keep: Option<u64>,
        filter: Option<&str>,
    ) -> PyResult<Pending> {
        let filter = filter.map(|filter| pattern(py, filter)).transpose()?;
        Ok(pending("purge", self.home.purge(stream, Purge { before, keep, filter }), number))
    }

    /// Publishes messages, all or none. Gives the ack of each, or its error.
    fn publish_batch(&self, py: Python<'_>, stream: &str, messages: Vec<Message>) -> PyResult<Pending> {
        let maker = MessageMaker::default();
        let messages = messages.into_iter().map(|message| maker.make(py, message)).collect::<PyResult<_>>()?;
        let answer = detach(py, || self.home.publish(stream, messages, true));
        Ok(pending("publish", answer, |py, acks| {
            each(py, acks, |py, result: HomeResult<Ack>| match result {
                Ok(stored) => ack(py, stored, None),
                Err(failure) => Ok(raise(py, &failure).into_value(py).into_any()),
            })
        }))
    }

    fn publish_queue(&self, engine: &Engine, stream: &str) -> PublishQueue {
        PublishQueue::new(Arc::clone(&self.home), stream, Arc::clone(&engine.durations))
    }

    fn publisher(&self, py: Python<'_>, stream: &str, window: usize) -> PyResult<StreamPublisher> {
        StreamPublisher::new(py, &self.home, stream, window)
    }

    /// Gives the schedule, and what was done.
    fn create_schedule(
        &self,
        py: Python<'_>,
        stream: &str,
        name: String,
        when: &str,
        time_zone: &str,
        message: Message,
    ) -> PyResult<Pending> {
        let settings = schedules::settings(py, name, (when, time_zone), message)?;
        let creation = self.home.create_schedule(stream, settings);
        Ok(pending("schedule", creation, |py, (info, change)| schedules::info(py, info, change)))
    }

    fn list_schedules(&self, stream: &str) -> Pending {
        pending("schedules", self.home.list_schedules(stream), |py, all| {
            each(py, all, |py, info| schedules::info(py, info, Change::Kept))
        })
    }

    fn cancel_schedule(&self, stream: &str, schedule: &str) -> Pending {
        pending("cancel", self.home.cancel_schedule(stream, schedule), truth)
    }

    #[allow(clippy::too_many_arguments)]
    fn read(
        &self,
        py: Python<'_>,
        options: reader::Options,
        stream: &str,
        start: (String, u64),
        stop: Option<u64>,
        filter: Vec<String>,
        follow: bool,
    ) -> PyResult<StreamReader> {
        patterns(py, &filter)?;
        let read = ReadOptions::default().start(arguments::start(&start)).filter(filter);
        let read = stop.into_iter().fold(read, ReadOptions::stop);
        let read = if follow { read.follow() } else { read };
        Ok(StreamReader::new(self, options, |reads| ReaderKind::Replay(Replay::of(reads, stream, read))))
    }

    #[allow(clippy::too_many_arguments)]
    fn create_consumer(
        &self,
        py: Python<'_>,
        stream: &str,
        name: String,
        filter: Vec<String>,
        start: (String, u64),
        ack_wait_us: u64,
        max_deliver: u32,
        backoff_us: Vec<u64>,
        max_in_flight: u32,
        by_key: bool,
        inactive_us: u64,
    ) -> PyResult<Pending> {
        let (filter, start) = (patterns(py, &filter)?, arguments::start(&start));
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
        Ok(pending("consumer", self.home.create_consumer(stream, settings), |py, _| Ok(py.None())))
    }

    fn consumer_info(&self, stream: &str, consumer: &str) -> Pending {
        pending("info", self.home.consumer_info(stream, consumer), consumer_info)
    }

    fn list_consumers(&self, stream: &str) -> Pending {
        pending("consumers", self.home.list_consumers(stream), |py, all| each(py, all, consumer_info))
    }

    fn delete_consumer(&self, stream: &str, consumer: &str) -> Pending {
        pending("delete", self.home.delete_consumer(stream, consumer), nothing)
    }

    /// A consumer that exists. `late` gets the numbers of acks that came too late.
    fn consumer(&self, options: reader::Options, stream: &str, name: &str, most: u32, late: Py<PyAny>) -> StreamReader {
        let late = PyRef::from(late);
        let late = move |count: u64| drop(try_attach(|py| late.call1(py, (count,)).map(drop)));
        StreamReader::new(self, options, |reads| ReaderKind::Consumer(Consumer::of(reads, stream, name, most, late)))
    }

    fn pause(&self, stream: &str, consumer: &str, until_us: Option<u64>) -> Pending {
        pending("pause", self.home.pause(stream, consumer, until_us), nothing)
    }

    fn resume(&self, stream: &str, consumer: &str) -> Pending {
        pending("resume", self.home.resume(stream, consumer), nothing)
    }

    fn seek(&self, stream: &str, consumer: &str, start: (String, u64)) -> Pending {
        pending("seek", self.home.seek(stream, consumer, arguments::start(&start)), nothing)
    }

    fn dead_letters(&self, stream: &str, consumer: &str, start: u64, max: u32) -> Pending {
        pending("dead_letters", self.home.dead_letters(stream, consumer, start, max), |py, all| {
            each(py, all, dead_letter)
        })
    }

    fn requeue(&self, stream: &str, consumer: &str, sequences: Vec<u64>) -> Pending {
        pending("requeue", self.home.requeue(stream, consumer, sequences), number)
    }

    fn drop_dead(&self, stream: &str, consumer: &str, sequences: Vec<u64>) -> Pending {
        pending("drop", self.home.drop_dead(stream, consumer, sequences), number)
    }

    fn create_bucket(
        &self,
        name: String,
        history: u32,
        ttl_us: Option<u64>,
        max_bytes: Option<u64>,
        replicas: u32,
    ) -> Pending {
        let settings = BucketSettings { name, history, ttl_us, max_bytes, replicas };
        pending("kv", self.home.create_bucket(settings), nothing)
    }

    fn bucket_info(&self, bucket: &str) -> Pending {
        pending("info", self.home.bucket_info(bucket), bucket_info)
    }

    fn list_buckets(&self) -> Pending {
        pending("buckets", self.home.list_buckets(), |py, all| each(py, all, bucket_info))
    }

    fn delete_bucket(&self, bucket: &str) -> Pending {
        pending("delete", self.home.delete_bucket(bucket), nothing)
    }

    /// `expect`: None for anything, 0 for no value, else a revision.
    fn put(
        &self,
        py: Python<'_>,
        bucket: &str,
        key: &str,
        value: PyBackedBytes,
        expect: Option<u64>,
        ttl_us: Option<u64>,
    ) -> PyResult<Pending> {
        let value = Bytes::copy_from_slice(&value);
        Ok(pending("put", self.home.put(bucket, subject(py, key)?, value, expected(expect), ttl_us), number))
    }

    fn get(&self, py: Python<'_>, bucket: &str, key: &str, revision: Option<u64>) -> PyResult<Pending> {
        Ok(pending("get", self.home.get(bucket, subject(py, key)?, revision), |py, found| match found {
            Some(found) => entry(py, found),
            None => Ok(py.None()),
        }))
    }

    fn delete(&self, py: Python<'_>, bucket: &str, key: &str, expect: Option<u64>, purge: bool) -> PyResult<Pending> {
        Ok(pending("delete", self.home.delete(bucket, subject(py, key)?, expected(expect), purge), number))
    }

    fn keys(&self, py: Python<'_>, bucket: &str, filter: &str, after: Option<&str>, max: u32) -> PyResult<Pending> {
        let after = after.map(|after| subject(py, after)).transpose()?;
        Ok(pending("keys", self.home.keys(bucket, pattern(py, filter)?, after, max), |py, keys| {
            each(py, keys, |py, key: Subject| key.as_str().into_py_any(py))
        }))
    }

    fn history(&self, py: Python<'_>, bucket: &str, key: &str) -> PyResult<Pending> {
        Ok(pending("history", self.home.history(bucket, subject(py, key)?), |py, all| each(py, all, entry)))
    }

    fn watch(
        &self,
        py: Python<'_>,
        options: reader::Options,
        bucket: &str,
        filter: &str,
        after: u64,
    ) -> PyResult<StreamReader> {
        pattern(py, filter)?;
        Ok(StreamReader::new(self, options, |reads| ReaderKind::Watch(Watch::of(reads, bucket, filter, after))))
    }

    /// The one stream that takes such subjects, for the handler of a title.
    fn find_stream(&self, py: Python<'_>, title: String, subject: &str) -> PyResult<Pending> {
        let (home, pattern) = (Arc::clone(&self.home), pattern(py, subject)?);
        let found = async move { find_stream(&*home, &title, &pattern).await.map_err(HomeError::from) };
        Ok(pending("streams", found, |py, name| name.into_py_any(py)))
    }

    /// Begins to handle the events of a consumer.
    fn subscription(
        &self,
        engine: &Engine,
        place: (String, String),
        options: durable_subscription::Options,
        changed: &PyChangeCounter,
        log: Py<PyAny>,
    ) -> StreamWorker {
        let (home, node) = (Arc::clone(&self.home), self.node.as_ref().and_then(PerProcessOwned::mine));
        let (place, changed) = ((&*place.0, &*place.1), Arc::clone(&changed.0));
        let (events, workers) = durable_subscription::begin(home, node, engine, place, options, changed, log);
        Kind::Events(events, workers).into()
    }

    /// Begins a worker of a command. Gives a `StreamWorker`.
    fn command_worker(
        &self,
        engine: &Engine,
        options: command_worker::Options,
        changed: &PyChangeCounter,
        log: Py<PyAny>,
    ) -> Pending {
        let (worker, attempts) = command_worker::begin(self.commands(), engine, options, Arc::clone(&changed.0), log);
        let served = StreamWorker::from(Kind::Commands(Arc::clone(&worker), attempts));
        let opened = async move { worker.open().await.map(|()| served) };
        pending("worker", opened, |py, worker| worker.into_py_any(py))
    }

    /// Gives the id.
    #[allow(clippy::too_many_arguments)]
    fn command_start(
        &self,
        service: String,
        command: String,
        arguments: PyBackedBytes,
        key: Option<String>,
        id: Option<String>,
        priority: String,
        caller: String,
        trace: BTreeMap<String, String>,
    ) -> Pending {
        let arguments = arguments.to_vec();
        let new = NewCommand { service, command, arguments, key, id, priority, caller, trace };
        self.command("start", |store| async move { store.start(new).await }, |py, id| id.into_py_any(py))
    }

    /// Gives true if the command is over, and its record.
    fn command_record(&self, id: String) -> Pending {
        self.command("command", |store| async move { store.record(&id).await }, command::record)
    }

    /// Waits until the command is over. Gives the same as `command_record`.
    fn command_ended(&self, id: String) -> Pending {
        let call = |store: Arc<CommandStore>| async move { store.wait_for(&id, 0, CommandRecord::is_over).await };
        self.command("result", call, command::record)
    }

    fn command_cancel(&self, id: String) -> Pending {
        self.command("cancel", |store| async move { store.cancel(&id).await }, truth)
    }

    fn command_renew(&self, id: String) -> Pending {
        self.command("retry", |store| async move { store.renew(&id).await }, truth)
    }

    fn command_reported(&self, id: String, after: u64) -> Pending {
        self.command("progress", |store| async move { store.reported(&id, after).await }, command::reported)
    }

    fn command_info(&self, id: String) -> Pending {
        self.command("info", |store| async move { store.info(&id).await }, command::info)
    }

    fn command_infos(&self) -> Pending {
        self.command("commands", |store| async move { store.infos().await }, command::infos)
    }

    /// Acquires a lease. Gives a `HeldLease`. `timeout_s`: None for any time. `tied`: a hub
    /// releases the lease as soon as the link of this process ends.
    fn lease(
        &self,
        engine: &Engine,
        name: &str,
        holder: &str,
        ttl_s: f64,
        timeout_s: Option<f64>,
        tied: bool,
    ) -> PyResult<Pending> {
        let mut options = LeaseOptions::default().holder(holder).ttl(seconds(ttl_s));
        if let Some(timeout_s) = timeout_s {
            options = options.timeout(seconds(timeout_s));
        }
        let acquired = match self.node.as_ref().and_then(PerProcessOwned::mine).filter(|_| tied) {
            Some(node) => node.lease_with(name, options),
            None => Lease::acquire(Arc::clone(&self.home), engine.handle(), name, options),
        };
        let acquired = async move { acquired.await.map_err(HomeError::from) };
        Ok(pending("lease", acquired, |py, lease| HeldLease::new(lease).into_py_any(py)))
    }

    fn release(&self, name: &str, fence: u64) -> Pending {
        pending("release", self.home.release(name, fence), truth)
    }

    /// The name of each capability that the storage backend lacks, and the reason.
    fn capabilities(&self) -> Pending {
        let (home, node) = (Arc::clone(&self.home), self.node.as_ref().and_then(PerProcessOwned::mine).cloned());
        let lacks = async move {
            let home = match node {
                Some(node) => node.home().await.map_err(HomeError::from)?,
                None => home,
            };
            let lacks = |kind: Capability| Some((kind.name(), home.capabilities().why_not(kind)?.to_owned()));
            Ok(Capability::ALL.into_iter().filter_map(lacks).collect::<Vec<_>>())
        };
        pending("capabilities", lacks, |py, all| all.into_py_any(py))
    }
}

/// Check report of every file in a folder, as dicts. Blocks.
#[pyfunction]
pub fn check_folder<'py>(py: Python<'py>, path: &str) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let checked = detach(py, || tidewire_embedded::check::check(Path::new(path)));
    let checked = checked.map_err(|failure| raise(py, &failure))?;
    let dicts = checked.into_iter().map(|file| {
        let dict = PyDict::new(py);
        dict.set_item("file", file.file)?;
        dict.set_item("groups", file.groups)?;
        dict.set_item("records", file.records)?;
        dict.set_item("bytes", file.bytes)?;
        dict.set_item("damage", file.damage)?;
        dict.set_item("torn_bytes", file.torn_bytes)?;
        Ok(dict)
    });
    dicts.collect()
}

/// Publishes every whole event of a folder's streams into streams of another of the same names,
/// which take every subject. Gives how many. Blocks.
#[pyfunction]
pub fn salvage_folder(py: Python<'_>, path: &str, into: &str) -> PyResult<u64> {
    let salvaged = detach(py, || tidewire_embedded::check::salvage_into(Path::new(path), Path::new(into)));
    salvaged.map_err(|failure| raise(py, &failure))
}
