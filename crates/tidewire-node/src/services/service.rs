//! Services and methods: handlers with their descriptions, schemas and options.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, json};
use tidewire_core::link::announcement::check_release;
use tidewire_core::rpc::STANDBY;
use tidewire_proto::generated::limits::{self, Limit};
use tidewire_proto::subject::grammar::scoped_method;

use crate::calls::call_options::check_timeout;
use crate::commands::Command;
use crate::discovery::{InstanceInfo, MethodInfo, ServiceInfo, Visibility};
use crate::error::Error;
use crate::names;
use crate::node::options::within;
use crate::services::context::Context;
use crate::services::events::{Event, EventContext};
use crate::services::failure::Failure;
use crate::services::method::{EncodedItems, MethodHandler, ReplyFuture, ReplyStream, answers, arguments, owned};
use crate::streams::DurableHandler;

/// Stands for all scopes in the name of a declared method.
pub(crate) const ANY_SCOPE: &str = "NAME";

const METHODS_MAX: usize = limits::SERVICE_METHODS.max as usize;

/// A named set of methods. [`Node::serve`](crate::Node::serve) lets others call them.
///
/// ```
/// use tidewire_node::{Failure, Node, NodeOptions, Service};
///
/// let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait()?;
/// let pricing = Service::new("pricing")
///     .description("Prices of things.")
///     .method("quote", &["symbol", "qty"], |_, (symbol, qty): (String, u32)| async move {
///         if symbol.is_empty() {
///             return Err(Failure::new("shop:NoSymbol", "give a symbol"));
///         }
///         Ok(2.5 * f64::from(qty))
///     });
/// hub.serve(pricing).wait()?;
///
/// assert_eq!(hub.client("pricing").call::<f64>("quote", &("X", 3)).wait()?, 7.5);
/// let failed = hub.client("pricing").call::<f64>("quote", &("", 3)).wait().unwrap_err();
/// assert_eq!(failed.remote().unwrap().type_name, "shop:NoSymbol");
/// let wrong = hub.client("pricing").call::<f64>("quote", &("X", "many")).wait().unwrap_err();
/// assert_eq!(wrong.to_string(), "pricing.quote: qty: invalid type: string \"many\", expected u32");
/// # Ok::<(), tidewire_node::Error>(())
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("Service({:?}, {} methods)", self.info.name, self.methods.len())]
pub struct Service {
    pub(crate) info: ServiceInfo,
    pub(crate) methods: Vec<(MethodInfo, MethodHandler)>,
    pub(crate) events: Vec<Event>,
    pub(crate) durables: Vec<DurableHandler>,
    pub(crate) commands: Vec<Command>,
    pub(crate) instance: Option<String>,
    /// Its version and its metadata; the id follows.
    pub(crate) release: InstanceInfo,
    pub(crate) limits: ConcurrencyLimits,
    pub(crate) is_inline: bool,
    problem: Option<Error>,
}

