//! Reading a frame allocates nothing, and neither does writing one into a buffer with enough
//! capacity.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tidewire_proto::wire::{CallHead, Fields, FieldsWriter, Flags, Hello, Kind, SubscribeHead, read, write};

struct Counting;

thread_local! {
    /// Of this thread alone: tests in other threads allocate, too.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes on to the system's allocator as it came; counting touches no memory that
// is given out, and a constant thread-local without a destructor allocates nothing itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations_of<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = ALLOCATIONS.get();
    let result = work();
    (ALLOCATIONS.get() - before, result)
}

fn fields() -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = FieldsWriter::new(&mut out);
    (0..8).for_each(|n| writer.add(&format!("field-{n}"), b"a value").unwrap());
    out
}

fn write_three(out: &mut Vec<u8>, fields: &[u8], payload: &[u8]) {
    let read = Fields::parse("CALL", fields).unwrap();
    let call = CallHead { deadline_ms: 5, subject: "svc.größe.quote", fields: read, ..CallHead::default() };
    write(out, Kind::Call, Flags::NORMAL, 1, |out| call.put(out), payload).unwrap();
    let subscribe = SubscribeHead { queue: "workers", pattern: "svc.*.größe.>" };
    write(out, Kind::Subscribe, Flags::NORMAL, 2, |out| subscribe.put(out), fields).unwrap();
    write(out, Kind::Hello, Flags::URGENT, 0, |out| Hello::put(1, 1, out), fields).unwrap();
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations_of(|| vec![0_u8; 10]).0, 1);
}

#[test]
fn writing_into_a_buffer_with_room_allocates_nothing() {
    let (fields, payload, mut out) = (fields(), [7; 256], Vec::with_capacity(4_096));
    assert_eq!(allocations_of(|| write_three(&mut out, &fields, &payload)).0, 0);
    assert_eq!(out.capacity(), 4_096);
}

#[test]
fn adding_fields_into_a_buffer_with_room_allocates_nothing() {
    let mut out = Vec::with_capacity(64);
    let (allocations, ()) = allocations_of(|| FieldsWriter::new(&mut out).add("name", b"value").unwrap());
    assert_eq!((allocations, out.len()), (0, 13));
}

#[test]
fn reading_and_checking_frames_allocates_nothing() {
    let mut bytes = Vec::new();
    write_three(&mut bytes, &fields(), &[7; 256]);
    let (allocations, kinds) = allocations_of(|| {
        let (mut rest, mut kinds) = (&bytes[..], [None; 3]);
        for kind in &mut kinds {
            let frame = read(rest, 65_536).unwrap().unwrap();
            frame.check().unwrap();
            rest = &rest[frame.bytes.len()..];
            *kind = Some(frame.kind);
        }
        kinds
    });
    assert_eq!((allocations, kinds), (0, [Some(Kind::Call), Some(Kind::Subscribe), Some(Kind::Hello)]));
}

#[test]
fn looking_for_fields_allocates_nothing() {
    let bytes = fields();
    let (allocations, (names, value, number)) = allocations_of(|| {
        let fields = Fields::parse("CALL", &bytes).unwrap();
        (fields.iter().count(), fields.text("field-7"), fields.number("field-7"))
    });
    assert_eq!((allocations, names, value, number), (0, 8, Some("a value"), None));
}

#[test]
fn refusing_most_malformed_frames_allocates_nothing() {
    let allocations = |bytes: &[u8]| allocations_of(|| read(bytes, 65_536).map(|frame| frame.unwrap().check())).0;
    assert_eq!(allocations(b"GET / HTTP/1.1\r\n"), 0);
    assert_eq!(allocations(&[13, 0, 0, 0, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]), 0);
}
