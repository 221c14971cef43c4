//! Reads MessagePack piece by piece, and believes no length or count before that many bytes are there.

use std::ops::Range;

use rmp::Marker;
use tidewire_proto::generated::limits;

use super::blob::Layout;
use super::extensions as ext;
use super::wrong::Wrong;

const DEPTH: usize = limits::VALUE_DEPTH.default as usize;

/// The begin of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'de> {
    Nil,
    Bool(bool),
    Int(i64),
    /// One above the range of `Int`.
    UInt(u64),
    Float(f64),
    Text(&'de str),
    Bytes(&'de [u8]),
    /// So many values follow.
    List(usize),
    /// So many pairs follow.
    Map(usize),
    /// An extension of this type whose content has so many bytes, and follows.
    Extension(i8, usize),
}

/// Where in a blob a reader is.
#[derive(Clone)]
pub(crate) struct Cursor<'de> {
    blob: &'de [u8],
    at: usize,
    end: usize,
    depth: usize,
    parts: Vec<Range<usize>>,
    next_part: usize,
    /// Values were looked at before, and are read in any order now.
    checked: bool,
}

impl<'de> Cursor<'de> {
    pub fn new(blob: &'de [u8]) -> Result<Self, Wrong> {
        let Layout { head, parts } = Layout::of(blob)?;
        Ok(Self { blob, at: head.start, end: head.end, depth: 0, parts, next_part: 0, checked: false })
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn wrong(&self, problem: &str) -> Wrong {
        Wrong::malformed(problem, self.at)
    }

    /// Looks at the next token without taking it.
    pub fn peek(&self) -> Result<Token<'de>, Wrong> {
        let (mut at, end) = (self.at, self.end);
        token(self.blob, &mut at, end)
    }

    pub fn token(&mut self) -> Result<Token<'de>, Wrong> {
        token(self.blob, &mut self.at, self.end)
    }

    /// The content of an extension.
    pub fn take(&mut self, bytes: usize) -> Result<&'de [u8], Wrong> {
        take(self.blob, &mut self.at, self.end, bytes)
    }

    /// Goes to a place that was seen before.
    pub fn go_to(&mut self, at: usize) {
        self.at = at;
        self.checked = true;
    }

    /// Reads a container, and keeps it from being nested too deep.
    pub fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Wrong>) -> Result<T, Wrong> {
        if self.depth == DEPTH {
            return Err(self.wrong(&format!("values are nested more than value_depth={DEPTH} deep")));
        }
        self.depth += 1;
        let found = read(self);
        self.depth -= 1;
        found
    }

    /// Reads what an extension holds, which must be all of its content.
    pub fn within<T>(&mut self, bytes: usize, read: impl FnOnce(&mut Self) -> Result<T, Wrong>) -> Result<T, Wrong> {
        let outer = self.end;
        self.end = self.at + bytes;
        let found = read(self)?;
        if self.at != self.end {
            return Err(self.wrong("the extension is longer than what is in it"));
        }
        self.end = outer;
        Ok(found)
    }

    /// The items of an extension that holds an array.
    pub fn array(&mut self) -> Result<usize, Wrong> {
        match self.token()? {
            Token::List(count) => Ok(count),
            _ => Err(self.wrong("the extension does not hold an array")),
        }
    }

    /// The buffer that a reference names.
    pub fn part(&mut self, reference: &[u8]) -> Result<&'de [u8], Wrong> {
        let number = <[u8; 4]>::try_from(reference).map(u32::from_be_bytes);
        let number = number.map_err(|_| self.wrong("a reference to a buffer has not 4 bytes"))? as usize;
        let in_turn = self.checked || number == self.next_part;
        let Some(range) = self.parts.get(number).filter(|_| in_turn).cloned() else {
            return Err(self.wrong(&format!("there is no buffer {number}, or it is not the next one")));
        };
        self.next_part = number + 1;
        Ok(&self.blob[range])
    }

    /// Passes one value by, and checks its form.
    pub fn skip(&mut self) -> Result<(), Wrong> {
        match self.token()? {
            Token::List(count) => self.deeper(|cursor| cursor.skip_all(count)),
            Token::Map(count) => self.deeper(|cursor| cursor.skip_all(2 * count)),
            Token::Extension(code, bytes) if ext::holds_values(code) => {
                self.deeper(|cursor| cursor.within(bytes, Self::skip))
            }
            Token::Extension(ext::BUFFER | ext::BYTEARRAY_BUFFER, bytes) => {
                let reference = self.take(bytes)?;
                self.part(reference).map(drop)
            }
            Token::Extension(_, bytes) => self.take(bytes).map(drop),
            _ => Ok(()),
        }
    }

    fn skip_all(&mut self, count: usize) -> Result<(), Wrong> {
        (0..count).try_for_each(|_| self.skip())
    }

    /// Says what is left over.
    pub fn finish(&self) -> Result<(), Wrong> {
        if self.at != self.end {
            return Err(self.wrong("bytes follow the value"));
        }
        if self.next_part != self.parts.len() && !self.checked {
            return Err(self.wrong("nothing refers to the last of the buffers"));
        }
        Ok(())
    }
}