impl Service {
    /// A service of this name, which is one token of a subject.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let problem = names::service(&name).err();
        let info = ServiceInfo { name, visibility: Visibility::Private, ..ServiceInfo::default() };
        let release = InstanceInfo::default();
        Self {
            info,
            methods: Vec::new(),
            events: Vec::new(),
            durables: Vec::new(),
            commands: Vec::new(),
            instance: None,
            release,
            limits: ConcurrencyLimits::default(),
            is_inline: false,
            problem,
        }
    }

    /// A service of this project, whose name begins with `$`.
    pub(crate) fn internal(name: &str) -> Self {
        Self { problem: None, ..Self::new(name) }
    }

    /// Purpose of the service, in one line. Discovery shows it.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.info.description = text.into();
        self
    }

    /// Permitted callers: by default all nodes that joined.
    pub fn visibility(mut self, visibility: Visibility) -> Self {
        self.info.visibility = visibility;
        self
    }

    /// An id for this instance, so that callers can choose it. By default the name with a random
    /// part.
    pub fn instance(mut self, id: impl Into<String>) -> Self {
        let id = id.into();
        self.note(names::token("instance", &id));
        if id.starts_with(STANDBY) {
            let fix = "ids that begin with it belong to standby instances: give another";
            self.note(Err(Error::invalid(format!("instance: {id:?} is not allowed: {fix}"))));
        }
        self.instance = Some(id);
        self
    }

    /// The semantic version of this instance, such as "1.4.2". Discovery shows it.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.release.version = version.into();
        self
    }

    /// Metadata of this instance for discovery: `.metadata("zone", "eu")`. Names and values have at
    /// most `service_metadata_bytes` in all; a second value of one name replaces the first.
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.release.metadata.insert(name.into(), value.into());
        self
    }

    /// How many calls it handles at once, 1 to 10,000; the limit `service_concurrency` has the
    /// default. Further calls wait.
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.note(within(&limits::SERVICE_CONCURRENCY, "concurrency", calls as u64));
        self.limits.calls = calls;
        self
    }

    /// Begins calls on the thread of the links, in the order of their arrival. Handlers must not
    /// block.
    pub(crate) fn inline(self) -> Self {
        Self { is_inline: true, ..self }
    }

    /// How many streams it writes at once, beside calls; 1 to 10,000, and 10,000 by default.
    /// Further ones wait.
    pub fn streams(mut self, streams: usize) -> Self {
        self.note(up_to(&limits::SERVICE_STREAMS, "streams", 1, streams));
        self.limits.streams = streams;
        self
    }

    /// How many calls and how many streams wait for their turn; 0 to 10,000, and 10,000 by default.
    /// One more is refused with `overloaded`.
    pub fn waiting(mut self, calls: usize) -> Self {
        self.note(up_to(&limits::SERVICE_WAITING, "waiting", 0, calls));
        self.limits.waiting = calls;
        self
    }

    /// Adds a method with one result; see [`Method::new`].
    pub fn method<A, O, F, Fut>(self, name: &str, parameters: &[&str], handler: F) -> Self
    where
        A: DeserializeOwned,
        O: Serialize,
        F: Fn(Context, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        self.with(Method::new(name, parameters, handler))
    }

    /// Adds a method that returns a stream; see [`Method::stream`].
    pub fn stream<A, O, F, S>(self, name: &str, parameters: &[&str], handler: F) -> Self
    where
        A: DeserializeOwned,
        O: Serialize,
        F: Fn(Context, A) -> S + Send + Sync + 'static,
        S: Stream<Item = Result<O, Failure>> + Send + 'static,
    {
        self.with(Method::stream(name, parameters, handler))
    }

    /// Adds a method with options.
    pub fn with(mut self, method: Method) -> Self {
        let is_known = self.methods.iter().any(|(known, _)| known.name == method.info.name);
        if is_known {
            let text =
                format!("{}: method: {:?} is declared twice: give each its own name", self.info.name, method.info.name);
            self.note(Err(Error::invalid(text)));
        }
        let problem = method.problem.map(|wrong| Error::invalid(format!("{}: {}", self.info.name, wrong.message())));
        self.note(problem.map_or(Ok(()), Err));
        self.methods.push((method.info, method.handling));
        self
    }

    /// Adds a handler for messages on a pattern of subjects; see [`Event::new`].
    pub fn on<A, O, F, Fut>(self, name: &str, pattern: &str, handler: F) -> Self
    where
        A: DeserializeOwned,
        O: Serialize,
        F: Fn(EventContext, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        self.with_event(Event::new(name, pattern, handler))
    }

    /// Adds an event handler with options.
    pub fn with_event(mut self, mut event: Event) -> Self {
        self.note(event.problem.take().map_or(Ok(()), Err));
        self.info.events.push(event.info.clone());
        self.events.push(event);
        self
    }

    /// Adds a handler for the events of a stream.
    pub fn with_durable(mut self, durable: DurableHandler) -> Self {
        self.note(durable.check());
        let consumer = durable.consumer();
        if self.durables.iter().any(|known| known.consumer() == consumer) {
            let fix = "give each its own";
            let text = format!("durable: {consumer:?} is the consumer of two handlers: {fix}");
            self.note(Err(Error::invalid(text)));
        }
        self.info.events.push(durable.info.clone());
        self.durables.push(durable);
        self
    }

    /// Adds a command; see [`Command::new`].
    pub fn with_command(mut self, command: Command) -> Self {
        self.note(command.check());
        if self.commands.iter().any(|known| known.name() == command.name()) {
            let text = format!("command: {:?} is declared twice: give each its own name", command.name());
            self.note(Err(Error::invalid(text)));
        }
        self.info.commands.push(command.info().clone());
        self.commands.push(command);
        self
    }

    /// Stores the first error, for `serve` to return.
    fn note(&mut self, checked: Result<(), Error>) {
        if let (None, Err(problem)) = (&self.problem, checked) {
            self.problem = Some(problem);
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        let count = self.methods.len() + self.info.events.len() + self.commands.len();
        if !(1..=METHODS_MAX).contains(&count) {
            let text = format!(
                "{}: {count} methods, events and commands are not allowed: give 1 to {METHODS_MAX}",
                self.info.name
            );
            return Err(Error::invalid(text));
        }
        let metadata = self.release.metadata.iter().map(|(name, value)| (&**name, &**value));
        check_release(&self.release.version, metadata)
            .map_err(|problem| Error::invalid(format!("{}: {problem}", self.info.name)))
    }
}

