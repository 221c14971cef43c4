//! A hierarchical timing wheel: millions of timers, each inserted and removed in constant time.
//!
//! Time is a number of microseconds that the caller passes in; it covers all of `u64`. A tick is
//! one microsecond.
//!
//! ```
//! use tidewire_core::wheel::Wheel;
//!
//! let mut wheel = Wheel::default();
//! wheel.insert(2_000, "later");
//! let never = wheel.insert(1_500, "never");
//! wheel.insert(1_000, "first");
//!
//! assert_eq!(wheel.next_deadline(), Some(1_000));
//! assert_eq!(wheel.poll(999), None);
//! assert_eq!(wheel.remove(never), Some("never"));
//!
//! let mut fired = Vec::new();
//! wheel.advance(5_000, &mut |_key, name| fired.push(name));
//! assert_eq!(fired, ["first", "later"]);
//! assert!(wheel.is_empty());
//! ```
//!
//! # How it works
//!
//! Eleven levels of 64 slots cover 64 bits. A timer lies in the level of the highest six-bit digit
//! in which its deadline differs from the wheel's time, in the slot of that digit, at the end of a
//! linked list. When time reaches a slot of a higher level, its timers move down, in their order; a
//! timer moves at most ten times in its life.
//!
//! # Memory
//!
//! About 11 KiB for the slots, and 24 bytes and an `Option<T>` for each timer. A removed or fired
//! timer frees its `T` at once. Its place is used again by the next timers; places at the end of
//! the storage are given back.

mod levels;
mod slab;

use core::num::NonZeroU64;

use levels::{LEVELS, Occupied, SLOTS, Slot, SlotIndex};
use slab::{NIL, Slab};

/// Names one timer of one wheel, for ever: a key is not used again after its timer fired or was
/// removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    serial: NonZeroU64,
    index: u32,
}

/// Timers that carry a `T`, ordered by deadline and then by insertion.
#[derive(Clone, Debug)]
pub struct Wheel<T> {
    /// Invariant: every timer lies in `SlotIndex::of(its deadline, now)`.
    now: u64,
    next_serial: NonZeroU64,
    occupied: Occupied,
    slots: Box<[Slot]>,
    slab: Slab<T>,
}

impl<T> Wheel<T> {
    /// Adds a timer that is due at `deadline`.
    ///
    /// A deadline before [`Wheel::now`] counts as `now`: the timer fires at the next poll, after
    /// those that are due at the same tick already.
    ///
    /// # Panics
    ///
    /// If the wheel holds 4,294,967,295 timers.
    pub fn insert(&mut self, deadline: u64, value: T) -> Key {
        let serial = self.next_serial;
        // At one insertion per nanosecond this lasts for 584 years.
        self.next_serial = serial.checked_add(1).expect("a wheel takes fewer than 2^64 timers in its life");
        let deadline = deadline.max(self.now);
        let index = self.slab.insert(deadline, serial, value);
        self.link(index, deadline);
        Key { serial, index }
    }

