//! Serializer of values of Rust, as `spec/values.md` describes.

use rmp::encode as mp;
use serde::Serialize;
use serde::ser::Serializer;
use tidewire_proto::generated::limits;
use tidewire_proto::values::extension as ext;

use super::blob::Blob;
use super::container::Container;
use super::decode_error::{DecodeError, Kind};
use super::names::code_of;
use super::references;

const DEPTH: usize = limits::VALUE_DEPTH.default as usize;
const INLINE_BYTES: usize = limits::VALUE_INLINE_BYTES.default as usize;
const PAYLOAD_BYTES: usize = limits::PAYLOAD_BYTES.default as usize;

/// Where a value is written to.
#[derive(Default)]
pub(crate) struct Writer {
    pub(super) head: Vec<u8>,
    parts: Vec<Vec<u8>>,
    parts_bytes: usize,
    pub(super) depth: usize,
    /// The bytes that come next are the content of this extension.
    extension: Option<i8>,
}

impl Writer {
    /// A value as a blob.
    pub fn blob<T: Serialize + ?Sized>(value: &T) -> Result<Blob, DecodeError> {
        Self::gather(value, |_| {})
    }

    /// The arguments of a call. A tuple or a list is those by position, a map those by name,
    /// nothing none; any other value is the only one.
    pub fn arguments<T: Serialize + ?Sized>(arguments: &T) -> Result<Blob, DecodeError> {
        Self::gather(arguments, Self::wrap_arguments)
    }

    fn gather<T: Serialize + ?Sized>(value: &T, wrap: impl FnOnce(&mut Self)) -> Result<Blob, DecodeError> {
        let (written, offered) = references::gathered(|| {
            let mut writer = Self::default();
            value.serialize(&mut writer)?;
            wrap(&mut writer);
            writer.finish()
        });
        let mut blob = written?;
        blob.offered = offered;
        Ok(blob)
    }

    fn wrap_arguments(&mut self) {
        let first = self.head.first().copied().unwrap_or(0xc0);
        let is_tuple = first == 0xc9 && self.head.get(5) == Some(&(ext::TUPLE as u8));
        let is_list = matches!(first, 0x90..=0x9f | 0xdc | 0xdd);
        let is_map_or_nil = matches!(first, 0x80..=0x8f | 0xde | 0xdf | 0xc0);
        if is_tuple || is_map_or_nil {
            return;
        }
        let around: &[u8] = if is_list { &[] } else { &[0x91] };
        let mut start = extension_start(ext::TUPLE);
        start.extend_from_slice(around);
        start.append(&mut self.head);
        self.head = start;
        self.end_extension(0);
    }

    fn finish(self) -> Result<Blob, DecodeError> {
        self.check_size()?;
        Ok(Blob::new(self.head, self.parts))
    }

    fn check_size(&self) -> Result<(), DecodeError> {
        if self.head.len() + self.parts_bytes > PAYLOAD_BYTES {
            let text = format!("more than payload_bytes={PAYLOAD_BYTES} can't be sent: send less at once, or a stream");
            return Err(DecodeError::new(Kind::TooLong, text));
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let is_long = bytes.len() > INLINE_BYTES;
        match self.extension.take() {
            None if is_long => self.buffer(ext::BUFFER, bytes),
            Some(ext::BYTEARRAY) if is_long => self.buffer(ext::BYTEARRAY_BUFFER, bytes),
            None => {
                put(mp::write_bin(&mut self.head, bytes))?;
                self.check_size()
            }
            Some(code) => {
                put(mp::write_ext_meta(&mut self.head, bytes.len() as u32, code))?;
                self.head.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    fn buffer(&mut self, code: i8, bytes: &[u8]) -> Result<(), DecodeError> {
        let number = self.parts.len() as u32;
        put(mp::write_ext_meta(&mut self.head, 4, code))?;
        self.head.extend_from_slice(&number.to_be_bytes());
        self.parts_bytes += bytes.len();
        self.check_size()?;
        self.parts.push(bytes.to_vec());
        Ok(())
    }

    /// Fills in the length of an extension that began at a place.
    pub(super) fn end_extension(&mut self, begin: usize) {
        let length = (self.head.len() - begin - 6) as u32;
        self.head[begin + 1..begin + 5].copy_from_slice(&length.to_be_bytes());
    }

    fn go_deeper(&mut self) -> Result<(), DecodeError> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(DecodeError::unfit(format!(
                "values are nested more than value_depth={DEPTH} deep: send a flatter one"
            )));
        }
        self.check_size()
    }

    /// A container. If its count is not known, the items are counted, and the count is put before
    /// them.
    fn begin(
        &mut self,
        count: Option<usize>,
        is_map: bool,
        extension: Option<i8>,
    ) -> Result<Container<'_>, DecodeError> {
        self.go_deeper()?;
        let extension_at = extension.map(|code| {
            let begin = self.head.len();
            self.head.extend_from_slice(&extension_start(code));
            begin
        });
        let at = self.head.len();
        if let Some(count) = count {
            count_of(&mut self.head, count, is_map)?;
        }
        Ok(Container::new(self, at, count.is_some(), is_map, extension_at))
    }

    /// A map of one entry, whose key is the name of a variant.
    fn variant(&mut self, name: &str) -> Result<(), DecodeError> {
        self.go_deeper()?;
        count_of(&mut self.head, 1, true)?;
        put(mp::write_str(&mut self.head, name))
    }
}

/// Header of an extension that holds values: its length is filled in later.
fn extension_start(code: i8) -> Vec<u8> {
    vec![0xc9, 0, 0, 0, 0, code as u8]
}

pub(super) fn count_of(head: &mut Vec<u8>, count: usize, is_map: bool) -> Result<(), DecodeError> {
    let count = u32::try_from(count).map_err(|_| DecodeError::unfit("more than 2^32 - 1 items can't be sent"))?;
    if is_map { put(mp::write_map_len(head, count).map(drop)) } else { put(mp::write_array_len(head, count).map(drop)) }
}

/// Writing to memory does not fail.
fn put<T, E: std::fmt::Debug>(written: Result<T, E>) -> Result<(), DecodeError> {
    debug_assert!(written.is_ok(), "{:?}", written.as_ref().err());
    Ok(())
}

macro_rules! widened {
    ($($method:ident($from:ty) => $wide:ident;)*) => {$(
        fn $method(self, value: $from) -> Result<(), DecodeError> {
            self.$wide(value.into())
        }
    )*};
}

impl<'a> Serializer for &'a mut Writer {
    type Ok = ();
    type Error = DecodeError;
    type SerializeSeq = Container<'a>;
    type SerializeTuple = Container<'a>;
    type SerializeTupleStruct = Container<'a>;
    type SerializeTupleVariant = Container<'a>;
    type SerializeMap = Container<'a>;
    type SerializeStruct = Container<'a>;
    type SerializeStructVariant = Container<'a>;

