//! HELLO and WELCOME: the first frames of both sides of a link, with versions and fields.

use alloc::vec::Vec;

use super::head_reader::HeadReader;
use super::{Fields, Frame, Kind, WireError, read_u16};

/// The text that a HELLO begins with.
pub const MAGIC: &[u8; 8] = b"tidewire";

/// The version of the protocol that this crate speaks.
pub const VERSION: u16 = 1;

/// The first frame of the side that joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The oldest version that it speaks.
    pub oldest: u16,
    /// The newest.
    pub newest: u16,
    /// Fields that describe the node.
    pub fields: Fields<'a>,
}

impl<'a> Hello<'a> {
    /// Reads a frame that must be a HELLO.
    ///
    /// # Errors
    /// [`WireError::NotTidewire`] if it is something else, or another [`WireError`] if it is a
    /// HELLO that breaks the rules.
    pub fn parse(frame: &Frame<'a>) -> Result<Self, WireError> {
        let mut pieces = HeadReader::new("HELLO", frame.head);
        if frame.kind != Kind::Hello || pieces.array::<8>("its first 8 bytes").as_ref() != Ok(MAGIC) {
            return Err(WireError::NotTidewire);
        }
        let (oldest, newest) = (pieces.u16("the oldest version")?, pieces.u16("the newest version")?);
        pieces.end()?;
        if oldest > newest || oldest == 0 {
            let (value, fix) = (u64::from(oldest), "state a version from 1 on that is not newer than the newest");
            return Err(WireError::NotAllowed { kind: "HELLO", field: "the oldest version", value, fix });
        }
        Ok(Self { oldest, newest, fields: Fields::parse("HELLO", frame.payload)? })
    }

    /// Writes its head.
    ///
    /// # Errors
    /// None; the form is that of all heads.
    pub fn put(oldest: u16, newest: u16, out: &mut Vec<u8>) -> Result<(), WireError> {
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&oldest.to_le_bytes());
        out.extend_from_slice(&newest.to_le_bytes());
        Ok(())
    }
}

/// The first frame of the side that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome<'a> {
    /// The version that both speak from now on.
    pub version: u16,
    /// Fields that describe the hub, and the node that joined.
    pub fields: Fields<'a>,
}

impl<'a> Welcome<'a> {
    /// Reads a WELCOME.
    ///
    /// # Errors
    /// [`WireError::Unexpected`] if it is something else, or another [`WireError`] if it is a
    /// WELCOME that breaks the rules.
    pub fn parse(frame: &Frame<'a>) -> Result<Self, WireError> {
        if frame.kind != Kind::Welcome {
            let problem = "the first frame must be a WELCOME or an ERROR: send one of them";
            return Err(WireError::Unexpected { kind: frame.kind.name(), problem });
        }
        let version = read_u16("WELCOME", frame.head)?;
        if version == 0 {
            let fix = "state the version that was chosen, from 1 on";
            return Err(WireError::NotAllowed { kind: "WELCOME", field: "the version", value: 0, fix });
        }
        Ok(Self { version, fields: Fields::parse("WELCOME", frame.payload)? })
    }
}

/// The newest version in both ranges, each from oldest to newest.
#[must_use]
pub fn common_version(one: (u16, u16), other: (u16, u16)) -> Option<u16> {
    let newest = one.1.min(other.1);
    (newest >= one.0.max(other.0)).then_some(newest)
}
