//! Exchanges by their ids: a slot in the lower half, a generation in the upper.

/// The slots of the side that chooses the ids.
#[derive(Debug)]
pub struct Slots<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    retired: usize,
    max: usize,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    state: State<T>,
}

#[derive(Debug)]
enum State<T> {
    Free,
    Open(T),
    /// The exchange has ended here, and the other side does not know yet.
    Retired,
}

impl<T> Slots<T> {
    /// Takes at most `max` exchanges at a time.
    pub fn new(max: usize) -> Self {
        Self { entries: Vec::new(), free: Vec::new(), retired: 0, max }
    }

    /// Sets the limit of slots from now on; open ones stay.
    pub fn limit(&mut self, max: usize) {
        self.max = max;
    }

    /// The most at a time.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Opens an exchange, or gives the value back if as many as possible are open.
    pub fn insert(&mut self, value: T) -> Result<u64, T> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.entries.len() < self.max => {
                self.entries.push(Entry { generation: 0, state: State::Free });
                (self.entries.len() - 1) as u32
            }
            None => return Err(value),
        };
        let entry = &mut self.entries[slot as usize];
        // 0 is no generation, so that 0 is no id.
        entry.generation = entry.generation.checked_add(1).unwrap_or(1);
        entry.state = State::Open(value);
        Ok(id_of(entry.generation, slot as usize))
    }

    /// The exchange with this id, if it is open.
    pub fn get(&mut self, id: u64) -> Option<&mut T> {
        match &mut self.entry(id)?.state {
            State::Open(value) => Some(value),
            State::Free | State::Retired => None,
        }
    }

    /// Ends the exchange with this id, if it is open. Its slot can be used again at once.
    pub fn remove(&mut self, id: u64) -> Option<T> {
        let value = self.end(id, State::Free)?;
        self.free.push(slot_of(id) as u32);
        Some(value)
    }

    /// Ends the exchange with this id, if it is open. Its slot stays in use until
    /// [`release`](Self::release): the other side must receive the end before it receives the next
    /// one.
    pub fn retire(&mut self, id: u64) -> Option<T> {
        let value = self.end(id, State::Retired)?;
        self.retired += 1;
        Some(value)
    }

    /// Makes the slot of a retired exchange free.
    pub fn release(&mut self, id: u64) {
        if let Some(entry) = self.entry(id)
            && matches!(entry.state, State::Retired)
        {
            entry.state = State::Free;
            self.retired -= 1;
            self.free.push(slot_of(id) as u32);
        }
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len() - self.retired
    }

    /// True if none is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values of all open slots.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|entry| if let State::Open(value) = &entry.state { Some(value) } else { None })
    }

    /// Ends all of them.
    pub fn drain(&mut self) -> impl Iterator<Item = (u64, T)> + use<T> {
        self.free.clear();
        self.retired = 0;
        let entries = core::mem::take(&mut self.entries);
        entries.into_iter().enumerate().filter_map(|(slot, entry)| match entry.state {
            State::Open(value) => Some((id_of(entry.generation, slot), value)),
            State::Free | State::Retired => None,
        })
    }

    fn entry(&mut self, id: u64) -> Option<&mut Entry<T>> {
        self.entries.get_mut(slot_of(id)).filter(|entry| entry.generation == generation_of(id))
    }

    fn end(&mut self, id: u64, state: State<T>) -> Option<T> {
        let entry = self.entry(id)?;
        if !matches!(entry.state, State::Open(_)) {
            return None;
        }
        match core::mem::replace(&mut entry.state, state) {
            State::Open(value) => Some(value),
            State::Free | State::Retired => None,
        }
    }
}

/// Slots of the other side that have their memory together.
const PAGE: usize = 32;

/// The slots of the other side, seen from here. The other side chooses them, so memory is allocated
/// only for pages with slots in use, whatever their numbers.
#[derive(Debug)]
pub struct Mirror<T> {
    pages: Vec<Option<Box<Page<T>>>>,
    open: usize,
    max: usize,
}

type Page<T> = [Option<(u32, T)>; PAGE];

