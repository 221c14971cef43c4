//! Served instances of services: registration, statistics and stop.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidewire_engine::raw::clock;
use tidewire_link::{Link, ReplyWaiter, Subscription};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::grammar::{instance_subject, service_subject};

use crate::calls::reply_slot::{ReplySlot, in_force};
use crate::commands::CommandStore;
use crate::delay::until;
use crate::discovery::InstanceInfo;
use crate::error::Error;
use crate::names;
use crate::node::core::{Core, ServedRecord, StoppableInstance};
use crate::node::runner::Runner;
use crate::objects::Objects;
use crate::pending::Pending;
use crate::services::events::Event;
use crate::services::instance::{InstanceSubscription, ServiceInstance, ServiceStatistics};
use crate::services::listener::Listener;
use crate::services::service::Service;
use crate::streams::{Consumer, ServedDurable, own_or_hub};
use crate::subjects;
use crate::subjects::local_subscriptions::Subscription as EventSubscription;

/// An instance of a service, as the one who serves it holds it. It is served until it is stopped,
/// or its node is: dropping this ends nothing.
#[derive(derive_more::Debug)]
#[debug("Served({:?}, {:?})", self.instance.service, self.instance.id)]
pub struct Served {
    core: Weak<Core>,
    number: u64,
    instance: Arc<ServiceInstance>,
}

/// Begins to serve. It is in force once the pending is done.
pub(crate) fn serve(core: &Arc<Core>, service: Service) -> Pending<Served> {
    match begin(core, service) {
        Ok((served, places)) => Pending::new(async move {
            match began(&served.instance, places).await {
                Ok(()) => Ok(served),
                Err(error) => {
                    served.forget();
                    served.instance.give_back();
                    Err(error)
                }
            }
        }),
        Err(error) => Pending::failed(error),
    }
}

/// Waits until the hub knows it, and its durable handlers have their consumers.
async fn began(instance: &ServiceInstance, places: Vec<Arc<ReplySlot>>) -> Result<(), Error> {
    for place in places {
        in_force(place, instance.service.to_string()).await?;
    }
    let durables = instance.durables().iter().map(|durable| &durable.opened);
    for opened in durables.chain(instance.workers().iter().map(|(_, opened)| opened)) {
        poll_fn(|context| opened.poll(context)).await?;
    }
    Ok(())
}

/// An instance that is registered at a hub, and the slots of the hub's answers.
pub(crate) struct Registration {
    pub instance: Arc<ServiceInstance>,
    pub subscriptions: [Subscription; 2],
    pub answers: Vec<Arc<ReplySlot>>,
}

/// Registers an instance of a service with its calls, and without its events.
pub(crate) fn register(
    link: &Link,
    node: &str,
    runner: Arc<Runner>,
    objects: Weak<Objects>,
    mut service: Service,
) -> Result<Registration, Error> {
    let name = service.info.name.clone();
    let id = service.instance.take().unwrap_or_else(|| format!("{name}-{}", names::random_hex(4)));
    for (method, _) in &mut service.methods {
        method.visibility = method.visibility.min(service.info.visibility);
    }
    service.info.methods = service.methods.iter().map(|(method, _)| method.clone()).collect();
    service.info.instances = vec![id.clone()];
    service.info.details = vec![InstanceInfo { id: id.clone(), ..std::mem::take(&mut service.release) }];
    let announcement = service.info.announcement()?;
    let instance = Arc::new(ServiceInstance::new(service, id, node, runner, objects));
    let places: [Arc<ReplySlot>; 2] = Default::default();
    let subscribe = |pattern: &str, queue: &str, announcement: &[u8], place: &Arc<ReplySlot>| {
        let handler = Arc::new(InstanceSubscription(Arc::clone(&instance)));
        let waiting = Arc::clone(place) as Arc<dyn ReplyWaiter>;
        let subscribed = link.subscribe(&names::pattern(pattern)?, queue, announcement, handler, waiting);
        subscribed.map_err(|refused| Error::refused(pattern, &refused))
    };
    let first = subscribe(&instance_subject(&name, &instance.id, "*"), "", &announcement, &places[0])?;
    let second = subscribe(&service_subject(&name, "*"), &name, &[], &places[1])?;
    Ok(Registration { instance, subscriptions: [first, second], answers: Vec::from(places) })
}

