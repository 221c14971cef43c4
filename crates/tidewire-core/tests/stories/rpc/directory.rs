//! Directory of a node, as the hub updates it.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use tidewire_core::rpc::directory::{Change, Directory};

type All = BTreeMap<u8, u8>;

/// A hub that answers with lists and tells of changes, and the link between: lists and changes each
/// arrive in their order, and overtake each other.
#[derive(Default)]
struct Hub {
    there: All,
    told: VecDeque<(u8, Option<u8>)>,
    lists: VecDeque<(u64, All)>,
}

#[derive(Clone, Debug)]
enum Step {
    Comes(u8, u8),
    Leaves(u8),
    /// A list is asked for, and written.
    Asks,
    ChangeArrives,
    ListArrives,
    GivesUp,
    /// The update of the hub is lost.
    Misses,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..5, 0u8..3).prop_map(|(key, value)| Step::Comes(key, value)),
        3 => (0u8..5).prop_map(Step::Leaves),
        2 => Just(Step::Asks),
        6 => Just(Step::ChangeArrives),
        2 => Just(Step::ListArrives),
        1 => Just(Step::GivesUp),
        1 => Just(Step::Misses),
    ]
}

/// A reader that has only the changes which the directory says.
fn apply(seen: &mut All, changes: impl IntoIterator<Item = Change<u8, u8>>) {
    for change in changes {
        match change {
            Change::Came(key, value) => assert_eq!(seen.insert(key, value), None, "{key} is there already"),
            Change::Left(key, value) => assert_eq!(seen.remove(&key), Some(value), "{key} was not there so"),
        }
    }
}

fn arrives(hub: &mut Hub, directory: &mut Directory<u8, u8>, seen: &mut All) {
    match hub.told.pop_front() {
        Some((key, Some(value))) => apply(seen, directory.came(key, value)),
        Some((key, None)) => apply(seen, directory.left(&key)),
        None => {}
    }
}

proptest! {
    #[test]
    fn a_directory_that_has_read_every_update_equals_that_of_the_hub(steps in prop::collection::vec(step(), 0..60)) {
        let (mut hub, mut directory, mut seen) = (Hub::default(), Directory::default(), All::new());
        for step in steps {
            match step {
                Step::Comes(key, value) => {
                    hub.there.insert(key, value);
                    hub.told.push_back((key, Some(value)));
                }
                Step::Leaves(key) => {
                    if hub.there.remove(&key).is_some() {
                        hub.told.push_back((key, None));
                    }
                }
                Step::Asks => hub.lists.push_back((directory.ask(), hub.there.clone())),
                Step::ChangeArrives => arrives(&mut hub, &mut directory, &mut seen),
                Step::ListArrives => {
                    if let Some((number, list)) = hub.lists.pop_front() {
                        apply(&mut seen, directory.listed(number, list));
                    }
                }
                Step::GivesUp => {
                    if let Some((number, list)) = hub.lists.pop_back() {
                        directory.give_up(number);
                        prop_assert_eq!(directory.listed(number, list), []);
                    }
                }
                Step::Misses => {
                    hub.told.clear();
                    directory.missed();
                    prop_assert!(!directory.is_current());
                }
            }
        }
        while !hub.told.is_empty() {
            arrives(&mut hub, &mut directory, &mut seen);
        }
        if directory.is_current() {
            prop_assert_eq!(&seen, &hub.there);
        }
        // The next list has every update that was lost.
        let number = directory.ask();
        apply(&mut seen, directory.listed(number, hub.there.clone()));
        prop_assert_eq!(&seen, &hub.there);
        prop_assert!(directory.is_current());
        prop_assert!((0..5).all(|key| directory.get(&key) == hub.there.get(&key)));
    }
}

#[test]
fn forgotten_entries_are_told_again() {
    let mut directory = Directory::default();
    assert_eq!(directory.came("a", 1), [Change::Came("a", 1)]);
    let again = directory.ask();
    assert_eq!(directory.listed(again, [("a", 1)]), []);
    directory.forget(&"a");
    let again = directory.ask();
    assert_eq!(directory.listed(again, [("a", 1)]), [Change::Came("a", 1)]);
}

#[test]
fn a_list_that_was_asked_for_before_changes_were_lost_makes_nothing_current() {
    let mut directory = Directory::<u8, u8>::default();
    let number = directory.ask();
    directory.missed();
    assert_eq!(directory.listed(number, []), []);
    assert!(!directory.is_current());
}
