//! Flags of a frame: its lane, and the marks of its payload.

use super::WireError;

const LANE: u8 = 0b11;
const MORE: u8 = 1 << 2;
const ANSWER: u8 = 1 << 3;
const COMPRESSED: u8 = 1 << 4;
const AGAIN: u8 = 1 << 5;
pub(super) const PLACED: u8 = 1 << 6;
const NONE: u8 = 1 << 7;

/// The function that reads a flag, and the function that sets it.
macro_rules! marks {
    ($($(#[doc = $text:literal])+ $flag:ident: $is_set:ident, $with:ident;)*) => {
        impl Flags {
            $($(#[doc = $text])+
            #[must_use]
            pub fn $is_set(self) -> bool {
                self.0 & $flag != 0
            }

            #[doc = concat!("With ", stringify!($flag), " set or not.")]
            #[must_use]
            pub fn $with(self, on: bool) -> Self {
                self.with($flag, on)
            })*
        }
    };
}

marks! {
    /// True if the payload goes on in further frames.
    MORE: more, with_more;
    /// True if it comes from the side that answers.
    ANSWER: answer, with_answer;
    /// True if the payload is compressed.
    COMPRESSED: compressed, with_compressed;
    /// For a call: true if it may be made twice. For a subscription: true if it only listens.
    AGAIN: again, with_again;
    /// True if the payload lies in shared memory. The flag counts only as
    /// [`Frame::is_placed`](super::Frame::is_placed) says.
    PLACED: placed, with_placed;
}

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

    fn with(self, bit: u8, on: bool) -> Self {
        Self(if on { self.0 | bit } else { self.0 & !bit })
    }
}
