//! Nodes: join or host a hub, serve, call, publish and subscribe.

pub mod core;
pub mod join;
pub mod options;
pub mod runner;
pub mod stop_signal;
mod storage;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidewire_engine::raw::clock;
use tidewire_engine::{Engine, EngineHandle};
use tidewire_link::{Greeting, Handler, HubHandle, HubOptions, JoinError, Link, Runtime};
use tidewire_proto::generated::errors::ErrorCode;

use crate::calls::call::Call;
use crate::calls::client::Client;
use crate::commands;
use crate::delay::until;
use crate::discovery::ServiceInfo;
use crate::discovery::lookup::listed;
use crate::discovery::service_watch::ServiceChanges;
use crate::error::Error;
use crate::node::core::{Core, Node};
use crate::node::join::{address, check_open, greeting, runtime};
use crate::node::options::NodeOptions;
use crate::node::runner::Runner;
use crate::objects::ExportSubscription;
use crate::pending::Pending;
use crate::services::instance::ServiceInstance;
use crate::services::serve::{Served, serve};
use crate::services::service::Service;
use crate::services::single_active::{SingleActive, serve_single};
use crate::statistics;
use crate::statistics::call_durations::CallDurations;
use crate::statistics::span_store::SpanStore;
use crate::streams::{self, Home, HomeSlot, LeaseOptions};
use crate::subjects::local_subscriptions::{SubscribeOptions, Subscription};
use crate::subjects::subject::Subject;
use crate::subjects::subscribe;

/// Time that handlers have to end once no caller waits for them.
const GRACE: Duration = Duration::from_millis(100);

/// How a node came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// True if all calls finished in time, and their replies were written.
    pub is_drained: bool,
}

/// Counts of the objects that a node has exported and imported; each at most `remote_objects`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteStatistics {
    /// Functions, objects and streams that others may call.
    pub given: usize,
    /// Imported objects of other nodes that are not released yet.
    pub held: usize,
}

impl Node {
    /// Joins the hub at a URL: `tide://host:port`, `tide+unix:///path`, `ws://host:port/path`, or
    /// with TLS `tide+tls://` and `wss://`. If the link is lost later, the node rejoins by itself,
    /// with its services and subscriptions.
    ///
    /// # Errors
    /// Awaiting it fails with `invalid_argument` if the URL or an option is not allowed, and with
    /// `link_lost` if no hub listens there. It fails with `unauthorized` if the hub refuses the
    /// token, and with `name_taken` if the hub has a node of this name. It fails with `wire_error`
    /// if the peer is no hub.
    ///
    /// # Cancel safety
    /// If it is dropped, the node leaves as soon as it has joined.
    pub fn join(url: &str, options: NodeOptions) -> Pending<Self> {
        let address = match address(url, &options) {
            Ok(address) => address,
            Err(error) => return Pending::failed(error),
        };
        Pending::on_thread("tidewire-join", move || {
            let runtime = runtime(&options)?;
            let greeting = greeting(&options, options.token.clone());
            let log = Arc::clone(&options.log);
            let home = options.open_home()?;
            let link = Link::join(&runtime, &address, greeting, move |line| log(line))?;
            let is_inspected = options.inspect;
            let node = Self::new(options, runtime, link, None, home)?;
            node.core.say_joined("");
            if is_inspected {
                statistics::service::open(&node, &address.to_string());
            }
            Ok(node)
        })
    }

