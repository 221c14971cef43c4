//! Subjects: a node subscribes, publishes and requests.

pub mod local_subscriptions;
pub mod message;
pub mod subject;

use std::sync::Arc;

use tidewire_link::{Named, ReplyWaiter};
use tidewire_proto::generated::limits;
use tidewire_proto::wire::{Fields, Flags, PublishHead};

use crate::calls::reply_slot::{Payload, ReplySlot, in_force};
use crate::error::Error;
use crate::names;
use crate::node::core::Core;
use crate::node::options::within;
use crate::pending::Pending;
use crate::subjects::local_subscriptions::{Mailbox, MailboxSubscription, SubscribeOptions, Subscription};
use crate::subjects::message::{Answer, Message, texts};
use crate::values::Blob;

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
    Ok((Subscription { local: Arc::downgrade(&core.local), mailbox, id, pattern, _link: link }, place))
}

/// Delivers a message to the subscriptions of this node, and to the hub for other nodes.
pub(crate) fn publish(
    core: &Core,
    (subject, to): (&str, u64),
    mut blob: Blob,
    fields: &[u8],
    flags: Flags,
) -> Result<(), Error> {
    core.check()?;
    names::subject(subject)?;
    let fields = Fields::parse("PUBLISH", fields).unwrap_or_default();
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
    let (place, payload) = (Arc::<ReplySlot>::default(), Arc::new(Payload::from(blob.clone().into_bytes())));
    let from = Arc::new(Named { name: core.name.clone(), user: String::new() });
    let headers = texts(&Fields::parse("CALL", fields).unwrap_or_default());
    mailbox.add(Message::new(subject.to_owned(), headers, from, payload, Some(Answer::Here(Arc::clone(&place)))));
    Some(place)
}
