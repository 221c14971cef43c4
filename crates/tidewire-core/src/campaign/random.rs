//! Philox4x64-10 (Salmon, Moraes, Dror and Shaw 2011): random numbers from a key and a counter,
//! with no state between.
//!
//! Bit for bit that of NumPy. A run begins at a counter of its own, so that it pays nothing for
//! being seeded.

const MULTIPLIERS: [u64; 2] = [0xD2E7_470E_E14C_6C93, 0xCA5A_8263_9512_1157];
const WEYL: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xBB67_AE85_84CA_A73B];

/// The key of a generator: 128 bits.
pub type Key = [u64; 2];

/// The four words of Philox at a counter.
///
/// ```
/// use tidewire_core::campaign::random::philox;
///
/// // From the known answers of Random123.
/// assert_eq!(philox([0, 0], [0, 0, 0, 0])[0], 0x1655_4d9e_ca36_314c);
/// ```
#[inline]
pub fn philox(mut key: Key, counter: [u64; 4]) -> [u64; 4] {
    let mut words = counter;
    for _ in 0..10 {
        let (high0, low0) = multiply(MULTIPLIERS[0], words[0]);
        let (high1, low1) = multiply(MULTIPLIERS[1], words[2]);
        words = [high1 ^ words[1] ^ key[0], low1, high0 ^ words[3] ^ key[1], low0];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    words
}

#[inline]
fn multiply(a: u64, b: u64) -> (u64, u64) {
    let product = u128::from(a) * u128::from(b);
    ((product >> 64) as u64, product as u64)
}

/// The use of a counter: its third word. Streams of different use never overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Use {
    /// The seeds of runs.
    Seed = 0,
    /// The numbers of a run's `random`.
    Random = 1,
    /// The numbers of a run's NumPy generator.
    Numpy = 2,
}

/// The scope of a stream, one run or one replication: the fourth word of its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Scope {
    /// A run.
    Run = 0,
    /// A replication: one run of each parameter set.
    Replication = 1,
}

/// The counter at which a stream begins: block, index of the run or replication, use, scope.
pub const fn counter(index: u64, of: Use, scope: Scope) -> [u64; 4] {
    [0, index, of as u64, scope as u64]
}

/// A stream of words: the blocks of a key from a counter on, each block from its first word to its
/// last.
///
/// 2^64 blocks long, after which the next run's stream would begin.
///
/// ```
/// use tidewire_core::campaign::random::{Scope, Stream, Use, counter};
///
/// let mut stream = Stream::new([1, 2], counter(7, Use::Random, Scope::Run));
/// let first = stream.word();
/// let position = stream.position();
/// let second = stream.word();
/// assert_ne!(first, second);
/// stream.set_position(position);
/// assert_eq!(stream.word(), second);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    key: Key,
    counter: [u64; 4],
    words: [u64; 4],
    /// How many of `words` are used up.
    used: usize,
}

impl Stream {
    /// The stream of a key that begins at a counter.
    pub const fn new(key: Key, counter: [u64; 4]) -> Self {
        Self { key, counter, words: [0; 4], used: 4 }
    }

    /// The next 64 bits.
    #[inline]
    pub fn word(&mut self) -> u64 {
        if self.used == 4 {
            self.words = philox(self.key, self.counter);
            self.counter[0] = self.counter[0].wrapping_add(1);
            self.used = 0;
        }
        let word = self.words[self.used];
        self.used += 1;
        word
    }

    /// The next number in [0, 1): the upper 53 bits of a word, as NumPy and Python make it.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// The upper `count` (1 to 64) bits of the next word.
    #[inline]
    pub fn bits(&mut self, count: u32) -> u64 {
        self.word() >> (64 - count)
    }

    /// Key, counter of the next block, and how many words of the block before it are used up (4 at
    /// the beginning).
    pub const fn position(&self) -> (Key, [u64; 4], usize) {
        (self.key, self.counter, self.used)
    }

    /// Goes to a position; `used` above 4 counts as 4.
    pub fn set_position(&mut self, (key, counter, used): (Key, [u64; 4], usize)) {
        let mut before = counter;
        before[0] = before[0].wrapping_sub(1);
        *self = Self { key, counter, words: philox(key, before), used: used.min(4) };
    }
}