    /// Makes a hub that others can join at a URL, as for [`join`](Node::join); port 0 lets the
    /// system choose one. It listens on loopback only, unless it has tokens and TLS, or
    /// [`insecure`](NodeOptions::insecure) is set.
    ///
    /// # Errors
    /// Awaiting it fails with `invalid_argument` if the URL or an option is not allowed, and with
    /// `config_invalid` if the address is in use. It fails with `unauthorized` if other computers
    /// could connect without a token.
    ///
    /// # Cancel safety
    /// If it is dropped, the hub ends as soon as it listens.
    pub fn listen(url: &str, options: NodeOptions) -> Pending<Self> {
        let checked = address(url, &options).and_then(|address| check_open(&address, &options).map(|()| address));
        let address = match checked {
            Ok(address) => address,
            Err(error) => return Pending::failed(error),
        };
        Pending::on_thread("tidewire-listen", move || {
            let runtime = runtime(&options)?;
            let hub_options = HubOptions {
                access: options.access()?,
                heartbeat_ms: options.heartbeat.as_millis() as u64,
                ..HubOptions::new(&options.name)
            };
            let log = Arc::clone(&options.log);
            let hub = HubHandle::new(&runtime, hub_options, move |line| log(line));
            let changes = Arc::clone(&options.changes);
            hub.on_changes(move |change| changes(&change.to_string()));
            let home = options.open_home()?;
            let own = options.tokens.first().map(|token| token.secret().to_owned());
            let link = Link::join_local(&hub, greeting(&options, own))?;
            let is_inspected = options.inspect;
            let node = Self::new(options, runtime, link, Some(hub), home)?;
            if is_inspected {
                statistics::service::open(&node, &address.to_string());
            }
            if let Some(home) = &node.core.home {
                // Nodes find the service as soon as they join.
                let slot = Arc::new(HomeSlot::of(Arc::clone(home)));
                let Core { leaving, runner, .. } = &*node.core;
                node.serve(commands::service(&slot, leaving, runner)).wait()?;
                node.serve(streams::service(slot, leaving)).wait()?;
            }
            if let Some(hub) = &node.core.hub {
                let listening = hub.listen(&address)?;
                node.core.listening.lock().push(listening);
            }
            Ok(node)
        })
    }

    /// Joins a hub of this process as its gateway, which needs no token: it may call, publish and
    /// subscribe everywhere. The gateway names [the user](Client::on_behalf) of each call, and
    /// checks the permissions of [`access`](HubHandle::access) itself. It blocks while another
    /// thread uses the hub.
    ///
    /// # Errors
    /// [`Error`] if an option is not allowed, the hub has a node of this name, or is stopping.
    pub fn gateway(hub: &HubHandle, options: NodeOptions) -> Result<Self, Error> {
        Self::here(hub, options, Link::join_gateway)
    }

    /// Joins a hub of this process for programs that are no nodes, under a number of its own. It
    /// gets messages of nodes of this hub, and its own go to those alone: outside of queue groups,
    /// or [to one subscription](Subject::to). It blocks while another thread uses the hub.
    ///
    /// # Errors
    /// As for [`gateway`](Self::gateway).
    pub fn bridge(hub: &HubHandle, number: u32, options: NodeOptions) -> Result<Self, Error> {
        Self::here(hub, options, |hub, greeting| Link::join_remote(hub, number, greeting))
    }

    fn here(
        hub: &HubHandle,
        options: NodeOptions,
        join: impl FnOnce(&HubHandle, Greeting) -> Result<Link, JoinError>,
    ) -> Result<Self, Error> {
        options.check()?;
        let link = join(hub, greeting(&options, None))?;
        let home = options.open_home()?;
        Self::new(options, hub.runtime().clone(), link, None, home)
    }

    /// Delivers published messages to subscriptions on the current thread, as long as it is polled.
    /// Only for a [gateway](Self::gateway), whose messages wait for it. Many subscribers then cost
    /// the thread of the hub nothing.
    ///
    /// # Cancel safety
    /// Waiting messages stay queued.
    pub fn spread(&self) -> impl Future<Output = ()> + Send + use<> {
        self.core.link.spread()
    }

    /// Makes a node over a link of another part of the process. The owner closes the link, and
    /// reports each new connection by [`joined_again`](Self::joined_again). Handlers run on the
    /// thread of the links, and the engine watches deadlines.
    pub fn over(link: Link, options: NodeOptions, engine: EngineHandle, runtime: Runtime) -> Self {
        let runner = Arc::new(Runner::on_links(engine, runtime.clone()));
        Self { core: Core::new(options, runtime, link, None, None, (runner, None)) }
    }

    /// The link of a node [over](Self::over) a link has a new connection.
    pub fn joined_again(&self) {
        self.core.directory.missed();
        self.core.rejoined.wake();
    }

    fn new(
        options: NodeOptions,
        runtime: Runtime,
        link: Link,
        hub: Option<HubHandle>,
        home: Option<Arc<dyn Home>>,
    ) -> Result<Self, Error> {
        // Deadlines are watched by the engine, also where handlers run elsewhere.
        let threads = if options.spawn.is_some() { 1 } else { options.threads };
        let engine = Engine::builder().threads(threads).build();
        let engine = engine.map_err(|error| Error::new(ErrorCode::LimitExceeded, format!("threads: {error}")))?;
        let durations = options.inspect.then(CallDurations::default);
        let mut runner = Runner::new(engine.handle(), options.spawn.clone());
        runner.durations = durations;
        runner.spans = (options.spans > 0).then(|| SpanStore::new(options.spans));
        let core = Core::new(options, runtime, link, hub, home, (Arc::new(runner), Some(engine)));
        core.follow_link();
        Ok(Self { core })
    }

