//! The import table: held objects, and the updates for their owners.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidewire_core::rpc::imports::{ImportUpdates, Imports};

fn updates(claims: &[&str], releases: &[(&str, u64)]) -> ImportUpdates {
    ImportUpdates {
        claims: claims.iter().map(|key| (*key).into()).collect(),
        releases: releases.iter().map(|(key, count)| ((*key).into(), *count)).collect(),
    }
}

#[test]
fn nobody_is_told_of_what_is_lost() {
    let mut imports = Imports::new(4);
    for (identity, (key, node)) in [("a", 7), ("b", 7), ("c", 8), ("d", 9)].into_iter().enumerate() {
        imports.add(key, node, identity, key).expect("room");
    }
    assert_eq!(imports.keys().collect::<String>(), "abcd");
    imports.left(7);
    imports.lost("c", 2);
    assert_eq!(
        (imports.len(), imports.holds("b", 1), imports.holds("c", 2), imports.again("c")),
        (4, false, false, false)
    );
    assert_eq!((imports.release("a", 0), imports.release("c", 2)), (Some("a"), Some("c")));
    assert_eq!(imports.updates(), BTreeMap::from([(8, updates(&["c"], &[])), (9, updates(&["d"], &[]))]));
    assert_eq!(imports.add("b", 7, 4, "anew"), Ok(Some("b")), "its owner has given it again");
    assert_eq!((imports.release("b", 1), imports.release("b", 4)), (None, Some("anew")));
    assert_eq!(imports.updates(), BTreeMap::from([(7, updates(&[], &[("b", 1)]))]));
    assert_eq!((imports.clear(), imports.release("d", 3), imports.updates().len()), (vec!["d"], None, 0));
}

// Promises: P13.63.
#[test]
fn so_much_is_held_and_no_more() {
    let mut imports = Imports::new(1);
    imports.add("a", 7, 1, ()).expect("room");
    let full = imports.add("b", 7, 2, ()).expect_err("it is full").to_string();
    let text = "so many imports are open: dispose some";
    assert_eq!(full, format!("remote_objects=1: {text}"));
    assert_eq!((imports.len(), imports.updates()[&7].claims.len()), (1, 1));
}

proptest! {
    /// An owner that has given references to a key is notified of each of them once, in any order
    /// in which proxies come and go.
    #[test]
    fn every_reference_that_came_is_let_go_once(steps in prop::collection::vec((0usize..3, 0usize..4), 0..80)) {
        const KEYS: [&str; 3] = ["a", "b", "c"];
        let (mut imports, mut came, mut released) = (Imports::new(9), [0u64; 3], [0u64; 3]);
        let (mut last, mut holders) = ([0usize; 3], 0);
        let hear = |imports: &mut Imports<()>, released: &mut [u64; 3]| {
            for (key, count) in imports.updates().into_values().flat_map(|updates| updates.releases) {
                released[KEYS.iter().position(|known| **known == *key).expect("a key")] += count;
            }
        };
        for (at, what) in steps {
            match what {
                0 => came[at] += u64::from(imports.again(KEYS[at])),
                1 => {
                    holders += 1;
                    imports.add(KEYS[at], 7, holders, ()).expect("room");
                    (last[at], came[at]) = (holders, came[at] + 1);
                }
                2 => {
                    // One that was taken over from says nothing.
                    imports.release(KEYS[at], last[at].wrapping_sub(1));
                    imports.release(KEYS[at], last[at]);
                }
                _ => hear(&mut imports, &mut released),
            }
        }
        for (key, last) in KEYS.into_iter().zip(last) {
            imports.release(key, last);
        }
        hear(&mut imports, &mut released);
        prop_assert_eq!(came, released);
    }
}
