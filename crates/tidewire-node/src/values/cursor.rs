//! Reads MessagePack piece by piece, and believes no length or count before that many bytes are
//! there.

use std::ops::Range;

use rmp::Marker;
use tidewire_proto::generated::limits;
use tidewire_proto::values::Layout;
use tidewire_proto::values::extension as ext;

use super::decode_error::DecodeError;

const CUT: &str = "it ends inside of a value";
const DEPTH: usize = limits::VALUE_DEPTH.default as usize;

/// The begin of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token {
    Nil,
    Bool(bool),
    Int(i64),
    /// One above the range of `Int`.
    UInt(u64),
    Float(f64),
    /// Where it is; whether it is UTF-8 was not looked at.
    Text(Span),
    Bytes(Span),
    /// So many values follow.
    List(usize),
    /// So many pairs follow.
    Map(usize),
    /// An extension of this type whose content has so many bytes, and follows.
    Extension(i8, usize),
}

/// A stretch of a blob.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    pub at: usize,
    pub bytes: usize,
}

/// Where in a blob a reader is.
pub(crate) struct Cursor<'de> {
    blob: &'de [u8],
    parts: Vec<Range<usize>>,
    at: usize,
    end: usize,
    depth: usize,
    next_part: usize,
    /// Values were looked at before, and are read in any order now.
    checked: bool,
}

/// A place to go back to.
pub(crate) struct CursorPosition {
    at: usize,
    next_part: usize,
}

impl<'de> Cursor<'de> {
    pub fn new(blob: &'de [u8]) -> Result<Self, DecodeError> {
        let layout = Layout::of(blob, blob.len()).map_err(|problem| DecodeError::malformed(problem, 0))?;
        let Layout { head, parts } = layout;
        Ok(Self { blob, parts, at: head.start, end: head.end, depth: 0, next_part: 0, checked: false })
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn wrong(&self, problem: &str) -> DecodeError {
        DecodeError::malformed(problem, self.at)
    }

    /// Looks at the next token without taking it.
    pub fn peek(&mut self) -> Result<Token, DecodeError> {
        let at = self.at;
        let token = self.token();
        self.at = at;
        token
    }

    pub fn mark(&self) -> CursorPosition {
        CursorPosition { at: self.at, next_part: self.next_part }
    }

    /// Nothing after the mark was read as a value yet.
    pub fn back_to(&mut self, mark: &CursorPosition) {
        (self.at, self.next_part) = (mark.at, mark.next_part);
    }

    /// The content of an extension.
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Result<Span, DecodeError> {
        let at = self.at;
        let stop = at.checked_add(bytes).filter(|stop| *stop <= self.end);
        self.at = stop.ok_or_else(|| DecodeError::malformed(CUT, at))?;
        Ok(Span { at, bytes })
    }

    #[inline]
    pub fn bytes(&self, span: Span) -> &'de [u8] {
        &self.blob[span.at..span.at + span.bytes]
    }

