//! Service clients: calls, streams and broadcast calls.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidewire_core::federation::HUBS;
use tidewire_core::rpc::balancer::RoutingExplanation;
use tidewire_proto::subject::grammar::{instance_subject, service_subject};

use crate::calls::call::Call;
use crate::calls::call_options::{CallOptions, DEFAULT_TIMEOUT};
use crate::calls::call_record::CallRecord;
use crate::calls::item_stream::Items;
use crate::calls::prepared_call::{CallTarget, PreparedCall};
use crate::calls::priority::{Choice, Priority};
use crate::discovery::lookup::listed;
use crate::error::Error;
use crate::names;
use crate::node::core::Core;
use crate::pending::Pending;
use crate::services::context::Context;
use crate::values::references::within;
use crate::values::{Blob, Writer};

/// The reply of one instance to a broadcast call.
#[derive(Debug)]
#[non_exhaustive]
pub struct Answer<T> {
    /// The id of the instance.
    pub instance: String,
    /// The result of this instance.
    pub result: Result<T, Error>,
}

/// Calls the methods of a service. Each setting returns a separate client, which is cheap to make
/// and to clone.
///
/// ```
/// use std::time::Duration;
/// use tidewire_node::{ErrorCode, Node, NodeOptions, Priority, Service};
///
/// let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait()?;
/// let slow = Service::new("slow").method("never", &[], |_, ()| std::future::pending::<Result<(), _>>());
/// hub.serve(slow).wait()?;
///
/// let hasty = hub.client("slow").timeout(Duration::from_millis(20)).priority(Priority::High);
/// let late = hasty.call::<()>("never", &()).wait().unwrap_err();
/// assert_eq!(late.code(), ErrorCode::AskTimeout);
/// assert_eq!(hub.client("nobody").call::<()>("x", &()).wait().unwrap_err().code(), ErrorCode::NoResponders);
/// # Ok::<(), tidewire_node::Error>(())
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("Client({service:?})")]
pub struct Client {
    core: Arc<Core>,
    service: Arc<str>,
    options: CallOptions,
}

impl Client {
    pub(crate) fn new(core: Arc<Core>, service: &str) -> Self {
        let options = CallOptions::checked(names::token("service", service));
        Self { core, service: service.into(), options }
    }

