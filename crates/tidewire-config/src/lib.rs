//! The configuration of a node: from code, a TOML text, the environment and a command line, checked
//! as a whole.
//!
//! Options of a command line win over the environment, the environment over the text, the text over
//! code. All problems are reported at once.
//!
//! ```
//! use tidewire_config::Config;
//!
//! let text = "[dispatchers.io]\nthreads = 2\n";
//! let variables = [("TIDEWIRE_DISPATCHERS__IO__THREADS".to_owned(), "4".to_owned())];
//! let config = Config::load(None, Some(("tidewire.toml", text)), variables)?;
//! assert_eq!(config.engine.dispatchers["io"].threads, 4);
//! let engine = tidewire_engine::Engine::builder().config(config.engine).build()?;
//!
//! let wrong = "[dispatchers.io]\nthroughputt = 5\n";
//! let error = Config::load(None, Some(("tidewire.toml", wrong)), []).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "configuration: dispatchers.io.throughputt: unknown key; did you mean throughput? (from tidewire.toml)"
//! );
//! # Ok::<(), tidewire_engine::EngineError>(())
//! ```

mod environment;
// As the generator writes it.
#[rustfmt::skip]
mod generated;
mod keys;
mod load;
mod tables;
#[cfg(test)]
mod tests;

pub use tables::Numbers;
pub use tidewire_engine::config::{ConfigError, DispatcherConfig, EngineConfig, Problem};
pub use toml;

use generated::{BROKER, LINKS, SERVICES};
use keys::{DISPATCHER_KEYS, ENGINE_KEYS, Key};
use load::Loader;
use toml::{Table, Value};

/// The settings of one node. Their ranges stand in `spec/limits.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The keys of the top level, and the table `dispatchers`: the options of an engine.
    pub engine: EngineConfig,
    /// Agents and worker pools.
    pub broker: Numbers,
    /// Links to other nodes.
    pub links: Numbers,
    /// Services.
    pub services: Numbers,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            engine: EngineConfig::default(),
            broker: Numbers::defaults(BROKER),
            links: Numbers::defaults(LINKS),
            services: Numbers::defaults(SERVICES),
        }
    }
}

impl Config {
    /// Reads a configuration from up to three places, of which a later one wins: `code`, a TOML
    /// text with the name of its origin, and environment variables that begin with `TIDEWIRE_`.
    ///
    /// A key `a.b` is the variable `TIDEWIRE_A__B`. Other variables are ignored.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with every unknown key, wrong type, value out of range, and share of threads
    /// that leads nowhere.
    pub fn load(
        code: Option<Table>,
        toml_text: Option<(&str, &str)>,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        Self::load_with(code, toml_text, env, [])
    }

    /// As [`load`](Config::load), with options of a command line above all: keys such as
    /// `links.link_heartbeat_ms`, and values.
    ///
    /// # Errors
    ///
    /// As for [`load`](Config::load).
    pub fn load_with(
        code: Option<Table>,
        toml_text: Option<(&str, &str)>,
        env: impl IntoIterator<Item = (String, String)>,
        options: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let mut loader = Loader::default();
        if let Some(table) = &code {
            loader.code(table);
        }
        if let Some((origin, text)) = toml_text {
            loader.text(origin, text);
        }
        loader.environment(env);
        loader.options(options);
        loader.finish()
    }

    /// The whole configuration as a table that [`load`](Config::load) accepts.
    pub fn to_table(&self) -> Table {
        let mut table = numbers(&self.engine, &ENGINE_KEYS);
        let dispatchers =
            self.engine.dispatchers.iter().map(|(name, one)| (name.clone(), Value::Table(dispatcher(one))));
        table.insert(keys::DISPATCHERS.to_owned(), Value::Table(dispatchers.collect()));
        for sub in &tables::SUBS {
            let numbers = (sub.of)(self).iter().map(|(key, value)| (key.to_owned(), integer(value)));
            table.insert(sub.name.to_owned(), Value::Table(numbers.collect()));
        }
        table
    }
}

fn dispatcher(dispatcher: &DispatcherConfig) -> Table {
    let mut table = numbers(dispatcher, &DISPATCHER_KEYS);
    if let Some(share) = &dispatcher.share {
        table.retain(|key, _| !keys::is_of_threads(key));
        table.insert(keys::SHARE.to_owned(), Value::String(share.clone()));
    }
    table
}

fn numbers<T>(settings: &T, keys: &[Key<T>]) -> Table {
    keys.iter().map(|key| (key.limit.name.to_owned(), integer((key.get)(settings)))).collect()
}

fn integer(value: u64) -> Value {
    Value::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}
