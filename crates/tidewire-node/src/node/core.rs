//! State that all parts of a node share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use tidewire_core::rpc::watchdog::{Blocked, Watchdog};
use tidewire_engine::raw::{Fire, Mutex, Watch};
use tidewire_engine::{Engine, EngineHandle, Inbox, SpawnOptions};
use tidewire_link::{HubHandle, Link, Listening, Runtime};

use crate::calls::reply_slot::{CallOutcome, ReplySlot};
use crate::discovery::Skipped;
use crate::discovery::directory::Directory;
use crate::error::Error;
use crate::inline_task::InlineTask;
use crate::node::options::{Log, NodeOptions, Spawn, Task};
use crate::objects::Objects;
use crate::pending::Wakers;
use crate::services::instance::ServiceInstance;
use crate::services::serve::ServedRecord;
use crate::services::single_active;
use crate::streams::{Home, StopSignal};
use crate::subjects::local_subscriptions::LocalSubscriptions;
use crate::values;

/// A node.
pub(crate) struct Core {
    pub name: String,
    pub link: Link,
    pub hub: Option<HubHandle>,
    /// Where streams, buckets and leases live, if not at the hub that it has joined.
    pub home: Option<Arc<dyn Home>>,
    /// True if the node opened the storage backend; the node then closes it.
    pub owns_home: bool,
    /// Stop signal of remote calls that wait in the storage backend.
    pub leaving: Arc<StopSignal>,
    pub runner: Arc<Runner>,
    pub local: LocalSubscriptions,
    pub objects: Arc<Objects>,
    pub directory: Directory,
    /// Announcements that this node could not use.
    pub skipped: Skipped,
    /// Woken when the link is back.
    pub rejoined: Wakers,
    pub listening: Mutex<Vec<Listening>>,
    pub served: Mutex<BTreeMap<u64, ServedRecord>>,
    /// Single active instances, active or on standby.
    pub singles: Mutex<Vec<Weak<single_active::Inner>>>,
    pub log: Log,
    /// Notified of joins and departures.
    pub changes: Log,
    /// Maximal number of retries of an idempotent call whose link was lost.
    pub resends: u32,
    pub is_stopping: AtomicBool,
    /// None: the engine and the link belong to another part of the process, which ends them.
    pub engine: Option<Engine>,
    /// It lives as long as the node does, as the sockets are on it.
    pub runtime: Runtime,
}

/// Runs handlers and watches deadlines.
pub(crate) struct Runner {
    engine: EngineHandle,
    spawn: Option<Spawn>,
    /// Runs tasks of the node itself. None: actors of the engine do.
    aside: Option<Spawn>,
    objects: OnceLock<Weak<Objects>>,
    began: Instant,
    watchdog: Arc<Watchdog>,
    /// Woken when a call or a stream has ended.
    pub ended: Wakers,
    /// Number of unclaimed results on their way back to the storage backend of the hub.
    returning: AtomicUsize,
}

/// Guard of an unclaimed result, until it is back in the storage backend of the hub.
pub(crate) struct Returning(Arc<Runner>);

impl Returning {
    pub fn begin(runner: Arc<Runner>) -> Self {
        runner.returning.fetch_add(1, Ordering::AcqRel);
        Self(runner)
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        self.0.returning.fetch_sub(1, Ordering::AcqRel);
        self.0.ended.wake();
    }
}

impl Runner {
    pub fn new(engine: EngineHandle, spawn: Option<Spawn>) -> Self {
        let (began, watchdog) = (Instant::now(), Arc::default());
        let (objects, ended, returning) = (OnceLock::new(), Wakers::default(), AtomicUsize::new(0));
        Self { engine, spawn, aside: None, objects, began, watchdog, ended, returning }
    }

    /// A runner without threads: the threads that wake tasks poll them.
    pub fn inline(engine: EngineHandle) -> Self {
        Self { aside: Some(Arc::new(InlineTask::spawn)), ..Self::new(engine, None) }
    }

    /// A runner for a node whose engine belongs to others. Handlers run on the thread of the links.
    pub fn on_links(engine: EngineHandle, runtime: Runtime) -> Self {
        Self { spawn: Some(Arc::new(move |task| runtime.spawn(task))), ..Self::inline(engine) }
    }

    /// True once everything unclaimed is back in the storage backend of the hub.
    pub fn has_returned(&self) -> bool {
        self.returning.load(Ordering::Acquire) == 0
    }

