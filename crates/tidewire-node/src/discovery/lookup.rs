//! Lookup of services and instances at the hub, which lists them and reports changes.

use std::sync::{Arc, Weak};

use tidewire_core::rpc::STANDBY;
use tidewire_core::rpc::balancer::Balancer;
use tidewire_link::{Call as InboundCall, Exchange, Handler, Published, ReplyWaiter};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::PublishHead;

use crate::calls::call::Call;
use crate::calls::call_options::{CallOptions, DEFAULT_TIMEOUT};
use crate::calls::call_record::CallRecord;
use crate::calls::prepared_call::{CallTarget, PreparedCall};
use crate::calls::reply_slot::{ReplySlot, in_force};
use crate::discovery::directory::{Directory, has, no_instance};
use crate::discovery::{self, AgentInfo, Listed, ServiceInfo, entries};
use crate::error::Error;
use crate::names;
use crate::node::core::Core;
use crate::services::inbound_call::refuse;
use crate::values::{self, Bytes};

/// The subject on which the hub publishes joins and departures of services.
const CHANGES: &str = "$hub.services.*";

/// Requests the list of services from the hub.
pub(crate) async fn listed(core: &Arc<Core>) -> Result<Vec<ServiceInfo>, Error> {
    Ok(announced(core).await?.0)
}

/// Requests the lists of services and agents from the hub.
pub(crate) async fn announced(core: &Arc<Core>) -> Result<(Vec<ServiceInfo>, Vec<AgentInfo>), Error> {
    discovery::announced(&list(core).await?, &core.entry_reader)
}

/// The same, as the hub writes it.
async fn list(core: &Arc<Core>) -> Result<Bytes, Error> {
    let (nothing, options) = (values::write("services", &())?, CallOptions::default());
    let aim = CallTarget::Subject("$hub.services".to_owned());
    let deadline = options.deadline(Some(DEFAULT_TIMEOUT));
    let (title, record) = ("services".to_owned(), CallRecord::none());
    Call::begin(PreparedCall::new(core, aim, title, nothing, &options, deadline, record)).await
}

impl Directory {
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
        if is_known { Ok(()) } else { Err(no_instance(service)) }
    }

    /// Waits until an instance is active, not only on standby, that was not tried yet.
    pub async fn active(&self, core: &Arc<Core>, service: &str, tried: &[Arc<str>]) -> Result<Arc<str>, Error> {
        self.follow(core).await?;
        loop {
            if !self.state.lock().machine.is_current() {
                self.refresh(core).await?;
            }
            let active = self.wakers.until(|| {
                let state = self.state.lock();
                if !state.machine.is_current() {
                    return Some(None);
                }
                let instances = state.services.get(service).into_iter().flat_map(Balancer::iter).map(|(id, _)| id);
                let mut active = state.holders.get(service).into_iter().chain(instances);
                active.find(|id| !id.starts_with(STANDBY) && !tried.contains(id)).map(|id| Some(Arc::clone(id)))
            });
            if let Some(active) = active.await {
                return Ok(active);
            }
        }
    }

    /// Subscribes to changes of the hub, on the first call.
    pub async fn follow(&self, core: &Arc<Core>) -> Result<(), Error> {
        if self.state.lock().subscription.is_some() {
            return Ok(());
        }
        let (place, follower) = (Arc::new(ReplySlot::default()), Arc::new(Follower(Arc::downgrade(core))));
        let waiting = Arc::clone(&place) as Arc<dyn ReplyWaiter>;
        let subscription = core.link.subscribe(&names::pattern(CHANGES)?, "", &[], follower, waiting);
        let subscription = subscription.map_err(|refused| Error::refused(CHANGES, &refused))?;
        in_force(place, CHANGES.to_owned()).await?;
        let second = self.state.lock().subscription.replace(subscription);
        // Two may have begun at once: one subscription is enough.
        drop(second);
        Ok(())
    }

    async fn refresh(&self, core: &Arc<Core>) -> Result<(), Error> {
        let request = DirectoryRequest { directory: self, number: self.state.lock().machine.ask() };
        let listed = entries(&list(core).await?, &core.entry_reader)?;
        let mut state = self.state.lock();
        let changes = state.machine.listed(request.number, listed.into_iter().map(Listed::entry));
        state.take(changes);
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

/// Subscriber to the hub's changes.
struct Follower(Weak<Core>);

impl Handler for Follower {
    fn called(&self, call: InboundCall) -> Option<Arc<dyn Exchange>> {
        refuse(call, ErrorCode::NoResponders, "nothing is asked here");
        None
    }

    fn published(&self, published: Published) {
        let Some(core) = self.0.upgrade() else { return };
        // Only the hub itself has no name here, and only it knows.
        let head = PublishHead::parse(published.message.head());
        let (Ok(head), true) = (head, published.from.name.is_empty()) else { return };
        if core.directory.changed(head.subject, published.message.payload(), &core.entry_reader).is_err() {
            core.directory.missed();
        }
    }
}
