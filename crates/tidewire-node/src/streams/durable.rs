//! Durable event handlers of a service: the declaration, with the consumer whose events it handles.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use serde::de::DeserializeOwned;
use serde_json::json;
use tidewire_backend::home::{ConsumerSettings, Fault, Home};
use tidewire_core::stream::subscription::Outcome;
use tidewire_engine::raw::clock;
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;
use tidewire_proto::subject::Pattern;

use super::consumer::{Consumer, ConsumerOptions};
use super::event::Delivery;
use super::fetcher::Reads;
use super::subscription::{DeliveryHandler, DeliveryWorker, DurableSubscription, SubscriptionOptions};
use crate::discovery::EventInfo;
use crate::error::Error;
use crate::names;
use crate::node::core::{Core, Node};
use crate::node::options::within;
use crate::pending::{ResultSlot, WakerEntry};
use crate::services::current_service::run;
use crate::services::failure::Failure;
use crate::services::instance::{Counts, ServiceInstance};
use crate::span::Span;
use crate::statistics::call_durations::PROCESS;

pub(crate) type Handled = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;
type Handles = dyn Fn(Arc<Delivery>) -> Result<Handled, Failure> + Send + Sync;

/// A durable event handler of a service: runs for each event of a consumer, at least once.
///
/// An event whose handler returns is acked. An event whose handler fails or panics, or that does
/// not fit the type, is redelivered after the consumer's backoff. After its last delivery it is a
/// dead letter, with the error.
///
/// Instances that are served under one consumer name share the events, on any node and in any
/// language. When a service stops, events that were fetched and not begun go to another instance at
/// once.
///
/// ```
/// use tidewire_node::streams::{ConsumerOptions, DurableHandler, Message, StreamOptions};
/// use tidewire_node::{Node, NodeOptions, Service};
///
/// # let folder = std::env::temp_dir().join(format!("tidewire-durable-{}", std::process::id()));
/// # #[cfg(feature = "embedded")] {
/// let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub").data(&folder)).wait()?;
/// let orders = hub.stream_with("orders", StreamOptions::new(["orders.>"])).wait()?;
///
/// let (say, heard) = std::sync::mpsc::sync_channel(16);
/// let billed = DurableHandler::new("billing", "orders.*", move |event, total: f64| {
///     let said = say.send((event.sequence(), total));
///     async move { Ok(said?) }
/// });
/// hub.serve(Service::new("billing").with_durable(billed.options(ConsumerOptions::all().max_deliver(3)))).wait()?;
///
/// orders.publish(Message::new("orders.created", &12.5)).wait()?;
/// assert_eq!(heard.recv().unwrap(), (1, 12.5));
/// # hub.stop(std::time::Duration::from_secs(5)).wait()?;
/// # std::fs::remove_dir_all(&folder).ok();
/// # }
/// # Ok::<(), tidewire_node::Error>(())
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("DurableHandler({:?} of {:?})", self.info.subject, self.consumer())]
pub struct DurableHandler {
    pub(crate) info: EventInfo,
    pub(crate) handles: Arc<Handles>,
    pub(crate) concurrency: u32,
    stream: Option<String>,
    options: ConsumerOptions,
    problem: Option<Error>,
}

impl DurableHandler {
    /// A handler of the events on a pattern of subjects, as the consumer of this name delivers
    /// them: letters, digits, `_` and `-`, at most 64. The handler receives the value and the
    /// delivery, which it may settle itself.
    ///
    /// # Cancel safety
    /// The future of the handler is dropped where it awaits when its service stops and the timeout
    /// is over: the event goes to another instance.
    pub fn new<A, F, Fut>(consumer: &str, pattern: &str, handler: F) -> Self
    where
        A: DeserializeOwned,
        F: Fn(Arc<Delivery>, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let handles = move |delivery: Arc<Delivery>| {
            let value = delivery.read()?;
            let handled: Handled = Box::pin(handler(delivery, value));
            Ok(handled)
        };
        let problem = names::token("durable", consumer).and_then(|()| names::pattern(pattern).map(drop)).err();
        let (subject, method) = (pattern.to_owned(), consumer.to_owned());
        let info = EventInfo { subject, method, message: json!({}), ..EventInfo::default() };
        let options = ConsumerOptions::new();
        Self { info, handles: Arc::new(handles), concurrency: 1, stream: None, options, problem }
    }

