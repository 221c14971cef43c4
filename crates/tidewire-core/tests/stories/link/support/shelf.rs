//! Memory that nodes share, for stories without I/O.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tidewire_core::link::hub::{HubOptions, MachineMemory};
use tidewire_core::link::outbox::{PayloadParts, SharedPayload};
use tidewire_core::link::session::Greeting;
use tidewire_proto::wire::MemoryLocation;

/// The stored payloads, by their places.
#[derive(Clone, Default)]
pub struct Shelf(Arc<Mutex<Lying>>);

#[derive(Default)]
struct Lying {
    payloads: BTreeMap<u64, Vec<u8>>,
    laid: u64,
}

/// One payload there, until it is dropped.
struct OnShelf {
    shelf: Shelf,
    at: u64,
    payload: Vec<u8>,
}

impl Shelf {
    pub fn lay(&self, payload: &[u8]) -> SharedPayload {
        let mut lying = self.0.lock().unwrap();
        lying.laid += 1;
        let at = lying.laid;
        lying.payloads.insert(at, payload.to_vec());
        let payload = Box::new(OnShelf { shelf: self.clone(), at, payload: payload.to_vec() });
        SharedPayload { payload, place: MemoryLocation { at, ..MemoryLocation::default() } }
    }

    pub fn read(&self, place: &MemoryLocation) -> Option<Vec<u8>> {
        self.0.lock().unwrap().payloads.get(&place.at).cloned()
    }

    /// How many payloads lie there, and how many ever did.
    pub fn counts(&self) -> (usize, u64) {
        let lying = self.0.lock().unwrap();
        (lying.payloads.len(), lying.laid)
    }
}

impl PayloadParts for OnShelf {
    fn bytes(&self) -> usize {
        self.payload.len()
    }

    fn piece(&self, at: usize) -> &[u8] {
        &self.payload[at..]
    }
}

impl Drop for OnShelf {
    fn drop(&mut self) {
        self.shelf.0.lock().unwrap().payloads.remove(&self.at);
    }
}

/// Knows one place.
#[derive(Debug)]
struct Knows;

impl MachineMemory for Knows {
    fn shares(&self, place: &str) -> bool {
        place == "shelf"
    }
}

/// A hub that shares memory with every node that knows the shelf.
pub fn sharing_hub() -> HubOptions {
    HubOptions { memory: Some(Arc::new(Knows)), ..HubOptions::new("hub") }
}

/// A node that says so.
pub fn sharing(name: &str) -> Greeting {
    Greeting { place: Some("shelf".to_owned()), ..Greeting::new(name) }
}
