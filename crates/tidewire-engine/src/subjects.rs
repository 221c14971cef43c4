//! Publish and subscribe within one engine.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tidewire_core::tree::{SubjectTree, SubscriptionId};
use tidewire_proto::subject::{Pattern, Subject};
use tidewire_sync::RwLock;

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

/// All subscriptions of one engine.
#[derive(Default)]
pub(crate) struct Subjects {
    table: RwLock<Table>,
    next: AtomicU64,
    count: AtomicUsize,
    turn: AtomicUsize,
}

/// As many matches are worth remembering: the list of fewer is found sooner than its subject is
/// looked up.
const MANY: usize = 8;
/// Most matches that are remembered, of all subjects together.
const REMEMBERED: usize = 65_536;

#[derive(Default)]
struct Table {
    tree: SubjectTree<Entry>,
    /// Matches of subjects that many match. Forgotten whenever a subscription begins or ends.
    known: HashMap<Box<str>, Arc<[Entry]>>,
    /// How many matches are in there.
    remembered: usize,
    /// How often subscriptions began or ended.
    changes: u64,
    /// From our numbers to places in the tree and, for queue groups, their keys.
    places: HashMap<u64, (SubscriptionTarget, String)>,
    groups: HashMap<(String, String), (SubscriptionId, Arc<Group>)>,
}

enum SubscriptionTarget {
    Own(SubscriptionId),
    Member(String),
}

#[derive(Clone)]
enum Entry {
    One(Subscriber),
    Group(Arc<Group>),
}

#[derive(Clone)]
struct Subscriber {
    /// An `Arc<ActorCell<M>>`, shared: who delivers counts its references here, and not beside what
    /// the running actor writes.
    cell: Arc<dyn Any + Send + Sync>,
    /// It gets what is published, and answers no requests.
    listens: bool,
}

/// Subscribers that share a pattern; each message goes to one of them.
struct Group {
    members: RwLock<Arc<Vec<(u64, Subscriber)>>>,
    turn: AtomicUsize,
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

    /// Ends a subscription. Answers whether it was in force.
    pub fn remove(&self, id: u64) -> bool {
        let removed = self.table.write().remove(id);
        if removed.is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        removed.is_some()
    }

    /// Those of `ids` that are in force, with their patterns.
    pub fn patterns(&self, ids: &[u64]) -> Vec<(u64, String)> {
        let table = self.table.read();
        ids.iter().filter_map(|id| Some((*id, table.places.get(id)?.1.clone()))).collect()
    }

    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
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

    /// Keeps the matches of a subject, unless the subscriptions are others by now.
    #[cold]
    fn remember(&self, subject: &Subject, found: Vec<Entry>, changes: u64) -> Arc<[Entry]> {
        let found: Arc<[Entry]> = found.into();
        let mut table = self.table.write();
        if table.changes == changes && table.worth_remembering(found.len()) {
            let before = table.known.insert(subject.as_str().into(), Arc::clone(&found));
            // Another publish may have been first.
            table.remembered += if before.is_none() { found.len() } else { 0 };
        }
        found
    }
}

impl Table {
    fn worth_remembering(&self, matches: usize) -> bool {
        matches >= MANY && self.remembered + matches <= REMEMBERED
    }

    fn forget(&mut self) {
        self.known.clear();
        self.remembered = 0;
        self.changes += 1;
    }

    fn add(&mut self, id: u64, pattern: &Pattern, queue: Option<&str>, subscriber: Subscriber) {
        self.forget();
        let Some(queue) = queue else {
            let place = self.tree.insert(pattern, Entry::One(subscriber));
            self.places.insert(id, (SubscriptionTarget::Own(place), pattern.as_str().to_owned()));
            return;
        };
        let key = (queue.to_owned(), pattern.as_str().to_owned());
        if let Some((_, group)) = self.groups.get(&key) {
            Arc::make_mut(&mut *group.members.write()).push((id, subscriber));
        } else {
            let members = RwLock::new(Arc::new(vec![(id, subscriber)]));
            let group = Arc::new(Group { members, turn: AtomicUsize::new(0) });
            let place = self.tree.insert(pattern, Entry::Group(Arc::clone(&group)));
            self.groups.insert(key.clone(), (place, group));
        }
        self.places.insert(id, (SubscriptionTarget::Member(key.0), key.1));
    }

    fn remove(&mut self, id: u64) -> Option<()> {
        let (place, pattern) = self.places.remove(&id)?;
        self.forget();
        match place {
            SubscriptionTarget::Own(place) => drop(self.tree.remove(place)),
            SubscriptionTarget::Member(queue) => {
                let key = (queue, pattern);
                let (place, group) = self.groups.get(&key)?;
                let mut members = group.members.write();
                Arc::make_mut(&mut *members).retain(|(member, _)| *member != id);
                let empty = members.is_empty();
                drop(members);
                if empty {
                    let place = *place;
                    self.groups.remove(&key);
                    drop(self.tree.remove(place));
                }
            }
        }
        Some(())
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
