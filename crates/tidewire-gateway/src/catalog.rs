//! Catalog of the public services of the hub: cached until the hub reports a change.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_core::Stream;
use tidewire_node::{Error, MethodInfo, Node, ServiceCommand, ServiceInfo, Subscription, Visibility};

/// The subject on which the hub publishes joins and departures of services.
pub(crate) const CHANGES: &str = "$hub.services.*";
/// Age at which a list is requested anew, even without changes from the hub.
const OLD: Duration = Duration::from_secs(60);

/// A service that is public, with those of its methods that are.
pub(crate) struct Service {
    pub info: ServiceInfo,
    methods: BTreeMap<String, usize>,
    /// Its commands, in the form of methods.
    pub commands: BTreeMap<String, MethodInfo>,
}

/// Public services by their names.
pub(crate) type Services = BTreeMap<String, Service>;

/// Cache of the public services of the hub.
pub(crate) struct Catalog {
    node: Node,
    /// The lock is held for looks and assignments.
    state: Mutex<State>,
    /// Held by the one who asks the hub.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    services: Option<(Instant, Arc<Services>)>,
    changes: Option<Subscription>,
}

impl Service {
    fn of(info: ServiceInfo) -> Option<(String, Self)> {
        let info = public(info)?;
        let methods = info.methods.iter().enumerate().map(|(at, method)| (method.name.clone(), at)).collect();
        let commands = info.commands.iter().map(|command| (command.name.clone(), as_method(command))).collect();
        Some((info.name.clone(), Self { info, methods, commands }))
    }

    /// One of its methods.
    pub fn method(&self, name: &str) -> Option<&MethodInfo> {
        self.methods.get(name).and_then(|at| self.info.methods.get(*at))
    }

    /// One of its commands.
    pub fn command(&self, name: &str) -> Option<&MethodInfo> {
        self.commands.get(name)
    }

    /// True if a start of the command needs a key.
    pub fn is_exclusive(&self, command: &MethodInfo) -> bool {
        self.info.commands.iter().any(|one| one.name == command.name && one.exclusive.is_some())
    }

    /// Its methods and its commands.
    pub fn callable(&self) -> impl Iterator<Item = &MethodInfo> {
        self.info.methods.iter().chain(self.commands.values())
    }
}

impl Catalog {
    pub fn new(node: Node) -> Self {
        Self { node, state: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    /// The public services that there are now.
    pub async fn services(&self) -> Result<Arc<Services>, Error> {
        self.services_since(None).await
    }

    /// The public services, from a list that was requested at this time or later.
    pub async fn services_since(&self, since: Option<Instant>) -> Result<Arc<Services>, Error> {
        if let Some(known) = self.known(since) {
            return Ok(known);
        }
        let _asks = self.asking.lock().await;
        if let Some(known) = self.known(since) {
            return Ok(known);
        }
        if self.state().changes.is_none() {
            let changes = self.node.subscribe(CHANGES).await?;
            self.state().changes = Some(changes);
        }
        // Changes from now on are newer than the list.
        let listed_at = Instant::now();
        let listed = self.node.services().await?;
        let services = Arc::new(listed.into_iter().filter_map(Service::of).collect::<Services>());
        self.state().services = Some((listed_at, Arc::clone(&services)));
        Ok(services)
    }

    fn known(&self, since: Option<Instant>) -> Option<Arc<Services>> {
        let mut state = self.state();
        let mut has_changed = !self.node.is_joined();
        if let Some(changes) = &mut state.changes {
            let mut nobody = Context::from_waker(Waker::noop());
            while let Poll::Ready(Some(_)) = Pin::new(&mut *changes).poll_next(&mut nobody) {
                has_changed = true;
            }
        }
        if has_changed {
            state.services = None;
        }
        let (listed_at, services) = state.services.as_ref()?;
        (listed_at.elapsed() < OLD && since.is_none_or(|since| *listed_at >= since)).then(|| Arc::clone(services))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The public part of a service; None without public methods and commands.
pub(crate) fn public(mut info: ServiceInfo) -> Option<ServiceInfo> {
    let service = info.visibility;
    info.methods.retain(|method| method.visibility.min(service) == Visibility::Public);
    if service != Visibility::Public {
        info.commands.clear();
    }
    (!info.methods.is_empty() || !info.commands.is_empty()).then_some(info)
}

fn as_method(command: &ServiceCommand) -> MethodInfo {
    let mut method = MethodInfo::default();
    method.name.clone_from(&command.name);
    method.description.clone_from(&command.description);
    (method.parameters, method.result) = (command.parameters.clone(), command.result.clone());
    method
}
