//! Lays the sources of a configuration over each other, and collects what is wrong with them.

use std::collections::BTreeMap;

use tidewire_proto::generated::limits::Limit;
use toml::{Table, Value};

use super::keys::{self, DISPATCHER_KEYS, DISPATCHERS, ENGINE_KEYS, SHARE};
use super::problem::{Origin, Problem, shown};
use super::tables::{SUBS, Sub};
use super::{ConfigError, DispatcherConfig, EngineConfig, check, environment};

/// A configuration that is being read. A value that is wrong is reported, and the one before it stays.
#[derive(Default)]
pub(super) struct Loader {
    config: EngineConfig,
    problems: Vec<Problem>,
    origins: Origins,
}

/// A table of files that only `tidewire up` reads: where a hub listens, and who may join it.
const HUB: &str = "hub";

/// Where the value in force of each key came from, by the path of the key.
pub(super) type Origins = BTreeMap<String, Origin>;

impl Loader {
    pub(super) fn code(&mut self, table: &Table) {
        self.engine(table, &Origin::Code);
    }

    pub(super) fn text(&mut self, origin: &str, text: &str) {
        match text.parse::<Table>() {
            Ok(mut table) => {
                if table.get(HUB).is_some_and(Value::is_table) {
                    table.remove(HUB);
                }
                self.engine(&table, &Origin::Text(origin.to_owned()));
            }
            Err(error) => {
                let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
                let message = format!("line {line} is not TOML: {}", error.message());
                self.problems.push(Problem { key: origin.to_owned(), value: String::new(), message });
            }
        }
    }

    pub(super) fn environment(&mut self, env: impl IntoIterator<Item = (String, String)>) {
        // Sorted, because the environment has no order and problems should.
        let variables: BTreeMap<String, String> =
            env.into_iter().filter(|(name, _)| environment::is_ours(name)).collect();
        for (name, value) in variables {
            match environment::to_table(&name, &value, self.config.dispatchers.keys()) {
                Ok(table) => self.engine(&table, &Origin::Variable(name)),
                Err(message) => self.problems.push(Problem { key: name, value: String::new(), message }),
            }
        }
    }

    pub(super) fn options(&mut self, options: impl IntoIterator<Item = (String, String)>) {
        for (key, value) in options {
            self.engine(&environment::nested(&key, &value), &Origin::Option);
        }
    }

    pub(super) fn finish(mut self) -> Result<EngineConfig, ConfigError> {
        self.problems.extend(check::structure(&self.config, &self.origins));
        self.problems.extend(check::useless(&self.config, &self.origins));
        ConfigError::unless_empty(self.problems).map(|()| self.config)
    }

    fn engine(&mut self, table: &Table, origin: &Origin) {
        for (key, value) in table {
            if let Some(number) = ENGINE_KEYS.iter().find(|known| known.limit.name == key) {
                if let Some(value) = self.number(key, value, number.limit, origin) {
                    (number.set)(&mut self.config, value);
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

    fn sub(&mut self, sub: &Sub, value: &Value, origin: &Origin) {
        let name = sub.name;
        let Value::Table(settings) = value else {
            return self.problems.push(Problem::not_a_table(name, value, &sub.names().join(", "), origin));
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

    fn dispatchers(&mut self, value: &Value, origin: &Origin) {
        let Value::Table(dispatchers) = value else {
            return self.problems.push(Problem::not_a_table(DISPATCHERS, value, "one table per dispatcher", origin));
        };
        for (name, value) in dispatchers {
            let path = format!("{DISPATCHERS}.{name}");
            match value {
                Value::Table(settings) => self.dispatcher(name, &path, settings, origin),
                _ => self.problems.push(Problem::not_a_table(&path, value, &keys::of_dispatcher().join(", "), origin)),
            }
        }
    }

    fn dispatcher(&mut self, name: &str, path: &str, settings: &Table, origin: &Origin) {
        self.origins.insert(path.to_owned(), origin.clone());
        let mut dispatcher = self.config.dispatchers.get(name).cloned().unwrap_or_default();
        for (key, value) in settings {
            self.setting(&mut dispatcher, &format!("{path}.{key}"), key, value, origin);
        }
        self.config.dispatchers.insert(name.to_owned(), dispatcher);
    }

    fn setting(&mut self, dispatcher: &mut DispatcherConfig, path: &str, key: &str, value: &Value, origin: &Origin) {
        if let Some(number) = DISPATCHER_KEYS.iter().find(|known| known.limit.name == key) {
            if let Some(value) = self.number(path, value, number.limit, origin) {
                (number.set)(dispatcher, value);
            }
        } else if key != SHARE {
            let message = unknown(key, &keys::of_dispatcher());
            self.problems.push(Problem::new(path, "", &message, origin));
        } else if let Value::String(owner) = value {
            self.origins.insert(path.to_owned(), origin.clone());
            dispatcher.share = Some(owner.clone());
        } else {
            let value = shown(value);
            let message = format!("{value} is not a text; write the name of a dispatcher");
            self.problems.push(Problem::new(path, &value, &message, origin));
        }
    }

    fn number(&mut self, path: &str, value: &Value, limit: &Limit, origin: &Origin) -> Option<u64> {
        let Value::Integer(number) = value else {
            self.problems.push(Problem::not_a_number(path, value, limit, origin));
            return None;
        };
        let allowed = u64::try_from(*number).ok().filter(|number| limit.allows(*number));
        match allowed {
            Some(_) => drop(self.origins.insert(path.to_owned(), origin.clone())),
            None => self.problems.push(Problem::range(path, &number.to_string(), limit, origin)),
        }
        allowed
    }
}

fn unknown_in_engine(key: &str) -> String {
    let known = keys::of_engine();
    if keys::nearest(key, &known).is_some() {
        return unknown(key, &known);
    }
    match keys::nearest(key, &keys::of_dispatcher()) {
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
    match keys::nearest(key, known) {
        Some(meant) => format!("unknown key; did you mean {meant}?"),
        None => format!("unknown key; known are {}", known.join(", ")),
    }
}
