//! Seeds of random suites: as many as a budget of seconds allows, the same in each run.
//!
//! `RANDOM_SECONDS=0 RANDOM_FIRST=17` plays the seed 17 alone, as the Python suites do.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Budget of one random suite in seconds, unless `RANDOM_SECONDS` sets another.
const SECONDS: f64 = 1.0;

/// Plays seeds until the budget is used up, at least `least` of them, and names a seed that fails.
/// Returns true if they were as many, so that a suite may expect that everything has happened.
///
/// # Panics
/// If a seed panics, or a variable of the environment is no number.
pub fn seeds(suite: &str, least: u64, mut play: impl FnMut(u64)) -> bool {
    let chosen = variable::<u64>("RANDOM_FIRST");
    let first = chosen.unwrap_or(0);
    let least = if chosen.is_some() { 1 } else { least.max(1) };
    let budget = Duration::from_secs_f64(variable("RANDOM_SECONDS").unwrap_or(SECONDS));
    let (began, mut seed) = (Instant::now(), first);
    while seed - first < least || began.elapsed() < budget {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| play(seed))) {
            eprintln!("{suite}: seed {seed} fails; RANDOM_SECONDS=0 RANDOM_FIRST={seed} plays it alone");
            resume_unwind(panic);
        }
        seed += 1;
    }
    println!("{suite}: {} in {:.1} s, seeds {first} to {}", seed - first, began.elapsed().as_secs_f64(), seed - 1);
    chosen.is_none()
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number is needed")))
}
