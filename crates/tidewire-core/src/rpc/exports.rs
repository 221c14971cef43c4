//! The export table of a node: functions, objects and streams that other nodes hold, each with a
//! lease.

use std::collections::BTreeMap;
use std::sync::Arc;

/// An object that one node, the holder, has received.
#[derive(Debug)]
struct Entry<I, T> {
    value: T,
    identity: I,
    holder: Arc<str>,
    /// The number of the holder's link, once it has called or claimed.
    origin: Option<u32>,
    lease_us: u64,
    until_us: u64,
    /// References of the holder that are not released.
    references: u64,
    /// Calls of it, and calls whose argument it is, that are under way.
    busy: u32,
}

/// A node holds no export of this key.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display, derive_more::Error)]
#[display("{}: {holder:?} holds no export of this key: it was disposed, its lease has ended, or another node holds it", key.get(..8).unwrap_or(key))]
pub struct Gone {
    key: String,
    holder: String,
}

/// The table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display, derive_more::Error)]
#[display("remote_objects={most}: so many exports are open: dispose some, or shorten leases")]
pub struct Full {
    most: usize,
}

/// The objects that a node has exported, by key. `I` identifies an object, and `T` is the value
/// that a call of it needs. Removed values are returned, so that the caller drops them without a
/// lock. Times are microseconds on one clock.
///
/// An object has one key for each node that holds it, and counts the references there. The table
/// removes an object when all of its references were released, when its lease expires, or when the
/// link of its holder is lost. While a call with the object is under way, the object stays, since
/// the answer may bring it back.
///
/// ```
/// use tidewire_core::rpc::exports::Exports;
///
/// let mut exports = Exports::new(1_000, 5_000_000);
/// exports.add("desk", "sum", "0a1b", 600_000_000, "a function", 0).unwrap();
/// assert_eq!(exports.again("desk", &"sum", 1).as_deref(), Some("0a1b"));
/// assert_eq!(exports.used("0a1b", "desk", 7, 2), Ok(&"a function"));
/// assert!(exports.used("0a1b", "other", 8, 2).is_err());
/// assert_eq!(exports.release("0a1b", "desk", 7, 2), Some("a function"));
/// ```
#[derive(Debug)]
pub struct Exports<I, T> {
    entries: BTreeMap<Arc<str>, Entry<I, T>>,
    known: BTreeMap<(Arc<str>, I), Arc<str>>,
    most: usize,
    claim_us: u64,
}

