//! Directory of service instances, as the hub reports them, with the load of their calls. A node
//! subscribes to changes when it first has to choose an instance itself.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Instant;

use tidewire_core::rpc::STANDBY;
use tidewire_core::rpc::balancer::{Balancer, Ended, Policy};
use tidewire_core::rpc::directory::{Change, Directory as Machine};
use tidewire_engine::raw::Mutex;
use tidewire_link::{Call, Exchange, Handler, Published, ReplyWaiter, Subscription};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::PublishHead;

use crate::calls::reply_slot::ReplySlot;
use crate::discovery::{Listed, Skipped, entries, list};
use crate::error::Error;
use crate::names;
use crate::node::core::{Core, in_force};
use crate::pending::Wakers;
use crate::services::instance::refuse;
use crate::values::{self, Bytes};

/// The subject on which the hub publishes joins and departures of services.
const CHANGES: &str = "$hub.services.*";

/// The instances that this node knows.
#[derive(Default)]
pub(crate) struct Directory {
    /// The lock protects all that is known; nothing is called under it.
    state: Mutex<State>,
    /// Counts changes of the directory.
    changes: AtomicU64,
    /// Woken when the directory has changed.
    wakers: Wakers,
}

#[derive(Default)]
struct State {
    /// The instances of each service, with their nodes.
    services: HashMap<String, Balancer<Arc<str>>>,
    subscription: Option<Subscription>,
    /// The nodes of instances, by service and id.
    machine: Machine<(String, String), Arc<str>>,
}

/// An instance that gets a call.
pub(crate) struct ChosenInstance {
    pub instance: Arc<str>,
    pub node: Arc<str>,
    service: Arc<str>,
    since: Option<Instant>,
}

/// The error of a call without an instance.
pub(crate) fn nobody(service: &str) -> Error {
    let text = format!("{service}: nobody serves it, or nobody takes this call: see which services there are");
    Error::new(ErrorCode::NoResponders, text)
}

/// True if the balancer has the instance `id`, or any instance without an `id`.
fn has(balancer: &Balancer<Arc<str>>, id: Option<&str>) -> bool {
    id.map_or(!balancer.is_empty(), |id| balancer.get(id).is_some())
}

impl Directory {
    /// The instance for a call, if one is known.
    pub fn choose(
        &self,
        service: &Arc<str>,
        id: Option<&str>,
        policy: Policy,
        tried: &[Arc<str>],
    ) -> Option<ChosenInstance> {
        let mut state = self.state.lock();
        if !state.machine.is_current() {
            return None;
        }
        let balancer = state.services.get_mut(&**service)?;
        let was_tried = |id: &str| tried.iter().any(|other| **other == *id);
        let (instance, node) = match id {
            Some(id) => balancer.get(id).filter(|(id, _)| !was_tried(id))?,
            // A standby instance would forward the call.
            None => match balancer.choose(policy, names::dice(), |id| was_tried(id) || id.starts_with(STANDBY)) {
                Some(active) => active,
                None => state.services.get_mut(&**service)?.choose(policy, names::dice(), was_tried)?,
            },
        };
        Some(ChosenInstance {
            instance: Arc::clone(instance),
            node: Arc::clone(node),
            service: Arc::clone(service),
            since: None,
        })
    }

    /// Waits until an instance is known.
    pub async fn found(&self, core: &Arc<Core>, service: &str, id: Option<&str>) -> Result<(), Error> {
        self.follow(core).await?;
        if self.knows(service, id) {
            return Ok(());
        }
        self.refresh(core).await?;
        if !self.state.lock().machine.is_current() {
            // Changes were lost while the list was requested.
            self.refresh(core).await?;
        }
        let is_known = self.state.lock().services.get(service).is_some_and(|known| has(known, id));
        if is_known { Ok(()) } else { Err(nobody(service)) }
    }

    fn knows(&self, service: &str, id: Option<&str>) -> bool {
        let state = self.state.lock();
        state.machine.is_current() && state.services.get(service).is_some_and(|known| has(known, id))
    }

    /// Waits until an instance is active, not only on standby, that was not tried yet.
    pub async fn active(&self, core: &Arc<Core>, service: &str, tried: &[Arc<str>]) -> Result<Arc<str>, Error> {
        self.follow(core).await?;
        loop {
            if !self.state.lock().machine.is_current() {
                self.refresh(core).await?;
            }
            let active = poll_fn(|context| {
                self.wakers.add(context.waker());
                let state = self.state.lock();
                if !state.machine.is_current() {
                    return Poll::Ready(None);
                }
                let mut instances = state.services.get(service).into_iter().flat_map(Balancer::iter);
                let active = instances.find(|(id, _)| !id.starts_with(STANDBY) && !tried.contains(id));
                active.map_or(Poll::Pending, |(id, _)| Poll::Ready(Some(Arc::clone(id))))
            });
            if let Some(active) = active.await {
                return Ok(active);
            }
        }
    }

