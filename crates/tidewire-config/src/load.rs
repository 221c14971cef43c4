//! Merging of configuration sources, by precedence, and collection of their problems.

use std::collections::BTreeMap;

use tidewire_engine::config::{ConfigError, DispatcherConfig, Problem};
use tidewire_engine::raw::{nearest, start_of};
use tidewire_proto::generated::limits::Limit;
use toml::{Table, Value};

use crate::keys::{self, DISPATCHER_KEYS, DISPATCHERS, ENGINE_KEYS, SHARE};
use crate::tables::{SUBS, Sub};
use crate::{Config, environment};

/// A configuration that is being read. A value that is wrong is reported, and the one before it
/// stays.
#[derive(Default)]
pub(crate) struct Loader {
    config: Config,
    problems: Vec<Problem>,
    origins: Origins,
}

/// A table of files that only `tidewire up` reads: where a hub listens, and who may join it.
const HUB: &str = "hub";

/// Longest value that an error shows; unit: characters.
const SHOWN: usize = 64;

/// Where the value in force of each key came from, by the path of the key.
type Origins = BTreeMap<String, String>;

impl Loader {
    pub(crate) fn code(&mut self, table: &Table) {
        self.engine(table, "from code");
    }

    pub(crate) fn text(&mut self, origin: &str, text: &str) {
        match text.parse::<Table>() {
            Ok(mut table) => {
                if table.get(HUB).is_some_and(Value::is_table) {
                    table.remove(HUB);
                }
                self.engine(&table, &format!("from {origin}"));
            }
            Err(error) => {
                let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
                let message = format!("line {line} is not TOML: {}", error.message());
                self.problems.push(Problem { key: origin.to_owned(), value: String::new(), message });
            }
        }
    }

    pub(crate) fn environment(&mut self, env: impl IntoIterator<Item = (String, String)>) {
        // Sorted, because the environment has no order and problems should.
        let variables: BTreeMap<String, String> =
            env.into_iter().filter(|(name, _)| environment::is_ours(name)).collect();
        for (name, value) in variables {
            match environment::to_table(&name, &value, self.config.engine.dispatchers.keys()) {
                Ok(table) => self.engine(&table, &format!("from environment variable {name}")),
                Err(message) => self.problems.push(Problem { key: name, value: String::new(), message }),
            }
        }
    }

    pub(crate) fn options(&mut self, options: impl IntoIterator<Item = (String, String)>) {
        for (key, value) in options {
            self.engine(&environment::nested(&key, &value), "from --set");
        }
    }

    pub(crate) fn finish(mut self) -> Result<Config, ConfigError> {
        let origin = |key: &str| self.origins.get(key).map_or_else(|| "from code".to_owned(), String::clone);
        self.problems.extend(self.config.engine.problems(&origin));
        self.problems.extend(self.useless());
        ConfigError::unless_empty(self.problems).map(|()| self.config)
    }

    /// Settings of threads for dispatchers that have none of their own.
    fn useless(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (name, dispatcher) in &self.config.engine.dispatchers {
            let Some(share) = &dispatcher.share else { continue };
            for key in keys::of_dispatcher().into_iter().filter(|key| keys::is_of_threads(key)) {
                let path = format!("{DISPATCHERS}.{name}.{key}");
                if let Some(origin) = self.origins.get(&path) {
                    let message = format!("has no effect, because {name} shares the threads of {share}; set it there");
                    problems.push(Problem::new(&path, "", &message, origin));
                }
            }
        }
        problems
    }

    fn engine(&mut self, table: &Table, origin: &str) {
        for (key, value) in table {
            if let Some(number) = ENGINE_KEYS.iter().find(|known| known.limit.name == key) {
                if let Some(value) = self.number(key, value, number.limit, origin) {
                    (number.set)(&mut self.config.engine, value);
                }
            } else if key == DISPATCHERS {
                self.dispatchers(value, origin);
            } else if let Some(sub) = SUBS.iter().find(|sub| sub.name == key) {
                self.sub(sub, value, origin);
            } else {
                self.problems.push(Problem::new(key, "", &unknown_in_engine(key), origin));
            }
        }
    }

    fn sub(&mut self, sub: &Sub, value: &Value, origin: &str) {
        let name = sub.name;
        let Value::Table(settings) = value else {
            return self.problems.push(not_a_table(name, value, &sub.names().join(", "), origin));
        };
        for (key, value) in settings {
            let path = format!("{name}.{key}");
            match sub.keys.iter().find(|limit| limit.name == key) {
                Some(limit) => {
                    if let Some(value) = self.number(&path, value, limit, origin) {
                        (sub.of_mut)(&mut self.config).set(limit, value);
                    }
                }
                None => self.problems.push(Problem::new(&path, "", &unknown(key, &sub.names()), origin)),
            }
        }
    }

