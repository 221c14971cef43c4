//! MessagePack, written to the end of a vector in the shortest form.

pub fn nil(out: &mut Vec<u8>) {
    out.push(0xc0);
}

pub fn boolean(out: &mut Vec<u8>, value: bool) {
    out.push(0xc2 + u8::from(value));
}

#[inline]
pub fn signed(out: &mut Vec<u8>, value: i64) {
    if let Ok(value) = u64::try_from(value) {
        return unsigned(out, value);
    }
    if value >= -32 {
        out.push(value as u8);
    } else if let Ok(value) = i8::try_from(value) {
        tagged(out, 0xd0, value.to_be_bytes());
    } else if let Ok(value) = i16::try_from(value) {
        tagged(out, 0xd1, value.to_be_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        tagged(out, 0xd2, value.to_be_bytes());
    } else {
        tagged(out, 0xd3, value.to_be_bytes());
    }
}

#[inline]
pub fn unsigned(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        out.push(value as u8);
    } else {
        sized(out, value, [0xcc, 0xcd, 0xce, 0xcf]);
    }
}

pub fn float(out: &mut Vec<u8>, value: f64) {
    tagged(out, 0xcb, value.to_be_bytes());
}

#[inline]
pub fn text(out: &mut Vec<u8>, value: &str) {
    if value.len() < 32 {
        out.push(0xa0 | value.len() as u8);
    } else {
        sized(out, value.len() as u64, [0xd9, 0xda, 0xdb, 0xdb]);
    }
    out.extend_from_slice(value.as_bytes());
}

pub fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    sized(out, value.len() as u64, [0xc4, 0xc5, 0xc6, 0xc6]);
    out.extend_from_slice(value);
}

pub fn array(out: &mut Vec<u8>, items: usize) {
    if items < 16 {
        out.push(0x90 | items as u8);
    } else {
        wide(out, items, 0xdc);
    }
}

pub fn map(out: &mut Vec<u8>, entries: usize) {
    if entries < 16 {
        out.push(0x80 | entries as u8);
    } else {
        wide(out, entries, 0xde);
    }
}

/// An extension whose bytes are known.
pub fn extension(out: &mut Vec<u8>, kind: i8, content: &[u8]) {
    match content.len() {
        1 => out.push(0xd4),
        2 => out.push(0xd5),
        4 => out.push(0xd6),
        8 => out.push(0xd7),
        16 => out.push(0xd8),
        length => sized(out, length as u64, [0xc7, 0xc8, 0xc9, 0xc9]),
    }
    out.push(kind as u8);
    out.extend_from_slice(content);
}

/// Begins an extension that holds values. `close` fills in its length.
pub fn open(out: &mut Vec<u8>, kind: i8) -> usize {
    out.extend_from_slice(&[0xc9, 0, 0, 0, 0, kind as u8]);
    out.len()
}

/// Ends what `open` began. False if it is longer than an extension can be.
#[must_use]
pub fn close(out: &mut [u8], start: usize) -> bool {
    let Ok(length) = u32::try_from(out.len() - start) else { return false };
    out[start - 5..start - 1].copy_from_slice(&length.to_be_bytes());
    true
}

/// A marker and a number, in 1, 2, 4 or 8 bytes.
#[inline]
fn sized(out: &mut Vec<u8>, value: u64, markers: [u8; 4]) {
    if let Ok(value) = u8::try_from(value) {
        tagged(out, markers[0], value.to_be_bytes());
    } else if let Ok(value) = u16::try_from(value) {
        tagged(out, markers[1], value.to_be_bytes());
    } else if let Ok(value) = u32::try_from(value) {
        tagged(out, markers[2], value.to_be_bytes());
    } else {
        tagged(out, markers[3], value.to_be_bytes());
    }
}

/// A count in 2 or 4 bytes; the marker of the longer form is the next one.
fn wide(out: &mut Vec<u8>, count: usize, marker: u8) {
    match u16::try_from(count) {
        Ok(count) => tagged(out, marker, count.to_be_bytes()),
        Err(_) => tagged(out, marker + 1, (count as u32).to_be_bytes()),
    }
}

#[inline]
fn tagged<const N: usize>(out: &mut Vec<u8>, marker: u8, number: [u8; N]) {
    // One check of the capacity for both.
    out.reserve(1 + N);
    out.push(marker);
    out.extend_from_slice(&number);
}
