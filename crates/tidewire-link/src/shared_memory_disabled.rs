//! Stub of shared memory for systems that can't share it as `shared_memory.rs` does: payloads are
//! sent in chunks there.

use std::io;
use std::sync::Arc;

use tidewire_core::link::hub;
use tidewire_core::link::outbox::PayloadParts;
use tidewire_proto::wire::MemoryLocation;

/// There is none.
pub enum SharedArena {}

/// There is none.
pub enum SharedAllocation {}

impl SharedArena {
    /// # Errors
    /// Always.
    pub fn of_process(_bytes: usize) -> io::Result<Arc<Self>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn description(&self) -> String {
        match *self {}
    }

    pub fn lay(self: &Arc<Self>, _payload: &dyn PayloadParts) -> Option<(MemoryLocation, SharedAllocation)> {
        match **self {}
    }

    pub fn release(&self, _now_us: u64) {
        match *self {}
    }
}

impl PayloadParts for SharedAllocation {
    fn bytes(&self) -> usize {
        match *self {}
    }

    fn piece(&self, _at: usize) -> &[u8] {
        match *self {}
    }
}

/// Reads nothing.
pub fn read(_place: &MemoryLocation, _bytes: usize, _room: &mut Vec<u8>) -> bool {
    false
}

/// For a hub: nobody is.
#[derive(Debug)]
pub struct SameHostProbe;

impl hub::MachineMemory for SameHostProbe {
    fn shares(&self, _place: &str) -> bool {
        false
    }
}
