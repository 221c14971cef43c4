//! The builder of an engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tidewire_proto::generated::limits;
use tidewire_sync::Mutex;

use super::{Engine, EngineHandle, Inner};
use crate::config::{DEFAULT_DISPATCHER, EngineConfig};
use crate::core::Core;
use crate::dispatch::{Dispatcher, DispatcherKind, External, Pool, PoolOptions, ThreadHooks};
use crate::error::EngineError;

/// How to make an engine.
pub struct EngineBuilder {
    pub(super) config: EngineConfig,
    pub(super) hooks: Arc<ThreadHooks>,
    pub(super) eager: bool,
    pub(super) paused: bool,
    pub(super) externals: Vec<(String, Arc<External>)>,
}

impl EngineBuilder {
    /// Uses a configuration that the caller has loaded.
    pub fn config(mut self, config: EngineConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the number of threads of the default dispatcher; 0 means one per core.
    pub fn threads(mut self, threads: usize) -> Self {
        self.config.dispatchers.entry(DEFAULT_DISPATCHER.to_owned()).or_default().threads = threads;
        self
    }

    /// Lets messages wait until [`Engine::start`] is called.
    pub fn paused(mut self, paused: bool) -> Self {
        self.paused = paused;
        self
    }

    /// Adds a dispatcher that is served by an event loop of the caller's.
    pub fn external(mut self, name: impl Into<String>, external: Arc<External>) -> Self {
        self.externals.push((name.into(), external));
        self
    }

    /// Wraps dispatcher threads, for hosts with a global lock. With `eager` off a further thread is
    /// woken only when the one that runs is stuck, because it could not run beside it.
    pub fn hooks(mut self, hooks: ThreadHooks, eager: bool) -> Self {
        self.hooks = Arc::new(hooks);
        self.eager = eager;
        self
    }

    /// Makes the engine, and starts it unless it is to be paused.
    ///
    /// # Errors
    /// If the configuration is wrong.
    pub fn build(self) -> Result<Engine, EngineError> {
        let mut pools = BTreeMap::new();
        let mut dispatchers = BTreeMap::new();
        let mut config = self.config;
        config.dispatchers.entry(DEFAULT_DISPATCHER.to_owned()).or_default();
        config.check()?;
        for name in config.dispatchers.keys() {
            let owner = config.owner(name).to_owned();
            let pool = pools.entry(owner.clone()).or_insert_with(|| {
                let settings = config.dispatchers.get(&owner).cloned().unwrap_or_default();
                Pool::new(PoolOptions {
                    name: format!("tidewire-{owner}"),
                    threads: threads(settings.threads),
                    spare_threads: settings.spare_threads,
                    spin: Duration::from_micros(config.spin_us),
                    stall: Duration::from_micros(config.stall_us),
                    eager: self.eager,
                    hooks: Arc::clone(&self.hooks),
                })
            });
            let throughput = config.dispatchers.get(name).map_or(1, |d| d.throughput) as u32;
            let place = DispatcherKind::Threads(Arc::clone(pool));
            dispatchers.insert(name.clone(), Arc::new(Dispatcher { name: name.as_str().into(), throughput, place }));
        }
        for (name, external) in self.externals {
            let throughput = limits::THROUGHPUT.default as u32;
            let place = DispatcherKind::External(external);
            dispatchers.insert(name.clone(), Arc::new(Dispatcher { name: name.as_str().into(), throughput, place }));
        }
        let pools = pools.into_values().collect();
        let core = Core::new(config, dispatchers);
        let inner = Inner { core: Arc::clone(&core), pools, shut: Mutex::new(None), haste: Mutex::default() };
        let engine = Engine { inner: Arc::new(inner), handle: EngineHandle { core } };
        if !self.paused {
            engine.start()?;
        }
        Ok(engine)
    }
}

fn threads(configured: usize) -> usize {
    if configured > 0 { configured } else { thread::available_parallelism().map_or(1, usize::from) }
}
