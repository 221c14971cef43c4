//! Heads of CALL, PUBLISH, SUBSCRIBE and FAIL frames.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::head_reader::HeadReader;
use super::{Fields, WireError};
use crate::generated::errors::ErrorCode;
use crate::subject::{Pattern, Subject};

/// The choice of a call that was refused as overloaded: as 0, without those who refuse calls so.
pub const CHOICE_WITH_CAPACITY: u8 = 3;

/// The head of a CALL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallHead<'a> {
    /// The number of the node that calls; 0 from that node itself.
    pub origin: u32,
    /// The subscription of the receiver that is meant; 0 from the caller.
    pub to: u64,
    /// Milliseconds that are left for the answer, or 0 for no limit.
    pub deadline_ms: u32,
    /// How one member of a queue group is chosen: 0 least in progress, 1 the first, 2 any, 3 least
    /// in progress of those with capacity.
    pub choice: u8,
    /// Items of the answer that may be sent before CREDIT.
    pub credit: u32,
    /// The subject that is called.
    pub subject: &'a str,
    /// Further fields of the call.
    pub fields: Fields<'a>,
}

impl<'a> CallHead<'a> {
    /// Reads a head.
    ///
    /// # Errors
    /// [`WireError`] if it is not one.
    pub fn parse(head: &'a [u8]) -> Result<Self, WireError> {
        let mut pieces = HeadReader::new("CALL", head);
        let (origin, to) = (pieces.u32("origin")?, pieces.u64("to")?);
        let (deadline_ms, choice) = (pieces.u32("deadline")?, pieces.u8("choice")?);
        check_choice(choice)?;
        let credit = pieces.u32("credit")?;
        let subject = subject(&mut pieces)?;
        let fields = Fields::parse("CALL", pieces.rest())?;
        Ok(Self { origin, to, deadline_ms, choice, credit, subject, fields })
    }

    /// Writes it.
    ///
    /// # Errors
    /// [`WireError`] if the subject or the choice is one that no reader takes.
    pub fn put(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        check_choice(self.choice)?;
        out.extend_from_slice(&self.origin.to_le_bytes());
        out.extend_from_slice(&self.to.to_le_bytes());
        out.extend_from_slice(&self.deadline_ms.to_le_bytes());
        out.push(self.choice);
        out.extend_from_slice(&self.credit.to_le_bytes());
        put_subject(out, self.subject)?;
        self.fields.put(out);
        Ok(())
    }
}

/// The head of a PUBLISH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishHead<'a> {
    /// The number of the node that publishes; 0 from that node itself.
    pub origin: u32,
    /// The one subscription of the receiver that is meant, or 0 for all outside of queue groups.
    pub to: u64,
    /// The subject of the message.
    pub subject: &'a str,
    /// Further fields of the message.
    pub fields: Fields<'a>,
}

impl<'a> PublishHead<'a> {
    /// Reads a head.
    ///
    /// # Errors
    /// [`WireError`] if it is not one.
    pub fn parse(head: &'a [u8]) -> Result<Self, WireError> {
        let mut pieces = HeadReader::new("PUBLISH", head);
        let (origin, to) = (pieces.u32("origin")?, pieces.u64("to")?);
        let subject = subject(&mut pieces)?;
        Ok(Self { origin, to, subject, fields: Fields::parse("PUBLISH", pieces.rest())? })
    }

    /// Writes it.
    ///
    /// # Errors
    /// [`WireError::Subject`] if the subject is one that no reader takes.
    pub fn put(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        out.extend_from_slice(&self.origin.to_le_bytes());
        out.extend_from_slice(&self.to.to_le_bytes());
        put_subject(out, self.subject)?;
        self.fields.put(out);
        Ok(())
    }
}

/// The head of a SUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscribeHead<'a> {
    /// The queue group, or an empty text for none.
    pub queue: &'a str,
    /// Which subjects.
    pub pattern: &'a str,
}

impl<'a> SubscribeHead<'a> {
    /// Reads a head.
    ///
    /// # Errors
    /// [`WireError`] if it is not one.
    pub fn parse(head: &'a [u8]) -> Result<Self, WireError> {
        let mut pieces = HeadReader::new("SUBSCRIBE", head);
        let length = usize::from(pieces.u8("the length of the queue name")?);
        let queue = pieces.text(length, "the queue name")?;
        let pattern = pieces.rest_as_text("the pattern")?;
        Pattern::check(pattern).map_err(|error| WireError::Subject(error.to_string()))?;
        Ok(Self { queue, pattern })
    }

    /// Writes it.
    ///
    /// # Errors
    /// [`WireError`] if the name of the queue group is too long, or the pattern is one that no
    /// reader takes.
    pub fn put(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        Pattern::check(self.pattern).map_err(|error| WireError::Subject(error.to_string()))?;
        let length = u8::try_from(self.queue.len());
        out.push(length.map_err(|_| WireError::Limit { name: "queue_name_bytes", max: 255 })?);
        out.extend_from_slice(self.queue.as_bytes());
        out.extend_from_slice(self.pattern.as_bytes());
        Ok(())
    }
}

/// The head of a FAIL or an ERROR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailHead {
    /// The number of the error in `spec/errors.toml`.
    pub number: u16,
}

impl FailHead {
    /// Reads a head.
    ///
    /// # Errors
    /// [`WireError`] if it is not one.
    pub fn parse(head: &[u8]) -> Result<Self, WireError> {
        Ok(Self { number: read_u16("FAIL", head)? })
    }

    /// The error, or None if it is not one that this version knows.
    #[must_use]
    pub fn code(self) -> Option<ErrorCode> {
        ErrorCode::from_number(self.number)
    }
}

/// Reads a head that is one number of 32 bits: NODE, CREDIT, WINDOW, ALIVE.
///
/// # Errors
/// [`WireError`] if it is not one.
pub fn read_u32(kind: &'static str, head: &[u8]) -> Result<u32, WireError> {
    let mut pieces = HeadReader::new(kind, head);
    let number = pieces.u32("its number")?;
    pieces.end()?;
    Ok(number)
}

/// Reads a head that is one number of 16 bits: WELCOME, ERROR, FAIL.
///
/// # Errors
/// [`WireError`] if it is not one.
pub fn read_u16(kind: &'static str, head: &[u8]) -> Result<u16, WireError> {
    let mut pieces = HeadReader::new(kind, head);
    let number = pieces.u16("its number")?;
    pieces.end()?;
    Ok(number)
}

fn check_choice(choice: u8) -> Result<(), WireError> {
    if choice <= CHOICE_WITH_CAPACITY {
        return Ok(());
    }
    let (value, fix) =
        (u64::from(choice), "send 0 for the least busy, 1 for the first, 2 for any, or 3 after a refusal");
    Err(WireError::NotAllowed { kind: "CALL", field: "choice", value, fix })
}

fn subject<'a>(pieces: &mut HeadReader<'a>) -> Result<&'a str, WireError> {
    let length = usize::from(pieces.u16("the length of the subject")?);
    let text = pieces.text(length, "the subject")?;
    Subject::check(text).map_err(|error| WireError::Subject(error.to_string()))?;
    Ok(text)
}

fn put_subject(out: &mut Vec<u8>, subject: &str) -> Result<(), WireError> {
    Subject::check(subject).map_err(|error| WireError::Subject(error.to_string()))?;
    let length = u16::try_from(subject.len()).expect("a subject has at most 255 bytes");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(subject.as_bytes());
    Ok(())
}