fn token<'de>(blob: &'de [u8], at: &mut usize, end: usize) -> Result<Token<'de>, Wrong> {
    let begin = *at;
    let marker = Marker::from_u8(take(blob, at, end, 1)?[0]);
    let mut number = |bytes| big_endian(blob, at, end, bytes);
    let length = match marker {
        Marker::Null => return Ok(Token::Nil),
        Marker::False => return Ok(Token::Bool(false)),
        Marker::True => return Ok(Token::Bool(true)),
        Marker::FixPos(value) => return Ok(Token::Int(value.into())),
        Marker::FixNeg(value) => return Ok(Token::Int(value.into())),
        Marker::U8 => return number(1).map(unsigned),
        Marker::U16 => return number(2).map(unsigned),
        Marker::U32 => return number(4).map(unsigned),
        Marker::U64 => return number(8).map(unsigned),
        Marker::I8 => return Ok(Token::Int((number(1)? as i8).into())),
        Marker::I16 => return Ok(Token::Int((number(2)? as i16).into())),
        Marker::I32 => return Ok(Token::Int((number(4)? as i32).into())),
        Marker::I64 => return Ok(Token::Int(number(8)? as i64)),
        Marker::F32 => return Ok(Token::Float(f32::from_bits(number(4)? as u32).into())),
        Marker::F64 => return Ok(Token::Float(f64::from_bits(number(8)?))),
        Marker::FixStr(bytes) => bytes.into(),
        Marker::FixArray(count) => count.into(),
        Marker::FixMap(count) => count.into(),
        Marker::Str8 | Marker::Bin8 | Marker::Ext8 => number(1)? as usize,
        Marker::Str16 | Marker::Bin16 | Marker::Array16 | Marker::Map16 | Marker::Ext16 => number(2)? as usize,
        Marker::Str32 | Marker::Bin32 | Marker::Array32 | Marker::Map32 | Marker::Ext32 => number(4)? as usize,
        Marker::FixExt1 => 1,
        Marker::FixExt2 => 2,
        Marker::FixExt4 => 4,
        Marker::FixExt8 => 8,
        Marker::FixExt16 => 16,
        Marker::Reserved => return Err(Wrong::malformed("0xc1 begins no value", begin)),
    };
    long(marker, length, blob, at, end)
}

/// A token with a length, which has been read.
fn long<'de>(marker: Marker, length: usize, blob: &'de [u8], at: &mut usize, end: usize) -> Result<Token<'de>, Wrong> {
    match marker {
        Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => {
            let begin = *at;
            let text = std::str::from_utf8(take(blob, at, end, length)?);
            text.map(Token::Text).map_err(|_| Wrong::malformed("text is not UTF-8", begin))
        }
        Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => take(blob, at, end, length).map(Token::Bytes),
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => {
            promised(length, *at, end).map(|()| Token::List(length))
        }
        Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => {
            promised(length.saturating_mul(2), *at, end).map(|()| Token::Map(length))
        }
        _ => {
            let code = take(blob, at, end, 1)?[0] as i8;
            promised(length, *at, end).map(|()| Token::Extension(code, length))
        }
    }
}

fn unsigned(value: u64) -> Token<'static> {
    i64::try_from(value).map_or(Token::UInt(value), Token::Int)
}

/// Whether there is at least a byte for each of so many.
fn promised(count: usize, at: usize, end: usize) -> Result<(), Wrong> {
    if count <= end - at { Ok(()) } else { Err(Wrong::malformed("it promises more than there is", at)) }
}

fn big_endian(blob: &[u8], at: &mut usize, end: usize, bytes: usize) -> Result<u64, Wrong> {
    let taken = take(blob, at, end, bytes)?;
    Ok(taken.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn take<'de>(blob: &'de [u8], at: &mut usize, end: usize, bytes: usize) -> Result<&'de [u8], Wrong> {
    let stop = at.checked_add(bytes).filter(|stop| *stop <= end);
    let stop = stop.ok_or_else(|| Wrong::malformed("it ends inside of a value", *at))?;
    let taken = &blob[*at..stop];
    *at = stop;
    Ok(taken)
}
