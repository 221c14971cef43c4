//! The cost of a call over a hub, without sockets: `cargo bench -p tidewire-core --bench link
//! [rounds]`.
//!
//! Two sessions and a hub in one thread. Prints nanoseconds per operation as min, median and max
//! over the rounds.

use std::hint::black_box;
use std::time::Instant;

use tidewire_core::link::hub::{Hub, HubOptions, LinkId};
use tidewire_core::link::session::{Event, Greeting, Session};
use tidewire_proto::wire::{self, CallHead, Flags, PublishHead, SubscribeHead};

const OPERATIONS: u64 = 100_000;
const PAYLOAD: [u8; 256] = [7; 256];
const WRITE_BYTES: usize = 256 * 1024;

fn main() {
    let rounds = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(11);
    println!("tidewire-core {}, {}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS);
    println!("{rounds} rounds, 256 B payloads, ns per operation: min / median / max");
    for batch in [1, 64] {
        let mut line = Line::new();
        report(&format!("call and reply, {batch} in flight"), rounds, || line.calls(batch));
        let mut parts = vec![Vec::new(); STEPS.len()];
        for _ in 0..rounds {
            for (all, one) in parts.iter_mut().zip(line.steps(batch)) {
                all.push(one);
            }
        }
        for (name, part) in STEPS.iter().zip(parts) {
            print(&format!("  of which {name}"), part);
        }
    }
    let mut line = Line::new();
    report("publish to one, 64 at a time", rounds, || line.publishes(64));
    report("call and reply of 1 MiB", rounds, || line.long_calls(100));
}

const STEPS: [&str; 4] = ["the caller sends", "the hub passes it on", "the callee answers", "the hub and the caller"];

/// Two sessions and a hub.
struct Line {
    hub: Hub,
    sessions: [Session<u32>; 2],
    links: [LinkId; 2],
    buffer: Vec<u8>,
    events: Vec<Event<u32>>,
}

impl Line {
    fn new() -> Self {
        let mut hub = Hub::new(HubOptions::new("hub"), 1);
        let links = [0, 1].map(|at| hub.connected(format!("secret-{at}"), 0));
        let sessions = ["caller", "callee"].map(|name| Session::join(&Greeting::new(name), 0).expect("it fits"));
        let mut line = Self { hub, sessions, links, buffer: Vec::new(), events: Vec::new() };
        line.carry();
        let head = SubscribeHead { queue: "", pattern: "svc.quote" };
        line.sessions[1].subscribe(&head, &[], 0).expect("it is sent");
        line.carry();
        line.events.clear();
        line
    }

    fn calls(&mut self, batch: u64) -> f64 {
        timed(OPERATIONS, || {
            for _ in 0..OPERATIONS / batch {
                self.send(batch);
                self.up(0);
                self.down(1);
                self.answer();
                self.up(1);
                self.down(0);
                black_box(self.events.drain(..).count());
            }
        })
    }

    fn steps(&mut self, batch: u64) -> [f64; 4] {
        let mut spent = [0.0; 4];
        for _ in 0..OPERATIONS / batch {
            spent[0] += timed(OPERATIONS, || self.send(batch));
            spent[1] += timed(OPERATIONS, || {
                self.up(0);
            });
            spent[2] += timed(OPERATIONS, || {
                self.down(1);
                self.answer();
            });
            spent[3] += timed(OPERATIONS, || {
                self.up(1);
                self.down(0);
                black_box(self.events.drain(..).count());
            });
        }
        spent
    }

    fn publishes(&mut self, batch: u64) -> f64 {
        let head = PublishHead { subject: "svc.quote", ..PublishHead::default() };
        timed(OPERATIONS, || {
            for _ in 0..OPERATIONS / batch {
                for _ in 0..batch {
                    self.sessions[0].publish(&head, Flags::NORMAL, PAYLOAD[..].into()).expect("it is sent");
                }
                self.up(0);
                self.down(1);
                black_box(self.events.drain(..).count());
            }
        })
    }

    fn long_calls(&mut self, calls: u64) -> f64 {
        let payload = vec![7; 1 << 20];
        let head = CallHead { subject: "svc.quote", ..CallHead::default() };
        timed(calls, || {
            for _ in 0..calls {
                self.sessions[0].call(&head, Flags::NORMAL, payload[..].into(), 0).expect("it is sent");
                self.carry();
                let Some(Event::Called(call)) = self.events.pop() else { panic!("the call has arrived") };
                self.sessions[1].reply(call.id, Flags::NORMAL, call.payload().into()).expect("it is open");
                self.carry();
                let Some(Event::Replied(..)) = self.events.pop() else { panic!("the reply has arrived") };
            }
        })
    }

    fn send(&mut self, batch: u64) {
        let head = CallHead { subject: "svc.quote", deadline_ms: 1_000, ..CallHead::default() };
        for _ in 0..batch {
            self.sessions[0].call(&head, Flags::NORMAL, PAYLOAD[..].into(), 0).expect("it is sent");
        }
    }

    fn answer(&mut self) {
        for event in self.events.drain(..) {
            let Event::Called(call) = event else { panic!("only calls arrive: {event:?}") };
            self.sessions[1].reply(call.id, Flags::NORMAL, call.payload().into()).expect("it is open");
        }
    }

    fn carry(&mut self) {
        while [0, 1].map(|at| self.up(at) | self.down(at)).contains(&true) {}
    }

    fn up(&mut self, at: usize) -> bool {
        let mut moved = false;
        while self.sessions[at].out.take(&mut self.buffer, WRITE_BYTES) {
            self.sessions[at].sent(0);
            let mut bytes = &self.buffer[..];
            while let Some(frame) = wire::read(bytes, self.hub.frame_bytes()).expect("it is a frame") {
                self.hub.received(self.links[at], &frame, 0);
                bytes = &bytes[frame.bytes.len()..];
            }
            self.buffer.clear();
            moved = true;
        }
        moved
    }

    fn down(&mut self, at: usize) -> bool {
        let mut moved = false;
        self.hub.touched();
        while self.hub.outbox(self.links[at]).is_some_and(|out| out.take(&mut self.buffer, WRITE_BYTES)) {
            self.hub.sent(self.links[at], 0);
            let mut bytes = &self.buffer[..];
            while let Some(frame) = wire::read(bytes, 1 << 20).expect("it is a frame") {
                self.sessions[at].received(&frame, 0, &mut self.events).expect("the link goes on");
                bytes = &bytes[frame.bytes.len()..];
            }
            self.buffer.clear();
            moved = true;
        }
        self.events.retain(|event| !matches!(event, Event::Joined(_)));
        moved
    }
}

fn timed(operations: u64, work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_nanos() as f64 / operations as f64
}

fn report(name: &str, rounds: usize, mut round: impl FnMut() -> f64) {
    print(name, (0..rounds).map(|_| round()).collect());
}

fn print(name: &str, mut figures: Vec<f64>) {
    figures.sort_by(f64::total_cmp);
    let (min, median, max) = (figures[0], figures[figures.len() / 2], figures[figures.len() - 1]);
    println!("{name:<40} {min:>10.1} / {median:>10.1} / {max:>10.1}   {:>10.0}/s", 1e9 / median);
}
