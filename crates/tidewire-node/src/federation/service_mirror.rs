//! Services and agents of one hub at another: their announcements follow those that come and go.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tidewire_core::federation::{HUBS, HubPath};
use tidewire_core::link::announcement::AGENT;
use tidewire_core::rpc::FAR;
use tidewire_link::{Handler, ReplyWaiter, Subscription};
use tidewire_proto::subject::grammar::{OF_SERVICES, agent_subject, instance_subject, service_subject};
use tidewire_proto::wire::FieldsWriter;

use crate::calls::reply_slot::{ReplySlot, in_force};
use crate::delay::Delay;
use crate::discovery::lookup::announced;
use crate::discovery::{AgentInfo, InstanceInfo, ServiceInfo, Visibility};
use crate::error::Error;
use crate::federation::direction::Direction;
use crate::federation::forwarded_call::{ForwardTarget, Forwarder};
use crate::federation::statistics::SharedNames;
use crate::federation::subject_mirror;
use crate::names;

/// The least time between two looks, whatever the other hub announces.
const REFRESH_PAUSE: Duration = Duration::from_millis(50);

/// The announcements of one direction.
pub(super) struct ServiceMirror {
    direction: Arc<Direction>,
    /// Services by the name that the other hub sees, and agents by their subjects there.
    announced: BTreeMap<String, Announced>,
    /// The last refusal of each name, which is logged once.
    refused: BTreeMap<String, String>,
}

/// A service or an agent that the other hub sees, until this is dropped.
struct Announced {
    announcement: Vec<u8>,
    _subscriptions: Vec<Subscription>,
}

impl ServiceMirror {
    pub fn new(direction: Arc<Direction>) -> Self {
        // The other hub may announce any number of names.
        let services = direction.shared.services.iter().map(|service| format!("{OF_SERVICES}{}", service.name));
        let agents = direction.shared.agents.iter().map(|agent| agent_subject(&agent.name));
        direction.source.entry_reader.limit(services.chain(agents).collect());
        Self { direction, announced: BTreeMap::new(), refused: BTreeMap::new() }
    }

    /// Follows the announcements of the source until the federation ends.
    pub async fn run(mut self) {
        let direction = Arc::clone(&self.direction);
        let directory = &direction.source.directory;
        let _subscriptions = subject_mirror::subscribe(&direction).await;
        loop {
            // Read first: changes in the meantime cause another refresh.
            let known = directory.changes();
            let pause = Delay::begin(&direction.source.runner, REFRESH_PAUSE);
            let found = match directory.follow(&direction.source).await {
                Ok(()) => announced(&direction.source).await,
                Err(error) => Err(error),
            };
            if direction.closing.is_set() {
                return;
            }
            match found {
                Ok((services, agents)) => {
                    self.show(&services, &agents).await;
                    direction.refreshed.set();
                }
                Err(error) => {
                    // Without its hub a service has no instance.
                    self.announced.clear();
                    if !error.is_retryable() {
                        self.refuse("", &error);
                    }
                }
            }
            let visible = self.announced.keys().cloned().collect();
            *direction.counts.names.lock() = SharedNames { visible, refused: self.refused.clone() };
            let mut changed = pin!(directory.changed_since(known));
            let change = poll_fn(|context| match pause.is_over(context) {
                true => changed.as_mut().poll(context),
                false => Poll::Pending,
            });
            if direction.closing.unless(change).await.is_none() {
                return;
            }
        }
    }

    /// Announces what is there and shared, and nothing else.
    async fn show(&mut self, services: &[ServiceInfo], agents: &[AgentInfo]) {
        let direction = Arc::clone(&self.direction);
        let mut present = BTreeMap::new();
        for shared in &direction.shared.services {
            let info = services.iter().find(|info| info.name == shared.name && info.visibility > Visibility::Node);
            // The nearest instance says how far the service is. One of the other hub is none.
            let paths = info
                .into_iter()
                .flat_map(|info| &info.details)
                .filter_map(|detail| direction.path_of_message(detail.metadata.get(HUBS).map(String::as_str)).ok());
            if let (Some(info), Some(path)) = (info, paths.min_by_key(HubPath::len)) {
                let announcement = self.service_announcement(info, &path, &shared.seen_as);
                present.insert(shared.seen_as.clone(), (ForwardTarget::Service(shared.name.clone()), announcement));
            }
        }
        for shared in &direction.shared.agents {
            let Some(agent) = agents.iter().find(|agent| agent.id == shared.name) else { continue };
            if let Ok(path) = direction.path_of_message(Some(&agent.hubs)) {
                let mirrored = AgentInfo { id: shared.seen_as.clone(), hubs: path.to_string(), ..agent.clone() };
                let target = ForwardTarget::Agent(shared.name.clone());
                present.insert(agent_subject(&shared.seen_as), (target, agent_announcement(&mirrored)));
            }
        }
        self.announced.retain(|name, _| present.contains_key(name));
        for (seen_as, (target, announcement)) in present {
            let announced = match announcement {
                Ok(new) if self.announced.get(&seen_as).is_some_and(|known| known.announcement == new) => continue,
                Ok(new) => {
                    // A description is replaced as a whole.
                    self.announced.remove(&seen_as);
                    self.announce(&seen_as, target, new).await
                }
                Err(error) => Err(error),
            };
            match announced {
                Ok(announced) => {
                    self.refused.remove(&seen_as);
                    self.announced.insert(seen_as, announced);
                }
                Err(error) => self.refuse(&seen_as, &error),
            }
        }
    }

