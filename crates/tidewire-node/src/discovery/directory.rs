//! Directory of service instances, as the hub reports them, with the load of their calls. A node
//! subscribes to changes when it first has to choose an instance itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use serde_json::Value;
use tidewire_core::rpc::balancer::{Balancer, CallLoad, CallProfile, Ended, Policy, RoutingExplanation};
use tidewire_core::rpc::directory::{Change, Directory as Machine};
use tidewire_engine::raw::Mutex;
use tidewire_link::Subscription;
use tidewire_proto::generated::errors::ErrorCode;

use crate::discovery::{EntryReader, Listed, entries};
use crate::error::Error;
use crate::pending::Wakers;
use crate::statistics::routes::route_rows;
use crate::values::{self, Bytes};

/// The instances that this node knows.
#[derive(Default)]
pub(crate) struct Directory {
    /// The lock protects all that is known; nothing is called under it.
    pub(super) state: Mutex<State>,
    /// Counts changes of the directory.
    changes: AtomicU64,
    /// Woken when the directory has changed.
    pub(super) wakers: Wakers,
    /// True if there are holders, so that other calls take no lock.
    has_holders: AtomicBool,
}

#[derive(Default)]
pub(super) struct State {
    /// The instances of each service, with their nodes.
    pub(super) services: HashMap<String, Balancer<Arc<str>>>,
    pub(super) subscription: Option<Subscription>,
    /// The single-active instances of this node that hold their leases, by service. While one does,
    /// no other is active, though the hub may not know that yet.
    pub(super) holders: HashMap<String, Arc<str>>,
    /// The nodes of instances, by service and id.
    pub(super) machine: Machine<(String, String), Arc<str>>,
}

/// An instance that gets a call.
pub(crate) struct ChosenInstance {
    pub instance: Arc<str>,
    pub node: Arc<str>,
    service: Arc<str>,
    /// While the call is under way.
    load: Option<(Instant, CallLoad)>,
}

/// The error of a call without an instance.
pub(crate) fn no_instance(service: &str) -> Error {
    let text = format!("{service}: nobody serves it, or nobody takes this call: see which services there are");
    Error::new(ErrorCode::NoResponders, text)
}

/// True if the balancer has the instance `id`, or any instance without an `id`.
pub(super) fn has(balancer: &Balancer<Arc<str>>, id: Option<&str>) -> bool {
    id.map_or(!balancer.is_empty(), |id| balancer.get(id).is_some())
}

impl Directory {
    /// The instance for a call, if one is known.
    pub fn choose(
        &self,
        service: &Arc<str>,
        id: Option<&str>,
        policy: Policy,
        call: &CallProfile<'_>,
        tried: &[Arc<str>],
        is_overloaded: bool,
    ) -> Option<ChosenInstance> {
        let State { services, holders, machine, .. } = &mut *self.state.lock();
        if !machine.is_current() {
            return None;
        }
        let balancer = services.get_mut(&**service)?;
        let was_tried = |id: &str| tried.iter().any(|other| **other == *id);
        let holder = holders.get(&**service).filter(|id| !was_tried(id) && balancer.get(id).is_some());
        let (instance, node) = match id.or(holder.map(|id| &**id)) {
            Some(id) => balancer.get(id).filter(|(id, _)| !was_tried(id))?,
            None => balancer.choose_next(policy, call, tried, is_overloaded)?,
        };
        Some(ChosenInstance {
            instance: Arc::clone(instance),
            node: Arc::clone(node),
            service: Arc::clone(service),
            load: None,
        })
    }

    /// Notes that an instance of this node holds the lease of its service, or no longer does.
    pub fn note_holder(&self, service: &str, instance: &str, holds: bool) {
        let holders = &mut self.state.lock().holders;
        if holds {
            holders.insert(service.to_owned(), instance.into());
        } else if holders.get(service).is_some_and(|holder| **holder == *instance) {
            // Another instance of the node may hold it by now.
            holders.remove(service);
        }
        self.has_holders.store(!holders.is_empty(), Ordering::Release);
    }