    /// The name of the node.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Where others can join this hub, with the real ports; empty if it is none.
    pub fn urls(&self) -> Vec<String> {
        self.core.listening.lock().iter().map(|listening| listening.address.to_string()).collect()
    }

    /// True while the node has a link to its hub.
    pub fn is_joined(&self) -> bool {
        self.core.link.joined().is_some()
    }

    /// Lets other nodes call a service. The service is registered once the pending is done, and
    /// survives a lost link.
    ///
    /// # Errors
    /// Awaiting it fails with `invalid_argument` if the declaration is wrong, and with `name_taken`
    /// if this node serves the instance already. It fails with `unauthorized` if the token does not
    /// allow it.
    ///
    /// # Cancel safety
    /// If it is dropped, the service is served all the same.
    pub fn serve(&self, service: Service) -> Pending<Served> {
        serve(&self.core, service)
    }

    /// Serves a service with one active instance at a time, across all nodes and languages: the
    /// active one holds a lease of 5 seconds. The others stand by, and queue calls until one is
    /// active.
    ///
    /// The next instance takes over at once if the process of the active one ends and the lease is
    /// at a hub. An instance that may have lost its lease, by its own clock, answers no more. A
    /// node that serves a single active instance at its hub lives until it is stopped.
    ///
    /// ```
    /// # use tidewire_node::{Node, NodeOptions, Service};
    /// # let folder = std::env::temp_dir().join(format!("tidewire-single-{}", std::process::id()));
    /// # #[cfg(feature = "embedded")] {
    /// let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub").data(&folder)).wait()?;
    /// let matching = Service::new("matching").method("fence", &[], |call, ()| async move { Ok(call.fence()?) });
    /// let single = hub.serve_single(matching).wait()?;
    /// let fence: u64 = hub.client("matching").call("fence", &()).wait()?;
    /// assert_eq!(fence, single.fence()?);
    /// # hub.stop(std::time::Duration::from_secs(5)).wait()?;
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # }
    /// # Ok::<(), tidewire_node::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`serve`](Node::serve). An error of the lease backend, such as a hub without one, is
    /// reported to [`NodeOptions::log`], and the node retries.
    ///
    /// # Cancel safety
    /// If it is dropped, the instance may stand by all the same.
    pub fn serve_single(&self, service: Service) -> Pending<SingleActive> {
        self.serve_single_with(service, LeaseOptions::default())
    }

    /// As [`serve_single`](Node::serve_single), with a lease of another time.
    ///
    /// # Errors
    /// As for `serve_single`.
    ///
    /// # Cancel safety
    /// As for `serve_single`.
    pub fn serve_single_with(&self, service: Service, lease: LeaseOptions) -> Pending<SingleActive> {
        serve_single(&self.core, service, lease)
    }

    /// Calls the methods of a service by its name.
    pub fn client(&self, service: &str) -> Client {
        Client::new(Arc::clone(&self.core), service)
    }