fn begin(core: &Arc<Core>, mut service: Service) -> Result<(Served, Vec<Arc<ReplySlot>>), Error> {
    core.check()?;
    service.check()?;
    let name = service.info.name.clone();
    if let Some(id) = &service.instance
        && core.instances().iter().any(|instance| instance.is_named(&name, id))
    {
        let text = format!("instance: {id:?} serves {name:?} already: give another id, or none");
        return Err(Error::new(ErrorCode::NameTaken, text));
    }
    let events = std::mem::take(&mut service.events);
    let durables = std::mem::take(&mut service.durables);
    let commands = std::mem::take(&mut service.commands);
    let registration = register(&core.link, &core.name, Arc::clone(&core.runner), core.handler_objects(), service)?;
    let Registration { instance, subscriptions, answers: mut places } = registration;
    let events = listen(core, &instance, &events, &mut places)?;
    let durables = durables.into_iter().map(|one| ServedDurable::new(core, own_or_hub(core), &name, one));
    instance.subscribe(core, durables.collect::<Result<_, _>>()?);
    if !commands.is_empty() {
        let store = Arc::new(CommandStore::new(own_or_hub(core)));
        instance.work(commands.into_iter().map(|command| command.worker(core, &store, &name)));
    }
    let served_instance = Arc::<ServiceInstance>::clone(&instance);
    let record = ServedRecord { instance: served_instance, _subscriptions: subscriptions, _events: events };
    let number = {
        let mut served = core.served.lock();
        let number = served.last_key_value().map_or(0, |(number, _)| number + 1);
        served.insert(number, record);
        number
    };
    (core.changes)(&format!("serves {:?}, instance {:?}", instance.service, instance.id));
    Ok((Served { core: Arc::downgrade(core), number, instance }, places))
}

/// Subscribes to events, and begins to handle them.
fn listen(
    core: &Arc<Core>,
    instance: &Arc<ServiceInstance>,
    events: &[Event],
    places: &mut Vec<Arc<ReplySlot>>,
) -> Result<Vec<EventSubscription>, Error> {
    let (mut subscriptions, mut listeners) = (Vec::new(), Vec::new());
    for event in events {
        let (subscription, place) = subjects::begin(core, &event.info.subject, &event.options())?;
        listeners.push(Listener::new(&instance.service, event, subscription.mailbox(), Arc::clone(&core.log)));
        subscriptions.push(subscription);
        places.push(place);
    }
    instance.listen(listeners);
    Ok(subscriptions)
}

impl Served {
    /// The id of the instance.
    pub fn instance(&self) -> &str {
        &self.instance.id
    }

    /// Statistics of the calls of this instance.
    pub fn statistics(&self) -> ServiceStatistics {
        self.instance.statistics()
    }

    /// The consumer of a durable handler by name: to inspect, to pause, for dead letters.
    pub fn consumer(&self, name: &str) -> Option<Consumer> {
        self.instance.durables().iter().find(|durable| durable.name() == name)?.consumer()
    }

    /// Drains the instance: accepts no more calls and events, finishes the accepted ones, and cuts
    /// streams. Handlers that still run after `timeout` are dropped.
    ///
    /// # Errors
    /// `AskCycle` if a handler of the service awaits it; no more calls are accepted all the same.
    ///
    /// # Cancel safety
    /// If it is dropped, no more calls are accepted, and handlers end by themselves.
    pub fn stop(self, timeout: Duration) -> Pending<ServiceStatistics> {
        self.forget();
        self.instance.leave();
        let end = clock::now() + timeout;
        Pending::new(async move {
            self.instance.refuse_own("await the stop of the service")?;
            let runner = Arc::clone(&self.instance.runner);
            until(&runner, end, || self.instance.is_idle()).await;
            self.instance.close();
            Ok(self.statistics())
        })
    }

    fn forget(&self) {
        let core = self.core.upgrade();
        let record = core.as_ref().and_then(|core| core.served.lock().remove(&self.number));
        if let (Some(core), Some(_)) = (core, &record) {
            (core.changes)(&format!("serves {:?}, instance {:?}, no longer", self.instance.service, self.instance.id));
        }
        // Its subscriptions end after the lock.
        drop(record);
    }
}
