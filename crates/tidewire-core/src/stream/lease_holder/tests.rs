//! Leases under clocks that differ and calls that take time.

use super::LeaseHolder;
use crate::stream::lease::Leases;

// Promises: P17.53.
#[test]
fn it_is_held_from_its_first_renewal_by_the_time_of_the_call() {
    let mut tenure = LeaseHolder::new(1_500);
    assert_eq!((tenure.fence(0), tenure.times_us()), (None, None));
    tenure.granted(7, 10);
    assert_eq!((tenure.fence(10), tenure.newest()), (None, Some(7)));
    tenure.renewed(10);
    assert_eq!((tenure.fence(1_509), tenure.fence(1_510)), (Some(7), None));
    assert_eq!(tenure.times_us(), Some((510, 1_510)));
    tenure.failed(700);
    assert_eq!(tenure.times_us(), Some((800, 1_510)), "tried again soon, and held for no longer");
    assert_eq!(tenure.end(), Some(7));
    assert_eq!((tenure.fence(11), tenure.end()), (None, None));
}

#[test]
fn an_answer_that_comes_late_does_not_shorten_a_newer_one() {
    let mut tenure = LeaseHolder::new(1_500);
    tenure.granted(1, 0);
    tenure.renewed(500);
    tenure.renewed(0);
    assert_eq!(tenure.fence(1_999), Some(1));
}

// Promises: P17.52.
/// Two holders and a storage backend whose clocks differ and whose calls take time: the holders
/// never both believe that they hold the lease.
#[test]
fn of_two_holders_one_at_most_believes_at_any_time() {
    for seed in 0..200_u64 {
        let mut dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut roll = move |sides: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % sides
        };
        let mut home = Leases::default();
        let mut holders = [LeaseHolder::new(1_000), LeaseHolder::new(1_000)];
        let (mut now_us, skew) = (0_u64, [0, 1_000_000]);
        for ticket in 0..2_000_u64 {
            let which = usize::try_from(roll(2)).unwrap();
            let begun_us = now_us + skew[which];
            let mine = &mut holders[which];
            now_us += roll(40);
            if let Some(fence) = mine.newest() {
                if roll(3) > 0 {
                    let renewed = home.renew("l", fence, now_us);
                    now_us += roll(40);
                    match renewed {
                        Some(_) => mine.renewed(begun_us),
                        None => drop(mine.end()),
                    }
                } else {
                    now_us += roll(800);
                    mine.failed(now_us + skew[which]);
                }
            } else if let Some(crate::stream::lease::Outcome::Granted(_, granted)) =
                home.acquire("l", "h", (1_000, 0), ticket, now_us)
            {
                now_us += roll(900);
                mine.granted(granted.fence, now_us + skew[which]);
            }
            let believers = holders.iter().zip(skew).filter(|(one, skew)| one.fence(now_us + skew).is_some());
            assert!(believers.count() <= 1, "seed {seed}, at {now_us}");
        }
    }
}
