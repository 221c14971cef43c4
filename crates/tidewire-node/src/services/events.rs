//! Event handlers of a service: messages on subjects, handled one after the other.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::discovery::EventInfo;
use crate::error::Error;
use crate::names;
use crate::node::options::within;
use crate::services::failure::Failure;
use crate::subjects::local_subscriptions::SubscribeOptions;
use crate::subjects::message::Message;
use crate::values::{self, Blob};
use tidewire_proto::generated::limits;

type Handled = Pin<Box<dyn Future<Output = Result<Blob, Failure>> + Send>>;
pub(crate) type Handles = dyn Fn(EventContext, &Message) -> Result<Handled, Failure> + Send + Sync;

/// Event handler of a service: runs for each message on a pattern of subjects, with a description
/// for other nodes.
///
/// Messages are handled one after the other, in order. A message fails if its handler returns an
/// error or panics, or if the message does not fit the type. A failure is counted and reported to
/// [`NodeOptions::log`](crate::NodeOptions::log); the next message follows. A request on the
/// subject is answered with the result of the handler.
///
/// ```
/// use std::sync::mpsc::sync_channel;
/// use tidewire_node::{Event, Node, NodeOptions, Service};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Order { id: u32 }
///
/// let (say, heard) = sync_channel(16);
/// let desk = Service::new("desk").with_event(Event::new("on_order", "orders.*", move |event, order: Order| {
///     say.send((event.subject().to_owned(), order.id)).ok();
///     async { Ok(()) }
/// }).queue("desks"));
///
/// let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait()?;
/// hub.serve(desk).wait()?;
/// hub.publish("orders.new", &Order { id: 7 })?;
/// assert_eq!(heard.recv().unwrap(), ("orders.new".to_owned(), 7));
/// # Ok::<(), tidewire_node::Error>(())
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("Event({:?} on {:?})", self.info.method, self.info.subject)]
pub struct Event {
    pub(crate) info: EventInfo,
    pub(crate) handles: Arc<Handles>,
    pub(crate) capacity: usize,
    pub(crate) problem: Option<Error>,
}

/// The message that an event handler works at: where it came on, and who sent it.
#[derive(Clone, derive_more::Debug)]
#[debug("EventContext({:?} of {:?})", self.subject(), self.node())]
pub struct EventContext(Arc<Inner>);

struct Inner {
    subject: String,
    headers: BTreeMap<String, String>,
    node: String,
    user: Option<String>,
}

impl Event {
    /// A handler of this name for messages on a pattern of subjects: `*` is one token, `>` the
    /// rest.
    ///
    /// # Cancel safety
    /// The future of the handler is dropped where it awaits when its service stops and the timeout
    /// is over.
    pub fn new<A, O, F, Fut>(name: &str, pattern: &str, handler: F) -> Self
    where
        A: DeserializeOwned,
        O: Serialize,
        F: Fn(EventContext, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        let handles = move |context: EventContext, message: &Message| {
            let handling = handler(context, message.read()?);
            let handled: Handled = Box::pin(async move { Ok(values::write("the result", &handling.await?)?) });
            Ok(handled)
        };
        let problem = names::token("event", name).and_then(|()| names::pattern(pattern).map(drop)).err();
        let (subject, method) = (pattern.to_owned(), name.to_owned());
        let info = EventInfo { subject, method, message: json!({}), ..EventInfo::default() };
        let capacity = limits::SUBSCRIPTION_CAPACITY.default as usize;
        Self { info, handles: Arc::new(handles), capacity, problem }
    }

    /// Shares events with the other members of this queue group: one of them gets a message. By
    /// default each instance gets all.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.problem = self.problem.or(names::token("queue", &name).err());
        self.info.queue = Some(name);
        self
    }

    /// Messages that wait for the handler; the limit `subscription_capacity` has the default. One
    /// more is dropped and counted; a request fails.
    pub fn capacity(mut self, messages: usize) -> Self {
        let checked = within(&limits::SUBSCRIPTION_CAPACITY, "capacity", messages as u64);
        self.problem = self.problem.or(checked.err());
        self.capacity = messages;
        self
    }

    /// Purpose of the event handler, in one line.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.info.description = text.into();
        self
    }

    /// JSON Schema (2020-12) of the message, for publishers. The type of the handler checks the
    /// messages.
    pub fn schema(mut self, schema: serde_json::Value) -> Self {
        self.info.message = schema;
        self
    }

    pub(crate) fn options(&self) -> SubscribeOptions {
        let options = SubscribeOptions::default().capacity(self.capacity);
        match &self.info.queue {
            Some(queue) => options.queue(queue),
            None => options,
        }
    }
}

impl EventContext {
    pub(crate) fn new(message: &Message) -> Self {
        Self(Arc::new(Inner {
            subject: message.subject().to_owned(),
            headers: message.headers().clone(),
            node: message.node().to_owned(),
            user: message.user().map(str::to_owned),
        }))
    }

    /// Subject of the message.
    pub fn subject(&self) -> &str {
        &self.0.subject
    }

    /// Headers that the sender added to the message.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.0.headers
    }

    /// The name of the node that sent it.
    pub fn node(&self) -> &str {
        &self.0.node
    }

    /// The user of the token that the node joined with, if there was one.
    pub fn user(&self) -> Option<&str> {
        self.0.user.as_deref()
    }
}
