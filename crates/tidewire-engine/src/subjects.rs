//! Subscriptions of one engine, by pattern.

pub mod publish;

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tidewire_core::tree::{SubjectTree, SubscriptionId};
use tidewire_proto::subject::{Pattern, Subject};
use tidewire_sync::RwLock;

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
