//! Reader of frame heads: integers and bytes, with checks of their length.

use super::WireError;

/// Takes a head apart, from front to back.
pub(super) struct HeadReader<'a> {
    kind: &'static str,
    rest: &'a [u8],
}

impl<'a> HeadReader<'a> {
    pub(super) fn new(kind: &'static str, head: &'a [u8]) -> Self {
        Self { kind, rest: head }
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, WireError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, WireError> {
        self.array(field).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, WireError> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, WireError> {
        self.array(field).map(u64::from_le_bytes)
    }

    pub(super) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let Some((piece, rest)) = self.rest.split_first_chunk::<N>() else { return Err(self.short(field)) };
        self.rest = rest;
        Ok(*piece)
    }

    pub(super) fn bytes(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], WireError> {
        let Some((piece, rest)) = self.rest.split_at_checked(count) else { return Err(self.short(field)) };
        self.rest = rest;
        Ok(piece)
    }

    pub(super) fn text(&mut self, count: usize, field: &'static str) -> Result<&'a str, WireError> {
        let kind = self.kind;
        let bytes = self.bytes(count, field)?;
        core::str::from_utf8(bytes).map_err(|_| WireError::NotUtf8 { kind, field })
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn rest_as_text(self, field: &'static str) -> Result<&'a str, WireError> {
        core::str::from_utf8(self.rest).map_err(|_| WireError::NotUtf8 { kind: self.kind, field })
    }

    pub(super) fn end(self) -> Result<(), WireError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(WireError::Long { kind: self.kind, bytes: self.rest.len() as u64 })
    }

    fn short(&self, field: &'static str) -> WireError {
        WireError::Short { kind: self.kind, field }
    }
}
