//! Constants of the format in `spec/values.md`, and the limits of values in `spec/limits.toml`.

/// Containers within each other, at most.
pub const DEPTH: usize = 64;

/// Bytes that are written into the head; more become a buffer.
pub const INLINE_BYTES: usize = 4_096;

/// Most bytes of a blob when the call says nothing.
pub const PAYLOAD_BYTES: usize = 268_435_456;

/// First byte of a blob with buffers. No MessagePack value begins with it.
pub const MARK: u8 = 0xc1;
pub const VERSION: u8 = 1;
/// The fixed part of the header of a blob with buffers.
pub const HEADER_BYTES: usize = 16;
/// Buffers begin at multiples of this.
pub const ALIGNMENT: usize = 8;

/// Padding after a length, up to the place where the next buffer may begin.
pub const fn gap(length: usize) -> usize {
    length.wrapping_neg() % ALIGNMENT
}

/// The types of extensions.
pub mod ext {
    pub const TIMESTAMP: i8 = -1;
    pub const TUPLE: i8 = 1;
    pub const SET: i8 = 2;
    pub const FROZENSET: i8 = 3;
    pub const BYTEARRAY: i8 = 4;
    pub const BUFFER: i8 = 5;
    pub const BYTEARRAY_BUFFER: i8 = 6;
    pub const MOMENT: i8 = 7;
    pub const LOCAL_TIME: i8 = 8;
    pub const DATE: i8 = 9;
    pub const TIME_OF_DAY: i8 = 10;
    pub const DURATION: i8 = 11;
    pub const DECIMAL: i8 = 12;
    pub const UUID: i8 = 13;
    pub const COMPLEX: i8 = 15;
    pub const RECORD: i8 = 16;
    pub const ENUM: i8 = 17;
    pub const ERROR: i8 = 18;
    pub const ARRAY: i8 = 19;
    pub const SCALAR: i8 = 20;
    pub const REFERENCE: i8 = 21;
}
