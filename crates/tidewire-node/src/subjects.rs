//! Subscriptions to patterns of subjects: their messages, requests and replies.

pub mod local_subscriptions;
pub mod subject;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidewire_core::tree::SubscriptionId;
use tidewire_link::{Call, Named, Published, Refused, ReplyWaiter};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;
use tidewire_proto::wire::{Fields, Flags, PublishHead};

use crate::calls::reply_slot::{CallOutcome, Payload, ReplySlot};
use crate::error::Error;
use crate::names;
use crate::node::core::{Core, in_force};
use crate::node::options::within;
use crate::pending::{Pending, wait};
use crate::services::context::{ORIGIN, USER};
use crate::services::instance::refuse;
use crate::subjects::local_subscriptions::{Mailbox, MailboxSubscription};
use crate::values::{self, Blob};

/// A message on a subject: a published one, or a request, which [`reply`](Message::reply) answers.
///
/// A request that is dropped without a reply fails with `no_reply`.
#[derive(derive_more::Debug)]
#[debug("Message({subject:?} of {:?}, {} bytes)", self.node(), self.bytes())]
pub struct Message {
    subject: String,
    headers: BTreeMap<String, String>,
    /// User named by a gateway.
    user: Option<String>,
    from: Arc<Named>,
    payload: Arc<Payload>,
    answer: Option<Answer>,
}

/// Where the answer to a request goes.
enum Answer {
    Link(Call),
    Here(Arc<ReplySlot>),
}

impl Message {
    pub(crate) fn called(call: Call) -> Self {
        let head = call.head();
        let (subject, headers, from) = (head.subject.to_owned(), texts(&head.fields), call.from.clone());
        let payload = Arc::new(Payload::from(call.message.payload().to_vec()));
        Self::new(subject, headers, from, payload, Some(Answer::Link(call)))
    }

    pub(crate) fn published(subject: String, published: Published) -> Self {
        let headers = PublishHead::parse(published.message.head()).map(|head| texts(&head.fields)).unwrap_or_default();
        let (from, payload) = (published.from, Arc::new(Payload::from(published.message)));
        Self::new(subject, headers, from, payload, None)
    }

    fn new(
        subject: String,
        mut headers: BTreeMap<String, String>,
        from: Arc<Named>,
        payload: Arc<Payload>,
        answer: Option<Answer>,
    ) -> Self {
        headers.remove(ORIGIN);
        let user = headers.remove(USER);
        Self { subject, headers, user, from, payload, answer }
    }

    /// Subject of the message.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The name of the node that sent it.
    pub fn node(&self) -> &str {
        &self.from.name
    }

    /// The user on whose behalf it was sent: the user of the token that the sender gave to the
    /// gateway of the hub, or with which the sending node joined. None without a login.
    pub fn user(&self) -> Option<&str> {
        let user = self.user.as_deref().unwrap_or(&self.from.user);
        Some(user).filter(|user| !user.is_empty())
    }

    /// Headers that the sender added to the message.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.headers
    }

    /// Reads the value of the message.
    ///
    /// # Errors
    /// [`Error`] with the code `invalid_argument` and the path of the part that does not fit the
    /// type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        values::read(&self.subject, self.payload.bytes())
    }

    /// True if the sender waits for a reply.
    pub fn is_request(&self) -> bool {
        self.answer.is_some()
    }

    /// Answers a request. A published message needs no reply: nothing happens.
    ///
    /// # Errors
    /// [`Error`] if the value can't be sent; the request fails with `no_reply` then.
    pub fn reply<T: Serialize + ?Sized>(mut self, value: &T) -> Result<(), Error> {
        let blob = values::write("the reply", value)?;
        self.answered(blob).map_err(|refused| Error::refused("the reply", &refused))
    }

    /// Answers a request as far as that is possible.
    pub(crate) fn answer(mut self, blob: Blob) {
        // The link reports a reply that cannot be sent to the caller.
        let _ = self.answered(blob);
    }

    fn answered(&mut self, mut blob: Blob) -> Result<(), Refused> {
        match self.answer.take() {
            Some(Answer::Link(call)) => {
                let flusher = call.flusher();
                let sent = call.reply(blob.sending());
                flusher.flush();
                sent.or_else(|refused| if refused == Refused::Over { Ok(()) } else { Err(refused) })
            }
            Some(Answer::Here(place)) => {
                place.end(CallOutcome::Replied(blob.into_bytes().into()));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Answers a request with an error. For a published message nothing happens.
    pub fn fail(mut self, failure: impl Into<crate::Failure>) {
        let (code, mut blob) = failure.into().payload();
        match self.answer.take() {
            Some(Answer::Link(call)) => {
                let flusher = call.flusher();
                call.fail(code, blob.sending());
                flusher.flush();
            }
            Some(Answer::Here(place)) => place.end(CallOutcome::Failed(code.number(), Some(blob.into_bytes().into()))),
            None => {}
        }
    }

    pub(crate) fn refuse(mut self, code: ErrorCode, text: &str) {
        match self.answer.take() {
            Some(Answer::Link(call)) => refuse(call, code, text),
            Some(Answer::Here(place)) => {
                place.end(CallOutcome::Failed(code.number(), Some(text.as_bytes().to_vec().into())));
            }
            None => {}
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.payload.bytes().len()
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        let text = "the subscriber did not answer";
        match self.answer.take() {
            Some(Answer::Link(call)) => refuse(call, ErrorCode::NoReply, text),
            Some(Answer::Here(place)) => {
                place.end(CallOutcome::Failed(ErrorCode::NoReply.number(), Some(text.as_bytes().to_vec().into())));
            }
            None => {}
        }
    }
}

fn texts(fields: &Fields<'_>) -> BTreeMap<String, String> {
    let text = |(name, value): (&str, &[u8])| (name.to_owned(), String::from_utf8_lossy(value).into_owned());
    fields.iter().map(text).collect()
}

/// How a subscription is made.
#[derive(Clone, Debug)]
pub struct SubscribeOptions {
    queue: String,
    capacity: usize,
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        Self { queue: String::new(), capacity: limits::SUBSCRIPTION_CAPACITY.default as usize }
    }
}

impl SubscribeOptions {
    /// Shares messages with the other members of this queue group: one of them gets each message.
    /// None by default.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.queue = name.into();
        self
    }

    /// Messages that wait to be read; the limit `subscription_capacity` has the default. One more
    /// is dropped and counted; a request fails.
    pub fn capacity(mut self, messages: usize) -> Self {
        self.capacity = messages;
        self
    }
}

/// Messages and requests on a pattern of subjects: a `Stream` for any runtime, or read by
/// [`next`](Subscription::next) and [`next_blocking`](Subscription::next_blocking). It ends when
/// its node stops. Dropping it ends it.
#[derive(derive_more::Debug)]
#[must_use = "dropping a subscription ends it"]
#[debug("Subscription({pattern:?})")]
pub struct Subscription {
    core: Weak<Core>,
    mailbox: Arc<Mailbox>,
    id: SubscriptionId,
    pattern: String,
    _link: tidewire_link::Subscription,
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
}

impl Subscription {
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
        if let Some(core) = self.core.upgrade() {
            core.local.remove(self.id);
        }
    }
}

