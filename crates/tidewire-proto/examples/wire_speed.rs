//! Benchmark of frames: `cargo run --release -p tidewire-proto --example wire_speed [rounds]`.
//!
//! Prints CALL frames of 256 bytes of payload per second, as min, median and max over the rounds.

use std::hint::black_box;
use std::time::Instant;

use tidewire_proto::wire::{CallHead, Fields, FieldsWriter, Flags, Kind, read, write};

const FRAMES: u64 = 500_000;
/// About what one write to a socket takes.
const FRAMES_PER_BUFFER: u64 = 200;
const PAYLOAD_BYTES: usize = 256;

fn main() {
    let rounds = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(11);
    println!("tidewire-proto {}, {}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS);
    println!("{rounds} rounds, CALL frames of {PAYLOAD_BYTES} B of payload, million frames/s: min / median / max");
    let fields = two_fields();
    for (fields, name) in [(Fields::default(), "no fields"), (Fields::parse("CALL", &fields).unwrap(), "two fields")] {
        let head = CallHead { deadline_ms: 500, subject: "svc.pricing.quote", fields, ..CallHead::default() };
        let filled = filled(&head);
        report(&format!("write, {name}"), rounds, || write_all(&head));
        report(&format!("read, {name}"), rounds, || read_all(&filled, false));
        report(&format!("read and check, {name}"), rounds, || read_all(&filled, true));
    }
}

fn two_fields() -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = FieldsWriter::new(&mut out);
    writer.add("tw-trace", &[7; 26]).unwrap();
    writer.add("tenant", b"north").unwrap();
    out
}

fn filled(head: &CallHead<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    fill(head, &mut out);
    out
}

fn fill(head: &CallHead<'_>, out: &mut Vec<u8>) {
    let payload = [7; PAYLOAD_BYTES];
    for id in 0..FRAMES_PER_BUFFER {
        write(out, Kind::Call, Flags::NORMAL, id, |out| black_box(head).put(out), black_box(&payload)).unwrap();
    }
}

fn write_all(head: &CallHead<'_>) {
    let mut out = filled(head);
    for _ in 0..FRAMES / FRAMES_PER_BUFFER {
        out.clear();
        fill(head, &mut out);
        black_box(&out);
    }
}

/// Reads each frame and its head, and before that checks it if that is asked for.
fn read_all(buffer: &[u8], check: bool) {
    for _ in 0..FRAMES / FRAMES_PER_BUFFER {
        let mut rest = black_box(buffer);
        while let Some(frame) = read(rest, 65_536).unwrap() {
            if check {
                frame.check().unwrap();
            }
            black_box(CallHead::parse(frame.head).unwrap());
            rest = &rest[frame.bytes.len()..];
        }
    }
}

fn report(name: &str, rounds: usize, mut work: impl FnMut()) {
    work();
    let mut rates: Vec<f64> = (0..rounds.max(1)).map(|_| rate(&mut work)).collect();
    rates.sort_unstable_by(f64::total_cmp);
    println!("{name:28} {:6.2} / {:6.2} / {:6.2}", rates[0], rates[rates.len() / 2], rates[rates.len() - 1]);
}

fn rate(work: &mut impl FnMut()) -> f64 {
    let begin = Instant::now();
    work();
    FRAMES as f64 / begin.elapsed().as_secs_f64() / 1e6
}
