//! Subscriptions, found by subject: a trie of patterns.
//!
//! The cost of finding what matches a subject depends on its tokens and on the branches that match
//! them, not on how many patterns there are; each token costs a binary search among its siblings,
//! and each match one call.
//!
//! ```
//! use tidewire_core::tree::SubjectTree;
//! use tidewire_proto::subject::{Pattern, Subject};
//!
//! let mut tree = SubjectTree::default();
//! tree.insert(&Pattern::new("orders.created")?, "audit");
//! let billing = tree.insert(&Pattern::new("orders.*")?, "billing");
//! tree.insert(&Pattern::new("stock.>")?, "stock");
//!
//! let created = Subject::new("orders.created")?;
//! let mut found = Vec::new();
//! tree.for_each_match(&created, |name| found.push(*name));
//! assert_eq!(found, ["audit", "billing"]);
//!
//! assert_eq!(tree.remove(billing), Some("billing"));
//! assert_eq!(tree.matches(&created), ["audit"]);
//! # Ok::<(), tidewire_proto::subject::SubjectError>(())
//! ```

mod node;

use core::num::NonZeroU64;

use tidewire_proto::subject::{Pattern, Subject};

use node::{Nodes, ROOT};

/// Names one subscription of one tree, for ever: an id is not used again after its subscription was
/// removed.
///
/// Ids compare in the order of insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId {
    serial: NonZeroU64,
    node: u32,
}

impl SubscriptionId {
    /// A number that no other subscription of the same tree has, ever.
    pub fn serial(self) -> u64 {
        self.serial.get()
    }
}

/// Patterns with a `T` each. The same pattern can be there any number of times.
#[derive(Clone, Debug)]
pub struct SubjectTree<T> {
    nodes: Nodes<T>,
    next_serial: NonZeroU64,
    len: usize,
}

impl<T> SubjectTree<T> {
    /// Adds a subscription.
    ///
    /// # Panics
    ///
    /// If the tree has 4,294,967,295 nodes.
    pub fn insert(&mut self, pattern: &Pattern, value: T) -> SubscriptionId {
        let serial = self.next_serial;
        self.next_serial = serial.checked_add(1).expect("a tree takes fewer than 2^64 subscriptions in its life");
        let node = pattern.tokens().fold(ROOT, |node, token| self.nodes.child_or_new(node, token));
        // Serials only grow, so the values of a node stay sorted.
        self.nodes.get_mut(node).values.push((serial, value));
        self.len += 1;
        SubscriptionId { serial, node }
    }

    /// Takes a subscription out, if it was not removed before, and with it the branches that lead
    /// nowhere now.
    pub fn remove(&mut self, id: SubscriptionId) -> Option<T> {
        let position = self.position(id)?;
        let (_, value) = self.nodes.get_mut(id.node).values.remove(position);
        self.nodes.prune(id.node);
        self.len -= 1;
        Some(value)
    }

    /// The value of a subscription.
    pub fn get(&self, id: SubscriptionId) -> Option<&T> {
        let position = self.position(id)?;
        Some(&self.nodes.get(id.node).values[position].1)
    }

    /// The value of a subscription, to be changed.
    pub fn get_mut(&mut self, id: SubscriptionId) -> Option<&mut T> {
        let position = self.position(id)?;
        Some(&mut self.nodes.get_mut(id.node).values[position].1)
    }

    /// Calls `visit` for each subscription whose pattern selects the subject, once per
    /// subscription.
    ///
    /// The order is the same for the same subscriptions: at each token, patterns that name it come
    /// before those with `*`, and those before `>`; subscriptions with the same pattern come in the
    /// order of their insertion.
    pub fn for_each_match(&self, subject: &Subject, visit: impl FnMut(&T)) {
        self.for_each_match_str(subject.as_str(), visit);
    }

    /// Like [`SubjectTree::for_each_match`], for a text that is known to be a subject. The text is
    /// not checked again; for one that is no subject, which subscriptions are visited means
    /// nothing.
    pub fn for_each_match_str(&self, subject: &str, mut visit: impl FnMut(&T)) {
        self.nodes.walk(ROOT, Some(subject), &mut visit);
    }

    /// Collects the values that [`SubjectTree::for_each_match`] visits.
    pub fn matches(&self, subject: &Subject) -> Vec<T>
    where
        T: Clone,
    {
        let mut found = Vec::new();
        self.for_each_match(subject, |value| found.push(value.clone()));
        found
    }

    /// How many subscriptions there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is no subscription.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many nodes the tree has, the root included: at most one for each token of each pattern,
    /// and one.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    fn position(&self, id: SubscriptionId) -> Option<usize> {
        let values = &self.nodes.try_get(id.node)?.values;
        values.binary_search_by_key(&id.serial, |&(serial, _)| serial).ok()
    }
}

impl<T> Default for SubjectTree<T> {
    /// A tree without subscriptions.
    fn default() -> Self {
        Self { nodes: Nodes::new(), next_serial: NonZeroU64::MIN, len: 0 }
    }
}
