//! Subscriptions of this node to patterns of subjects, and their table: messages and requests of
//! the node itself go to them directly, not over its link.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use tidewire_core::tree::{SubjectTree, SubscriptionId};
use tidewire_engine::raw::Mutex;
use tidewire_link::{Call, Exchange, Handler, Published, Subscription as LinkSubscription};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;
use tidewire_proto::subject::Pattern;
use tidewire_proto::wire::PublishHead;

use crate::pending::wait;
use crate::subjects::message::Message;

/// Bounded queue of the messages that a subscriber has not read yet.
#[derive(Default)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
    capacity: usize,
    pub queue: String,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Message>,
    bytes: usize,
    dropped: u64,
    is_closed: bool,
    waker: Option<Waker>,
}

impl Mailbox {
    pub fn new(queue: &str, capacity: usize) -> Self {
        Self { state: Mutex::default(), capacity, queue: queue.to_owned() }
    }

    /// Adds a message. If too many wait, it is counted and dropped, and a request refused. One more
    /// always fits in bytes.
    pub fn add(&self, message: Message) {
        let mut state = self.state.lock();
        let is_full = state.messages.len() >= self.capacity || state.bytes as u64 >= limits::SUBSCRIPTION_BYTES.default;
        if is_full || state.is_closed {
            state.dropped += 1;
            drop(state);
            return message
                .refuse(ErrorCode::LimitExceeded, "subscription_capacity: too many messages wait: try again later");
        }
        state.bytes += message.bytes();
        state.messages.push_back(message);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// True if the queue is full: a message is then counted as dropped before it is built.
    fn drops(&self) -> bool {
        let mut state = self.state.lock();
        let is_full = state.messages.len() >= self.capacity || state.bytes as u64 >= limits::SUBSCRIPTION_BYTES.default;
        state.dropped += u64::from(is_full);
        is_full
    }

    pub fn poll(&self, context: &Context<'_>) -> Poll<Option<Message>> {
        let mut state = self.state.lock();
        if let Some(message) = state.messages.pop_front() {
            state.bytes -= message.bytes();
            return Poll::Ready(Some(message));
        }
        if state.is_closed {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    pub fn is_empty(&self) -> bool {
        self.state.lock().messages.is_empty()
    }

    pub fn dropped(&self) -> u64 {
        self.state.lock().dropped
    }

    /// Accepts no more messages; queued ones can still be read.
    pub fn close(&self) {
        let waker = {
            let mut state = self.state.lock();
            state.is_closed = true;
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// A mailbox as the link knows it.
pub(crate) struct MailboxSubscription(pub Arc<Mailbox>);

impl Handler for MailboxSubscription {
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        self.0.add(Message::called(call));
        None
    }

    fn published(&self, published: Published) {
        if self.0.drops() {
            return;
        }
        let subject = PublishHead::parse(published.message.head()).map(|head| head.subject.to_owned());
        // It was checked when it came in.
        if let Ok(subject) = subject {
            self.0.add(Message::published(subject, published));
        }
    }
}

/// The subscriptions of this node, by their patterns.
#[derive(Default)]
pub(crate) struct LocalSubscriptions {
    tree: Mutex<Table>,
}

/// Members of a queue group, under its pattern and its name.
type Group = ((Arc<str>, String), Vec<Arc<Mailbox>>);

#[derive(Default)]
struct Table {
    subscriptions: SubjectTree<(Arc<str>, Arc<Mailbox>)>,
    all: Vec<(SubscriptionId, Arc<Mailbox>)>,
    turn: usize,
}

impl LocalSubscriptions {
    pub fn add(&self, pattern: &Pattern, mailbox: &Arc<Mailbox>) -> SubscriptionId {
        let mut table = self.tree.lock();
        let id = table.subscriptions.insert(pattern, (pattern.as_str().into(), Arc::clone(mailbox)));
        table.all.push((id, Arc::clone(mailbox)));
        id
    }

    pub fn remove(&self, id: SubscriptionId) {
        let removed = {
            let mut table = self.tree.lock();
            table.all.retain(|(known, _)| *known != id);
            table.subscriptions.remove(id)
        };
        // Queued messages may be requests, and dropping a request answers it: do so outside of the
        // lock.
        drop(removed);
    }

    /// Receivers of a message on a subject: all outside of queue groups, and one of each group, in
    /// turn.
    pub fn receivers(&self, subject: &str) -> Vec<Arc<Mailbox>> {
        let mut table = self.tree.lock();
        table.turn = table.turn.wrapping_add(1);
        let (mut single, mut groups) = (Vec::new(), Vec::<Group>::new());
        table.subscriptions.for_each_match_str(subject, |(pattern, mailbox)| {
            if mailbox.queue.is_empty() {
                return single.push(Arc::clone(mailbox));
            }
            let key = (Arc::clone(pattern), mailbox.queue.clone());
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, members)) => members.push(Arc::clone(mailbox)),
                None => groups.push((key, vec![Arc::clone(mailbox)])),
            }
        });
        let turn = table.turn;
        single.extend(groups.into_iter().map(|(_, mut members)| members.swap_remove(turn % members.len())));
        single
    }

    /// The one that answers a request on a subject, in turn.
    pub fn responder(&self, subject: &str) -> Option<Arc<Mailbox>> {
        let mut table = self.tree.lock();
        table.turn = table.turn.wrapping_add(1);
        let mut found = Vec::new();
        table.subscriptions.for_each_match_str(subject, |(_, mailbox)| found.push(Arc::clone(mailbox)));
        let turn = table.turn;
        (!found.is_empty()).then(|| found.swap_remove(turn % found.len()))
    }

    /// Ends all subscriptions: queued messages can still be read.
    pub fn close(&self) {
        let all = self.tree.lock().all.clone();
        all.iter().for_each(|(_, mailbox)| mailbox.close());
    }
}

/// How a subscription is made.
#[derive(Clone, Debug)]
pub struct SubscribeOptions {
    pub(super) queue: String,
    pub(super) capacity: usize,
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        Self { queue: String::new(), capacity: limits::SUBSCRIPTION_CAPACITY.default as usize }
    }
}

setters! {
    SubscribeOptions:
    /// Shares messages with the other members of this queue group: one of them gets each message.
    /// None by default.
    queue(name: impl Into<String>) => queue = name.into();
    /// Messages that wait to be read; the limit `subscription_capacity` has the default. One more
    /// is dropped and counted; a request fails.
    capacity(messages: usize) => capacity = messages;
}

/// Messages and requests on a pattern of subjects: a `Stream` for any runtime, or read by
/// [`next`](Subscription::next) and [`next_blocking`](Subscription::next_blocking). It ends when
/// its node stops. Dropping it ends it.
#[derive(derive_more::Debug)]
#[must_use = "dropping a subscription ends it"]
#[debug("Subscription({pattern:?})")]
pub struct Subscription {
    pub(super) local: Weak<LocalSubscriptions>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) id: SubscriptionId,
    pub(super) pattern: String,
    pub(super) _link: LinkSubscription,
}

impl Subscription {
    /// The next message; None once the node has stopped.
    ///
    /// # Cancel safety
    /// Dropping the future loses no message.
    pub async fn next(&mut self) -> Option<Message> {
        poll_fn(|context| self.mailbox.poll(context)).await
    }

    /// As [`next`](Subscription::next), and blocks this thread.
    pub fn next_blocking(&mut self) -> Option<Message> {
        wait(self.next())
    }

    /// Messages dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.mailbox.dropped()
    }

    pub(crate) fn mailbox(&self) -> Arc<Mailbox> {
        Arc::clone(&self.mailbox)
    }
}

impl Stream for Subscription {
    type Item = Message;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Message>> {
        self.mailbox.poll(context)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.mailbox.close();
        if let Some(local) = self.local.upgrade() {
            local.remove(self.id);
        }
    }
}