    /// Marks the directory as incomplete: the link was lost, or its subscription dropped changes.
    pub fn missed(&self) {
        self.state.lock().machine.missed();
        self.has_changed();
    }

    fn has_changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.wakers.wake();
    }

    /// Number of changes of the directory.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Waits until it has changed again.
    pub async fn changed_since(&self, seen: u64) {
        poll_fn(|context| {
            self.wakers.add(context.waker());
            if self.changes() == seen { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Subscribes to changes of the hub, on the first call.
    pub async fn follow(&self, core: &Arc<Core>) -> Result<(), Error> {
        if self.state.lock().subscription.is_some() {
            return Ok(());
        }
        let (place, follower) = (Arc::new(ReplySlot::default()), Arc::new(Follower(Arc::downgrade(core))));
        let waiting = Arc::clone(&place) as Arc<dyn ReplyWaiter>;
        let made = core.link.subscribe(&names::pattern(CHANGES)?, "", &[], follower, waiting);
        let made = made.map_err(|refused| Error::refused(CHANGES, &refused))?;
        in_force(place, CHANGES.to_owned()).await?;
        let second = self.state.lock().subscription.replace(made);
        // Two may have begun at once: one subscription is enough.
        drop(second);
        Ok(())
    }

    async fn refresh(&self, core: &Arc<Core>) -> Result<(), Error> {
        let request = DirectoryRequest { directory: self, number: self.state.lock().machine.ask() };
        let listed = entries(&list(core).await?, &core.skipped)?;
        let mut state = self.state.lock();
        let changes = state.machine.listed(request.number, listed.into_iter().map(Listed::entry));
        state.take(changes);
        drop(state);
        self.has_changed();
        Ok(())
    }

    fn changed(&self, subject: &str, payload: &[u8], skipped: &Skipped) -> Result<(), Error> {
        if subject.ends_with(".missed") {
            self.missed();
            return Ok(());
        }
        let listed: Bytes = values::read(subject, payload)?;
        let listed = entries(&listed, skipped)?;
        let mut state = self.state.lock();
        for (key, node) in listed.into_iter().map(Listed::entry) {
            let came = subject.ends_with(".added");
            let changes = if came { state.machine.came(key, node) } else { Vec::from_iter(state.machine.left(&key)) };
            state.take(changes);
        }
        drop(state);
        self.has_changed();
        Ok(())
    }
}

/// A requested list, until it has arrived or no caller waits for it.
struct DirectoryRequest<'a> {
    directory: &'a Directory,
    number: u64,
}

impl Drop for DirectoryRequest<'_> {
    fn drop(&mut self) {
        self.directory.state.lock().machine.give_up(self.number);
    }
}

impl State {
    fn take(&mut self, changes: Vec<Change<(String, String), Arc<str>>>) {
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
    pub fn began(&mut self, directory: &Directory) {
        self.since = Some(Instant::now());
        if let Some(balancer) = directory.state.lock().services.get_mut(&*self.service) {
            balancer.began(&self.instance);
        }
    }

    /// The call has ended: it failed or not, or nothing is known of how it went.
    pub fn ended(&mut self, directory: &Directory, failed: Option<bool>) {
        let Some(since) = self.since.take() else { return };
        let took_us = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        let how = match failed {
            None => Ended::Untold,
            Some(false) => Ended::Answered(took_us),
            Some(true) => Ended::Failed(took_us),
        };
        if let Some(balancer) = directory.state.lock().services.get_mut(&*self.service) {
            balancer.ended(&self.instance, how);
        }
    }
}

/// Subscriber to the hub's changes.
struct Follower(Weak<Core>);

impl Handler for Follower {
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        refuse(call, ErrorCode::NoResponders, "nothing is asked here");
        None
    }

    fn published(&self, published: Published) {
        let Some(core) = self.0.upgrade() else { return };
        // Only the hub itself has no name here, and only it knows.
        let head = PublishHead::parse(published.message.head());
        let (Ok(head), true) = (head, published.from.name.is_empty()) else { return };
        if core.directory.changed(head.subject, published.message.payload(), &core.skipped).is_err() {
            core.directory.missed();
        }
    }
}