    pub fn text(&self, span: Span) -> Result<&'de str, DecodeError> {
        std::str::from_utf8(self.bytes(span)).map_err(|_| not_text(span))
    }

    /// Returns to a known position.
    pub fn go_to(&mut self, at: usize) {
        (self.at, self.checked) = (at, true);
    }

    /// Reads a container, and keeps it from being nested too deep.
    pub fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, DecodeError>) -> Result<T, DecodeError> {
        if self.depth == DEPTH {
            return Err(self.wrong(&format!("values are nested more than value_depth={DEPTH} deep")));
        }
        self.depth += 1;
        let found = read(self);
        self.depth -= 1;
        found
    }

    /// Reads the content of an extension completely.
    pub fn within<T>(
        &mut self,
        bytes: usize,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
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
    pub fn array(&mut self) -> Result<usize, DecodeError> {
        match self.token()? {
            Token::List(count) => Ok(count),
            _ => Err(self.wrong("the extension does not hold an array")),
        }
    }

    /// The buffer that a reference names.
    pub fn part(&mut self, reference: Span) -> Result<&'de [u8], DecodeError> {
        let number = self.part_number(reference)?;
        Ok(&self.blob[self.parts[number].clone()])
    }

    fn part_number(&mut self, reference: Span) -> Result<usize, DecodeError> {
        let number = <[u8; 4]>::try_from(self.bytes(reference)).map(u32::from_be_bytes);
        let number = number.map_err(|_| self.wrong("a reference to a buffer has not 4 bytes"))? as usize;
        if number >= self.parts.len() || !(self.checked || number == self.next_part) {
            return Err(self.wrong(&format!("there is no buffer {number}, or it is not the next one")));
        }
        self.next_part = number + 1;
        Ok(number)
    }

    /// Passes one value by, and checks its form.
    pub fn skip(&mut self) -> Result<(), DecodeError> {
        match self.token()? {
            Token::List(count) => self.deeper(|cursor| cursor.skip_all(count)),
            Token::Map(count) => self.deeper(|cursor| cursor.skip_all(2 * count)),
            Token::Extension(code, bytes) if ext::holds_values(code) => {
                self.deeper(|cursor| cursor.within(bytes, Self::skip))
            }
            Token::Extension(ext::BUFFER | ext::BYTEARRAY_BUFFER, bytes) => {
                let reference = self.take(bytes)?;
                self.part_number(reference).map(drop)
            }
            Token::Extension(_, bytes) => self.take(bytes).map(drop),
            Token::Text(span) => self.text(span).map(drop),
            _ => Ok(()),
        }
    }

    fn skip_all(&mut self, count: usize) -> Result<(), DecodeError> {
        (0..count).try_for_each(|_| self.skip())
    }

    /// Fails if bytes are left over.
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.at != self.end {
            return Err(self.wrong("bytes follow the value"));
        }
        if self.next_part != self.parts.len() && !self.checked {
            return Err(self.wrong("nothing refers to the last of the buffers"));
        }
        Ok(())
    }

    pub fn token(&mut self) -> Result<Token, DecodeError> {
        let begin = self.at;
        let marker = Marker::from_u8(self.byte()?);
        let length = match marker {
            Marker::Null => return Ok(Token::Nil),
            Marker::False => return Ok(Token::Bool(false)),
            Marker::True => return Ok(Token::Bool(true)),
            Marker::FixPos(value) => return Ok(Token::Int(value.into())),
            Marker::FixNeg(value) => return Ok(Token::Int(value.into())),
            Marker::U8 => return Ok(Token::Int(self.byte()?.into())),
            Marker::U16 => return Ok(Token::Int(self.u16()?.into())),
            Marker::U32 => return Ok(Token::Int(self.u32()?.into())),
            Marker::U64 => return self.number().map(u64::from_be_bytes).map(unsigned),
            Marker::I8 => return Ok(Token::Int((self.byte()? as i8).into())),
            Marker::I16 => return Ok(Token::Int(i16::from_be_bytes(self.number()?).into())),
            Marker::I32 => return Ok(Token::Int(i32::from_be_bytes(self.number()?).into())),
            Marker::I64 => return Ok(Token::Int(i64::from_be_bytes(self.number()?))),
            Marker::F32 => return Ok(Token::Float(f32::from_be_bytes(self.number()?).into())),
            Marker::F64 => return Ok(Token::Float(f64::from_be_bytes(self.number()?))),
            Marker::FixStr(bytes) => bytes.into(),
            Marker::FixArray(count) => count.into(),
            Marker::FixMap(count) => count.into(),
            Marker::Str8 | Marker::Bin8 | Marker::Ext8 => self.byte()?.into(),
            Marker::Str16 | Marker::Bin16 | Marker::Array16 | Marker::Map16 | Marker::Ext16 => self.u16()?.into(),
            Marker::Str32 | Marker::Bin32 | Marker::Array32 | Marker::Map32 | Marker::Ext32 => self.u32()? as usize,
            Marker::FixExt1 => 1,
            Marker::FixExt2 => 2,
            Marker::FixExt4 => 4,
            Marker::FixExt8 => 8,
            Marker::FixExt16 => 16,
            Marker::Reserved => return Err(DecodeError::malformed("0xc1 begins no value", begin)),
        };
        self.long(marker, length)
    }

    /// A token with a length, which has been read.
    fn long(&mut self, marker: Marker, length: usize) -> Result<Token, DecodeError> {
        match marker {
            Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => self.take(length).map(Token::Text),
            Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => self.take(length).map(Token::Bytes),
            Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => {
                self.promised(length).map(|()| Token::List(length))
            }
            Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => {
                self.promised(length.saturating_mul(2)).map(|()| Token::Map(length))
            }
            _ => {
                let code = self.byte()? as i8;
                self.promised(length).map(|()| Token::Extension(code, length))
            }
        }
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        self.number().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.number().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.number().map(u32::from_be_bytes)
    }

    /// Fails unless at least one byte is left for each of so many items.
    fn promised(&self, count: usize) -> Result<(), DecodeError> {
        if count <= self.end - self.at { Ok(()) } else { Err(self.wrong("it promises more than there is")) }
    }

    /// The bytes of a number, the highest one first.
    #[inline]
    fn number<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], DecodeError> {
        let at = self.at;
        let span = self.take(BYTES)?;
        self.bytes(span).first_chunk().copied().ok_or_else(|| DecodeError::malformed(CUT, at))
    }
}

fn unsigned(value: u64) -> Token {
    i64::try_from(value).map_or(Token::UInt(value), Token::Int)
}

#[cold]
fn not_text(span: Span) -> DecodeError {
    DecodeError::malformed("text is not UTF-8", span.at)
}
