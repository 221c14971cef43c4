//! What the tests share: a clock that ends hanging tests, and engines of a given shape.

#![allow(dead_code, missing_docs)]

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

/// A small generator for seeded choices.
pub struct Seeded(pub u64);

impl Seeded {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}