    /// How many events an instance handles at once; 1 by default. Those of one key stay in turn
    /// with [`Order::Key`](super::Order::Key).
    pub fn concurrency(mut self, events: u32) -> Self {
        let checked = within(&limits::CONCURRENCY, "concurrency", events.into());
        self.problem = self.problem.or(checked.err());
        self.concurrency = events;
        self
    }

    /// The configured name of its consumer.
    pub(crate) fn consumer(&self) -> &str {
        &self.info.method
    }

    /// The error of an invalid handler.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.problem.clone().map_or(Ok(()), Err)
    }

    /// Its stream, if named, and its consumer.
    pub(crate) fn settings(&self) -> Result<(Option<String>, ConsumerSettings), Error> {
        let options = self.options.clone().filter([self.info.subject.as_str()]);
        Ok((self.stream.clone(), options.settings(self.consumer())?))
    }

    /// Its subjects.
    pub(crate) fn pattern(&self) -> Result<Pattern, Error> {
        names::pattern(&self.info.subject)
    }
}

setters! {
    DurableHandler:
    /// Settings of its consumer; [`ConsumerOptions::new`] by default. The pattern of the handler is
    /// the filter.
    options(options: ConsumerOptions) => options = options;
    /// The name of the stream, if several take such subjects.
    stream(name: impl Into<String>) => stream = Some(name.into());
    /// Purpose of the handler, in one line.
    description(text: impl Into<String>) => info.description = text.into();
    /// JSON Schema (2020-12) of the event, for publishers. The type of the handler checks the
    /// events.
    schema(schema: serde_json::Value) => info.message = schema;
}

/// A durable handler of a served instance.
pub(crate) struct ServedDurable {
    handler: DurableHandler,
    home: Arc<dyn Home>,
    subscription: Arc<DurableSubscription>,
    /// Told when its consumer is there, or why not.
    pub opened: Arc<ResultSlot<()>>,
    /// The stream and the name of its consumer, once they are there.
    place: OnceLock<(Arc<str>, String)>,
}

impl ServedDurable {
    pub fn new(core: &Core, home: Arc<dyn Home>, service: &str, handler: DurableHandler) -> Result<Arc<Self>, Error> {
        let (_, settings) = handler.settings()?;
        let options = SubscriptionOptions {
            title: format!("{service}.{}", handler.consumer()),
            concurrency: handler.concurrency,
            max_in_flight: settings.max_in_flight,
            ack_wait_us: settings.ack_wait_us,
        };
        let (runner, log) = (Arc::clone(&core.runner), Arc::clone(&core.log));
        let subscription = DurableSubscription::new(runner, options, Box::new(|| ()), log);
        Ok(Arc::new(Self { handler, home, subscription, opened: Arc::default(), place: OnceLock::new() }))
    }

    /// The configured name of its consumer.
    pub fn name(&self) -> &str {
        self.handler.consumer()
    }

    /// Its consumer, to look at; None before that is there.
    pub fn consumer(&self) -> Option<Consumer> {
        let (stream, consumer) = self.place.get()?;
        Some(Consumer::of(&Reads::new(Arc::clone(&self.home), &self.subscription.runner), stream, consumer, 1, |_| ()))
    }

    fn title(&self) -> &str {
        &self.subscription.options.title
    }

    pub fn subscription(&self) -> &DurableSubscription {
        &self.subscription
    }

    /// Finds its stream, makes or finds its consumer, and handles its events from then on.
    pub fn begin(self: &Arc<Self>, core: &Arc<Core>, instance: &Arc<ServiceInstance>) {
        let (this, core, instance) = (Arc::clone(self), Arc::downgrade(core), Arc::clone(instance));
        self.subscription.runner.spawn(Box::pin(async move {
            this.subscription.runner.beat();
            match this.open().await {
                Ok(place) => {
                    let (stream, consumer) = this.place.get_or_init(|| place);
                    let handler = Box::new(InstanceHandler { instance, durable: Arc::clone(&this) });
                    let home = Arc::clone(&this.home);
                    let node = core.upgrade().map(Node::of);
                    this.subscription.begin(home, (stream, consumer), node.as_ref(), handler);
                    this.opened.end(Ok(()));
                }
                Err(error) => {
                    this.subscription.over();
                    this.opened.end(Err(error));
                }
            }
        }));
    }