    /// Sets the table of objects that handlers receive and return.
    pub fn serves(&self, objects: &Arc<Objects>) {
        let _ = self.objects.set(Arc::downgrade(objects));
    }

    pub fn objects(&self) -> Option<Arc<Objects>> {
        self.objects.get()?.upgrade()
    }

    /// Runs a task. If the node is ending, it is dropped.
    pub fn spawn(&self, task: Task) {
        self.watchdog.ready(self.us_at(Instant::now()));
        self.run(task);
    }

    /// A task has begun: those who run them come round.
    pub fn beat(&self) {
        self.watchdog.begun();
    }

    /// A time on the clock of the state machines of this node; 0 if it was before the node.
    pub fn us_at(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    /// Milliseconds for which no ready task has begun; `log` is notified once. An idle runner gets
    /// an empty task as a probe.
    pub fn blocked_ms(&self, log: &Log) -> u32 {
        if self.watchdog.ready(self.us_at(Instant::now())) {
            let watchdog = Arc::clone(&self.watchdog);
            self.run(Box::pin(async move { watchdog.begun() }));
        }
        let Some(Blocked { ms: blocked_ms, is_new }) = self.watchdog.blocked(self.us_at(Instant::now())) else {
            return 0;
        };
        if is_new {
            let fix = "look for handlers that do not await, or give the node more threads";
            log(&format!("handlers could not begin for {blocked_ms} ms while calls of other nodes wait: {fix}"));
        }
        blocked_ms
    }

    fn run(&self, task: Task) {
        match &self.spawn {
            Some(spawn) => spawn(task),
            None => self.aside(task),
        }
    }

    /// Runs a task of the node itself, on its own threads. A program may block the runtime of its
    /// handlers while it waits for the result of this task. If the node is ending, the task is
    /// dropped.
    pub fn aside(&self, task: Task) {
        if let Some(spawn) = &self.aside {
            return spawn(task);
        }
        let mut task = Some(task);
        let made = move |inbox: Inbox<()>| {
            let task = task.take();
            async move {
                // The actor ends with its inbox: the inbox lives as long as the task runs.
                let _inbox = inbox;
                if let Some(task) = task {
                    task.await;
                }
                Ok(())
            }
        };
        // An engine that takes no actor is shutting down, or full of them: the task answers when it
        // is dropped.
        drop(self.engine.spawn_task(SpawnOptions::new(), made));
    }

    pub fn watch(&self, at: Instant, fire: Arc<dyn Fire>) -> Watch {
        self.engine.watch(at, fire)
    }
}

impl Core {
    pub fn new(
        options: NodeOptions,
        runtime: Runtime,
        link: Link,
        hub: Option<HubHandle>,
        home: Option<Arc<dyn Home>>,
        (runner, engine): (Arc<Runner>, Option<Engine>),
    ) -> Arc<Self> {
        Arc::new_cyclic(|core: &Weak<Self>| Self {
            owns_home: options.owns_home(),
            name: options.name,
            link,
            hub,
            home,
            leaving: Arc::default(),
            objects: Arc::new(Objects::new(Weak::clone(core), &runner)),
            runner,
            local: LocalSubscriptions::default(),
            directory: Directory::default(),
            skipped: Skipped::default(),
            rejoined: Wakers::default(),
            listening: Mutex::default(),
            served: Mutex::new(BTreeMap::new()),
            singles: Mutex::default(),
            log: options.log,
            changes: options.changes,
            resends: options.resends,
            is_stopping: AtomicBool::new(false),
            engine,
            runtime,
        })
    }

    /// Hosts of services that are served here.
    pub fn hosts(&self) -> Vec<Arc<ServiceInstance>> {
        self.served.lock().values().map(|record| Arc::clone(&record.host)).collect()
    }

    /// Fails if the node is stopping.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_stopping.load(Ordering::Acquire) {
            let text = format!("{}: the node is stopping or has stopped: make a new one", self.name);
            return Err(Error::new(tidewire_proto::generated::errors::ErrorCode::NodeStopped, text));
        }
        Ok(())
    }
}

/// Waits until a subscription is active.
pub(crate) async fn in_force(place: Arc<ReplySlot>, title: String) -> Result<(), Error> {
    let outcome = std::future::poll_fn(|context| place.poll(context)).await;
    match outcome {
        CallOutcome::Replied(_) | CallOutcome::Over => Ok(()),
        CallOutcome::Failed(number, Some(payload)) => Err(values::read_error(&title, number, payload.bytes())),
        CallOutcome::Failed(_, None) | CallOutcome::Late => Err(Error::lost(&title)),
    }
}