/// How much an instance takes on at once.
#[derive(Clone, Copy)]
pub(crate) struct ConcurrencyLimits {
    pub calls: usize,
    pub streams: usize,
    pub waiting: usize,
}

impl Default for ConcurrencyLimits {
    fn default() -> Self {
        Self {
            calls: limits::SERVICE_CONCURRENCY.default as usize,
            streams: limits::SERVICE_STREAMS.default as usize,
            waiting: limits::SERVICE_WAITING.default as usize,
        }
    }
}

/// Refuses a value above its limit or below the least sensible one.
fn up_to(limit: &Limit, name: &'static str, least: u64, value: usize) -> Result<(), Error> {
    within(&Limit { min: least, ..*limit }, name, value as u64)
}

/// A method of a service: a handler with its description for other nodes.
///
/// ```
/// use std::time::Duration;
/// use tidewire_node::{Method, Service};
///
/// let add = Method::new("add", &["a", "b"], |_, (a, b): (i64, i64)| async move { Ok(a + b) })
///     .description("Add two numbers.")
///     .parameter_schema("a", serde_json::json!({"type": "integer"}))
///     .result_schema(serde_json::json!({"type": "integer"}))
///     .idempotent()
///     .timeout(Duration::from_secs(1));
/// let math = Service::new("math").with(add);
/// ```
#[derive(derive_more::Debug)]
#[debug("Method({:?})", self.info.name)]
pub struct Method {
    info: MethodInfo,
    handling: MethodHandler,
    problem: Option<Error>,
}

impl Method {
    /// A method with one result. The handler receives the call and the arguments: a tuple takes the
    /// parameters in order, `()` none, any other type is the only one. A parameter whose type is an
    /// `Option` may be left out. Callers may pass arguments by these names.
    ///
    /// # Cancel safety
    /// The future of the handler is dropped where it awaits when the caller cancels, leaves or
    /// times out.
    pub fn new<A, O, F, Fut>(name: &str, parameters: &[&str], handler: F) -> Self
    where
        A: DeserializeOwned,
        O: Serialize,
        F: Fn(Context, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        Self::of(name, parameters, MethodHandler::Once(answers(parameters, handler)))
    }

    /// A method that returns a stream of items. The stream is polled only as far as its reader
    /// grants credit, and dropped when the reader closes early.
    ///
    /// # Cancel safety
    /// As for [`new`](Method::new).
    pub fn stream<A, O, F, S>(name: &str, parameters: &[&str], handler: F) -> Self
    where
        A: DeserializeOwned,
        O: Serialize,
        F: Fn(Context, A) -> S + Send + Sync + 'static,
        S: Stream<Item = Result<O, Failure>> + Send + 'static,
    {
        let names = owned(parameters);
        let streams = move |context: Context, input: &[u8]| {
            let items = handler(context, arguments(input, &names)?);
            let items: ReplyStream = Box::pin(EncodedItems::new(items));
            Ok(items)
        };
        Self::of(name, parameters, MethodHandler::Stream(Arc::new(streams)))
    }