impl<I: Ord + Clone, T> Exports<I, T> {
    /// A table for so many objects. After a call has ended, an object that was exported in the call
    /// waits `claim_us` for the claim of its receiver.
    pub fn new(most: usize, claim_us: u64) -> Self {
        Self { entries: BTreeMap::new(), known: BTreeMap::new(), most, claim_us }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if the table is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Exports an object once more to a node that holds it: returns its key there. None: the node
    /// does not hold it.
    pub fn again(&mut self, holder: &str, identity: &I, now_us: u64) -> Option<Arc<str>> {
        let key = self.known.get(&(Arc::from(holder), identity.clone()))?;
        let entry = self.entries.get_mut(key)?;
        entry.references += 1;
        entry.until_us = now_us.saturating_add(entry.lease_us);
        Some(Arc::clone(key))
    }

    /// Exports an object to a node that does not hold it, under a new key.
    ///
    /// # Errors
    /// [`Full`], if the table is full and no lease has expired.
    pub fn add(
        &mut self,
        holder: &str,
        identity: I,
        key: &str,
        lease_us: u64,
        value: T,
        now_us: u64,
    ) -> Result<Vec<T>, Full> {
        let expired = if self.len() < self.most { Vec::new() } else { self.expire(now_us).0 };
        if self.len() >= self.most {
            return Err(Full { most: self.most });
        }
        let (key, holder): (Arc<str>, Arc<str>) = (key.into(), holder.into());
        self.known.insert((Arc::clone(&holder), identity.clone()), Arc::clone(&key));
        let until_us = now_us.saturating_add(lease_us);
        self.entries
            .insert(key, Entry { value, identity, holder, origin: None, lease_us, until_us, references: 1, busy: 0 });
        Ok(expired)
    }

    /// The value of an object that a node calls; the lease begins anew.
    ///
    /// # Errors
    /// [`Gone`], if that node, at that link, holds nothing under this key.
    pub fn used(&mut self, key: &str, holder: &str, origin: u32, now_us: u64) -> Result<&T, Gone> {
        let error = || Gone { key: key.to_owned(), holder: holder.to_owned() };
        let entry = self.entries.get_mut(key).filter(|entry| entry.references > 0 && entry.is_held_by(holder, origin));
        let entry = entry.ok_or_else(error)?;
        entry.origin = Some(origin);
        entry.until_us = now_us.saturating_add(entry.lease_us);
        Ok(&entry.value)
    }

    /// Records that a node has received an object. An object that has been removed needs no claim.
    ///
    /// # Errors
    /// [`Gone`], if another node holds it.
    pub fn claim(&mut self, key: &str, holder: &str, origin: u32, now_us: u64) -> Result<(), Gone> {
        if self.contains(key) { self.used(key, holder, origin, now_us).map(drop) } else { Ok(()) }
    }

    /// The object that its holder sends back. Without a node, the object may come from anywhere.
    pub fn returned(&self, key: &str, from: Option<(&str, u32)>) -> Option<&T> {
        let is_of = |entry: &&Entry<I, T>| from.is_none_or(|(holder, origin)| entry.is_held_by(holder, origin));
        self.entries.get(key).filter(is_of).map(|entry| &entry.value)
    }

    /// True if the table has this key.
    pub fn contains(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// True if its holder has ever claimed or called it.
    pub fn is_claimed(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.origin.is_some())
    }

    /// A call of it, or with it, begins: its lease stands still.
    pub fn begins(&mut self, key: &str) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.busy += 1;
        }
    }

    /// A call with the object has ended. Returns the new end of its lease, or the value if it is
    /// removed with the call.
    pub fn ends(&mut self, key: &str, now_us: u64) -> (Option<u64>, Option<T>) {
        let claim_us = self.claim_us;
        let Some(entry) = self.entries.get_mut(key) else { return (None, None) };
        entry.busy = entry.busy.saturating_sub(1);
        // The holder may never have read the object: the call may have been cancelled before it
        // began.
        let left_us = if entry.origin.is_some() { entry.lease_us } else { entry.lease_us.min(claim_us) };
        entry.until_us = now_us.saturating_add(left_us);
        if entry.is_unused() {
            return (None, self.remove(key));
        }
        (Some(entry.until_us), None)
    }

    /// Releases so many references of a node, and returns the value with the last one. References
    /// of other nodes or other links stay.
    pub fn release(&mut self, key: &str, holder: &str, origin: u32, count: u64) -> Option<T> {
        let entry = self.entries.get_mut(key).filter(|entry| entry.is_held_by(holder, origin))?;
        entry.references = entry.references.saturating_sub(count);
        if entry.is_unused() { self.remove(key) } else { None }
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: &str) -> Option<T> {
        let Entry { value, identity, holder, .. } = self.entries.remove(key)?;
        self.known.remove(&(holder, identity));
        Some(value)
    }

    /// The node of a link has left: removes its exports.
    pub fn left(&mut self, origin: u32) -> Vec<T> {
        self.remove_all(|entry| entry.origin == Some(origin))
    }

    /// Disposes an object for its owner: all entries of it are removed.
    pub fn dispose(&mut self, identity: &I) -> Vec<T> {
        self.remove_all(|entry| entry.identity == *identity)
    }

    /// Removes the entries with an expired lease, and returns the time of the next expiry.
    pub fn expire(&mut self, now_us: u64) -> (Vec<T>, Option<u64>) {
        let expired = self.remove_all(|entry| entry.busy == 0 && entry.until_us <= now_us);
        (expired, self.entries.values().filter(|entry| entry.busy == 0).map(|entry| entry.until_us).min())
    }

    /// The values of all exports.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.values().map(|entry| &entry.value)
    }

    /// Removes all entries.
    pub fn clear(&mut self) -> Vec<T> {
        self.remove_all(|_| true)
    }

    fn remove_all(&mut self, which: impl Fn(&Entry<I, T>) -> bool) -> Vec<T> {
        let all = self.entries.iter().filter(|(_, entry)| which(entry));
        let keys: Vec<_> = all.map(|(key, _)| Arc::clone(key)).collect();
        keys.iter().filter_map(|key| self.remove(key)).collect()
    }
}

impl<I, T> Entry<I, T> {
    /// True if it was exported to this node, and at the link of this number, as far as the link is
    /// known.
    fn is_held_by(&self, holder: &str, origin: u32) -> bool {
        &*self.holder == holder && self.origin.is_none_or(|known| known == origin)
    }

    fn is_unused(&self) -> bool {
        self.references == 0 && self.busy == 0
    }
}
