//! The timing wheel does what a sorted map does.
//!
//! Each 9 bytes of the input are a step: one byte for what to do, eight for a time or a number.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use tidewire_core::wheel::{Key, Wheel};

#[derive(Default)]
struct Pair {
    wheel: Wheel<usize>,
    model: BTreeMap<(u64, usize), Key>,
}

fuzz_target!(|bytes: &[u8]| {
    let mut pair = Pair::default();
    for (n, step) in bytes.chunks_exact(9).enumerate() {
        let number = u64::from_le_bytes(step[1..].try_into().expect("a step has nine bytes"));
        // The kind also says how large a time is, so that every level of the wheel is met.
        let (kind, number) = (step[0] % 4, number >> (step[0] / 4));
        match kind {
            0 | 1 => pair.insert(pair.wheel.now().saturating_add(number), n),
            2 => pair.remove(number),
            _ => pair.advance(pair.wheel.now().saturating_add(number)),
        }
    }
    pair.advance(u64::MAX);
    assert!(pair.wheel.is_empty());
});

impl Pair {
    fn insert(&mut self, deadline: u64, value: usize) {
        self.model.insert((deadline, value), self.wheel.insert(deadline, value));
    }

    fn remove(&mut self, number: u64) {
        let chosen =
            number.checked_rem(self.model.len() as u64).and_then(|index| self.model.iter().nth(index as usize));
        if let Some((&(deadline, value), &key)) = chosen {
            assert_eq!(self.wheel.deadline(key), Some(deadline));
            assert_eq!(self.wheel.remove(key), Some(value));
            assert_eq!(self.wheel.remove(key), None);
            self.model.remove(&(deadline, value));
        }
    }

    fn advance(&mut self, now: u64) {
        while let Some(first) = self.model.first_entry().filter(|first| first.key().0 <= now) {
            let ((_, value), key) = first.remove_entry();
            assert_eq!(self.wheel.poll(now), Some((key, value)));
        }
        assert_eq!(self.wheel.poll(now), None);
        let first = self.model.first_key_value().map(|(&(deadline, _), _)| deadline);
        assert!(self.wheel.next_deadline() <= first && self.wheel.next_deadline().is_some() == first.is_some());
    }
}
