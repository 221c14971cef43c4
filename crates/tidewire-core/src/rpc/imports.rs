//! The import table of a node: functions, objects and streams of other nodes that it holds, and the
//! updates for their owners.

use std::collections::BTreeMap;
use std::sync::Arc;

/// An object of another node.
#[derive(Debug)]
struct Entry<T> {
    value: T,
    /// Distinguishes the present proxy of the key from an earlier one.
    identity: usize,
    /// The number of the owner's link.
    node: u32,
    /// References that came and were not released.
    count: u64,
    /// True if its owner has released it, or has left.
    is_lost: bool,
}

/// Updates for one owner: first the claimed keys, then the released ones with their numbers of
/// references.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportUpdates {
    /// Keys that were claimed.
    pub claims: Vec<Arc<str>>,
    /// Keys that were released, each with all references to it that had come.
    pub releases: Vec<(Arc<str>, u64)>,
}

/// The table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display, derive_more::Error)]
#[display("remote_objects={most}: so many imports are open: dispose some")]
pub struct Full {
    most: usize,
}

/// The objects of other nodes that a node holds, by key. `T` finds the local proxy, which may have
/// been dropped already. Then a new proxy takes the key over with its references, and the release
/// of the old proxy has no effect. Removed values are returned, so that the caller drops them
/// without a lock.
///
/// ```
/// use tidewire_core::rpc::imports::Imports;
///
/// let mut imports = Imports::new(1_000);
/// imports.add("0a1b", 7, 1, "a proxy").unwrap();
/// assert!(imports.again("0a1b"));
/// assert_eq!(&*imports.updates()[&7].claims[0], "0a1b");
/// assert_eq!(imports.release("0a1b", 1), Some("a proxy"));
/// assert_eq!(imports.updates()[&7].releases, [("0a1b".into(), 2)]);
/// ```
#[derive(Debug)]
pub struct Imports<T> {
    entries: BTreeMap<Arc<str>, Entry<T>>,
    updates: BTreeMap<u32, ImportUpdates>,
    most: usize,
}

impl<T> Imports<T> {
    /// A table for so many objects.
    pub fn new(most: usize) -> Self {
        Self { entries: BTreeMap::new(), updates: BTreeMap::new(), most }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if the table is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value under a key.
    pub fn get(&self, key: &str) -> Option<&T> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(|key| &**key)
    }

    /// True if this proxy holds the key, and the key is not lost.
    pub fn holds(&self, key: &str, identity: usize) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.identity == identity && !entry.is_lost)
    }

    /// Counts a further reference to a held key. False: the key is not held.
    pub fn again(&mut self, key: &str) -> bool {
        self.entries.get_mut(key).filter(|entry| !entry.is_lost).map(|entry| entry.count += 1).is_some()
    }

    /// Adds a reference to a key that is not held, or whose proxy is gone. Returns the value of
    /// that earlier proxy.
    ///
    /// # Errors
    /// [`Full`], if the table is full.
    pub fn add(&mut self, key: &str, node: u32, identity: usize, value: T) -> Result<Option<T>, Full> {
        let before = self.entries.remove_entry(key);
        if before.is_none() && self.len() >= self.most {
            return Err(Full { most: self.most });
        }
        let known = before.as_ref().filter(|(_, entry)| !entry.is_lost);
        let (key, count) = known.map_or_else(|| (key.into(), 0), |(key, entry)| (Arc::clone(key), entry.count));
        if count == 0 {
            self.updates.entry(node).or_default().claims.push(Arc::clone(&key));
        }
        self.entries.insert(key, Entry { value, identity, node, count: count + 1, is_lost: false });
        Ok(before.map(|(_, entry)| entry.value))
    }

    /// Releases the key of a dropped proxy: its owner is notified, unless the key is lost. None:
    /// another proxy holds the key by now.
    pub fn release(&mut self, key: &str, identity: usize) -> Option<T> {
        self.entries.get(key).filter(|entry| entry.identity == identity)?;
        let (key, Entry { value, node, count, is_lost, .. }) = self.entries.remove_entry(key)?;
        if !is_lost {
            let updates = self.updates.entry(node).or_default();
            // A key whose claim was not sent yet needs none.
            updates.claims.retain(|claimed| *claimed != key);
            updates.releases.push((key, count));
        }
        Some(value)
    }

    /// Its owner has released it, or can't be reached. It stays until nobody has it.
    pub fn lost(&mut self, key: &str, identity: usize) {
        if let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.identity == identity) {
            entry.is_lost = true;
        }
    }

    /// The node of a link has left: its objects are lost.
    pub fn left(&mut self, node: u32) {
        self.updates.remove(&node);
        self.entries.values_mut().filter(|entry| entry.node == node).for_each(|entry| entry.is_lost = true);
    }

    /// The link of this node was lost: owners have let all go.
    pub fn clear(&mut self) -> Vec<T> {
        self.updates.clear();
        std::mem::take(&mut self.entries).into_values().map(|entry| entry.value).collect()
    }

    /// Takes the updates for the owners since the last call, by the numbers of their links.
    pub fn updates(&mut self) -> BTreeMap<u32, ImportUpdates> {
        std::mem::take(&mut self.updates)
    }
}
