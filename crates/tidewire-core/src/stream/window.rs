//! The window of a publisher: messages that wait to be stored, in batches of which one is under way
//! at a time.
//!
//! Messages that arrive while a batch is stored form the next batch. So a slow storage backend gets
//! large batches, and the order of messages stays the same.
//!
//! A publisher that is slower than its storage backend gets its batches early: one half of the
//! window fills while the other is stored.

use std::collections::VecDeque;

/// How many messages go in one batch at most.
const BATCH_MESSAGES: usize = 10_000;
/// The most bytes of a batch, unless a single message is longer: a call takes no more than the
/// hub's `payload_bytes`.
const BATCH_BYTES: usize = 4 << 20;
/// After an early batch that the publisher waited for, so many batches begin as usual.
const EARLY_PAUSE: u8 = 15;

/// The messages that are not stored yet, by their sizes.
///
/// ```
/// use tidewire_core::stream::window::Window;
///
/// let mut window = Window::new(3);
/// for bytes in [10, 20, 5 << 20] {
///     window.push(bytes);
/// }
/// assert!(window.is_full());
/// assert_eq!(window.begin(), 2, "the third is too long to go with them");
/// assert_eq!(window.begin(), 0, "one batch at a time");
/// window.ended();
/// assert!(!window.is_full());
/// assert_eq!(window.begin(), 1, "alone, however long it is");
/// window.ended();
/// assert!(window.is_idle());
/// ```
#[derive(Clone, Debug)]
pub struct Window {
    most: usize,
    waiting: VecDeque<usize>,
    in_flight: usize,
    /// The batch in flight began early.
    is_early: bool,
    /// Batches until one may begin early.
    early_pause: u8,
}

impl Window {
    /// A window for so many messages.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), waiting: VecDeque::new(), in_flight: 0, is_early: false, early_pause: 0 }
    }

    /// True if there is no capacity for a further message: the publisher waits.
    pub fn is_full(&self) -> bool {
        self.waiting.len() + self.in_flight >= self.most
    }

    /// True if every message is stored.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == 0
    }

    /// A message of so many bytes waits.
    pub fn push(&mut self, bytes: usize) {
        self.waiting.push_back(bytes);
    }

    /// How many of those that wait longest go together now. 0: none waits, or a batch is in flight
    /// until [`ended`](Self::ended).
    pub fn begin(&mut self) -> usize {
        if self.in_flight > 0 {
            return 0;
        }
        let mut budget = BATCH_BYTES;
        let fits = |bytes: &&usize| match budget.checked_sub(**bytes) {
            Some(rest) => {
                budget = rest;
                true
            }
            None => false,
        };
        let fitting = self.waiting.iter().take(BATCH_MESSAGES).take_while(fits).count();
        self.in_flight = fitting.max(1).min(self.waiting.len());
        self.waiting.drain(..self.in_flight);
        self.early_pause = self.early_pause.saturating_sub(1);
        self.in_flight
    }

    /// The same before the end of a round: 0, too, if less than half of the window waits, or if the
    /// publisher waited for an early batch lately.
    ///
    /// ```
    /// # let mut window = tidewire_core::stream::window::Window::new(4);
    /// (0..2).for_each(|_| window.push(10));
    /// assert_eq!(window.begin_early(), 2, "the other half of the window has capacity");
    /// (0..2).for_each(|_| window.push(10));
    /// window.ended();
    /// assert_eq!((window.begin_early(), window.begin()), (0, 2), "the publisher waited");
    /// ```
    pub fn begin_early(&mut self) -> usize {
        if self.in_flight > 0 || self.early_pause > 0 || self.waiting.len() < self.most.div_ceil(2) {
            return 0;
        }
        self.is_early = true;
        self.begin()
    }

    /// The batch in flight is stored, or was refused.
    pub fn ended(&mut self) {
        if std::mem::take(&mut self.is_early) && self.is_full() {
            self.early_pause = EARLY_PAUSE;
        }
        self.in_flight = 0;
    }
}
