//! Levels of the timing wheel: 64 slots each, every level 64 times coarser than the one below.

/// Bits of time that one level tells apart.
const BITS: u32 = 6;
/// Slots of one level.
pub(super) const SLOTS: usize = 1 << BITS;
/// Levels that cover all 64 bits of time.
pub(super) const LEVELS: usize = 64_u32.div_ceil(BITS) as usize;

/// One list of timers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub head: u32,
    pub tail: u32,
    /// No timer of the slot is due before this. Exact until the earliest of several is removed.
    pub earliest: u64,
}

/// The place of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotIndex {
    pub level: usize,
    pub slot: usize,
}

impl SlotIndex {
    /// The slot for a deadline that is not before `now`: the level is that of the highest digit in
    /// which they differ.
    pub fn of(deadline: u64, now: u64) -> Self {
        // The lowest digit counts as different, so that a deadline of this very tick goes to
        // level 0.
        let different = (deadline ^ now) | (SLOTS as u64 - 1);
        let level = (63 - different.leading_zeros()) / BITS;
        let slot = (deadline >> (level * BITS)) as usize % SLOTS;
        Self { level: level as usize, slot }
    }

    /// The first tick of a slot that lies in the same turn of its level as `now`.
    pub fn start(self, now: u64) -> u64 {
        let shift = self.level as u32 * BITS;
        let turn = now.checked_shr(shift + BITS).map_or(0, |turns| turns << (shift + BITS));
        turn | (self.slot as u64) << shift
    }

    /// The position in a table of all slots.
    pub fn index(self) -> usize {
        self.level * SLOTS + self.slot
    }
}

/// Which slots hold timers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occupied {
    levels: u16,
    slots: [u64; LEVELS],
}

impl Occupied {
    pub const NONE: Self = Self { levels: 0, slots: [0; LEVELS] };

    pub fn set(&mut self, place: SlotIndex) {
        self.levels |= 1 << place.level;
        self.slots[place.level] |= 1 << place.slot;
    }

    pub fn clear(&mut self, place: SlotIndex) {
        self.slots[place.level] &= !(1 << place.slot);
        if self.slots[place.level] == 0 {
            self.levels &= !(1 << place.level);
        }
    }

    /// The slot whose timers are due first. All timers of a level are due before all those of the
    /// levels above.
    pub fn first(&self) -> Option<SlotIndex> {
        (self.levels != 0).then(|| {
            let level = self.levels.trailing_zeros() as usize;
            SlotIndex { level, slot: self.slots[level].trailing_zeros() as usize }
        })
    }
}