    /// Takes a timer out, if it has not fired and was not removed before.
    ///
    /// ```
    /// use tidewire_core::wheel::Wheel;
    ///
    /// let mut wheel = Wheel::default();
    /// let key = wheel.insert(10, 'a');
    /// assert_eq!(wheel.remove(key), Some('a'));
    /// assert_eq!(wheel.remove(key), None);
    /// ```
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.slab.find(key.index, key.serial)?;
        let place = SlotIndex::of(entry.deadline, self.now);
        Some(self.take(key.index, place))
    }

    /// The value of a timer that waits.
    pub fn get(&self, key: Key) -> Option<&T> {
        self.slab.find(key.index, key.serial)?.value.as_ref()
    }

    /// When a timer that waits is due.
    pub fn deadline(&self, key: Key) -> Option<u64> {
        self.slab.find(key.index, key.serial).map(|entry| entry.deadline)
    }

    /// When to poll next; nothing is due before. None if there are no timers.
    ///
    /// It is the exact deadline of the next timer, except after that timer was removed: then it may
    /// be too soon, but by less than the width of the timer's slot. A poll at that time brings it
    /// nearer to the true deadline, at most ten times for one timer.
    ///
    /// ```
    /// use tidewire_core::wheel::Wheel;
    ///
    /// let mut wheel = Wheel::default();
    /// let sooner = wheel.insert(1_000, ());
    /// wheel.insert(1_010, ());
    /// wheel.remove(sooner);
    ///
    /// assert_eq!(wheel.next_deadline(), Some(1_000));
    /// assert_eq!(wheel.poll(1_000), None);
    /// assert_eq!(wheel.next_deadline(), Some(1_010));
    /// ```
    pub fn next_deadline(&self) -> Option<u64> {
        self.occupied.first().map(|place| self.slots[place.index()].earliest)
    }

    /// Takes out the next timer that is due at `now`; call it until it answers None.
    ///
    /// Timers come in the order of their deadlines, those of one deadline in the order of their
    /// insertion, and never early. Time must not run backwards; if `now` is before [`Wheel::now`],
    /// nothing fires that is due after `now`.
    pub fn poll(&mut self, now: u64) -> Option<(Key, T)> {
        while let Some(place) = self.occupied.first() {
            let start = place.start(self.now);
            if start > now {
                break;
            }
            self.now = start;
            if place.level == 0 {
                let index = self.slots[place.index()].head;
                let key = Key { serial: self.slab.entry(index).serial, index };
                return Some((key, self.take(index, place)));
            }
            self.cascade(place);
        }
        // No occupied slot begins between the old and the new time, so every timer is still in its
        // place.
        self.now = self.now.max(now);
        None
    }

    /// Takes out all timers that are due at `now`, in the order of [`Wheel::poll`].
    pub fn advance(&mut self, now: u64, fire: &mut impl FnMut(Key, T)) {
        while let Some((key, value)) = self.poll(now) {
            fire(key, value);
        }
    }

    /// The time of the wheel: the latest that a poll has reached.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// How many timers wait.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// True if no timer waits.
    pub fn is_empty(&self) -> bool {
        self.slab.len() == 0
    }

    /// For how many timers there is memory now.
    pub fn capacity(&self) -> usize {
        self.slab.capacity()
    }

    /// Moves the timers of a slot that time has reached into lower levels.
    fn cascade(&mut self, place: SlotIndex) {
        let mut index = self.empty(place);
        while index != NIL {
            let entry = self.slab.entry(index);
            let (next, deadline) = (entry.next, entry.deadline);
            self.link(index, deadline);
            index = next;
        }
    }

    /// Appends an entry to the list of its slot.
    fn link(&mut self, index: u32, deadline: u64) {
        let place = SlotIndex::of(deadline, self.now);
        let slot = &mut self.slots[place.index()];
        let tail = core::mem::replace(&mut slot.tail, index);
        slot.earliest = slot.earliest.min(deadline);
        if tail == NIL {
            slot.head = index;
            self.occupied.set(place);
        } else {
            self.slab.entry_mut(tail).next = index;
        }
        let entry = self.slab.entry_mut(index);
        entry.prev = tail;
        entry.next = NIL;
    }

    /// Removes an entry from the list of its slot and from the storage.
    fn take(&mut self, index: u32, place: SlotIndex) -> T {
        let entry = self.slab.entry(index);
        let (next, prev) = (entry.next, entry.prev);
        let slot = &mut self.slots[place.index()];
        match next {
            NIL => slot.tail = prev,
            next => self.slab.entry_mut(next).prev = prev,
        }
        match prev {
            NIL => slot.head = next,
            prev => self.slab.entry_mut(prev).next = next,
        }
        if next == NIL && prev == NIL {
            self.empty(place);
        }
        self.slab.remove(index)
    }

    /// Resets a slot, and answers with the first entry it had.
    fn empty(&mut self, place: SlotIndex) -> u32 {
        self.occupied.clear(place);
        let slot = &mut self.slots[place.index()];
        slot.tail = NIL;
        slot.earliest = u64::MAX;
        core::mem::replace(&mut slot.head, NIL)
    }
}

impl<T> Default for Wheel<T> {
    /// A wheel without timers whose time is 0.
    fn default() -> Self {
        let empty = Slot { head: NIL, tail: NIL, earliest: u64::MAX };
        Self {
            now: 0,
            next_serial: NonZeroU64::MIN,
            occupied: Occupied::NONE,
            slots: vec![empty; LEVELS * SLOTS].into_boxed_slice(),
            slab: Slab::new(),
        }
    }
}
