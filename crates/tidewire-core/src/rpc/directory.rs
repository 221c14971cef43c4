//! The directory of a node: services and nodes, as the hub reports them in lists and in updates
//! that may overtake the lists.

use std::collections::{BTreeMap, BTreeSet};

/// A change of an entry. A replaced entry has left, and its successor has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<K, V> {
    /// The entry has come.
    Came(K, V),
    /// The entry has left.
    Left(K, V),
}

/// A list request without an answer yet.
#[derive(Debug)]
struct ListRequest<K> {
    /// Keys with updates newer than the list.
    updated: BTreeSet<K>,
    /// Changes were lost meanwhile: after the list was written, perhaps.
    has_missed: bool,
}

/// The known entries, by key. A list replaces all of them, except those with an update since the
/// list was requested.
///
/// ```
/// use tidewire_core::rpc::directory::{Change, Directory};
///
/// let mut directory = Directory::default();
/// let list = directory.ask();
/// assert_eq!(directory.came("a", 1), [Change::Came("a", 1)]);
/// assert_eq!(directory.listed(list, [("b", 2)]), [Change::Came("b", 2)]);
/// assert_eq!(directory.left(&"a"), Some(Change::Left("a", 1)));
/// assert!(directory.is_current());
/// ```
#[derive(Debug)]
pub struct Directory<K, V> {
    known: BTreeMap<K, V>,
    /// The pending list requests, by number.
    requests: BTreeMap<u64, ListRequest<K>>,
    next: u64,
    is_current: bool,
}

impl<K: Ord + Clone, V: PartialEq + Clone> Directory<K, V> {
    /// A list is asked for: its number. [`listed`](Self::listed) or [`give_up`](Self::give_up) is
    /// to follow.
    pub fn ask(&mut self) -> u64 {
        self.next += 1;
        self.requests.insert(self.next, ListRequest { updated: BTreeSet::new(), has_missed: false });
        self.next
    }

    /// A list will not come.
    pub fn give_up(&mut self, number: u64) {
        self.requests.remove(&number);
    }

    /// A list has come. Nothing happens if it was given up.
    pub fn listed(&mut self, number: u64, entries: impl IntoIterator<Item = (K, V)>) -> Vec<Change<K, V>> {
        let Some(ListRequest { updated, has_missed }) = self.requests.remove(&number) else { return Vec::new() };
        let entries: Vec<_> = entries.into_iter().filter(|(key, _)| !updated.contains(key)).collect();
        let present: BTreeSet<&K> = entries.iter().map(|(key, _)| key).chain(&updated).collect();
        let absent: Vec<K> = self.known.keys().filter(|key| !present.contains(key)).cloned().collect();
        let mut changes: Vec<_> = absent.iter().filter_map(|key| self.take(key)).collect();
        changes.extend(entries.into_iter().flat_map(|(key, value)| self.put(key, value)));
        self.is_current |= !has_missed;
        changes
    }

    /// An update of the hub: an entry has come.
    pub fn came(&mut self, key: K, value: V) -> Vec<Change<K, V>> {
        self.note_update(&key);
        self.put(key, value)
    }

    /// An update of the hub: an entry has left.
    pub fn left(&mut self, key: &K) -> Option<Change<K, V>> {
        self.note_update(key);
        self.take(key)
    }

    /// Updates were lost: the next list has the present entries.
    pub fn missed(&mut self) {
        self.is_current = false;
        self.requests.values_mut().for_each(|request| request.has_missed = true);
    }

    /// True if all updates of the hub since the last list are known.
    pub fn is_current(&self) -> bool {
        self.is_current
    }

    /// Forgets an entry for which there is no use now: the next list tells of it again.
    pub fn forget(&mut self, key: &K) {
        self.known.remove(key);
    }

    /// The entry of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.known.get(key)
    }

    fn note_update(&mut self, key: &K) {
        for request in self.requests.values_mut() {
            request.updated.insert(key.clone());
        }
    }

    fn put(&mut self, key: K, value: V) -> Vec<Change<K, V>> {
        if self.known.get(&key) == Some(&value) {
            return Vec::new();
        }
        let before = self.known.insert(key.clone(), value.clone());
        let removal = before.map(|before| Change::Left(key.clone(), before));
        removal.into_iter().chain([Change::Came(key, value)]).collect()
    }

    fn take(&mut self, key: &K) -> Option<Change<K, V>> {
        self.known.remove(key).map(|value| Change::Left(key.clone(), value))
    }
}

impl<K: Ord + Clone, V: PartialEq + Clone> Default for Directory<K, V> {
    /// A directory that knows nobody.
    fn default() -> Self {
        Self { known: BTreeMap::new(), requests: BTreeMap::new(), next: 0, is_current: false }
    }
}
