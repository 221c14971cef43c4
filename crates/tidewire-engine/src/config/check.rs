//! Rules over the options of an engine as a whole, wherever their values came from.

use tidewire_proto::generated::limits::{self, Limit};

use super::problem::{Problem, nearest, start_of};
use super::{DispatcherConfig, EngineConfig};

/// Names where the value of a key came from, by the path of the key: `dispatchers.io.threads`.
pub(super) type Origin<'a> = &'a dyn Fn(&str) -> String;

/// Every problem: numbers out of range, the number of dispatchers, their names and their shares.
pub(super) fn all(config: &EngineConfig, origin: Origin<'_>) -> Vec<Problem> {
    let mut problems = ranges("", &config.numbers(), origin);
    for (name, dispatcher) in &config.dispatchers {
        problems.extend(ranges(&format!("dispatchers.{name}."), &dispatcher.numbers(), origin));
    }
    problems.extend(ranges("", &[(&limits::DISPATCHERS, config.dispatchers.len() as u64)], origin));
    for (name, dispatcher) in &config.dispatchers {
        problems.extend(name_of(name, origin));
        problems.extend(share(config, name, dispatcher, origin));
    }
    problems
}

fn ranges(prefix: &str, numbers: &[(&Limit, u64)], origin: Origin<'_>) -> Vec<Problem> {
    let wrong = numbers.iter().filter(|(limit, value)| !limit.allows(*value));
    wrong
        .map(|(limit, value)| {
            let key = format!("{prefix}{}", limit.name);
            Problem::range(&key, &value.to_string(), limit, &origin(&key))
        })
        .collect()
}

fn name_of(name: &str, origin: Origin<'_>) -> Option<Problem> {
    let fits = limits::NAME_BYTES.allows(name.len() as u64);
    let plain = !name.chars().any(|character| character.is_whitespace() || character.is_control());
    if fits && plain {
        return None;
    }
    let key = format!("dispatchers.{:?}", start_of(name, 64));
    let most = limits::NAME_BYTES.max;
    let message = format!("is not a name; 1 to {most} bytes without blanks and control characters are allowed");
    Some(Problem::new(&key, name, &message, &origin(&format!("dispatchers.{name}"))))
}

fn share(config: &EngineConfig, name: &str, dispatcher: &DispatcherConfig, origin: Origin<'_>) -> Option<Problem> {
    let share = dispatcher.share.as_deref()?;
    let key = format!("dispatchers.{name}.share");
    let message = if config.dispatchers.contains_key(share) {
        format!("{share:?} closes a ring of shares ({}); let one of them have threads", ring(config, name)?)
    } else {
        let known: Vec<&str> = config.dispatchers.keys().map(String::as_str).filter(|known| *known != name).collect();
        match nearest(share, &known) {
            Some(meant) => format!("{share:?} is no dispatcher; did you mean {meant}?"),
            None => format!("{share:?} is no dispatcher; known are {}", known.join(", ")),
        }
    };
    Some(Problem::new(&key, share, &message, &origin(&key)))
}

/// The ring of shares that goes through `name`, if there is one.
fn ring(config: &EngineConfig, name: &str) -> Option<String> {
    let mut path = vec![name];
    for _ in 0..config.dispatchers.len() {
        let next = config.share_of(path[path.len() - 1])?;
        path.push(next);
        if next == name {
            return Some(path.join(" -> "));
        }
    }
    None
}