    /// The description for the other hub: one instance, for nodes, without events and commands.
    fn service_announcement(&self, info: &ServiceInfo, path: &HubPath, seen_as: &str) -> Result<Vec<u8>, Error> {
        let id = format!("{FAR}{}", self.direction.instance);
        let mut mirrored = info.clone();
        seen_as.clone_into(&mut mirrored.name);
        mirrored.visibility = Visibility::Private;
        mirrored.methods.retain(|method| method.visibility > Visibility::Node);
        mirrored.methods.iter_mut().for_each(|method| method.visibility = Visibility::Private);
        (mirrored.events, mirrored.commands) = (Vec::new(), Vec::new());
        mirrored.instances = vec![id.clone()];
        let metadata = BTreeMap::from([(HUBS.to_owned(), path.to_string())]);
        mirrored.details = vec![InstanceInfo { id, metadata, ..InstanceInfo::default() }];
        mirrored.announcement()
    }

    async fn announce(&self, seen_as: &str, target: ForwardTarget, announcement: Vec<u8>) -> Result<Announced, Error> {
        let direction = &self.direction;
        let instance = instance_subject(seen_as, &format!("{FAR}{}", direction.instance), "*");
        let patterns = match target {
            // A caller that learns of the instance can call the service at once.
            ForwardTarget::Service(_) => vec![(service_subject(seen_as, "*"), seen_as), (instance, "")],
            ForwardTarget::Agent(_) => vec![(seen_as.to_owned(), "")],
        };
        let to = direction.source.link.clone();
        let handler: Arc<dyn Handler> = Arc::new(Forwarder { to, target, direction: Arc::clone(direction) });
        let (mut subscriptions, mut places) = (Vec::new(), Vec::new());
        for (pattern, queue) in patterns {
            let (place, handler) = (Arc::new(ReplySlot::default()), Arc::clone(&handler));
            let (waiting, link) = (Arc::clone(&place) as Arc<dyn ReplyWaiter>, &direction.target.link);
            let announced = if queue.is_empty() { &announcement } else { &[][..] };
            let subscribed = link.subscribe(&names::pattern(&pattern)?, queue, announced, handler, waiting);
            subscriptions.push(subscribed.map_err(|refused| Error::refused(&pattern, &refused))?);
            places.push(place);
        }
        for place in places {
            in_force(place, seen_as.to_owned()).await?;
        }
        let (from, to) = &direction.hubs;
        (direction.source.changes)(&format!("{seen_as:?} of the hub {from:?} is at {to:?}"));
        Ok(Announced { announcement, _subscriptions: subscriptions })
    }

    /// Logs a refusal, unless it was the last one of this name.
    fn refuse(&mut self, seen_as: &str, error: &Error) {
        let text = error.to_string();
        if self.refused.get(seen_as) != Some(&text) {
            self.direction.log(&format!("{seen_as:?} is not shared: {text}"));
            self.refused.insert(seen_as.to_owned(), text);
        }
    }
}

/// The description of an agent for the other hub.
fn agent_announcement(agent: &AgentInfo) -> Result<Vec<u8>, Error> {
    let mut fields = Vec::new();
    // It is texts alone.
    let text = serde_json::to_string(agent).unwrap_or_default();
    let added = FieldsWriter::new(&mut fields).add(AGENT, text.as_bytes());
    added.map_err(|wrong| Error::new(wrong.code(), format!("agent {:?}: {wrong}", agent.id)))?;
    Ok(fields)
}
