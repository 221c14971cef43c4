//! Codec of numbers and texts, for the state of a folder.

use std::fmt::Display;

/// Encoder of the state. Each method appends a value, and returns the encoder for the next one.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.0.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.0.extend_from_slice(value);
        self
    }

    pub fn text(&mut self, value: impl AsRef<str>) -> &mut Self {
        self.bytes(value.as_ref().as_bytes())
    }

    pub fn maybe(&mut self, value: Option<u64>) -> &mut Self {
        self.u8(value.is_some().into()).u64(value.unwrap_or(0))
    }

    pub fn list<T>(&mut self, values: &[T], each: for<'a> fn(&'a mut Self, &T) -> &'a mut Self) -> &mut Self {
        self.u64(values.len() as u64);
        for value in values {
            each(self, value);
        }
        self
    }
}

/// Decoder of the state. Every failure describes the fault.
pub struct Reader<'a>(pub &'a [u8]);

pub type Read<T> = Result<T, String>;

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count).ok_or("it ends too soon")?;
        self.0 = rest;
        Ok(head)
    }

    pub fn u8(&mut self) -> Read<u8> {
        Ok(self.take(1)?[0])
    }

    pub fn u32(&mut self) -> Read<u32> {
        u32::try_from(self.u64()?).map_err(wrong)
    }

    pub fn u64(&mut self) -> Read<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    pub fn bytes(&mut self) -> Read<&'a [u8]> {
        let count = u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes"));
        self.take(count as usize)
    }

    pub fn text(&mut self) -> Read<String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(wrong)
    }

    pub fn parsed<T: std::str::FromStr<Err: Display>>(&mut self) -> Read<T> {
        self.text()?.parse().map_err(wrong)
    }

    pub fn maybe(&mut self) -> Read<Option<u64>> {
        let is = self.u8()? != 0;
        let value = self.u64()?;
        Ok(is.then_some(value))
    }

    pub fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        (0..self.u64()?).map(|_| each(self)).collect()
    }
}

fn wrong(error: impl Display) -> String {
    error.to_string()
}
