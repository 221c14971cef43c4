//! The wait-for graph of asks: finds cycles that could never end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidewire_sync::Mutex;

use crate::actor::id::ActorId;

/// The edges from actors that wait inside their handlers to the actors they asked.
#[derive(Default)]
pub(crate) struct WaitGraph {
    edges: Mutex<HashMap<ActorId, Vec<ActorId>>>,
    count: AtomicUsize,
}

impl WaitGraph {
    /// Adds an edge, unless it closes a ring, which is the error.
    pub fn add(&self, asker: ActorId, target: ActorId) -> Result<(), Vec<ActorId>> {
        let mut edges = self.edges.lock();
        if let Some(path) = path(&edges, target, asker) {
            return Err([&[asker], path.as_slice()].concat());
        }
        edges.entry(asker).or_default().push(target);
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub fn remove(&self, asker: ActorId, target: ActorId) {
        let mut edges = self.edges.lock();
        if let Some(asks) = edges.get_mut(&asker) {
            if let Some(at) = asks.iter().position(|id| *id == target) {
                asks.swap_remove(at);
                self.count.fetch_sub(1, Ordering::Relaxed);
            }
            if asks.is_empty() {
                edges.remove(&asker);
            }
        }
    }

    /// How many actors wait for others at this moment.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

/// The path from `from` to `to` along the edges, both included.
fn path(edges: &HashMap<ActorId, Vec<ActorId>>, from: ActorId, to: ActorId) -> Option<Vec<ActorId>> {
    let mut visited = vec![from];
    let mut trails = vec![vec![from]];
    while let Some(trail) = trails.pop() {
        let last = *trail.last()?;
        if last == to {
            return Some(trail);
        }
        for next in edges.get(&last).into_iter().flatten() {
            if !visited.contains(next) {
                visited.push(*next);
                trails.push([trail.as_slice(), &[*next]].concat());
            }
        }
    }
    None
}