    fn dispatchers(&mut self, value: &Value, origin: &str) {
        let Value::Table(dispatchers) = value else {
            return self.problems.push(not_a_table(DISPATCHERS, value, "one table per dispatcher", origin));
        };
        for (name, value) in dispatchers {
            let path = format!("{DISPATCHERS}.{name}");
            match value {
                Value::Table(settings) => self.dispatcher(name, &path, settings, origin),
                _ => self.problems.push(not_a_table(&path, value, &keys::of_dispatcher().join(", "), origin)),
            }
        }
    }

    fn dispatcher(&mut self, name: &str, path: &str, settings: &Table, origin: &str) {
        self.origins.insert(path.to_owned(), origin.to_owned());
        let mut dispatcher = self.config.engine.dispatchers.get(name).cloned().unwrap_or_default();
        for (key, value) in settings {
            self.setting(&mut dispatcher, &format!("{path}.{key}"), key, value, origin);
        }
        self.config.engine.dispatchers.insert(name.to_owned(), dispatcher);
    }

    fn setting(&mut self, dispatcher: &mut DispatcherConfig, path: &str, key: &str, value: &Value, origin: &str) {
        if let Some(number) = DISPATCHER_KEYS.iter().find(|known| known.limit.name == key) {
            if let Some(value) = self.number(path, value, number.limit, origin) {
                (number.set)(dispatcher, value);
            }
        } else if key != SHARE {
            let message = unknown(key, &keys::of_dispatcher());
            self.problems.push(Problem::new(path, "", &message, origin));
        } else if let Value::String(owner) = value {
            self.origins.insert(path.to_owned(), origin.to_owned());
            dispatcher.share = Some(owner.clone());
        } else {
            let value = shown(value);
            let message = format!("{value} is not a text; write the name of a dispatcher");
            self.problems.push(Problem::new(path, &value, &message, origin));
        }
    }

    fn number(&mut self, path: &str, value: &Value, limit: &Limit, origin: &str) -> Option<u64> {
        let Value::Integer(number) = value else {
            self.problems.push(not_a_number(path, value, limit, origin));
            return None;
        };
        let allowed = u64::try_from(*number).ok().filter(|number| limit.allows(*number));
        match allowed {
            Some(_) => drop(self.origins.insert(path.to_owned(), origin.to_owned())),
            None => self.problems.push(Problem::range(path, &number.to_string(), limit, origin)),
        }
        allowed
    }
}

fn unknown_in_engine(key: &str) -> String {
    let known = keys::of_engine();
    if nearest(key, &known).is_some() {
        return unknown(key, &known);
    }
    match nearest(key, &keys::of_dispatcher()) {
        Some(meant) if meant == key => {
            format!("unknown key here; it belongs to one dispatcher: {DISPATCHERS}.default.{key}")
        }
        Some(meant) => {
            format!("unknown key; did you mean {meant}? It belongs to one dispatcher: {DISPATCHERS}.default.{meant}")
        }
        None => unknown(key, &known),
    }
}

fn unknown(key: &str, known: &[&str]) -> String {
    match nearest(key, known) {
        Some(meant) => format!("unknown key; did you mean {meant}?"),
        None => format!("unknown key; known are {}", known.join(", ")),
    }
}

fn not_a_number(key: &str, value: &Value, limit: &Limit, origin: &str) -> Problem {
    let value = shown(value);
    let allowed = format!("{} to {} {} are allowed", limit.min, limit.max, limit.unit);
    Problem::new(key, &value, &format!("{value} is not a whole number; {allowed}"), origin)
}

fn not_a_table(key: &str, value: &Value, keys: &str, origin: &str) -> Problem {
    let value = shown(value);
    Problem::new(key, &value, &format!("{value} is not a table; write a table with {keys}"), origin)
}

/// A value as text. A long text is cut, and an array or a table is named by its type.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.chars().count() > SHOWN => format!("{:?}...", start_of(text, SHOWN)),
        Value::String(text) => format!("{text:?}"),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => format!("{number:?}"),
        Value::Boolean(truth) => truth.to_string(),
        Value::Datetime(time) => time.to_string(),
        Value::Array(_) => "an array".to_owned(),
        Value::Table(_) => "a table".to_owned(),
    }
}
