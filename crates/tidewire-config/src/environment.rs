//! Environment variables as parts of a configuration.

use tidewire_engine::raw::{nearest, start_of};
use toml::{Table, Value};

use crate::keys::{self, DISPATCHERS, SHARE};
use crate::tables::{SUBS, Sub};

const PREFIX: &str = "TIDEWIRE_";

/// Suffixes of variables with this prefix that are no configuration keys, in small letters.
const OTHERS: [&str; 8] = ["bench", "ca", "data", "inspect", "spans", "store", "token", "url"];

/// Divides the parts of a key.
const DIVIDER: &str = "__";

/// True if a variable should be a key of the configuration.
pub(crate) fn is_ours(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|rest| !OTHERS.iter().any(|other| *rest == other.to_uppercase()))
}

/// The variable as a table with one value, or the problem with its name.
///
/// Variables are written in capitals: a dispatcher whose name is `known` in another case is that
/// one.
pub(crate) fn to_table<'a>(name: &str, value: &str, known: impl Iterator<Item = &'a String>) -> Result<Table, String> {
    let path = name[PREFIX.len()..].to_lowercase();
    if let Some((dispatcher, key)) = dispatcher_key(&path) {
        let dispatcher = in_known_case(dispatcher, known);
        return Ok(nest(DISPATCHERS, nest(&dispatcher, nest_value(key, value))));
    }
    if let Some((sub, key)) = sub_key(&path) {
        return Ok(nest(sub.name, nest_value(key, value)));
    }
    if keys::of_top().any(|key| key == path) {
        return Ok(nest_value(&path, value));
    }
    Err(unknown(&path))
}

/// Takes `dispatchers__io__threads` apart, if its last part is a key of dispatchers.
fn dispatcher_key(path: &str) -> Option<(&str, &str)> {
    let (dispatcher, key) = path.strip_prefix(DISPATCHERS)?.strip_prefix(DIVIDER)?.rsplit_once(DIVIDER)?;
    (!dispatcher.is_empty() && keys::of_dispatcher().contains(&key)).then_some((dispatcher, key))
}

/// Takes `links__link_heartbeat_ms` apart, if its last part is a key of that table.
fn sub_key(path: &str) -> Option<(&'static Sub, &str)> {
    let (name, key) = path.split_once(DIVIDER)?;
    let sub = SUBS.iter().find(|sub| sub.name == name)?;
    sub.names().contains(&key).then_some((sub, key))
}

fn in_known_case<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> String {
    let alike: Vec<&String> = known.filter(|known| known.to_lowercase().replace('-', "_") == name).collect();
    let exact = alike.iter().find(|known| *known.as_str() == *name);
    exact.or(alike.first()).map_or_else(|| name.to_owned(), |known| (*known).clone())
}

/// A value under a key with dots. No key has more than three parts.
pub(crate) fn nested(path: &str, value: &str) -> Table {
    let mut parts: Vec<&str> = path.splitn(3, '.').collect();
    let last = parts.pop().unwrap_or_default();
    parts.into_iter().rev().fold(nest_value(last, value), |table, key| nest(key, table))
}

fn nest(key: &str, table: Table) -> Table {
    Table::from_iter([(key.to_owned(), Value::Table(table))])
}

fn nest_value(key: &str, value: &str) -> Table {
    let number = value.trim().replace('_', "").parse().ok().filter(|_| key != SHARE);
    let value = number.map_or_else(|| Value::String(value.to_owned()), Value::Integer);
    Table::from_iter([(key.to_owned(), value)])
}

fn unknown(path: &str) -> String {
    match meant(path) {
        Some(meant) => format!("unknown environment variable; did you mean {meant}?"),
        None => format!(
            "unknown environment variable; {PREFIX} is kept for the configuration, whose keys are {}",
            keys::of_engine().join(", ")
        ),
    }
}

fn meant(path: &str) -> Option<String> {
    if let Some(rest) = path.strip_prefix(DISPATCHERS) {
        return meant_in_dispatcher(rest.trim_matches('_'));
    }
    for sub in &SUBS {
        if let Some(rest) = path.strip_prefix(sub.name) {
            let key = nearest(rest.trim_matches('_'), &sub.names())?;
            return Some(variable(&[sub.name, key].join(DIVIDER)));
        }
    }
    let known: Vec<&str> = keys::of_top().chain(OTHERS).collect();
    Some(variable(nearest(path, &known)?))
}

/// `io_threads` was meant to be `io__threads`, and `io__threadz` too.
fn meant_in_dispatcher(rest: &str) -> Option<String> {
    let known = keys::of_dispatcher();
    let divided = match rest.rsplit_once(DIVIDER) {
        Some((dispatcher, key)) => Some((dispatcher, nearest(key, &known)?)),
        None => known.iter().find_map(|key| Some((rest.strip_suffix(key)?, *key))),
    };
    let (dispatcher, key) = divided?;
    let dispatcher = start_of(dispatcher.trim_matches('_'), 64);
    let dispatcher = if dispatcher.is_empty() { "default" } else { &dispatcher };
    Some(variable(&[DISPATCHERS, dispatcher, key].join(DIVIDER)))
}

fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase())
}
