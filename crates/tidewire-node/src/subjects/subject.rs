//! Handle of a subject: options for messages and requests on it.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::calls::call::Call;
use crate::calls::call_options::{CallOptions, DEFAULT_TIMEOUT, fields};
use crate::calls::call_record::CallRecord;
use crate::calls::prepared_call::{CallTarget, PreparedCall};
use crate::calls::priority::Priority;
use crate::error::Error;
use crate::names;
use crate::node::core::Core;
use crate::span::Span;
use crate::subjects::{ask_here, publish};
use crate::values;

/// A subject to publish on, or to ask, with settings of its own.
/// [`Node::publish`](crate::Node::publish) and [`Node::request`](crate::Node::request) do the same
/// without.
///
/// ```
/// use tidewire_node::{Node, NodeOptions, Priority};
///
/// let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait()?;
/// let mut orders = hub.subscribe("orders.*").wait()?;
/// hub.subject("orders.new").header("shop", "north").priority(Priority::High).publish(&7)?;
/// let message = orders.next_blocking().unwrap();
/// assert_eq!((message.subject(), message.headers()["shop"].as_str()), ("orders.new", "north"));
/// # Ok::<(), tidewire_node::Error>(())
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("Subject({subject:?})")]
pub struct Subject {
    core: Arc<Core>,
    subject: String,
    /// The one subscription that gets its messages; 0 for all.
    to: u64,
    options: CallOptions,
}

impl Subject {
    pub(crate) fn new(core: Arc<Core>, subject: &str) -> Self {
        let options = CallOptions::checked(names::subject(subject));
        Self { core, subject: subject.to_owned(), to: 0, options }
    }

    /// Timeout of a request: 30 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.with_timeout(timeout);
        self
    }

    /// Adds something that subscribers find in [`Message::headers`](crate::Message::headers). Names
    /// that begin with `tw-` belong to the protocol.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.with_header(name.into(), value.into());
        self
    }

    /// As [`Client::on_behalf`](crate::Client::on_behalf).
    pub fn on_behalf(mut self, user: &str) -> Self {
        self.options.with_caller(user, None);
        self
    }

    /// Publishes: to all who subscribed, here and at other nodes, and to one member of each queue
    /// group; at most once.
    ///
    /// # Errors
    /// [`Error`] if the value can't be sent, the token does not allow it, or the link is lost.
    /// Nobody has got it then.
    pub fn publish<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), Error> {
        if let Some(problem) = &self.options.problem {
            return Err(problem.clone());
        }
        let blob = values::write(&self.subject, value)?;
        let headers = &self.options.headers;
        let carried = Span::producer(Some(&self.core.runner), &self.subject, headers).carried(headers);
        let fields = fields(&self.subject, carried.as_deref().unwrap_or(headers))?;
        publish(&self.core, (&self.subject, self.to), blob, &fields, self.options.priority.flags())
    }

    /// Asks a subscriber: one of this node, if there is one, else one of another node.
    pub fn request<T: DeserializeOwned>(&self, value: &(impl Serialize + ?Sized)) -> Call<T> {
        let (subject, options) = (&self.subject, &self.options);
        let prepared = values::write(subject, value).and_then(|blob| {
            let deadline = options.deadline(Some(DEFAULT_TIMEOUT));
            PreparedCall::new(
                &self.core,
                CallTarget::Subject(subject.clone()),
                subject.clone(),
                blob,
                options,
                deadline,
                CallRecord::of_subject(&self.core, subject, &options.headers),
            )
        });
        let asked = prepared.as_ref().ok().and_then(|call| ask_here(&self.core, subject, &call.blob, &call.fields));
        match (prepared, asked) {
            (Ok(prepared), Some(place)) => Call::here(prepared, place),
            (prepared, _) => Call::begin(prepared),
        }
    }
}

setters! {
    Subject:
    /// How urgent it is.
    priority(priority: Priority) => options.priority = priority;
    /// Publishes to the subscription with this serial number alone: for the node of
    /// [a bridge](crate::Node::bridge).
    to(serial: u64) => to = serial;
}