/// Why the other side may not open an exchange with this id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotConflict {
    /// Its slot is beyond the limit that was stated.
    Beyond {
        /// The limit.
        max: usize,
    },
    /// Its slot is in use, or its generation is 0.
    InUse,
}

impl<T> Mirror<T> {
    /// Takes at most `max` exchanges at a time.
    pub fn new(max: usize) -> Self {
        Self { pages: Vec::new(), open: 0, max }
    }

    /// Sets the limit of slots from now on; open ones stay.
    pub fn limit(&mut self, max: usize) {
        self.max = max;
    }

    /// Opens an exchange that the other side began.
    ///
    /// # Errors
    /// [`SlotConflict`] if it can't be.
    pub fn insert(&mut self, id: u64, value: T) -> Result<(), SlotConflict> {
        let slot = slot_of(id);
        if slot >= self.max {
            return Err(SlotConflict::Beyond { max: self.max });
        }
        if slot / PAGE >= self.pages.len() {
            self.pages.resize_with(slot / PAGE + 1, || None);
        }
        let page = self.pages[slot / PAGE].get_or_insert_with(|| Box::new(std::array::from_fn(|_| None)));
        let entry = &mut page[slot % PAGE];
        if entry.is_some() || generation_of(id) == 0 {
            return Err(SlotConflict::InUse);
        }
        *entry = Some((generation_of(id), value));
        self.open += 1;
        Ok(())
    }

    /// The exchange with this id, if it is open.
    pub fn get(&mut self, id: u64) -> Option<&mut T> {
        match self.entry(id)? {
            Some((generation, value)) if *generation == generation_of(id) => Some(value),
            _ => None,
        }
    }

    /// Ends the exchange with this id, if it is open.
    pub fn remove(&mut self, id: u64) -> Option<T> {
        self.get(id)?;
        self.open -= 1;
        self.entry(id)?.take().map(|(_, value)| value)
    }

    fn entry(&mut self, id: u64) -> Option<&mut Option<(u32, T)>> {
        let slot = slot_of(id);
        Some(&mut self.pages.get_mut(slot / PAGE)?.as_mut()?[slot % PAGE])
    }

    /// The open exchanges, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        let entries = self.pages.iter_mut().enumerate().filter_map(|(at, page)| page.as_mut().map(|page| (at, page)));
        let entries = entries
            .flat_map(|(at, page)| page.iter_mut().enumerate().map(move |(slot, entry)| (at * PAGE + slot, entry)));
        entries.filter_map(|(slot, entry)| entry.as_mut().map(|(generation, value)| (id_of(*generation, slot), value)))
    }

    /// The open exchanges.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let entries = self.pages.iter().enumerate().filter_map(|(at, page)| page.as_ref().map(|page| (at, page)));
        let entries =
            entries.flat_map(|(at, page)| page.iter().enumerate().map(move |(slot, entry)| (at * PAGE + slot, entry)));
        entries.filter_map(|(slot, entry)| entry.as_ref().map(|(generation, value)| (id_of(*generation, slot), value)))
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.open
    }

    /// True if none is open.
    pub fn is_empty(&self) -> bool {
        self.open == 0
    }

    /// Ends all of them.
    pub fn drain(&mut self) -> impl Iterator<Item = (u64, T)> + use<T> {
        self.open = 0;
        let pages = std::mem::take(&mut self.pages).into_iter().enumerate();
        let entries = pages.filter_map(|(at, page)| page.map(|page| (at, page)));
        let entries = entries
            .flat_map(|(at, page)| (*page).into_iter().enumerate().map(move |(slot, entry)| (at * PAGE + slot, entry)));
        entries.filter_map(|(slot, entry)| entry.map(|(generation, value)| (id_of(generation, slot), value)))
    }
}

fn id_of(generation: u32, slot: usize) -> u64 {
    u64::from(generation) << 32 | slot as u64
}

fn slot_of(id: u64) -> usize {
    (id & 0xffff_ffff) as usize
}

fn generation_of(id: u64) -> u32 {
    (id >> 32) as u32
}