    /// The services that nodes of the hub serve, with their methods and schemas.
    ///
    /// # Errors
    /// Awaiting it fails with `link_lost` while there is no link.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub fn services(&self) -> Pending<Vec<ServiceInfo>> {
        let core = Arc::clone(&self.core);
        Pending::new(async move { listed(&core).await })
    }

    /// The instances of a service, or of all services, at the nodes of the hub, and then all joins
    /// and departures, until the node stops.
    ///
    /// ```
    /// use tidewire_node::{Node, NodeOptions, Service};
    ///
    /// let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait()?;
    /// let mut changes = hub.watch_services(Some("math"));
    /// let add = Service::new("math").version("1.4.2").method("add", &["a", "b"], |_, (a, b): (i64, i64)| async move { Ok(a + b) });
    /// hub.serve(add).wait()?;
    /// let change = changes.next_blocking().expect("the node runs")?;
    /// assert!(change.has_joined && change.instance.version == "1.4.2");
    /// # Ok::<(), tidewire_node::Error>(())
    /// ```
    pub fn watch_services(&self, service: Option<&str>) -> ServiceChanges {
        ServiceChanges::new(&self.core, service)
    }

    /// How many announcements of services in lists of the hub were skipped, as they were not of the
    /// form that they have to have: a hub of this version takes none of those.
    pub fn skipped(&self) -> u64 {
        self.core.entry_reader.skipped()
    }

    /// A subject to publish on, or to ask, with settings of its own.
    pub fn subject(&self, subject: &str) -> Subject {
        Subject::new(Arc::clone(&self.core), subject)
    }

    /// Publishes; see [`Subject::publish`].
    ///
    /// # Errors
    /// [`Error`] if the subject is none, the value can't be sent, the token does not allow it, or
    /// the link is lost.
    pub fn publish<T: Serialize + ?Sized>(&self, subject: &str, value: &T) -> Result<(), Error> {
        self.subject(subject).publish(value)
    }

    /// Asks a subscriber; see [`Subject::request`].
    ///
    /// ```
    /// # use tidewire_node::{Node, NodeOptions};
    /// # let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait()?;
    /// let mut doubles = hub.subscribe("double").wait()?;
    /// let doubled = hub.request::<i64>("double", &21);
    /// let message = doubles.next_blocking().unwrap();
    /// let number: i64 = message.read()?;
    /// message.reply(&(number * 2))?;
    /// assert_eq!(doubled.wait()?, 42);
    /// # Ok::<(), tidewire_node::Error>(())
    /// ```
    pub fn request<T: DeserializeOwned>(&self, subject: &str, value: &(impl Serialize + ?Sized)) -> Call<T> {
        self.subject(subject).request(value)
    }

    /// Subscribes to a pattern of subjects: `*` is one token, `>` the rest. It is in force once the
    /// pending is done.
    ///
    /// # Errors
    /// Awaiting it fails with `invalid_subject` if the pattern is none, `unauthorized` if the token
    /// does not allow it.
    ///
    /// # Cancel safety
    /// If it is dropped, the subscription ends.
    pub fn subscribe(&self, pattern: &str) -> Pending<Subscription> {
        self.subscribe_with(pattern, SubscribeOptions::default())
    }

    /// As [`subscribe`](Node::subscribe), in a queue group or with another queue capacity.
    ///
    /// # Errors
    /// As for `subscribe`, and with `invalid_argument` if an option is not allowed.
    ///
    /// # Cancel safety
    /// If it is dropped, the subscription ends.
    pub fn subscribe_with(&self, pattern: &str, options: SubscribeOptions) -> Pending<Subscription> {
        subscribe(&self.core, pattern, options)
    }

    /// Numbers of functions, objects and streams that it has exported and imported.
    pub fn remote(&self) -> RemoteStatistics {
        let (given, held) = self.core.objects.counts();
        RemoteStatistics { given, held }
    }

    /// Waits until the counts of exported and imported objects satisfy a predicate. The predicate
    /// is evaluated now, and whenever an object is exported, imported or released.
    ///
    /// ```
    /// # use tidewire_node::{Node, NodeOptions};
    /// # let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait()?;
    /// let counts = hub.until_remote(|counts| counts.given == 0).wait()?;
    /// assert_eq!(counts, hub.remote());
    /// # Ok::<(), tidewire_node::Error>(())
    /// ```
    ///
    /// # Errors
    /// Awaiting it fails with `node_stopped` if the node stops before.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped. It does not keep the node alive.
    pub fn until_remote(
        &self,
        mut holds: impl FnMut(RemoteStatistics) -> bool + Send + 'static,
    ) -> Pending<RemoteStatistics> {
        let (node, objects) = (Arc::downgrade(&self.core), Arc::clone(&self.core.objects));
        Pending::new(async move {
            let check = || {
                let (given, held) = objects.counts();
                let counts = RemoteStatistics { given, held };
                if holds(counts) {
                    return Some(Ok(counts));
                }
                let ended = || Error::new(ErrorCode::NodeStopped, "the node has stopped: make a new one");
                node.upgrade().ok_or_else(ended).and_then(|core| core.check()).err().map(Err)
            };
            objects.wakers.until(check).await
        })
    }

    /// Stops the node: takes no new calls and events, finishes the running ones, cuts streams, and
    /// leaves. After `timeout`, unfinished work is dropped; handlers have 100 ms more to end. A
    /// second call waits for the same end. Subscriptions end; their unread messages can still be
    /// read.
    ///
    /// # Errors
    /// `AskCycle` if a handler of the node awaits it: it would wait for itself. The node takes no
    /// new calls all the same.
    ///
    /// # Cancel safety
    /// If it is dropped before the end, the node takes no new calls, and stays until its last clone
    /// is dropped.
    pub fn stop(&self, timeout: Duration) -> Pending<Stopped> {
        let (core, end) = (Arc::clone(&self.core), clock::now() + timeout);
        let instances = core.instances();
        instances.iter().for_each(|instance| instance.leave());
        core.object_instance.get().inspect(|instance| instance.leave());
        // Running handlers of durable events may still call other nodes, and their settlements are
        // stored.
        let has_given_back = {
            let (instances, runner) = (instances.clone(), Arc::clone(&core.runner));
            move || instances.iter().all(|instance| instance.has_given_back()) && runner.has_returned()
        };
        let singles: Vec<_> = core.singles.lock().iter().filter_map(Weak::upgrade).collect();
        singles.iter().for_each(|single| single.leave());
        let stops = has_given_back() && singles.is_empty();
        core.is_stopping.fetch_or(stops, Ordering::AcqRel);
        core.leaving.leave();
        if let Some(hub) = &core.hub {
            hub.goodbye();
        }
        core.link.goodbye();
        Pending::new(async move {
            let left = || Some(end.saturating_duration_since(clock::now()));
            instances
                .iter()
                .chain(core.object_instance.get())
                .try_for_each(|instance| instance.refuse_own("await the stop of the node"))?;
            for single in singles {
                // Its lease goes back while there is a link: another is active at once.
                drop(single.end(end.saturating_duration_since(clock::now())).await);
            }
            let mut is_drained = until(&core.runner, end, &has_given_back).await;
            if !is_drained {
                instances.iter().for_each(|instance| instance.give_back());
                let grace = clock::now() + GRACE;
                until(&core.runner, grace, &has_given_back).await;
            }
            core.is_stopping.store(true, Ordering::Release);
            is_drained &= core.link.answered(&core.runtime, left()).await;
            is_drained &= until(&core.runner, end, || instances.iter().all(|instance| instance.is_idle())).await;
            is_drained &= core.link.drained(&core.runtime, left()).await;
            if let Some(hub) = &core.hub {
                // After the link: replies of this node go through its hub.
                is_drained &= hub.idle(left()).await;
            }
            core.end();
            // A handler that awaits ends at once, but on its own thread: an engine without time
            // would leave it where it is.
            let end = end.max(clock::now() + GRACE);
            until(&core.runner, end, || instances.iter().all(|instance| instance.is_idle())).await;
            if let Some(engine) = &core.engine {
                engine.begin_shutdown(true, end.saturating_duration_since(clock::now())).await;
            }
            if let Some(home) = core.home.as_ref().filter(|_| core.owns_home) {
                home.close().await?;
            }
            Ok(Stopped { is_drained })
        })
    }
}

