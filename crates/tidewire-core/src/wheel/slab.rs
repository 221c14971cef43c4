//! Storage of the wheel's entries: one vector, doubly linked lists through it, free places reused.

use core::num::NonZeroU64;

/// No entry.
pub(super) const NIL: u32 = u32::MAX;

/// One timer, or a free place.
///
/// `next` and `prev` link the timers of one slot; in a free place they link the free places.
#[derive(Clone, Debug)]
pub(super) struct Entry<T> {
    pub value: Option<T>,
    pub deadline: u64,
    /// Which insertion this is. It never repeats, so an old key cannot take a new timer.
    pub serial: NonZeroU64,
    pub next: u32,
    pub prev: u32,
}

/// Entries with indices that stay the same until they are removed.
///
/// Invariant: the last place is not free. Free places at the end are removed. The others are linked
/// from `free`, and the next entries take them first.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: u32,
    len: usize,
}

/// Storage below this many places is not given back.
const KEEP: usize = 64;

impl<T> Slab<T> {
    pub const fn new() -> Self {
        Self { entries: Vec::new(), free: NIL, len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// How many places are allocated.
    pub fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    pub fn entry(&self, index: u32) -> &Entry<T> {
        &self.entries[index as usize]
    }

    pub fn entry_mut(&mut self, index: u32) -> &mut Entry<T> {
        &mut self.entries[index as usize]
    }

    /// The entry at a place if it is the one that was inserted with this serial.
    pub fn find(&self, index: u32, serial: NonZeroU64) -> Option<&Entry<T>> {
        self.entries.get(index as usize).filter(|entry| entry.serial == serial && entry.value.is_some())
    }

    /// Puts a timer, linked to nothing, into a place.
    pub fn insert(&mut self, deadline: u64, serial: NonZeroU64, value: T) -> u32 {
        let entry = Entry { value: Some(value), deadline, serial, next: NIL, prev: NIL };
        if self.free == NIL {
            let index = self.entries.len();
            assert!(index < NIL as usize, "a wheel holds at most {NIL} timers; cancel some, or use a second wheel");
            self.entries.push(entry);
            self.len += 1;
            return index as u32;
        }
        let index = self.free;
        self.unlink_free(index);
        *self.entry_mut(index) = entry;
        self.len += 1;
        index
    }

    /// Takes a timer out of its place, which must hold one.
    pub fn remove(&mut self, index: u32) -> T {
        let free = self.free;
        let last = index as usize + 1 == self.entries.len();
        self.len -= 1;
        let entry = self.entry_mut(index);
        let value = entry.value.take().expect("a linked entry holds a value");
        if last {
            self.give_up_the_end();
        } else {
            entry.next = free;
            entry.prev = NIL;
            if free != NIL {
                self.entry_mut(free).prev = index;
            }
            self.free = index;
        }
        value
    }

    /// Drops the last place, which is not in the free list, and the free places before it.
    fn give_up_the_end(&mut self) {
        self.entries.pop();
        while self.entries.last().is_some_and(|entry| entry.value.is_none()) {
            self.unlink_free(self.entries.len() as u32 - 1);
            self.entries.pop();
        }
        // Shrunk to twice the used size at a quarter of use, so that neither growth nor shrinking
        // happens often.
        let (used, places) = (self.entries.len(), self.entries.capacity());
        if places > KEEP && used <= places / 4 {
            self.entries.shrink_to(KEEP.max(used * 2));
        }
    }

    fn unlink_free(&mut self, index: u32) {
        let Entry { next, prev, .. } = *self.entry(index);
        match prev {
            NIL => self.free = next,
            prev => self.entry_mut(prev).next = next,
        }
        if next != NIL {
            self.entry_mut(next).prev = prev;
        }
    }
}