    async fn open(&self) -> Result<(Arc<str>, String), Error> {
        let (stream, settings) = self.handler.settings()?;
        let stream = match stream {
            Some(stream) => stream,
            None => find_stream(&*self.home, self.title(), &self.handler.pattern()?).await?,
        };
        let info = self.home.create_consumer(&stream, settings).await?;
        Ok((stream.into(), info.settings.name))
    }

    /// Counts the time of an event, and the type of its error.
    fn took(&self, begun: Instant, error: &str) {
        if let (Some(durations), Some((stream, consumer))) = (&self.subscription.runner.durations, self.place.get()) {
            durations.record(PROCESS, &format!("{stream}/{consumer}"), error, clock::since(begun));
        }
    }

    async fn work(&self, instance: &ServiceInstance, mut worker: DeliveryWorker) {
        while let Some(delivery) = worker.begin() {
            Counts::add(&instance.counts.events);
            let begin = || (self.handler.handles)(Arc::clone(&delivery));
            let header = |name: &str| {
                let mut headers = delivery.headers().iter();
                headers.find(|(header, _)| header == name).map(|(_, value)| value.as_str())
            };
            let span = Span::consumer(&instance.runner, delivery.subject(), self.title(), header);
            let begun = clock::now();
            let mut entry = WakerEntry::default();
            match run((instance, &span), begin, |context| self.subscription.poll_cut(&mut entry, context)).await {
                None => worker.end(Outcome::Interrupted, None),
                Some(Ok(())) => {
                    self.took(begun, "");
                    worker.end(Outcome::Returned, None);
                }
                Some(Err(failure)) => {
                    Counts::add(&instance.counts.event_errors);
                    self.took(begun, failure.kind());
                    span.failed(failure.kind(), failure.message());
                    let (sequence, subject) = (delivery.sequence(), delivery.subject());
                    (self.subscription.log)(&format!(
                        "{}: event {sequence} on {subject:?} failed: {failure:?}",
                        self.title()
                    ));
                    let fault = Fault { error: failure.line(), traceback: String::new() };
                    worker.end(Outcome::Raised, Some(fault));
                }
            }
        }
    }
}

/// Runs the workers of a durable handler of a served instance.
struct InstanceHandler {
    instance: Arc<ServiceInstance>,
    durable: Arc<ServedDurable>,
}

impl DeliveryHandler for InstanceHandler {
    fn start(&self, workers: Vec<DeliveryWorker>) {
        for worker in workers {
            let (instance, durable) = (Arc::clone(&self.instance), Arc::clone(&self.durable));
            self.durable.subscription.runner.spawn(Box::pin(async move {
                durable.subscription.runner.beat();
                durable.work(&instance, worker).await;
            }));
        }
    }
}

/// The one stream that takes such subjects.
///
/// # Errors
/// `not_found` if there is none, `invalid_argument` if there are several, and those of the storage
/// backend.
pub async fn find_stream(home: &dyn Home, title: &str, pattern: &Pattern) -> Result<String, Error> {
    let takes = |patterns: &[Pattern]| patterns.iter().any(|one| one.overlaps(pattern));
    let streams = home.list_streams().await?.into_iter();
    let mut names: Vec<_> =
        streams.filter(|info| takes(&info.settings.subjects)).map(|info| info.settings.name).collect();
    match names.len() {
        1 => Ok(names.remove(0)),
        0 => {
            let text =
                format!("{title}: no stream takes '{pattern}': make one with these subjects before it is served");
            Err(Error::new(ErrorCode::NotFound, text))
        }
        _ => {
            let text = format!("{title}: the streams {} take '{pattern}'", names.join(", "));
            Err(Error::invalid(format!("{text}: say stream= of the handler, one of them")))
        }
    }
}