/// Begins a subscription. It is in force once the pending is done.
pub(crate) fn subscribe(core: &Arc<Core>, pattern: &str, options: SubscribeOptions) -> Pending<Subscription> {
    match begin(core, pattern, &options) {
        Ok((subscription, place)) => Pending::new(async move {
            in_force(place, subscription.pattern.clone()).await?;
            Ok(subscription)
        }),
        Err(error) => Pending::failed(error),
    }
}

/// As `subscribe`; the reply slot is filled once the subscription is active.
pub(crate) fn begin(
    core: &Arc<Core>,
    pattern: &str,
    options: &SubscribeOptions,
) -> Result<(Subscription, Arc<ReplySlot>), Error> {
    core.check()?;
    let parsed = names::pattern(pattern)?;
    within(&limits::SUBSCRIPTION_CAPACITY, "capacity", options.capacity as u64)?;
    if !options.queue.is_empty() {
        names::token("queue", &options.queue)?;
    }
    let mailbox = Arc::new(Mailbox::new(&options.queue, options.capacity));
    let place = Arc::new(ReplySlot::default());
    let (source, waiting) =
        (Arc::new(MailboxSubscription(Arc::clone(&mailbox))), Arc::clone(&place) as Arc<dyn ReplyWaiter>);
    let link = core.link.subscribe(&parsed, &options.queue, &[], source, waiting);
    let link = link.map_err(|refused| Error::refused(pattern, &refused))?;
    let id = core.local.add(&parsed, &mailbox);
    let pattern = pattern.to_owned();
    Ok((Subscription { core: Arc::downgrade(core), mailbox, id, pattern, _link: link }, place))
}

/// Delivers a message to the subscriptions of this node, and to the hub for other nodes.
pub(crate) fn publish(
    core: &Core,
    (subject, to): (&str, u64),
    mut blob: Blob,
    said: &[u8],
    flags: Flags,
) -> Result<(), Error> {
    core.check()?;
    names::subject(subject)?;
    let fields = Fields::parse("PUBLISH", said).unwrap_or_default();
    let here = core.local.receivers(subject);
    let payloads = (!here.is_empty()).then(|| Arc::new(Payload::from(blob.clone().into_bytes())));
    let wire = PublishHead { subject, to, fields, ..PublishHead::default() };
    let published = core.link.publish(&wire, flags, blob.sending());
    published.map_err(|refused| Error::refused(subject, &refused))?;
    for (mailbox, payload) in here.into_iter().zip(payloads.iter().cycle()) {
        let (subject, headers, payload) = (subject.to_owned(), texts(&fields), Arc::clone(payload));
        let from = Arc::new(Named { name: core.name.clone(), user: String::new() });
        mailbox.add(Message::new(subject, headers, from, payload, None));
    }
    core.link.flush();
    Ok(())
}

/// Asks a subscriber of this node, if there is one. Answers where the answer comes.
pub(crate) fn ask_here(core: &Core, subject: &str, blob: &Blob, fields: &[u8]) -> Option<Arc<ReplySlot>> {
    let mailbox = core.local.responder(subject)?;
    let place = Arc::new(ReplySlot::default());
    let from = Arc::new(Named { name: core.name.clone(), user: String::new() });
    let payload = Arc::new(Payload::from(blob.clone().into_bytes()));
    let answer = Some(Answer::Here(Arc::clone(&place)));
    let headers = texts(&Fields::parse("CALL", fields).unwrap_or_default());
    let message = Message::new(subject.to_owned(), headers, from, payload, answer);
    mailbox.add(message);
    Some(place)
}
