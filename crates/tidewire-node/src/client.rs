use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidewire_link::{CallKey, Waiting};
use tidewire_proto::generated::limits;
use tidewire_proto::wire::{CallHead, Fields, FieldsWriter, Flags};

use crate::call::Call;
use crate::context::{Context, TRACE};
use crate::core::Core;
use crate::error::Error;
use crate::items::Items;
use crate::names;
use crate::node::listed;
use crate::pending::Pending;
use crate::values::{Blob, Writer};

/// Which waits less on a wire that is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Before all others.
    Urgent,
    /// Before what is normal.
    High,
    /// Where nothing is said.
    #[default]
    Normal,
    /// After all others.
    Low,
}

impl Priority {
    pub(crate) fn of_lane(lane: usize) -> Self {
        [Self::Urgent, Self::High, Self::Normal, Self::Low][lane.min(3)]
    }

    pub(crate) fn flags(self) -> Flags {
        Flags::NORMAL.in_lane(self as u8)
    }
}

/// Which of several instances gets a call. The hub chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// One with the fewest calls in progress.
    #[default]
    LeastOutstanding,
    /// The one that has been served longest.
    First,
    /// Any.
    Random,
}

/// What one instance answered to a call of all of them.
#[derive(Debug)]
pub struct Answer<T> {
    /// The id of the instance.
    pub instance: String,
    /// What it answered.
    pub result: Result<T, Error>,
}

/// Calls the methods of a service. Each setting gives a client of its own, which is cheap to make and to clone.
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
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
    service: Arc<str>,
    options: CallOptions,
}

/// What is said of a call besides what is called.
#[derive(Clone, Default)]
pub(crate) struct CallOptions {
    timeout: Option<Duration>,
    until: Option<Instant>,
    pub priority: Priority,
    pub headers: Vec<(String, String)>,
    instance: Option<String>,
    choice: Choice,
    idempotent: bool,
    pub problem: Option<Error>,
}

impl CallOptions {
    /// Nothing is said, but that a name is wrong.
    pub fn checked(name: Result<(), Error>) -> Self {
        Self { problem: name.err(), ..Self::default() }
    }

    pub fn with_timeout(&mut self, timeout: Duration) {
        self.note(check_timeout(timeout));
        self.timeout = Some(timeout);
    }

    pub fn with_header(&mut self, name: String, value: String) {
        if name.starts_with("tw-") {
            let text = format!("header: {name:?} is not allowed: names that begin with tw- belong to the protocol");
            self.note(Err(Error::invalid(text)));
        }
        self.headers.push((name, value));
    }

    /// Keeps the first problem, for the call to tell.
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

    /// How long a call may take: 30 s where nothing is said. A stream may last for ever where nothing is said.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.with_timeout(timeout);
        self
    }

    /// How urgent calls and their answers are.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.options.priority = priority;
        self
    }

    /// Adds something that the handler finds in [`Context::headers`]. Names that begin with `tw-` belong to the protocol.
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

    /// Says that calls may be made twice: one whose link is lost is made again, up to 4 times within its deadline.
    pub fn idempotent(mut self) -> Self {
        self.options.idempotent = true;
        self
    }

    /// Makes calls a part of another one: they end with it at the latest, and share its [trace](Context::trace).
    pub fn within(mut self, context: &Context) -> Self {
        self.options.until = context.deadline();
        self.options.headers.push((TRACE.to_owned(), context.trace().to_owned()));
        self
    }

    /// Calls a method. A tuple gives its arguments in order, a struct or a map by name, `()` none, any other value is the only one.
    /// The call is on its way when this returns: await it, wait for it, or drop it to cancel it.
    pub fn call<T: DeserializeOwned>(&self, method: &str, arguments: &(impl Serialize + ?Sized)) -> Call<T> {
        Call::begin(self.shot(method, arguments, Some(DEFAULT_TIMEOUT)))
    }

    /// Opens a stream. It is on its way when this returns; dropping it closes the stream of the service.
    pub fn stream<T: DeserializeOwned>(&self, method: &str, arguments: &(impl Serialize + ?Sized)) -> Items<T> {
        Items::open(self.shot(method, arguments, None))
    }

    /// Calls a method of each instance, and waits for all of them.
    ///
    /// # Errors
    /// Awaiting it fails if the hub does not list its services; what an instance fails with is in its [`Answer`].
    ///
    /// # Cancel safety
    /// If it is dropped, the calls are cancelled.
    pub fn call_all<T>(&self, method: &str, arguments: &(impl Serialize + ?Sized)) -> Pending<Vec<Answer<T>>>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let arguments = match Writer::arguments(arguments) {
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

    fn title(&self, method: &str) -> String {
        format!("{}.{method}", self.service)
    }

    fn shot(
        &self,
        method: &str,
        arguments: &(impl Serialize + ?Sized),
        timeout: Option<Duration>,
    ) -> Result<Shot, Error> {
        let blob = Writer::arguments(arguments).map_err(|wrong| Error::of_value(&self.title(method), wrong))?;
        self.shot_of(method, blob, timeout)
    }

    fn shot_of(&self, method: &str, blob: Blob, timeout: Option<Duration>) -> Result<Shot, Error> {
        names::token("method", method)?;
        let subject = match &self.options.instance {
            Some(instance) => format!("svc.{}.{instance}.{method}", self.service),
            None => format!("svc.{}.{method}", self.service),
        };
        Shot::new(&self.core, subject, self.title(method), blob, &self.options, timeout)
    }
}

