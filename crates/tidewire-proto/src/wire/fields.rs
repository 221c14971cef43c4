//! Fields of a frame: names with byte values, parsed and written.

use alloc::vec::Vec;

use super::WireError;
use super::head_reader::HeadReader;
use crate::generated::limits;

/// Names and values of a head or a greeting, checked when they are parsed and borrowed from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields<'a> {
    count: u8,
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Reads fields that are all of `bytes`. No bytes at all are no fields.
    ///
    /// # Errors
    /// [`WireError`] if they are not of the form, or more than `link_fields`.
    pub fn parse(kind: &'static str, bytes: &'a [u8]) -> Result<Self, WireError> {
        let Some((&count, bytes)) = bytes.split_first() else { return Ok(Self::default()) };
        if u64::from(count) > limits::LINK_FIELDS.default {
            return Err(WireError::Limit { name: "link_fields", max: limits::LINK_FIELDS.default });
        }
        let mut pieces = HeadReader::new(kind, bytes);
        for _ in 0..count {
            take_field(&mut pieces)?;
        }
        pieces.end()?;
        Ok(Self { count, bytes })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// True if there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Name and value of each, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        let mut pieces = HeadReader::new("fields", self.bytes);
        (0..self.count).map_while(move |_| take_field(&mut pieces).ok())
    }

    /// The value of the first field of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// The value of the first field of this name, if it is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name).and_then(|value| core::str::from_utf8(value).ok())
    }

    /// True if the first field of this name is text with this word among its words, which are
    /// separated by blanks.
    #[must_use]
    pub fn has_word(&self, name: &str, word: &str) -> bool {
        self.text(name).is_some_and(|text| text.split_ascii_whitespace().any(|other| other == word))
    }

    /// The value of the first field of this name, if it is a number in decimal digits.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        // `parse` alone would also take a plus sign.
        let text = self.text(name).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
        text.parse().ok()
    }

    /// Writes them as they were read.
    pub fn put(&self, out: &mut Vec<u8>) {
        if self.count > 0 {
            out.push(self.count);
            out.extend_from_slice(self.bytes);
        }
    }
}

fn take_field<'a>(pieces: &mut HeadReader<'a>) -> Result<(&'a str, &'a [u8]), WireError> {
    let length = usize::from(pieces.u8("the length of a field's name")?);
    let name = pieces.text(length, "the name of a field")?;
    let length = usize::from(pieces.u16("the length of a field's value")?);
    Ok((name, pieces.bytes(length, "the value of a field")?))
}

/// Writes fields to the end of a buffer. Without any, nothing is written.
pub struct FieldsWriter<'a> {
    out: &'a mut Vec<u8>,
    count_at: Option<usize>,
}

impl<'a> FieldsWriter<'a> {
    /// A writer that appends to the buffer.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, count_at: None }
    }

    /// Writes one more.
    ///
    /// # Errors
    /// [`WireError::Limit`] if there are too many, or this one is too long. Nothing is written
    /// then.
    pub fn add(&mut self, name: &str, value: &[u8]) -> Result<(), WireError> {
        let name_length =
            u8::try_from(name.len()).map_err(|_| WireError::Limit { name: "field_name_bytes", max: 255 })?;
        let value_length =
            u16::try_from(value.len()).map_err(|_| WireError::Limit { name: "field_value_bytes", max: 65_535 })?;
        let at = match self.count_at {
            Some(at) => at,
            None => {
                self.out.push(0);
                *self.count_at.insert(self.out.len() - 1)
            }
        };
        if u64::from(self.out[at]) >= limits::LINK_FIELDS.default {
            return Err(WireError::Limit { name: "link_fields", max: limits::LINK_FIELDS.default });
        }
        self.out[at] += 1;
        self.out.push(name_length);
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(&value_length.to_le_bytes());
        self.out.extend_from_slice(value);
        Ok(())
    }
}
