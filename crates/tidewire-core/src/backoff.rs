//! Backoff: growing delays between attempts, spread out so that many callers that failed together
//! do not return together.

/// The delays before the first, second, ... new attempt, in microseconds.
///
/// The full delay is `initial_us`, doubled for each attempt up to `max_us`. Each delay is drawn
/// evenly from the upper half of the full one. The draws come from the seed alone: the same seed
/// gives the same delays.
///
/// ```
/// use tidewire_core::backoff::Backoff;
///
/// let mut backoff = Backoff::new(1_000, 8_000, 42);
/// let delays: Vec<u64> = (0..5).map(|_| backoff.next_delay_us()).collect();
/// for (delay, full) in delays.iter().zip([1_000, 2_000, 4_000, 8_000, 8_000]) {
///     assert!((full / 2..=full).contains(delay));
/// }
///
/// backoff.reset();
/// assert!(backoff.next_delay_us() <= 1_000);
///
/// // The next delay is one of 2,000: success for 5 microseconds is none.
/// backoff.reset_after(5);
/// assert_eq!(backoff.attempts(), 1);
/// backoff.reset_after(2_000);
/// assert_eq!(backoff.attempts(), 0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    initial_us: u64,
    max_us: u64,
    full_us: u64,
    attempts: u32,
    random: u64,
}

impl Backoff {
    /// A backoff before its first delay. An initial delay above the maximum counts as the maximum;
    /// one of 0 stays 0.
    pub fn new(initial_us: u64, max_us: u64, seed: u64) -> Self {
        let initial_us = initial_us.min(max_us);
        Self { initial_us, max_us, full_us: initial_us, attempts: 0, random: seed }
    }

    /// How long to wait before the next attempt.
    pub fn next_delay_us(&mut self) -> u64 {
        let full = self.full_us;
        self.full_us = full.saturating_mul(2).min(self.max_us);
        self.attempts = self.attempts.saturating_add(1);
        full - self.draw(full / 2)
    }

    /// How many delays were given since the beginning or the last reset.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Goes back to the initial delay, after an attempt that succeeded. The draws go on; they do
    /// not repeat.
    pub fn reset(&mut self) {
        self.full_us = self.initial_us;
        self.attempts = 0;
    }

    /// The attempt succeeded, and lasted so long. After one that was shorter than the next delay,
    /// the delays go on growing.
    pub fn reset_after(&mut self, lasted_us: u64) {
        if lasted_us >= self.full_us {
            self.reset();
        }
    }

    /// A number from 0 to `most`, evenly.
    fn draw(&mut self, most: u64) -> u64 {
        let wide = u128::from(next_random(&mut self.random)) * (u128::from(most) + 1);
        (wide >> 64) as u64
    }
}

/// SplitMix64: one addition and a mix, good from any seed, the next one included.
pub fn next_random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
