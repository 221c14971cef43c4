//! Rules over a whole configuration, wherever its values came from.

use tidewire_proto::generated::limits::{self, Limit};

use super::keys::{self, DISPATCHER_KEYS, DISPATCHERS, ENGINE_KEYS, Key, SHARE};
use super::load::Origins;
use super::problem::{Origin, Problem};
use super::tables::{SUBS, Sub};
use super::{DispatcherConfig, EngineConfig};

/// Every problem of a configuration that was made by hand.
pub(super) fn all(config: &EngineConfig) -> Vec<Problem> {
    let mut problems = ranges("", config, &ENGINE_KEYS);
    for (name, dispatcher) in &config.dispatchers {
        problems.extend(ranges(&format!("{DISPATCHERS}.{name}."), dispatcher, &DISPATCHER_KEYS));
    }
    problems.extend(SUBS.iter().flat_map(|sub| numbers(sub, config)));
    problems.extend(structure(config, &Origins::new()));
    problems
}

/// Problems with the number of dispatchers, their names and their shares.
pub(super) fn structure(config: &EngineConfig, origins: &Origins) -> Vec<Problem> {
    let count = config.dispatchers.len();
    let many = count as u64 > limits::DISPATCHERS.max;
    let mut problems = Vec::new();
    if many {
        problems.push(Problem::range(DISPATCHERS, &count.to_string(), &limits::DISPATCHERS, &Origin::Code));
    }
    for (name, dispatcher) in &config.dispatchers {
        problems.extend(name_of(name, origins));
        problems.extend(share(config, name, dispatcher, origins));
    }
    problems
}

/// Settings of threads for dispatchers that have none of their own.
pub(super) fn useless(config: &EngineConfig, origins: &Origins) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, dispatcher) in &config.dispatchers {
        let Some(share) = &dispatcher.share else { continue };
        for key in keys::of_dispatcher().into_iter().filter(|key| keys::is_of_threads(key)) {
            let path = format!("{DISPATCHERS}.{name}.{key}");
            if let Some(origin) = origins.get(&path) {
                let message = format!("has no effect, because {name} shares the threads of {share}; set it there");
                problems.push(Problem::new(&path, "", &message, origin));
            }
        }
    }
    problems
}

fn numbers(sub: &Sub, config: &EngineConfig) -> Vec<Problem> {
    let of = |limit: &&'static Limit| (sub.of)(config).get(limit.name).map(|value| (*limit, value));
    let wrong = sub.keys.iter().filter_map(of).filter(|(limit, value)| !limit.allows(*value));
    wrong
        .map(|(limit, value)| {
            Problem::range(&format!("{}.{}", sub.name, limit.name), &value.to_string(), limit, &Origin::Code)
        })
        .collect()
}

fn ranges<T>(prefix: &str, settings: &T, keys: &[Key<T>]) -> Vec<Problem> {
    let wrong = keys.iter().filter(|key| !key.limit.allows((key.get)(settings)));
    wrong
        .map(|key| {
            let value = (key.get)(settings).to_string();
            Problem::range(&format!("{prefix}{}", key.limit.name), &value, key.limit, &Origin::Code)
        })
        .collect()
}

fn name_of(name: &str, origins: &Origins) -> Option<Problem> {
    let fits = limits::NAME_BYTES.allows(name.len() as u64);
    let plain = !name.chars().any(|character| character.is_whitespace() || character.is_control());
    if fits && plain {
        return None;
    }
    let key = format!("{DISPATCHERS}.{:?}", keys::start_of(name, 64));
    let most = limits::NAME_BYTES.max;
    let message = format!("is not a name; 1 to {most} bytes without blanks and control characters are allowed");
    Some(Problem::new(&key, name, &message, origin_of(&format!("{DISPATCHERS}.{name}"), origins)))
}

fn share(config: &EngineConfig, name: &str, dispatcher: &DispatcherConfig, origins: &Origins) -> Option<Problem> {
    let share = dispatcher.share.as_deref()?;
    let key = format!("{DISPATCHERS}.{name}.{SHARE}");
    let message = if config.dispatchers.contains_key(share) {
        format!("{share:?} closes a ring of shares ({}); let one of them have threads", ring(config, name)?)
    } else {
        let known: Vec<&str> = config.dispatchers.keys().map(String::as_str).filter(|known| *known != name).collect();
        match keys::nearest(share, &known) {
            Some(meant) => format!("{share:?} is no dispatcher; did you mean {meant}?"),
            None => format!("{share:?} is no dispatcher; known are {}", known.join(", ")),
        }
    };
    Some(Problem::new(&key, share, &message, origin_of(&key, origins)))
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

fn origin_of<'a>(key: &str, origins: &'a Origins) -> &'a Origin {
    origins.get(key).unwrap_or(&Origin::Code)
}