    fn serialize_bool(self, value: bool) -> Result<(), DecodeError> {
        put(mp::write_bool(&mut self.head, value))
    }

    widened! {
        serialize_i8(i8) => serialize_i64;
        serialize_i16(i16) => serialize_i64;
        serialize_i32(i32) => serialize_i64;
        serialize_u8(u8) => serialize_u64;
        serialize_u16(u16) => serialize_u64;
        serialize_u32(u32) => serialize_u64;
        serialize_f32(f32) => serialize_f64;
    }

    fn serialize_i64(self, value: i64) -> Result<(), DecodeError> {
        put(mp::write_sint(&mut self.head, value))
    }

    fn serialize_i128(self, value: i128) -> Result<(), DecodeError> {
        if let Ok(value) = u64::try_from(value) {
            return self.serialize_u64(value);
        }
        let value = i64::try_from(value).map_err(|_| out_of_range(&value))?;
        self.serialize_i64(value)
    }

    fn serialize_u64(self, value: u64) -> Result<(), DecodeError> {
        put(mp::write_uint(&mut self.head, value))
    }

    fn serialize_u128(self, value: u128) -> Result<(), DecodeError> {
        let value = u64::try_from(value).map_err(|_| out_of_range(&value))?;
        self.serialize_u64(value)
    }

    fn serialize_f64(self, value: f64) -> Result<(), DecodeError> {
        put(mp::write_f64(&mut self.head, value))
    }

    fn serialize_char(self, value: char) -> Result<(), DecodeError> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), DecodeError> {
        put(mp::write_str(&mut self.head, value))?;
        self.check_size()
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), DecodeError> {
        self.bytes(value)
    }

    fn serialize_none(self) -> Result<(), DecodeError> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), DecodeError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), DecodeError> {
        put(mp::write_nil(&mut self.head))
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), DecodeError> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), DecodeError> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<(), DecodeError> {
        match code_of(name) {
            Some(code) if ext::holds_values(code) => {
                let begin = self.head.len();
                self.head.extend_from_slice(&extension_start(code));
                value.serialize(&mut *self)?;
                self.end_extension(begin);
                Ok(())
            }
            code => {
                self.extension = code;
                value.serialize(self)
            }
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), DecodeError> {
        self.variant(variant)?;
        value.serialize(&mut *self).map_err(|wrong| wrong.inside_of(variant))?;
        self.depth -= 1;
        Ok(())
    }

    fn serialize_seq(self, count: Option<usize>) -> Result<Container<'a>, DecodeError> {
        self.begin(count, false, None)
    }

    fn serialize_tuple(self, count: usize) -> Result<Container<'a>, DecodeError> {
        self.begin(Some(count), false, Some(ext::TUPLE))
    }

    fn serialize_tuple_struct(self, _: &'static str, count: usize) -> Result<Container<'a>, DecodeError> {
        self.serialize_tuple(count)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        count: usize,
    ) -> Result<Container<'a>, DecodeError> {
        self.variant(variant)?;
        let mut tuple = self.begin(Some(count), false, Some(ext::TUPLE))?;
        tuple.is_variant = true;
        Ok(tuple)
    }

    fn serialize_map(self, count: Option<usize>) -> Result<Container<'a>, DecodeError> {
        self.begin(count, true, None)
    }

    fn serialize_struct(self, _: &'static str, count: usize) -> Result<Container<'a>, DecodeError> {
        self.begin(Some(count), true, None)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        count: usize,
    ) -> Result<Container<'a>, DecodeError> {
        self.variant(variant)?;
        let mut fields = self.begin(Some(count), true, None)?;
        fields.is_variant = true;
        Ok(fields)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

fn out_of_range(value: &impl std::fmt::Display) -> DecodeError {
    DecodeError::unfit(format!("{value} is not allowed: integers are from -2^63 to 2^64 - 1"))
}