/// How long a call may take where nothing is said.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_millis(limits::ASK_TIMEOUT_MS.default);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({:?})", self.service)
    }
}

pub(crate) fn check_timeout(timeout: Duration) -> Result<(), Error> {
    let max = Duration::from_millis(limits::ASK_TIMEOUT_MS.max);
    if timeout.is_zero() || timeout > max {
        let text = format!("timeout: {timeout:?} is not allowed: give more than 0 and at most {} s", max.as_secs());
        return Err(Error::invalid(text));
    }
    Ok(())
}

/// A call that is ready to be sent.
pub(crate) struct Shot {
    pub core: Arc<Core>,
    pub title: String,
    pub deadline: Option<Instant>,
    pub idempotent: bool,
    pub subject: String,
    pub blob: Blob,
    pub fields: Vec<u8>,
    flags: Flags,
    choice: Choice,
}

impl Shot {
    pub fn new(
        core: &Arc<Core>,
        subject: String,
        title: String,
        blob: Blob,
        options: &CallOptions,
        timeout: Option<Duration>,
    ) -> Result<Self, Error> {
        core.check()?;
        if let Some(problem) = &options.problem {
            return Err(problem.clone());
        }
        let own = options.timeout.or(timeout).map(|timeout| Instant::now() + timeout);
        let deadline = match (own, options.until) {
            (Some(own), Some(outer)) => Some(own.min(outer)),
            (own, outer) => own.or(outer),
        };
        let fields = fields(&title, &options.headers)?;
        let flags = options.priority.flags().with_again(options.idempotent);
        let (core, choice, idempotent) = (Arc::clone(core), options.choice, options.idempotent);
        Ok(Self { core, title, deadline, idempotent, subject, blob, fields, flags, choice })
    }

    /// Sends it. One that is idempotent keeps its arguments.
    pub fn send(&mut self, credit: u32, waiting: Arc<dyn Waiting>) -> Result<CallKey, Error> {
        let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let deadline_ms =
            left.map_or(0, |left| u32::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(u32::MAX).max(1));
        let fields = Fields::parse("CALL", &self.fields).unwrap_or_default();
        let head = CallHead {
            deadline_ms,
            choice: self.choice as u8,
            credit,
            subject: &self.subject,
            fields,
            ..CallHead::default()
        };
        let mut again = self.idempotent.then(|| self.blob.clone());
        let payload = again.as_mut().unwrap_or(&mut self.blob).sending();
        let link = &self.core.link;
        let key =
            link.call(&head, self.flags, payload, waiting).map_err(|refused| Error::refused(&self.title, &refused))?;
        link.flush();
        Ok(key)
    }
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
