//! Shared helpers of the tests: a clock that ends hanging tests, and engines of a given shape.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tidewire_engine::config::{DispatcherConfig, EngineConfig};
use tidewire_engine::{Engine, Stop};

/// Longer than anything here takes; whoever waits longer has found a hang.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn engine(threads: usize) -> Engine {
    Engine::builder().threads(threads).build().expect("an engine")
}

/// An engine whose dispatchers have these names and thread counts, beside the default one.
pub fn engine_with(dispatchers: &[(&str, usize)]) -> Engine {
    let mut config = EngineConfig::default();
    for (name, threads) in dispatchers {
        let dispatcher = DispatcherConfig { threads: *threads, ..DispatcherConfig::default() };
        config.dispatchers.insert((*name).to_owned(), dispatcher);
    }
    Engine::builder().config(config).build().expect("an engine")
}

pub fn drain() -> Stop {
    Stop::drain(PATIENCE)
}

pub fn wait<T>(receiver: &Receiver<T>) -> T {
    match receiver.recv_timeout(PATIENCE) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("waited {PATIENCE:?} for a signal that did not come"),
        Err(RecvTimeoutError::Disconnected) => panic!("the one who was to signal is gone"),
    }
}
