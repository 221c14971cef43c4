//! Bytes are a stream of frames, or are refused; where they are cut changes neither.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_proto::wire::{FRAME_HEAD, Frame, LENGTH_BYTES, WireError, read, write};

const LENGTH_MAX: usize = 4_096;

fuzz_target!(|bytes: &[u8]| {
    let (frames, rest, error) = read_all(bytes);
    let read = bytes.len() - rest.len();
    assert!(error.is_some() || rest.len() < LENGTH_BYTES + LENGTH_MAX, "it asks for more than a frame may have");
    assert_eq!(written(&frames), bytes[..read]);
    // The first byte says where the same bytes are cut once.
    let cut = bytes.first().map_or(0, |&byte| usize::from(byte).min(bytes.len()));
    let (before, waiting, early) = read_all(&bytes[..cut]);
    if let Some(early) = early {
        assert_eq!((before, Some(early)), (frames, error));
        return;
    }
    let (after, _, later) = read_all(&bytes[cut - waiting.len()..]);
    assert_eq!(([before, after].concat(), later), (frames, error));
});

/// The frames at the front, what follows them, and why it is no frame.
fn read_all(mut bytes: &[u8]) -> (Vec<Frame<'_>>, &[u8], Option<WireError>) {
    let mut frames = Vec::new();
    loop {
        match read(bytes, LENGTH_MAX) {
            Ok(Some(frame)) => {
                assert!(frame.bytes.len() >= FRAME_HEAD);
                bytes = &bytes[frame.bytes.len()..];
                frames.push(frame);
            }
            Ok(None) => return (frames, bytes, None),
            Err(error) => {
                check_message(&error);
                return (frames, bytes, Some(error));
            }
        }
    }
}

fn written(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for frame in frames {
        let head = |out: &mut Vec<u8>| {
            out.extend_from_slice(frame.head);
            Ok(())
        };
        write(&mut out, frame.kind, frame.flags, frame.id, head, frame.payload).expect("what was read can be written");
    }
    out
}

fn check_message(error: &WireError) {
    let message = error.to_string();
    assert!(message.contains(": "), "no fix in {message}");
}
