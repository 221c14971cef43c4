//! A fair queue: senders take turns, and each may fill as much of the capacity as is left.
//!
//! So a sender that floods delays another one by a turn, and takes half of the capacity (fair
//! queuing: Nagle, RFC 970, 1985; dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on
//! Networking 6(2), 1998).

use std::collections::{BTreeMap, VecDeque};

/// Bookkeeping bytes that each entry counts in addition to its own.
const ENTRY_BYTES: usize = 256;

/// A fair queue: entries by sender, taken in turns.
pub struct FairQueue<T> {
    senders: BTreeMap<u32, Sender<T>>,
    /// Senders with waiting entries, in the order of their turns.
    turns: VecDeque<u32>,
    bytes: usize,
    bytes_max: usize,
}

struct Sender<T> {
    waiting: VecDeque<(usize, T)>,
    bytes: usize,
}

impl<T> FairQueue<T> {
    /// An empty queue, in which about so many bytes may wait.
    pub fn new(bytes_max: usize) -> Self {
        Self { senders: BTreeMap::new(), turns: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Adds an item of a sender, of so many bytes.
    ///
    /// # Errors
    /// Returns the item if there is no capacity for it. An empty queue accepts an item of any
    /// length.
    pub fn add(&mut self, sender: u32, bytes: usize, item: T) -> Result<(), T> {
        let bytes = bytes + ENTRY_BYTES;
        let own = self.senders.get(&sender).map_or(0, |sender| sender.bytes);
        if self.bytes > 0 && own + bytes > self.bytes_max.saturating_sub(self.bytes) {
            return Err(item);
        }
        let place = self.senders.entry(sender).or_insert_with(|| {
            self.turns.push_back(sender);
            Sender { waiting: VecDeque::new(), bytes: 0 }
        });
        place.waiting.push_back((bytes, item));
        place.bytes += bytes;
        self.bytes += bytes;
        Ok(())
    }

    /// Takes the next entry: the first of the sender whose turn it is.
    pub fn take(&mut self) -> Option<T> {
        let number = self.turns.pop_front()?;
        let sender = self.senders.get_mut(&number)?;
        let (bytes, item) = sender.waiting.pop_front()?;
        sender.bytes -= bytes;
        self.bytes -= bytes;
        if sender.waiting.is_empty() {
            self.senders.remove(&number);
        } else {
            self.turns.push_back(number);
        }
        Some(item)
    }

    /// True if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Bytes that wait, bookkeeping of entries included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
