//! The subject tree finds what a list of patterns finds.
//!
//! Each line of the input is a step: `+pattern` inserts, `-n` removes the n-th subscription,
//! anything else is looked up.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_core::tree::{SubjectTree, SubscriptionId};
use tidewire_proto::subject::{Pattern, Subject};

#[derive(Default)]
struct Pair {
    tree: SubjectTree<usize>,
    list: Vec<(SubscriptionId, Pattern, usize)>,
}

fuzz_target!(|text: &str| {
    let mut pair = Pair::default();
    for (n, line) in text.lines().take(1_000).enumerate() {
        if let Some(text) = line.strip_prefix('+') {
            pair.insert(text, n);
        } else if let Some(number) = line.strip_prefix('-') {
            pair.remove(number.parse().unwrap_or(0));
        } else {
            pair.find(line);
        }
    }
    while !pair.list.is_empty() {
        pair.remove(0);
    }
    assert_eq!((pair.tree.len(), pair.tree.nodes()), (0, 1));
});

impl Pair {
    fn insert(&mut self, text: &str, value: usize) {
        if let Ok(pattern) = Pattern::new(text) {
            self.list.push((self.tree.insert(&pattern, value), pattern, value));
        }
    }

    fn remove(&mut self, number: usize) {
        if !self.list.is_empty() {
            let (id, _, value) = self.list.swap_remove(number % self.list.len());
            assert_eq!(self.tree.remove(id), Some(value));
            assert_eq!(self.tree.remove(id), None);
        }
    }

    fn find(&self, text: &str) {
        let Ok(subject) = Subject::new(text) else { return };
        let selecting = self.list.iter().filter(|(_, pattern, _)| pattern.matches(&subject));
        let mut expected: Vec<usize> = selecting.map(|(_, _, value)| *value).collect();
        let mut found = self.tree.matches(&subject);
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected);
    }
}
