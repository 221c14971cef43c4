//! The index of one segment: its ends, its times, and where some of its events lie.

/// A file of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Drawn when it was made.
    pub id: u64,
    /// The sequence of its first event, or of the next if it has none.
    pub base: u64,
    /// The sequence of its last event; `base - 1` if it has none.
    pub last: u64,
    /// When its first event was stored.
    pub first_time_us: u64,
    /// When its last was.
    pub last_time_us: u64,
    /// Where the next group goes.
    pub bytes: u64,
    /// How many events it has. The events of a compacted log have gaps between them, and no index.
    pub events: u64,
    /// How many of its events have ids.
    pub ids: u64,
    /// Delayed messages: when they are due, and their sequences.
    pub delayed: Vec<(u64, u64)>,
    /// Delayed messages that became events of this segment.
    pub released: Vec<u64>,
    /// Where some events lie, in order.
    pub index: Vec<(u64, u64)>,
}

/// An index that is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentError;

/// Bytes between two entries of the index.
const INDEX_EVERY: u64 = 32 << 10;

impl SegmentInfo {
    /// A segment without events.
    pub fn new(id: u64, base: u64, bytes: u64) -> Self {
        Self { id, base, last: base - 1, bytes, ..Self::default() }
    }

    /// Takes note of an event at a place.
    pub fn saw(&mut self, sequence: u64, time_us: u64, offset: u64, has_id: bool) {
        if self.last < self.base {
            self.first_time_us = time_us;
        }
        self.last = sequence;
        self.last_time_us = time_us;
        self.events += 1;
        self.ids += u64::from(has_id);
        if self.index.last().is_none_or(|(_, before)| offset >= before + INDEX_EVERY) {
            self.index.push((sequence, offset));
        }
    }

    /// A place at which an event at or before this one lies. None: there is no event.
    pub fn place_of(&self, sequence: u64) -> Option<u64> {
        let after = self.index.partition_point(|(first, _)| *first <= sequence);
        self.index.get(after.saturating_sub(1)).map(|(_, offset)| *offset)
    }

    /// The index as bytes, for an index file next to the segment.
    pub fn encode(&self) -> Vec<u8> {
        let mut numbers =
            vec![self.id, self.base, self.last, self.first_time_us, self.last_time_us, self.bytes, self.ids];
        numbers.push(self.delayed.len() as u64);
        numbers.extend(self.delayed.iter().flat_map(|(due, sequence)| [*due, *sequence]));
        numbers.push(self.released.len() as u64);
        numbers.extend(&self.released);
        numbers.push(self.index.len() as u64);
        numbers.extend(self.index.iter().flat_map(|(sequence, offset)| [*sequence, *offset]));
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    ///
    /// [`SegmentError`] if it did not; the index is made anew from the segment then.
    pub fn decode(bytes: &[u8]) -> Result<Self, SegmentError> {
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or(SegmentError)?;
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) || body.len() % 8 != 0 {
            return Err(SegmentError);
        }
        let mut numbers = body.chunks_exact(8).map(|chunk| u64::from_le_bytes(chunk.try_into().expect("eight")));
        let mut next = || numbers.next().ok_or(SegmentError);
        let mut segment = Self {
            id: next()?,
            base: next()?,
            last: next()?,
            first_time_us: next()?,
            last_time_us: next()?,
            bytes: next()?,
            ids: next()?,
            ..Self::default()
        };
        segment.events = (segment.last + 1).saturating_sub(segment.base);
        for _ in 0..next()? {
            segment.delayed.push((next()?, next()?));
        }
        for _ in 0..next()? {
            segment.released.push(next()?);
        }
        for _ in 0..next()? {
            segment.index.push((next()?, next()?));
        }
        Ok(segment)
    }
}
