//! The nodes of the tree: one for each beginning of a pattern, in one vector.

use core::num::NonZeroU64;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The node that no token leads to. It is never removed.
pub(super) const ROOT: u32 = 0;
/// No node.
const NIL: u32 = u32::MAX;

/// A node of the tree: the patterns that begin with the same tokens.
#[derive(Clone, Debug)]
pub(super) struct Node<T> {
    /// The subscriptions whose pattern ends here, by serial.
    pub values: Vec<(NonZeroU64, T)>,
    parent: u32,
    /// The token that leads here from the parent.
    token: Arc<str>,
    literals: BTreeMap<Arc<str>, u32>,
    /// The child for `*`.
    one: u32,
    /// The child for `>`.
    rest: u32,
}

impl<T> Node<T> {
    fn new(parent: u32, token: Arc<str>) -> Self {
        Self { values: Vec::new(), parent, token, literals: BTreeMap::new(), one: NIL, rest: NIL }
    }

    fn is_needless(&self) -> bool {
        self.values.is_empty() && self.literals.is_empty() && self.one == NIL && self.rest == NIL
    }

    fn child(&self, token: &str) -> u32 {
        match token {
            "*" => self.one,
            ">" => self.rest,
            _ => self.literals.get(token).copied().unwrap_or(NIL),
        }
    }

    fn set_child(&mut self, token: &Arc<str>, child: u32) {
        match &**token {
            "*" => self.one = child,
            ">" => self.rest = child,
            _ => drop(self.literals.insert(Arc::clone(token), child)),
        }
    }

    fn clear_child(&mut self, token: &str) {
        match token {
            "*" => self.one = NIL,
            ">" => self.rest = NIL,
            _ => drop(self.literals.remove(token)),
        }
    }
}

/// Nodes with indices that stay the same; places of removed ones are used again.
#[derive(Clone, Debug)]
pub(super) struct Nodes<T> {
    places: Vec<Option<Node<T>>>,
    free: Vec<u32>,
}

impl<T> Nodes<T> {
    pub fn new() -> Self {
        Self { places: vec![Some(Node::new(NIL, Arc::default()))], free: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub fn try_get(&self, index: u32) -> Option<&Node<T>> {
        self.places.get(index as usize)?.as_ref()
    }

    pub fn get(&self, index: u32) -> &Node<T> {
        self.try_get(index).expect("a linked node exists")
    }

    pub fn get_mut(&mut self, index: u32) -> &mut Node<T> {
        self.places[index as usize].as_mut().expect("a linked node exists")
    }

    pub fn child_or_new(&mut self, parent: u32, token: &str) -> u32 {
        let child = self.get(parent).child(token);
        if child != NIL {
            return child;
        }
        let token = Arc::from(token);
        let child = self.place(Node::new(parent, Arc::clone(&token)));
        self.get_mut(parent).set_child(&token, child);
        child
    }

    /// Removes a node if nothing is at it or below it, and then its parents likewise.
    pub fn prune(&mut self, mut index: u32) {
        while index != ROOT && self.get(index).is_needless() {
            let node = self.places[index as usize].take().expect("a linked node exists");
            self.free.push(index);
            self.get_mut(node.parent).clear_child(&node.token);
            index = node.parent;
        }
        if self.len() == 1 {
            *self = Self::new();
        }
    }

    /// Visits the values that match the tokens that are left. The depth is that of the tree, not of
    /// the text.
    pub fn walk(&self, index: u32, rest: Option<&str>, visit: &mut impl FnMut(&T)) {
        let node = self.get(index);
        let Some(rest) = rest else {
            return node.values.iter().for_each(|(_, value)| visit(value));
        };
        let (token, rest) = match rest.split_once('.') {
            Some((token, rest)) => (token, Some(rest)),
            None => (rest, None),
        };
        if let Some(&child) = node.literals.get(token) {
            self.walk(child, rest, visit);
        }
        if node.one != NIL {
            self.walk(node.one, rest, visit);
        }
        if node.rest != NIL {
            self.walk(node.rest, None, visit);
        }
    }

    fn place(&mut self, node: Node<T>) -> u32 {
        if let Some(index) = self.free.pop() {
            self.places[index as usize] = Some(node);
            return index;
        }
        let index = self.places.len();
        assert!(index < NIL as usize, "a tree has at most {NIL} nodes; remove subscriptions, or use a second tree");
        self.places.push(Some(node));
        index as u32
    }
}
