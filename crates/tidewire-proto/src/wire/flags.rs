//! Flags of a frame: its lane, and the marks of its payload.

use super::WireError;

const LANE: u8 = 0b11;
const MORE: u8 = 1 << 2;
const ANSWER: u8 = 1 << 3;
const COMPRESSED: u8 = 1 << 4;
const AGAIN: u8 = 1 << 5;
pub(super) const PLACED: u8 = 1 << 6;
const NONE: u8 = 1 << 7;

/// The flags of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// No flag, and the lane of usual messages.
    pub const NORMAL: Self = Self(2);

    /// No flag, and the lane above all others: for frames about the link itself.
    pub const URGENT: Self = Self(0);

    /// Reads a byte.
    ///
    /// # Errors
    /// [`WireError::UnknownFlags`] if a bit is set that must be 0.
    pub fn of(byte: u8) -> Result<Self, WireError> {
        if byte & NONE == 0 { Ok(Self(byte)) } else { Err(WireError::UnknownFlags(byte)) }
    }

    /// The byte.
    #[must_use]
    pub fn byte(self) -> u8 {
        self.0
    }

    /// The lane: 0 urgent, 1 high, 2 normal, 3 low.
    #[must_use]
    pub fn lane(self) -> usize {
        usize::from(self.0 & LANE)
    }

    /// The same in another lane. Only the lowest two bits of `lane` count.
    #[must_use]
    pub fn in_lane(self, lane: u8) -> Self {
        Self(self.0 & !LANE | lane & LANE)
    }

    /// True if the payload goes on in further frames.
    #[must_use]
    pub fn more(self) -> bool {
        self.0 & MORE != 0
    }

    /// True if it comes from the side that answers.
    #[must_use]
    pub fn answer(self) -> bool {
        self.0 & ANSWER != 0
    }

    /// True if the payload is compressed.
    #[must_use]
    pub fn compressed(self) -> bool {
        self.0 & COMPRESSED != 0
    }

    /// For a call: true if it may be made twice. For a subscription: true if it only listens.
    #[must_use]
    pub fn again(self) -> bool {
        self.0 & AGAIN != 0
    }

    /// True if the payload lies in shared memory. The flag counts only as
    /// [`Frame::is_placed`](super::Frame::is_placed) says.
    #[must_use]
    pub fn placed(self) -> bool {
        self.0 & PLACED != 0
    }

    /// With MORE set or not.
    #[must_use]
    pub fn with_more(self, on: bool) -> Self {
        self.with(MORE, on)
    }

    /// With ANSWER set or not.
    #[must_use]
    pub fn with_answer(self, on: bool) -> Self {
        self.with(ANSWER, on)
    }

    /// With COMPRESSED set or not.
    #[must_use]
    pub fn with_compressed(self, on: bool) -> Self {
        self.with(COMPRESSED, on)
    }

    /// With AGAIN set or not.
    #[must_use]
    pub fn with_again(self, on: bool) -> Self {
        self.with(AGAIN, on)
    }

    /// With PLACED set or not.
    #[must_use]
    pub fn with_placed(self, on: bool) -> Self {
        self.with(PLACED, on)
    }

    fn with(self, bit: u8, on: bool) -> Self {
        Self(if on { self.0 | bit } else { self.0 & !bit })
    }
}
