//! Connections that have not joined yet. They are bounded apart from those that have, so that
//! silent ones keep nobody from joining.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use tidewire_sync::Mutex;
use tokio::sync::Notify;

/// Where a connection comes from, as a number; all that come over Unix sockets from one.
pub(super) fn place_of(address: Option<IpAddr>) -> u128 {
    let address = address.map(|address| match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    });
    address.unwrap_or(Ipv6Addr::UNSPECIFIED).to_bits()
}

/// Connections that have not joined yet, by where they come from.
pub(super) struct PendingJoins {
    waiting: Mutex<JoinRequest>,
    most: usize,
}

#[derive(Default)]
struct JoinRequest {
    places: BTreeMap<u128, VecDeque<Arc<Notify>>>,
    count: usize,
}

/// One of them. Dropping it says that it has joined, or is gone.
pub(super) struct PendingJoin {
    of: Arc<PendingJoins>,
    place: u128,
    /// Notified when the connection has to close for a newer one.
    pub end: Arc<Notify>,
    /// True for a console that may only look.
    pub is_console: bool,
}

impl PendingJoins {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::default(), most })
    }

    /// Registers a new connection. If there are too many, the oldest connection of the origin with
    /// the most connections is closed.
    pub fn begin(self: &Arc<Self>, place: u128) -> PendingJoin {
        let end = Arc::new(Notify::new());
        let waiting = &mut *self.waiting.lock();
        waiting.places.entry(place).or_default().push_back(Arc::clone(&end));
        waiting.count += 1;
        while waiting.count > self.most {
            let Some(crowd) = waiting.places.values_mut().max_by_key(|crowd| crowd.len()) else { break };
            let Some(first) = crowd.pop_front() else { break };
            waiting.count -= 1;
            first.notify_one();
        }
        PendingJoin { of: Arc::clone(self), place, end, is_console: false }
    }
}

impl Drop for PendingJoin {
    fn drop(&mut self) {
        let waiting = &mut *self.of.waiting.lock();
        let Some(crowd) = waiting.places.get_mut(&self.place) else { return };
        if let Some(at) = crowd.iter().position(|end| Arc::ptr_eq(end, &self.end)) {
            crowd.remove(at);
            waiting.count -= 1;
        }
        if crowd.is_empty() {
            waiting.places.remove(&self.place);
        }
    }
}

/// Ends when a connection must close for others; never for one that has joined.
pub(super) async fn has_to_go(greeting: Option<&PendingJoin>) {
    match greeting {
        Some(greeting) => greeting.end.notified().await,
        None => std::future::pending().await,
    }
}
