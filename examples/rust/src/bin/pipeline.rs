//! A pipeline of actors: lines of an access log are parsed by several actors and counted by one.
//!
//! Mailboxes hold 256 messages. A slow stage holds up the stages before it, back to the thread that
//! reads the lines. The memory of the program therefore does not depend on the length of the log. A
//! line that cannot be parsed is a dead letter with its reason, and the others go on.
//!
//! Run it with `cargo run -p tidewire-examples --bin pipeline [lines]`.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use tidewire_engine::{Actor, ActorRef, Context, Engine, Fault, Mailbox, Overflow, Reply, SpawnOptions, Stop};

const PARSERS: usize = 4;
const SECOND: Duration = Duration::from_secs(1);

/// Parses a line, and sends the hit on.
struct Parser {
    counts: ActorRef<Count>,
}

impl Actor for Parser {
    type Message = String;

    fn receive(&mut self, line: String, _: &mut Context<'_, String>) -> Result<(), Fault> {
        let hit = parse(&line)?;
        // Waits while the mailbox is full.
        self.counts.send_blocking(Count::Add(hit))?;
        Ok(())
    }

    /// Copy of a line for its dead letter, if it fails.
    fn copy(line: &String) -> Option<String> {
        Some(line.clone())
    }
}

struct Hit {
    path: String,
    is_error: bool,
}

fn parse(line: &str) -> Result<Hit, Fault> {
    let mut words = line.split(' ');
    let (Some(_method), Some(path), Some(status)) = (words.next(), words.next(), words.next()) else {
        return Err(format!("{line:?} has no status").into());
    };
    Ok(Hit { path: path.to_owned(), is_error: status.parse::<u16>()? >= 500 })
}

enum Count {
    Add(Hit),
    Get(Reply<Totals>),
}

/// Hits and errors of each path.
type Totals = BTreeMap<String, (u64, u64)>;

#[derive(Default)]
struct Counter {
    totals: Totals,
}

impl Actor for Counter {
    type Message = Count;

    fn receive(&mut self, message: Count, _: &mut Context<'_, Count>) -> Result<(), Fault> {
        match message {
            Count::Add(hit) => {
                let (hits, errors) = self.totals.entry(hit.path).or_default();
                *hits += 1;
                *errors += u64::from(hit.is_error);
            }
            Count::Get(reply) => {
                reply.send(self.totals.clone());
            }
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let lines = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse::<u64>())?;
    let engine = Engine::new()?;
    let bounded = || SpawnOptions::new().mailbox(Mailbox::new(256).overflow(Overflow::Wait));
    let counts = engine.spawn_with(bounded().name("counts"), Counter::default)?;
    let mut parsers = Vec::new();
    for number in 0..PARSERS {
        let counts = counts.clone();
        parsers.push(
            engine.spawn_with(bounded().name(format!("parser-{number}")), move || Parser { counts: counts.clone() })?,
        );
    }

    let began = Instant::now();
    let mut wanted = Totals::new();
    for (number, parser) in (0..lines).zip(parsers.iter().cycle()) {
        let line = line(number);
        if let Ok(hit) = parse(&line) {
            let (hits, errors) = wanted.entry(hit.path).or_default();
            *hits += 1;
            *errors += u64::from(hit.is_error);
        }
        parser.send_blocking(line)?;
    }
    // The stages end in their order: each stop waits for all accepted messages.
    for parser in parsers {
        parser.stop(Stop::drain(10 * SECOND)).wait()?;
    }
    let totals = counts.ask(Count::Get, SECOND).wait()?;
    let seconds = began.elapsed().as_secs_f64();

    for (path, (hits, errors)) in &totals {
        println!("{path:<10} {hits:>8} hits {errors:>6} errors");
    }
    let dead: u64 = engine.statistics().dead_letters.values().sum();
    let why = engine.dead_letters().list().into_iter().find_map(|letter| letter.error);
    println!("{dead} lines could not be parsed; one of them: {}", why.unwrap_or_default());
    println!("{lines} lines in {seconds:.2} s");
    let report = engine.shutdown(SECOND);
    assert!(report.ledger.balances(), "every line is handled or a dead letter");
    assert_eq!(totals, wanted, "a plain loop counts the same");
    Ok(())
}

/// A line of the log, which is the same in each run.
fn line(number: u64) -> String {
    let path = ["/", "/orders", "/search"][(number % 3) as usize];
    match number % 1_000 {
        999 => "GET".to_owned(),
        status => format!("GET {path} {}", if status % 50 == 7 { 503 } else { 200 }),
    }
}
