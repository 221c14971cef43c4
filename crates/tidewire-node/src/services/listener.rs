//! Listener of an event handler: messages of its mailbox, handled one after the other.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tidewire_proto::generated::errors::ErrorCode;

use crate::node::options::Log;
use crate::node::runner::Runner;
use crate::services::current_service::run;
use crate::services::events::{Event, EventContext, Handles};
use crate::services::failure::Failure;
use crate::services::inbound_call::{Ended, InboundCallState, STOPPED};
use crate::services::instance::{Counts, ServiceInstance};
use crate::span::Span;
use crate::subjects::local_subscriptions::Mailbox;
use crate::subjects::message::Message;

/// Runs one event handler, until its subscription has ended and nothing waits, or its service
/// stops.
pub(crate) struct Listener {
    title: String,
    mailbox: Arc<Mailbox>,
    handles: Arc<Handles>,
    exchange: Arc<InboundCallState>,
    is_handling: AtomicBool,
    log: Log,
}

impl Listener {
    pub fn new(service: &str, event: &Event, mailbox: Arc<Mailbox>, log: Log) -> Arc<Self> {
        Arc::new(Self {
            title: format!("{service}.{}", event.info.method),
            mailbox,
            handles: Arc::clone(&event.handles),
            exchange: InboundCallState::new(0),
            is_handling: AtomicBool::new(false),
            log,
        })
    }

    /// True if the mailbox is empty and no handler runs.
    pub fn is_idle(&self) -> bool {
        // The order matters: a message is marked before it leaves the mailbox.
        self.mailbox.is_empty() && !self.is_handling.load(Ordering::SeqCst)
    }

    pub fn dropped(&self) -> u64 {
        self.mailbox.dropped()
    }

    /// Ends the subscription and the running handler.
    pub fn end(&self) {
        self.exchange.end(Ended::Stopping);
    }

    pub fn begin(self: Arc<Self>, instance: &Arc<ServiceInstance>, runner: &Arc<Runner>) {
        let (instance, ended) = (Arc::clone(instance), Arc::clone(runner));
        runner.spawn(Box::pin(async move {
            ended.beat();
            while let Some(message) = self.next(&ended).await {
                self.handle(&instance, message).await;
                self.is_handling.store(false, Ordering::SeqCst);
                ended.ended.wake();
            }
        }));
    }

    async fn next(&self, runner: &Runner) -> Option<Message> {
        poll_fn(|task| {
            if self.exchange.poll_ended(task).is_ready() {
                return Poll::Ready(None);
            }
            self.is_handling.store(true, Ordering::SeqCst);
            let next = self.mailbox.poll(task);
            if !matches!(next, Poll::Ready(Some(_))) {
                self.is_handling.store(false, Ordering::SeqCst);
                // An observer that looked meanwhile saw the handler as busy: wake it.
                runner.ended.wake();
            }
            next
        })
        .await
    }

    async fn handle(&self, instance: &ServiceInstance, message: Message) {
        Counts::add(&instance.counts.events);
        let context = EventContext::new(&message);
        let begin = || (self.handles)(context, &message);
        let header = |name: &str| message.headers().get(name).map(String::as_str);
        let span = Span::consumer(&instance.runner, message.subject(), &self.title, header);
        match run((instance, &span), begin, |task| self.exchange.poll_ended(task).map(drop)).await {
            Some(Ok(blob)) => message.answer(blob),
            Some(Err(failure)) => {
                span.failed(failure.kind(), failure.message());
                self.failed(instance, message, failure);
            }
            None => message.refuse(ErrorCode::NodeStopped, STOPPED),
        }
    }

    fn failed(&self, instance: &ServiceInstance, message: Message, failure: Failure) {
        Counts::add(&instance.counts.event_errors);
        (self.log)(&format!(
            "{}: a message on {:?} of {:?} failed: {failure:?}",
            self.title,
            message.subject(),
            message.node()
        ));
        message.fail(failure);
    }
}