    /// Timeout of a call: 30 s by default. A stream has no timeout by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.with_timeout(timeout);
        self
    }

    /// How urgent calls and their answers are.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.options.priority = priority;
        self
    }

    /// Adds something that the handler finds in [`Context::headers`]. Names that begin with `tw-`
    /// belong to the protocol.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.with_header(name.into(), value.into());
        self
    }

    /// Calls one instance by its id.
    pub fn instance(mut self, id: impl Into<String>) -> Self {
        let id = id.into();
        self.options.note(names::token("instance", &id));
        self.options.instance = Some(id);
        self
    }

    /// How one of several instances is chosen.
    pub fn choice(mut self, choice: Choice) -> Self {
        self.options.choice = choice;
        self
    }

    /// A number that the time of calls depends on, such as their rows, for
    /// [`Choice::LowestLatency`].
    pub fn cost(mut self, cost: f64) -> Self {
        self.options.cost = cost;
        self
    }

    /// The estimates and the last decisions of [`Choice::LowestLatency`] for a method, from the
    /// calls of this node with this client's [cost](Self::cost).
    pub fn explain(&self, method: &str) -> RoutingExplanation {
        let call = self.core.profile(method, self.options.cost, self.options.idempotent);
        self.core.directory.explain(&self.service, &call)
    }

    /// Marks calls as idempotent: a call whose link is lost is retried, within its deadline and at
    /// most [`NodeOptions::resends`](crate::NodeOptions::resends) times.
    pub fn idempotent(mut self) -> Self {
        self.options.idempotent = true;
        self
    }

    /// Makes calls on behalf of an external caller: a user, or an unknown one (`""`), with the
    /// caller's trace of 32 hexadecimal digits. Only a [gateway](crate::Node::gateway) may: the hub
    /// refuses such calls of other nodes.
    pub fn on_behalf(mut self, user: &str, trace: Option<&str>) -> Self {
        self.options.with_caller(user, trace);
        self
    }

    /// Makes calls in the name of a hub, as the first of their path.
    pub(crate) fn of_hub(mut self, hub: &str) -> Self {
        self.options.headers.push((HUBS.to_owned(), hub.to_owned()));
        self
    }

    /// Makes calls a part of another one: they end with it at the latest, and share its
    /// [trace](Context::trace).
    pub fn within(mut self, context: &Context) -> Self {
        self.options.with_outer(context);
        self
    }

    /// Calls a method. A tuple gives its arguments in order, a struct or a map by name, `()` none,
    /// any other value is the only one. The call is on its way when this returns: await it, wait
    /// for it, or drop it to cancel it.
    pub fn call<T: DeserializeOwned>(&self, method: &str, arguments: &(impl Serialize + ?Sized)) -> Call<T> {
        Call::begin(self.prepared(method, arguments, Some(DEFAULT_TIMEOUT)))
    }

    /// Opens a stream. It is on its way when this returns; dropping it closes the stream of the
    /// service.
    pub fn stream<T: DeserializeOwned>(&self, method: &str, arguments: &(impl Serialize + ?Sized)) -> Items<T> {
        Items::open(self.prepared(method, arguments, None))
    }

    /// Calls a method of each instance, and waits for all of them.
    ///
    /// # Errors
    /// Awaiting it fails if the hub does not list its services; the error of an instance is in its
    /// [`Answer`].
    ///
    /// # Cancel safety
    /// If it is dropped, the calls are cancelled.
    pub fn call_all<T>(&self, method: &str, arguments: &(impl Serialize + ?Sized)) -> Pending<Vec<Answer<T>>>
    where
        T: DeserializeOwned + Send + 'static,
    {
        // Exported arguments are for one node; a broadcast cannot carry them.
        let arguments = match within(None, || Writer::arguments(arguments)) {
            Ok(blob) => blob,
            Err(wrong) => return Pending::failed(Error::of_value(&self.title(method), wrong)),
        };
        let (client, method) = (self.clone(), method.to_owned());
        Pending::new(async move {
            let known = listed(&client.core).await?;
            let found = known.into_iter().find(|info| info.name == *client.service);
            let instances = found.map(|info| info.instances).unwrap_or_default();
            let calls = instances.into_iter().map(|id| {
                let one = client.clone().instance(id.clone());
                (id, Call::begin(one.shot_of(&method, arguments.clone(), Some(DEFAULT_TIMEOUT))))
            });
            let calls: Vec<(String, Call<T>)> = calls.collect();
            let mut answers = Vec::with_capacity(calls.len());
            for (instance, call) in calls {
                answers.push(Answer { instance, result: call.await });
            }
            Ok(answers)
        })
    }

    /// Forwards a call: as a part of it, with the headers of its caller.
    pub(crate) fn passing_on(mut self, context: &Context) -> Self {
        self.options.priority = context.priority();
        let headers = context.headers().iter().map(|(name, value)| (name.clone(), value.clone()));
        self.options.headers.extend(headers);
        self.within(context)
    }

    /// A call with arguments as they travel.
    pub(crate) fn pass<T: DeserializeOwned>(&self, method: &str, arguments: Blob) -> Call<T> {
        Call::begin(self.shot_of(method, arguments, Some(DEFAULT_TIMEOUT)))
    }

    /// A stream with arguments as they travel.
    pub(crate) fn pass_stream<T: DeserializeOwned>(&self, method: &str, arguments: Blob) -> Items<T> {
        Items::open(self.shot_of(method, arguments, None))
    }

    fn title(&self, method: &str) -> String {
        format!("{}.{method}", self.service)
    }

    fn prepared(
        &self,
        method: &str,
        arguments: &(impl Serialize + ?Sized),
        timeout: Option<Duration>,
    ) -> Result<PreparedCall, Error> {
        let blob = within(Some(&self.core.objects), || Writer::arguments(arguments));
        let blob = blob.map_err(|wrong| Error::of_value(&self.title(method), wrong))?;
        self.shot_of(method, blob, timeout)
    }

    fn shot_of(&self, method: &str, blob: Blob, timeout: Option<Duration>) -> Result<PreparedCall, Error> {
        names::token("method", method)?;
        let aim = self.aim(method, &blob);
        let (options, title) = (&self.options, self.title(method));
        let record = CallRecord::of_service(&self.core, &self.service, method, &options.headers);
        PreparedCall::new(&self.core, aim, title, blob, options, options.deadline(timeout), record)
    }

    fn aim(&self, method: &str, blob: &Blob) -> CallTarget {
        let (service, instance) = (&self.service, &self.options.instance);
        let is_own = || instance.is_none() && self.core.directory.has_holder(service);
        if !blob.offered.is_empty() || self.options.choice == Choice::LowestLatency || is_own() {
            let (service, instance) = (Arc::clone(service), instance.clone());
            return CallTarget::Service { service, method: method.to_owned(), instance };
        }
        match instance {
            Some(instance) => CallTarget::Subject(instance_subject(service, instance, method)),
            None => CallTarget::AnyInstance(service_subject(service, method)),
        }
    }
}
