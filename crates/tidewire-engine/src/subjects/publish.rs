//! Publish and subscribe within one engine: delivery to the actors of the subscriptions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidewire_proto::subject::{Pattern, Subject};

use super::{Entry, Group, Subjects, Subscriber};
use crate::actor::options::Priority;
use crate::cell::envelope::Envelope;
use crate::cell::{ActorCell, Sent};
use crate::error::{DeadReason, SubscribeError};

/// Outcome of a publish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Deliveries accepted.
    pub accepted: usize,
    /// Deliveries that a full mailbox refused or dropped; they are dead letters.
    pub refused: usize,
}

/// A subscription in force. Dropping this handle does not end it;
/// [`unsubscribe`](Subscription::unsubscribe) does.
#[derive(Clone)]
pub struct Subscription {
    pub(crate) id: u64,
    pub(crate) core: Arc<crate::core::Core>,
    pub(crate) pattern: Pattern,
}

impl Subscription {
    /// Ends the subscription. No publish that starts afterwards delivers to it. Answers whether it
    /// was in force.
    pub fn unsubscribe(&self) -> bool {
        self.core.subjects.remove(self.id)
    }

    /// The pattern.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }
}

impl Subjects {
    pub fn add<M: Send + 'static>(
        &self,
        pattern: &Pattern,
        queue: Option<&str>,
        cell: &Arc<ActorCell<M>>,
        listens: bool,
        limit: usize,
    ) -> Result<u64, SubscribeError> {
        if self.count.fetch_add(1, Ordering::Relaxed) >= limit {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return Err(SubscribeError::TooMany { limit });
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let subscriber = Subscriber { cell: Arc::new(Arc::clone(cell)), listens };
        self.table.write().add(id, pattern, queue, subscriber);
        if !cell.add_subscription(id) {
            self.remove(id);
            return Err(SubscribeError::Stopped { actor: cell.id });
        }
        Ok(id)
    }

    /// One subscriber that matches now, answers requests and takes messages of type `M`, in turn.
    pub fn one<M: Send + 'static>(&self, subject: &Subject) -> Option<Arc<ActorCell<M>>> {
        let mut cells: Vec<Arc<ActorCell<M>>> = Vec::new();
        self.table.read().tree.for_each_match(subject, |entry| match entry {
            Entry::One(one) => cells.extend(one.responder::<M>()),
            Entry::Group(group) => {
                cells.extend(group.members.read().iter().filter_map(|(_, member)| member.responder::<M>()));
            }
        });
        cells.retain(|cell| cell.is_open());
        let n = cells.len();
        (n > 0).then(|| cells.swap_remove(self.turn.fetch_add(1, Ordering::Relaxed) % n))
    }

    pub fn publish<M: Clone + Send + 'static>(&self, subject: &Subject, message: M) -> Published {
        let (found, changes) = {
            let table = self.table.read();
            if let Some(known) = table.known.get(subject.as_str()) {
                let known = Arc::clone(known);
                drop(table);
                return deliver_all(&known, message);
            }
            let mut found = Vec::new();
            table.tree.for_each_match(subject, |entry| found.push(entry.clone()));
            let changes = table.worth_remembering(found.len()).then_some(table.changes);
            (found, changes)
        };
        match changes {
            Some(changes) => deliver_all(&self.remember(subject, found, changes), message),
            None => deliver_all(&found, message),
        }
    }
}

impl Subscriber {
    /// The actor. None if it takes other messages.
    fn cell<M: Send + 'static>(&self) -> Option<&Arc<ActorCell<M>>> {
        self.cell.downcast_ref()
    }

    fn responder<M: Send + 'static>(&self) -> Option<Arc<ActorCell<M>>> {
        if self.listens { None } else { self.cell().cloned() }
    }
}

impl Group {
    /// Gives the message to the next member that accepts it.
    fn deliver<M: Clone + Send + 'static>(&self, message: M) -> Option<bool> {
        let members = Arc::clone(&self.members.read());
        let start = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut outcome = None;
        let n = members.len();
        for i in 0..n {
            let Some(cell) = members[(start + i) % n].1.cell::<M>() else { continue };
            if i + 1 < n {
                match cell.push(Envelope::Plain(message.clone()), Priority::Normal) {
                    Ok(Sent::Accepted) => return Some(true),
                    Ok(Sent::Dropped) => return Some(false),
                    Err(_) => outcome = Some(false),
                }
            } else {
                return deliver(cell, message).or(outcome);
            }
        }
        outcome
    }
}

/// Tells all of them. The last one receives the message itself, the others copies.
fn deliver_all<M: Clone + Send + 'static>(matches: &[Entry], message: M) -> Published {
    let mut published = Published::default();
    let Some((last, others)) = matches.split_last() else { return published };
    for entry in others {
        published.count(entry.deliver(message.clone()));
    }
    published.count(last.deliver(message));
    published
}

impl Published {
    fn count(&mut self, accepted: Option<bool>) {
        match accepted {
            Some(true) => self.accepted += 1,
            Some(false) => self.refused += 1,
            None => {}
        }
    }
}

impl Entry {
    fn deliver<M: Clone + Send + 'static>(&self, message: M) -> Option<bool> {
        match self {
            Self::One(subscriber) => deliver(subscriber.cell()?, message),
            Self::Group(group) => group.deliver(message),
        }
    }
}

/// Tells one subscriber. None if it takes no messages any more.
fn deliver<M: Send + 'static>(cell: &Arc<ActorCell<M>>, message: M) -> Option<bool> {
    match cell.push(Envelope::Plain(message), Priority::Normal) {
        Ok(Sent::Accepted) => Some(true),
        Ok(Sent::Dropped) => Some(false),
        Err((refusal, envelope)) => match refusal {
            crate::error::Refusal::Full { .. } => {
                cell.bury_refused(envelope, DeadReason::MailboxFull);
                Some(false)
            }
            crate::error::Refusal::Stopped { .. } => None,
        },
    }
}
