//! Latency against offered load: how long acks take while messages come at a rate that does not
//! wait for them.

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::logs::Log;
use crate::{OFFERED, Place};

/// Groups that are due each second: a group holds the messages of one millisecond.
const TICKS: usize = 1_000;
/// The most messages of one transaction.
const MOST: usize = 10_000;
/// A log that falls this far behind does not sustain the rate.
const BEHIND: Duration = Duration::from_secs(2);

/// How long the ack of each group took, from the time that it was due.
#[derive(Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Result of a log that does not sustain the rate.
    pub fn behind() -> Self {
        Self(vec![Duration::MAX])
    }

    pub fn add(&mut self, due: Instant) {
        self.0.push(due.elapsed());
    }

    /// p50 and p99 in ms.
    fn parts(mut self) -> (f64, f64) {
        self.0.sort_unstable();
        let at = |part: f64| self.0[((self.0.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
        (at(0.5), at(0.99))
    }
}

/// Gives each group at the time that it is due.
pub fn due(rate: usize, time: Duration, mut give: impl FnMut(Instant, usize) -> bool) {
    let (tick, group) = (Duration::from_secs(1) / TICKS as u32, rate / TICKS);
    let begun = Instant::now();
    for number in 0..(time.as_secs_f64() * TICKS as f64) as u32 {
        let when = begun + tick * number;
        thread::sleep(when.saturating_duration_since(Instant::now()));
        if when.elapsed() > BEHIND || !give(when, group) {
            return;
        }
    }
}

/// One thread commits all that waits, and then all that has come meanwhile.
pub fn committing(mut log: impl Log + Send, rate: usize, time: Duration) -> Times {
    let (send, sent) = mpsc::channel::<(Instant, usize)>();
    thread::scope(|scope| {
        let commits = scope.spawn(move || {
            let mut times = Times::default();
            while let Ok(first) = sent.recv() {
                let (mut some, mut count) = (vec![first.0], first.1);
                while count < MOST
                    && let Ok((when, group)) = sent.try_recv()
                {
                    some.push(when);
                    count += group;
                }
                log.append(count);
                some.into_iter().for_each(|when| times.add(when));
                if times.0.last().is_some_and(|last| *last > BEHIND) {
                    return Times::behind();
                }
            }
            times
        });
        due(rate, time, |when, group| send.send((when, group)).is_ok());
        drop(send);
        commits.join().expect("it commits")
    })
}

/// A row of the table.
pub fn report(name: &str, rounds: usize, run: impl Fn(&Path, usize) -> Times) {
    print!("| {name} |");
    for rate in OFFERED {
        let mut parts: Vec<_> = (0..rounds).map(|_| run(&Place::new().0, rate).parts()).collect();
        parts.sort_by(|one, other| one.1.total_cmp(&other.1));
        let (p50, p99) = parts[rounds / 2];
        if p99 > BEHIND.as_secs_f64() * 1e3 {
            print!(" behind |");
        } else {
            print!(" {p50:.2} / {p99:.2} |");
        }
    }
    println!();
}
