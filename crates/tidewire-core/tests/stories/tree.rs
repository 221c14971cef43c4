//! The subject tree against a list of patterns.

use proptest::prelude::*;
use tidewire_core::tree::{SubjectTree, SubscriptionId};
use tidewire_proto::subject::{Pattern, Subject};

fn pattern(text: &str) -> Pattern {
    Pattern::new(text).unwrap()
}

fn subject(text: &str) -> Subject {
    Subject::new(text).unwrap()
}

#[test]
fn matches_come_in_a_fixed_order() {
    let mut tree = SubjectTree::default();
    for text in [">", "*.b", "a.*", "a.b", "*.*", "a.>", "*.>", "a.b", "a", "a.b.c"] {
        tree.insert(&pattern(text), text);
    }
    assert_eq!(tree.matches(&subject("a.b")), ["a.b", "a.b", "a.*", "a.>", "*.b", "*.*", "*.>", ">"]);
}

#[test]
fn a_text_deeper_than_any_subject_is_walked_safely() {
    let mut tree = SubjectTree::default();
    tree.insert(&pattern("*.>"), ());
    let mut visited = 0;
    tree.for_each_match_str(&"a.".repeat(1_000_000), |()| visited += 1);
    assert_eq!(visited, 1);
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Pattern),
    Remove(prop::sample::Index),
    Find(Subject),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>();
    prop_oneof![
        4 => "([abc*]\\.){0,3}[abc*>]".prop_map(|text| Step::Insert(pattern(&text))),
        2 => index.prop_map(Step::Remove),
        3 => "([abcd]\\.){0,4}[abcd]".prop_map(|text| Step::Find(subject(&text))),
    ]
}

/// How many nodes the patterns need: one for each different beginning.
fn beginnings(list: &[(SubscriptionId, Pattern, usize)]) -> usize {
    let mut all = std::collections::BTreeSet::from([String::new()]);
    for (_, pattern, _) in list {
        let mut beginning = String::new();
        for token in pattern.tokens() {
            beginning = beginning + "." + token;
            all.insert(beginning.clone());
        }
    }
    all.len()
}

proptest! {
    #[test]
    fn it_finds_what_a_list_finds(steps in prop::collection::vec(step(), 1..100)) {
        let mut tree = SubjectTree::default();
        let mut list: Vec<(SubscriptionId, Pattern, usize)> = Vec::new();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert(pattern) => list.push((tree.insert(&pattern, n), pattern, n)),
                Step::Remove(which) if !list.is_empty() => {
                    let (id, _, value) = list.remove(which.index(list.len()));
                    prop_assert_eq!(tree.get(id), Some(&value));
                    prop_assert_eq!(tree.remove(id), Some(value));
                    prop_assert_eq!(tree.remove(id), None);
                }
                Step::Remove(_) => {}
                Step::Find(subject) => {
                    let mut found = tree.matches(&subject);
                    found.sort_unstable();
                    let selecting = list.iter().filter(|(_, pattern, _)| pattern.matches(&subject));
                    prop_assert_eq!(found, selecting.map(|(_, _, value)| *value).collect::<Vec<_>>());
                }
            }
            prop_assert_eq!(tree.len(), list.len());
            prop_assert_eq!(tree.nodes(), beginnings(&list));
        }
    }
}
