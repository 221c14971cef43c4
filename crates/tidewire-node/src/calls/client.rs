//! Service clients: call options, priorities, load balancing and broadcast calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidewire_core::rpc::balancer::Policy;
use tidewire_proto::generated::limits;
use tidewire_proto::subject::grammar::{instance_subject, service_subject};
use tidewire_proto::wire::{FieldsWriter, Flags};

use crate::calls::call::Call;
use crate::calls::item_stream::Items;
use crate::calls::prepared_call::{CallTarget, PreparedCall};
use crate::discovery::listed;
use crate::error::Error;
use crate::names;
use crate::node::core::Core;
use crate::pending::Pending;
use crate::services::context::{Context, ORIGIN, PUBLIC, TRACE, USER};
use crate::values::references::within;
use crate::values::{Blob, Writer};

/// Which waits less on a wire that is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Before all others.
    Urgent,
    /// Before what is normal.
    High,
    /// The default.
    #[default]
    Normal,
    /// After all others.
    Low,
}

impl Priority {
    pub(crate) fn of_lane(lane: usize) -> Self {
        [Self::Urgent, Self::High, Self::Normal, Self::Low][lane.min(3)]
    }

    /// The name that storage backends and nodes of other languages use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Urgent => "urgent",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    pub(crate) fn flags(self) -> Flags {
        Flags::NORMAL.in_lane(self as u8)
    }
}

/// Load balancing between the instances of a service. The hub chooses, unless an argument is a
/// stream, a function or an object, which is for one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Choice {
    /// One with the fewest calls in progress.
    #[default]
    LeastOutstanding,
    /// The one that has been served longest.
    First,
    /// Any.
    Random,
    /// The instance with the lowest recent latency of calls from this node; running calls count,
    /// too. Each instance is tried once, and one call in twenty goes to any of them. This node
    /// chooses, and not the hub: its first call requests the list of instances from the hub.
    LowestLatency,
}

impl Choice {
    /// The number that the hub is sent.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::LeastOutstanding | Self::LowestLatency => 0,
            Self::First => 1,
            Self::Random => 2,
        }
    }

    pub(crate) fn policy(self) -> Policy {
        match self {
            Self::LeastOutstanding => Policy::LeastOutstanding,
            Self::First => Policy::First,
            Self::Random => Policy::Random,
            Self::LowestLatency => Policy::LowestLatency { explore: 0.05 },
        }
    }
}

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

/// Options of a call: all except its target and arguments.
#[derive(Clone, Default)]
pub(crate) struct CallOptions {
    timeout: Option<Duration>,
    until: Option<Instant>,
    pub priority: Priority,
    pub headers: Vec<(String, String)>,
    instance: Option<String>,
    pub choice: Choice,
    pub idempotent: bool,
    pub problem: Option<Error>,
}

impl CallOptions {
    /// Default options, with the error of an invalid name.
    pub fn checked(name: Result<(), Error>) -> Self {
        Self { problem: name.err(), ..Self::default() }
    }

    pub fn with_timeout(&mut self, timeout: Duration) {
        self.note(check_timeout(timeout));
        self.timeout = Some(timeout);
    }

    pub fn with_outer(&mut self, context: &Context) {
        self.until = context.deadline();
        let fields = context.trace_context().chain([(TRACE, context.trace())]);
        for (name, value) in fields {
            if !self.headers.iter().any(|(given, _)| given == name) {
                self.headers.push((name.to_owned(), value.to_owned()));
            }
        }
    }

    pub fn with_caller(&mut self, user: &str, trace: Option<&str>) {
        self.headers.push((ORIGIN.to_owned(), PUBLIC.to_owned()));
        for (name, value) in [(USER, Some(user).filter(|user| !user.is_empty())), (TRACE, trace)] {
            self.headers.extend(value.map(|value| (name.to_owned(), value.to_owned())));
        }
    }

    pub fn with_header(&mut self, name: String, value: String) {
        if name.starts_with("tw-") {
            let text = format!("header: {name:?} is not allowed: names that begin with tw- belong to the protocol");
            self.note(Err(Error::invalid(text)));
        }
        self.headers.push((name, value));
    }

    /// Deadline of a call, with `timeout` as the default.
    pub fn deadline(&self, timeout: Option<Duration>) -> Option<Instant> {
        let own = self.timeout.or(timeout).map(|timeout| Instant::now() + timeout);
        match (own, self.until) {
            (Some(own), Some(outer)) => Some(own.min(outer)),
            (own, outer) => own.or(outer),
        }
    }

    /// Stores the first error, for the call to return.
    fn note(&mut self, checked: Result<(), Error>) {
        if let (None, Err(problem)) = (&self.problem, checked) {
            self.problem = Some(problem);
        }
    }
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
        PreparedCall::new(&self.core, aim, self.title(method), blob, &self.options, self.options.deadline(timeout))
    }

    fn aim(&self, method: &str, blob: &Blob) -> CallTarget {
        let (service, instance) = (&self.service, &self.options.instance);
        if !blob.offered.is_empty() || self.options.choice == Choice::LowestLatency {
            let (service, instance) = (Arc::clone(service), instance.clone());
            return CallTarget::Service { service, method: method.to_owned(), instance };
        }
        CallTarget::Subject(match instance {
            Some(instance) => instance_subject(service, instance, method),
            None => service_subject(service, method),
        })
    }
}

/// Default timeout of a call.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_millis(limits::ASK_TIMEOUT_MS.default);

pub(crate) fn check_timeout(timeout: Duration) -> Result<(), Error> {
    let max = Duration::from_millis(limits::ASK_TIMEOUT_MS.max);
    if timeout.is_zero() || timeout > max {
        let text = format!("timeout: {timeout:?} is not allowed: give more than 0 and at most {} s", max.as_secs());
        return Err(Error::invalid(text));
    }
    Ok(())
}

/// Headers as the fields of a frame.
pub(crate) fn fields(title: &str, headers: &[(String, String)]) -> Result<Vec<u8>, Error> {
    let mut fields = Vec::new();
    let mut writer = FieldsWriter::new(&mut fields);
    for (name, value) in headers {
        let added = writer.add(name, value.as_bytes());
        added.map_err(|wrong| Error::new(wrong.code(), format!("{title}: header: {name:?}: {wrong}")))?;
    }
    Ok(fields)
}