    /// A method whose handler begins at once and encodes its reply itself.
    pub(crate) fn answering<A, F>(name: &str, parameters: &[&str], handler: F) -> Self
    where
        A: DeserializeOwned,
        F: Fn(A) -> Result<ReplyFuture, Failure> + Send + Sync + 'static,
    {
        let names = owned(parameters);
        let answers = move |_: Context, input: &[u8]| handler(arguments(input, &names)?);
        Self::of(name, parameters, MethodHandler::Once(Arc::new(answers)))
    }

    /// A method for each object of a kind, such as `source:orders`. The handler finds the object in
    /// the name of the called method, behind the colon.
    pub(crate) fn scoped<A, F>(kind: &str, parameters: &[&str], handler: F) -> Self
    where
        A: DeserializeOwned,
        F: Fn(&Context, &str, A) -> Result<ReplyFuture, Failure> + Send + Sync + 'static,
    {
        let names = owned(parameters);
        let answers = move |context: Context, input: &[u8]| {
            let scope = context.method().split_once(':').map_or("", |(_, scope)| scope);
            handler(&context, scope, arguments(input, &names)?)
        };
        Self::of(&scoped_method(kind, ANY_SCOPE), parameters, MethodHandler::Once(Arc::new(answers)))
    }

    fn of(name: &str, parameters: &[&str], handling: MethodHandler) -> Self {
        let problem = names::method(name).and_then(|()| check_parameters(name, parameters)).err();
        let info = MethodInfo {
            name: name.to_owned(),
            parameters: untyped(parameters),
            result: json!({}),
            stream: matches!(handling, MethodHandler::Stream(_)),
            visibility: Visibility::Public,
            ..MethodInfo::default()
        };
        Self { info, handling, problem }
    }

    /// Purpose of the method, in one line.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.info.description = text.into();
        self
    }

    /// JSON Schema (2020-12) of one parameter, for callers. The types of the handler check the
    /// arguments.
    pub fn parameter_schema(mut self, name: &str, schema: serde_json::Value) -> Self {
        match self.info.parameters["properties"].get_mut(name) {
            Some(place) => *place = schema,
            None => {
                let text = format!("{}: parameter_schema: {name:?} is not one of its parameters", self.info.name);
                self.problem = self.problem.or(Some(Error::invalid(text)));
            }
        }
        self
    }

    /// JSON Schema of the result; of one item, if it is a stream.
    pub fn result_schema(mut self, schema: serde_json::Value) -> Self {
        self.info.result = schema;
        self
    }

    /// Says that it may be called again where it is not known whether a call was handled.
    pub fn idempotent(mut self) -> Self {
        self.info.idempotent = true;
        self
    }

    /// Says that the result is messages for a language model: MCP clients get it as a prompt.
    pub fn prompt(mut self) -> Self {
        self.info.prompt = true;
        self
    }

    /// Default timeout of a call. Callers of other nodes learn of it; 30 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        let checked = check_timeout(timeout);
        self.problem = self.problem.or(checked.err());
        self.info.timeout = Some(timeout.as_secs_f64());
        self
    }

    /// Permitted callers, if fewer than those of the service.
    pub fn visibility(mut self, visibility: Visibility) -> Self {
        self.info.visibility = visibility;
        self
    }

    #[cfg(feature = "schemars")]
    pub(crate) fn info_mut(&mut self) -> &mut MethodInfo {
        &mut self.info
    }
}

/// The schema of parameters of which only the names are known.
pub(crate) fn untyped(parameters: &[&str]) -> serde_json::Value {
    let properties: Map<_, _> = parameters.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

fn check_parameters(method: &str, names: &[&str]) -> Result<(), Error> {
    let max = limits::LINK_FIELDS.max as usize;
    if names.len() > max {
        return Err(Error::invalid(format!(
            "{method}: {} parameters are not allowed: give at most {max}",
            names.len()
        )));
    }
    for (number, name) in names.iter().enumerate() {
        if name.is_empty() || names[..number].contains(name) {
            return Err(Error::invalid(format!("{method}: parameter {name:?} is not allowed: give each its own name")));
        }
    }
    Ok(())
}
