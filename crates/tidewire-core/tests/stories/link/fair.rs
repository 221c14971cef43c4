//! A fair queue: nothing is lost or overtaken, nobody waits behind a flood, and the queue is
//! bounded.

use std::collections::BTreeMap;

use tidewire_core::link::fair::FairQueue;

use crate::link::support::{KIB, MIB, Random};

#[test]
fn entries_of_a_sender_keep_their_order_and_senders_take_turns() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut queue = FairQueue::new(random.pick(&[KIB, 10 * KIB, MIB]));
        let (mut added, mut came) = (BTreeMap::<u32, Vec<u32>>::new(), BTreeMap::<u32, Vec<u32>>::new());
        // Senders with a waiting entry, and how many entries of others have come before it.
        let mut passed = BTreeMap::<u32, usize>::new();
        for number in 0..2_000 {
            if random.chance(2) {
                let sender = random.below(5) as u32;
                match queue.add(sender, random.below(1_000), number) {
                    Ok(()) => {
                        added.entry(sender).or_default().push(number);
                        passed.entry(sender).or_insert(0);
                    }
                    Err(back) => assert_eq!(back, number),
                }
            } else if let Some(item) = queue.take() {
                let of = |(_, items): &(&u32, &Vec<u32>)| items.contains(&item);
                let sender = *added.iter().find(of).expect("it was added").0;
                came.entry(sender).or_default().push(item);
                for (other, count) in &mut passed {
                    *count = if *other == sender { 0 } else { *count + 1 };
                    assert!(*count < 5, "seed {seed}: each other sender has had a turn");
                }
                if came[&sender].len() == added[&sender].len() {
                    passed.remove(&sender);
                }
            } else {
                assert!(queue.is_empty() && passed.is_empty() && queue.bytes() == 0);
            }
        }
        while let Some(item) = queue.take() {
            let (sender, _) = added.iter().find(|(_, items)| items.contains(&item)).expect("it was added");
            came.entry(*sender).or_default().push(item);
        }
        assert_eq!((&came, queue.bytes()), (&added, 0), "seed {seed}");
    }
}

#[test]
fn a_flood_leaves_room_for_others() {
    let mut queue = FairQueue::new(MIB);
    let mut flood = 0;
    while queue.add(1, 100, 1).is_ok() {
        flood += 1;
    }
    assert!((MIB / 2 - KIB..=MIB / 2 + KIB).contains(&queue.bytes()), "{flood} entries take {} bytes", queue.bytes());
    for sender in 2..10 {
        assert!(queue.add(sender, 100, sender).is_ok(), "there is room for {sender}");
    }
    let next: Vec<_> = (0..9).filter_map(|_| queue.take()).collect();
    assert_eq!(next, [1, 2, 3, 4, 5, 6, 7, 8, 9], "nobody waits for the flood");
}

#[test]
fn one_that_is_longer_than_the_room_comes_alone() {
    let mut queue = FairQueue::new(KIB);
    assert_eq!(queue.add(1, MIB, "long"), Ok(()));
    assert_eq!(queue.add(2, 1, "short"), Err("short"));
    assert_eq!((queue.take(), queue.take()), (Some("long"), None));
    assert_eq!(queue.add(2, 1, "short"), Ok(()));
}
