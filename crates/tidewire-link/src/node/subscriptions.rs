//! Subscriptions of a node, which outlast a lost link.

use std::sync::{Arc, Weak};

use tidewire_core::link::assembly::Message;
use tidewire_core::link::session::Refused;
use tidewire_core::tree::SubscriptionId;
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::Pattern;
use tidewire_proto::wire::SubscribeHead;

use super::{Failure, Handler, Link, ReplyWaiter, Shared, State};

/// Prefix of patterns that belong to the number of a node.
const OF_NODE: &str = "$node.";

/// A subscription. Dropping it ends it.
pub struct Subscription {
    link: Weak<Shared>,
    number: u64,
}

pub(super) struct Subscribed {
    pattern: String,
    queue: String,
    announcement: Vec<u8>,
    pub(super) handler: Arc<dyn Handler>,
    id: Option<u64>,
    key: Option<SubscriptionId>,
    /// Waiter for the subscription to be in force, if the link was lost at the time of subscribing.
    later: Option<Arc<dyn ReplyWaiter>>,
}

impl Link {
    /// Subscribes. `waiting` hears `over` once it is in force, or why it was refused.
    /// `announcement` describes it to others. While the link is lost, that is when it is back.
    ///
    /// # Errors
    /// [`Refused`] if it can't be sent.
    pub fn subscribe(
        &self,
        pattern: &Pattern,
        queue: &str,
        announcement: &[u8],
        handler: Arc<dyn Handler>,
        waiting: Arc<dyn ReplyWaiter>,
    ) -> Result<Subscription, Refused> {
        let number = {
            let mut state = self.shared.state.lock();
            let number = state.next_subscription;
            let (mut id, mut later) = (None, None);
            if state.joined.is_some() {
                let head = SubscribeHead { queue, pattern: pattern.as_str() };
                let session = &mut state.session;
                let subscribed = if handler.listens() {
                    session.listen(&head, announcement, waiting)
                } else {
                    session.subscribe(&head, announcement, waiting)
                };
                id = Some(subscribed?);
            } else if !state.comes_back() || (self.shared.address.is_none() && self.shared.place.is_none()) {
                return Err(Refused::Closing);
            } else {
                later = Some(waiting);
            }
            state.next_subscription += 1;
            let key = queue.is_empty().then(|| state.plain.insert(pattern, number));
            state.by_id.extend(id.map(|id| (id, number)));
            let (pattern, queue, announcement) = (pattern.as_str().to_owned(), queue.to_owned(), announcement.to_vec());
            state.subscriptions.insert(number, Subscribed { pattern, queue, announcement, handler, id, key, later });
            number
        };
        self.shared.flush();
        Ok(Subscription { link: Arc::downgrade(&self.shared), number })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Some(link) = self.link.upgrade() else { return };
        let removed = {
            let mut state = link.state.lock();
            let removed = state.subscriptions.remove(&self.number);
            if let Some(subscribed) = &removed {
                if let Some(key) = subscribed.key {
                    state.plain.remove(key);
                }
                if let Some(id) = subscribed.id {
                    state.by_id.remove(&id);
                    state.session.unsubscribe(id);
                }
            }
            removed
        };
        // The handler may be the last to hold something: it is dropped after the lock.
        drop(removed);
        link.flush();
    }
}

impl Shared {
    /// The link will not be back for the subscriptions that wait for it.
    pub(super) fn give_up_subscribing(&self) {
        let mut state = self.state.lock();
        let late: Vec<_> = state.subscriptions.values_mut().filter_map(|one| one.later.take()).collect();
        drop(state);
        for waiting in late {
            waiting.failed(Failure { number: ErrorCode::LinkLost.number(), message: None });
        }
    }

    /// Answers which of them could not be sent, and why.
    pub(super) fn subscribe_again(&self, state: &mut State) -> Vec<(Arc<Resubscription>, Refused)> {
        state.by_id.clear();
        let (State { session, subscriptions, by_id, .. }, mut refused) = (state, Vec::new());
        for (number, subscribed) in subscriptions.iter_mut() {
            subscribed.id = None;
            let later = subscribed.later.take();
            if later.is_none() && subscribed.pattern.starts_with(OF_NODE) {
                // It belongs to the number that this node had.
                continue;
            }
            let again = Arc::new(Resubscription { pattern: subscribed.pattern.clone(), link: self.me.clone(), later });
            let head = SubscribeHead { queue: &subscribed.queue, pattern: &subscribed.pattern };
            let waiting = Arc::clone(&again) as Arc<dyn ReplyWaiter>;
            let sent = if subscribed.handler.listens() {
                session.listen(&head, &subscribed.announcement, waiting)
            } else {
                session.subscribe(&head, &subscribed.announcement, waiting)
            };
            match sent {
                Ok(id) => {
                    subscribed.id = Some(id);
                    by_id.insert(id, *number);
                }
                Err(why) => refused.push((again, why)),
            }
        }
        refused
    }
}

/// A subscription that is made again. Mostly nobody waits for it, so that it is logged if it can't
/// be.
pub(super) struct Resubscription {
    pattern: String,
    link: Weak<Shared>,
    later: Option<Arc<dyn ReplyWaiter>>,
}

impl Resubscription {
    pub(super) fn not_sent(&self, why: &Refused) {
        self.log(&why.to_string());
        if let Some(later) = &self.later {
            later.failed(Failure { number: ErrorCode::LinkLost.number(), message: None });
        }
    }

    fn log(&self, why: &str) {
        if let Some(link) = self.link.upgrade() {
            (link.log)(&format!("{:?} is not subscribed to again: {why}", self.pattern));
        }
    }
}

impl ReplyWaiter for Resubscription {
    fn replied(&self, _: Message) {}

    fn failed(&self, failure: Failure) {
        match (&self.later, &failure.message) {
            (Some(later), _) => later.failed(failure),
            (None, Some(message)) => self.log(&String::from_utf8_lossy(message.payload())),
            (None, None) => {}
        }
    }

    fn over(&self) {
        self.later.iter().for_each(|later| later.over());
    }
}
