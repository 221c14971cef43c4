//! Benchmark of the timer wheel: `cargo bench -p tidewire-core --bench wheel [rounds]`.
//!
//! Prints nanoseconds per operation as min, median and max over the rounds.

use std::hint::black_box;
use std::time::Instant;

use tidewire_core::wheel::{Key, Wheel};

const WAITING: u64 = 1_000_000;
const MINUTE_US: u64 = 60_000_000;

fn main() {
    let rounds = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(11);
    println!("tidewire-core {}, {}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS);
    println!("{rounds} rounds, ns per operation: min / median / max");
    report("insert + remove, wheel empty", rounds, || insert_remove(&mut Wheel::default()));
    let mut full = filled(&mut Random(1)).0;
    report("insert + remove, 1,000,000 wait", rounds, || insert_remove(&mut full));
    report("insert of 1,000,000, new wheel", rounds, || timed(WAITING, || drop(black_box(filled(&mut Random(2))))));
    report("remove of 1,000,000, same order", rounds, || remove_all(|_| {}));
    report("remove of 1,000,000, any order", rounds, || remove_all(|keys| shuffle(keys, &mut Random(3))));
    report("fire 1,000,000 due in a minute", rounds, fire_all);
}

/// A timer that is cancelled soon after it was set, as most timeouts are.
fn insert_remove(wheel: &mut Wheel<u64>) -> f64 {
    let mut random = Random(4);
    timed(WAITING, || {
        for value in 0..WAITING {
            let key = wheel.insert(random.below(MINUTE_US), value);
            black_box(wheel.remove(key));
        }
    })
}

fn remove_all(arrange: impl Fn(&mut [Key])) -> f64 {
    let (mut wheel, mut keys) = filled(&mut Random(5));
    arrange(&mut keys);
    timed(WAITING, || {
        for &key in &keys {
            black_box(wheel.remove(key));
        }
    })
}

fn fire_all() -> f64 {
    let (mut wheel, _) = filled(&mut Random(6));
    timed(WAITING, || {
        for now in (0..=MINUTE_US).step_by(1_000) {
            wheel.advance(now, &mut |_, value| {
                black_box(value);
            });
        }
    })
}

fn filled(random: &mut Random) -> (Wheel<u64>, Vec<Key>) {
    let mut wheel = Wheel::default();
    let keys = (0..WAITING).map(|value| wheel.insert(random.below(MINUTE_US), value)).collect();
    (wheel, keys)
}

fn shuffle(keys: &mut [Key], random: &mut Random) {
    for last in (1..keys.len()).rev() {
        keys.swap(last, random.below(last as u64 + 1) as usize);
    }
}

fn timed(operations: u64, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / operations as f64
}

fn report(name: &str, rounds: usize, mut measure: impl FnMut() -> f64) {
    let mut times: Vec<f64> = (0..rounds.max(1)).map(|_| measure()).collect();
    times.sort_by(f64::total_cmp);
    println!("{name:32} {:6.1} / {:6.1} / {:6.1}", times[0], times[times.len() / 2], times[times.len() - 1]);
}

/// A linear congruential generator: the same deadlines on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
