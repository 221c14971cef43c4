//! Messages of one hub at another: what is published on a shared pattern is published there, too.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tidewire_core::federation::{HUBS, HubPath, MESSAGE_ID};
use tidewire_link::{Call, Exchange, Handler, Published, ReplyWaiter, Subscription};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::Pattern;
use tidewire_proto::wire::{FieldsWriter, PublishHead, WireError};

use crate::calls::reply_slot::{ReplySlot, in_force};
use crate::error::Error;
use crate::federation::direction::Direction;
use crate::federation::forwarded_call::publish;
use crate::services::context::{ORIGIN, USER};
use crate::services::inbound_call::refuse;

/// Subscribes to the shared patterns of one direction. They are in force when this returns, or
/// their refusals are logged.
pub(super) async fn subscribe(direction: &Arc<Direction>) -> Vec<Subscription> {
    let mut subscriptions = Vec::new();
    for pattern in &direction.shared.subjects {
        match subscribed(direction, pattern).await {
            Ok(subscription) => subscriptions.push(subscription),
            Err(error) => direction.log(&format!("{:?} is not shared: {error}", pattern.as_str())),
        }
    }
    subscriptions
}

async fn subscribed(direction: &Arc<Direction>, pattern: &Pattern) -> Result<Subscription, Error> {
    let (place, text) = (Arc::new(ReplySlot::default()), pattern.as_str());
    let waiting = Arc::clone(&place) as Arc<dyn ReplyWaiter>;
    let handler = Arc::new(ForwardedSubject(Arc::clone(direction)));
    let subscription = direction.source.link.subscribe(pattern, "", &[], handler, waiting);
    let subscription = subscription.map_err(|refused| Error::refused(text, &refused))?;
    match in_force(place, text.to_owned()).await {
        // The link subscribes again by itself.
        Err(error) if !error.is_retryable() => Err(error),
        _ => Ok(subscription),
    }
}

/// Handler of a pattern whose messages go on to another hub.
struct ForwardedSubject(Arc<Direction>);

impl Handler for ForwardedSubject {
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        refuse(call, ErrorCode::NoResponders, "messages cross to another hub, and requests do not");
        None
    }

    fn listens(&self) -> bool {
        true
    }

    fn published(&self, published: Published) {
        let direction = &*self.0;
        let Ok(head) = PublishHead::parse(published.message.head()) else { return };
        // A message that would go in a circle ends here.
        let Ok(path) = direction.path_of_message(head.fields.text(HUBS)) else { return };
        let Ok(fields) = self.fields(&head, &path) else { return };
        direction.counts.messages.fetch_add(1, Relaxed);
        let subject = head.subject.to_owned();
        publish(&direction.target.link, &subject, &fields, published);
    }
}

impl ForwardedSubject {
    /// The fields of a message at the other hub. One that comes from its first hub gets its id.
    fn fields(&self, head: &PublishHead<'_>, path: &HubPath) -> Result<Vec<u8>, WireError> {
        let mut fields = Vec::new();
        let mut writer = FieldsWriter::new(&mut fields);
        let is_first = path.len() == 1;
        for (name, value) in head.fields.iter().filter(|(name, _)| ![USER, ORIGIN, HUBS].contains(name)) {
            if !(is_first && name == MESSAGE_ID) {
                writer.add(name, value)?;
            }
        }
        writer.add(HUBS, path.to_string().as_bytes())?;
        let run = self.0.source.link.joined().map(|joined| joined.run).filter(|run| !run.is_empty());
        if let Some(run) = run.filter(|_| is_first && head.to != 0) {
            writer.add(MESSAGE_ID, format!("{run}-{:x}", head.to).as_bytes())?;
        }
        Ok(fields)
    }
}
