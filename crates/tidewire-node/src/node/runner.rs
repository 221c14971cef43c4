//! Runner of a node: it runs handlers and watches deadlines.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tidewire_core::rpc::watchdog::{Blocked, Watchdog};
use tidewire_engine::raw::{Fire, Watch, clock};
use tidewire_engine::{EngineHandle, Inbox, SpawnOptions};
use tidewire_link::Runtime;

use crate::inline_task::InlineTask;
use crate::node::options::{Log, Spawn, Task};
use crate::pending::Wakers;
use crate::statistics::call_durations::CallDurations;
use crate::statistics::span_store::SpanStore;

/// Runs handlers and watches deadlines.
pub(crate) struct Runner {
    engine: EngineHandle,
    spawn: Option<Spawn>,
    /// Runs tasks of the node itself. None: actors of the engine do.
    aside: Option<Spawn>,
    began: Instant,
    watchdog: Arc<Watchdog>,
    /// Woken when a call or a stream has ended.
    pub ended: Wakers,
    /// Number of unclaimed results on their way back to the storage backend of the hub.
    returning: AtomicUsize,
    /// Durations of calls and events; None where nobody looks at them.
    pub durations: Option<CallDurations>,
    /// Spans for the console; None if none are stored.
    pub spans: Option<SpanStore>,
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
        let (began, watchdog) = (clock::now(), Arc::default());
        let (ended, returning) = (Wakers::default(), AtomicUsize::new(0));
        Self { engine, spawn, aside: None, began, watchdog, ended, returning, durations: None, spans: None }
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

    /// Runs a task. If the node is ending, it is dropped.
    pub fn spawn(&self, task: Task) {
        self.watchdog.ready(self.us_at(clock::now()));
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
        if self.watchdog.ready(self.us_at(clock::now())) {
            let watchdog = Arc::clone(&self.watchdog);
            self.run(Box::pin(async move { watchdog.begun() }));
        }
        let Some(Blocked { ms: blocked_ms, is_new }) = self.watchdog.blocked(self.us_at(clock::now())) else {
            return 0;
        };
        if is_new {
            let fix = "look for handlers that do not await, or give the node more threads";
            log(&format!("handlers could not begin for {blocked_ms} ms while calls of other nodes wait: {fix}"));
        }
        blocked_ms
    }

    /// Runs a task as handlers run.
    pub fn run(&self, task: Task) {
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