    /// True if an instance of this node holds the lease of a service.
    pub fn has_holder(&self, service: &str) -> bool {
        self.has_holders.load(Ordering::Acquire) && self.state.lock().holders.contains_key(service)
    }

    /// The state of the lowest-latency policy for a call; empty without instances of the service.
    pub fn explain(&self, service: &str, call: &CallProfile<'_>) -> RoutingExplanation {
        self.state.lock().services.get(service).map(|balancer| balancer.explain(call)).unwrap_or_default()
    }

    /// The estimates of the lowest-latency policy for all services.
    pub fn routes(&self, now_us: u64) -> Vec<Value> {
        let state = self.state.lock();
        state.services.iter().flat_map(|(service, balancer)| route_rows(service, balancer, now_us)).collect()
    }

    pub(super) fn knows(&self, service: &str, id: Option<&str>) -> bool {
        let state = self.state.lock();
        state.machine.is_current() && state.services.get(service).is_some_and(|known| has(known, id))
    }

    /// Marks the directory as incomplete: the link was lost, or its subscription dropped changes.
    pub fn missed(&self) {
        self.state.lock().machine.missed();
        self.has_changed();
    }

    pub(super) fn has_changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.wakers.wake();
    }

    /// Number of changes of the directory.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Waits until it has changed again.
    pub async fn changed_since(&self, count: u64) {
        self.wakers.until(|| (self.changes() != count).then_some(())).await;
    }

    pub(super) fn changed(&self, subject: &str, payload: &[u8], reader: &EntryReader) -> Result<(), Error> {
        if subject.ends_with(".missed") {
            self.missed();
            return Ok(());
        }
        let listed: Bytes = values::read(subject, payload)?;
        if let Some(is_read) = reader.reads_any(&listed) {
            // The other announcements are neither kept nor looked at.
            if is_read {
                self.has_changed();
            }
            return Ok(());
        }
        let listed = entries(&listed, reader)?;
        let mut state = self.state.lock();
        for (key, node) in listed.into_iter().map(Listed::entry) {
            let (is_added, machine) = (subject.ends_with(".added"), &mut state.machine);
            let changes = if is_added { machine.came(key, node) } else { Vec::from_iter(machine.left(&key)) };
            state.take(changes);
        }
        drop(state);
        self.has_changed();
        Ok(())
    }
}

impl State {
    pub(super) fn take(&mut self, changes: Vec<Change<(String, String), Arc<str>>>) {
        for change in changes {
            match change {
                Change::Came((service, instance), node) => {
                    let _ = self.services.entry(service).or_default().add(instance, node);
                }
                Change::Left((service, instance), _) => {
                    if let Some(balancer) = self.services.get_mut(&service) {
                        balancer.remove(&instance);
                    }
                }
            }
        }
    }
}

impl ChosenInstance {
    /// A call was sent there.
    pub fn began(&mut self, directory: &Directory, policy: Policy, call: &CallProfile<'_>) {
        let mut state = directory.state.lock();
        let load = state.services.get_mut(&*self.service).map(|balancer| balancer.began(&self.instance, policy, call));
        self.load = Some((Instant::now(), load.unwrap_or_default()));
    }

    /// The call has ended: it failed or not, or nothing is known of how it went.
    pub fn ended(&mut self, directory: &Directory, failed: Option<bool>) {
        let Some((since, load)) = self.load.take() else { return };
        let took_us = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        let how = match failed {
            None => Ended::Untold,
            Some(false) => Ended::Answered(took_us),
            Some(true) => Ended::Failed(took_us),
        };
        if let Some(balancer) = directory.state.lock().services.get_mut(&*self.service) {
            balancer.ended(&self.instance, load, how);
        }
    }
}