impl Core {
    fn follow_link(self: &Arc<Self>) {
        let (runner, log) = (Arc::downgrade(&self.runner), Arc::clone(&self.log));
        self.link.on_pulse(move || runner.upgrade().map_or(0, |runner| runner.blocked_ms(&log)));
        let objects = Arc::downgrade(&self.objects);
        let instance = Arc::new(ServiceInstance::of_objects(Arc::clone(&self.runner), Weak::clone(&objects)));
        let _ = self.object_instance.set(Arc::<ServiceInstance>::clone(&instance));
        let endpoint: Arc<dyn Handler> = Arc::new(ExportSubscription { objects, instance });
        let (again, left, reopened) = (Arc::downgrade(self), Arc::downgrade(self), Arc::clone(&endpoint));
        self.link.on_joined_again(move || {
            if let Some(core) = again.upgrade() {
                core.directory.missed();
                core.objects.open(&reopened);
                core.rejoined.wake();
                core.say_joined(" again");
            }
        });
        self.link.on_left(move |number| {
            if let Some(core) = left.upgrade() {
                core.objects.left(number);
            }
        });
        self.objects.open(&endpoint);
    }

    fn say_joined(&self, again: &str) {
        if let Some(joined) = self.link.joined() {
            (self.changes)(&format!("node {:?} has joined the hub {:?}{again}", self.name, joined.hub));
        }
    }

    /// Ends all that is left.
    fn end(&self) {
        self.instances().iter().chain(self.object_instance.get()).for_each(|instance| instance.close());
        self.objects.close();
        let served = std::mem::take(&mut *self.served.lock());
        drop(served);
        self.local.close();
        self.listening.lock().clear();
        self.link.close();
        if let Some(hub) = &self.hub {
            hub.close();
        }
        self.rejoined.wake();
        // Watchers of services learn that the node has stopped.
        self.directory.missed();
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        if self.engine.is_some() {
            // The order matters: open calls are lost for the other side, and not answered.
            self.link.close();
            self.end();
        }
    }
}
