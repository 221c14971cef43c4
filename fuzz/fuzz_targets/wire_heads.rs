//! Heads and fields are of their form, and written as they were read, or are refused with a message
//! that tells the fix.
//!
//! The input is a kind, flags, the length of the head, then head and payload.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_proto::subject::{Pattern, Subject};
use tidewire_proto::wire::{
    CallHead, Fields, FieldsWriter, Flags, Frame, Hello, Kind, PublishHead, SubscribeHead, WireError, read, write,
};

fuzz_target!(|bytes: &[u8]| {
    let &[kind, flags, head, ref rest @ ..] = bytes else { return };
    let kind = Kind::ALL[usize::from(kind) % Kind::ALL.len()];
    let flags = Flags::of(flags & 0b11_1111).expect("the upper bits are 0");
    let (head, payload) = rest.split_at(usize::from(head).min(rest.len()));
    let Some(framed) = framed(kind, flags, head, payload) else { return };
    let frame = read(&framed, framed.len()).expect("the fixed part is right").expect("it is all there");
    assert_eq!((frame.head, frame.payload), (head, payload));
    match frame.check() {
        Ok(()) => check_taken(&frame),
        Err(error) => check_message(&error),
    }
});

fn framed(kind: Kind, flags: Flags, head: &[u8], payload: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let put = |out: &mut Vec<u8>| {
        out.extend_from_slice(head);
        Ok(())
    };
    write(&mut out, kind, flags, 1, put, payload).ok()?;
    Some(out)
}

/// A head that was taken is written again to the same bytes.
fn check_taken(frame: &Frame<'_>) {
    let mut out = Vec::new();
    let written = match frame.kind {
        Kind::Hello => Hello::parse(frame).and_then(|hello| Hello::put(hello.oldest, hello.newest, &mut out)),
        Kind::Subscribe => SubscribeHead::parse(frame.head).and_then(|head| {
            assert!(Pattern::new(head.pattern).is_ok());
            head.put(&mut out)
        }),
        Kind::Publish => PublishHead::parse(frame.head).and_then(|head| {
            check_texts(head.subject, head.fields);
            head.put(&mut out)
        }),
        Kind::Call => CallHead::parse(frame.head).and_then(|head| {
            check_texts(head.subject, head.fields);
            head.put(&mut out)
        }),
        _ => return,
    };
    written.expect("what was taken can be written");
    // A count of 0 says what no count says, and is not written.
    assert!(out == frame.head || frame.head.strip_suffix(&[0]) == Some(&out[..]));
}

fn check_texts(subject: &str, fields: Fields<'_>) {
    assert!(Subject::new(subject).is_ok());
    let (mut again, mut out) = (Vec::new(), Vec::new());
    let mut writer = FieldsWriter::new(&mut again);
    for (name, value) in fields.iter() {
        writer.add(name, value).expect("there are as many as were taken");
        assert!(fields.get(name).is_some());
    }
    fields.put(&mut out);
    assert_eq!((fields.iter().count(), out), (fields.len(), again));
}

fn check_message(error: &WireError) {
    let message = error.to_string();
    assert!(message.contains(": ") || message.contains("; "), "no fix in {message}");
}
