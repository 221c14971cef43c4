//! The configuration of an engine: from code, a TOML text and the environment, checked as a whole.
//!
//! The environment wins over the text, the text over code. Everything that is wrong is reported at once.
//!
//! ```
//! use tidewire_engine::config::EngineConfig;
//!
//! let text = "[dispatchers.io]\nthreads = 2\n";
//! let variables = [("TIDEWIRE_DISPATCHERS__IO__THREADS".to_owned(), "4".to_owned())];
//! let config = EngineConfig::load(None, Some(("tidewire.toml", text)), variables)?;
//! assert_eq!(config.dispatchers["io"].threads, 4);
//!
//! let wrong = "[dispatchers.io]\nthroughputt = 5\n";
//! let error = EngineConfig::load(None, Some(("tidewire.toml", wrong)), []).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "configuration: dispatchers.io.throughputt: unknown key; did you mean throughput? (from tidewire.toml)"
//! );
//! # Ok::<(), tidewire_engine::config::ConfigError>(())
//! ```

mod check;
mod environment;
mod keys;
mod load;
mod problem;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use tidewire_proto::generated::limits::{self, Limit};
use toml::{Table, Value};

pub use problem::{ConfigError, Problem};
pub use tables::Numbers;

use crate::engine::DEFAULT_DISPATCHER;
use keys::{DISPATCHER_KEYS, ENGINE_KEYS, Key};
use load::Loader;

/// The settings of one engine. Their ranges stand in `spec/limits.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Capacity of mailboxes for which nothing is said; unit: messages.
    pub mailbox_capacity: usize,
    /// Dispatchers by name. `default` always exists.
    pub dispatchers: BTreeMap<String, DispatcherConfig>,
    /// Dead letters that are kept; one more lets the oldest go.
    pub dead_letters: usize,
    /// How long an idle thread looks again before it sleeps.
    pub spin_us: u64,
    /// How long a handler may keep others waiting before another thread takes over.
    pub stall_us: u64,
    /// Messages of higher lanes in a row while a lower lane waits.
    pub lane_burst: usize,
    /// How long an ask waits when the call says nothing.
    pub ask_timeout_ms: u64,
    /// How long a stop waits when the call says nothing.
    pub stop_timeout_ms: u64,
    /// How long a stop waits that follows an error, for those who tell the two apart.
    pub abort_timeout_ms: u64,
    /// Agents and worker pools.
    pub broker: Numbers,
    /// Links to other nodes.
    pub links: Numbers,
    /// Services.
    pub services: Numbers,
}

/// The settings of one dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DispatcherConfig {
    /// Its threads; 0 means one per core.
    pub threads: usize,
    /// The dispatcher whose threads it uses instead of its own.
    pub share: Option<String>,
    /// Most messages that an actor handles in one turn while others wait.
    pub throughput: usize,
    /// Most threads that take over for threads whose handler blocks.
    pub spare_threads: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            mailbox_capacity: default_of(&limits::MAILBOX_CAPACITY),
            dispatchers: BTreeMap::from([(DEFAULT_DISPATCHER.to_owned(), DispatcherConfig::default())]),
            dead_letters: default_of(&limits::DEAD_LETTERS),
            spin_us: limits::SPIN_US.default,
            stall_us: limits::STALL_US.default,
            lane_burst: default_of(&limits::LANE_BURST),
            ask_timeout_ms: limits::ASK_TIMEOUT_MS.default,
            stop_timeout_ms: limits::STOP_TIMEOUT_MS.default,
            abort_timeout_ms: limits::ABORT_TIMEOUT_MS.default,
            broker: Numbers::defaults(tables::BROKER_KEYS),
            links: Numbers::defaults(tables::LINK_KEYS),
            services: Numbers::defaults(tables::SERVICE_KEYS),
        }
    }
}

impl Default for DispatcherConfig {
    fn default() -> Self {
        Self {
            threads: default_of(&limits::THREADS),
            share: None,
            throughput: default_of(&limits::THROUGHPUT),
            spare_threads: default_of(&limits::SPARE_THREADS),
        }
    }
}

impl EngineConfig {
    /// Reads a configuration from up to three places, of which a later one wins: `code`, a TOML text with the name of
    /// its origin, and environment variables that begin with `TIDEWIRE_`.
    ///
    /// A key `a.b` is the variable `TIDEWIRE_A__B`. Other variables are not looked at.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with every unknown key, wrong type, value out of range, and share of threads that leads nowhere.
    pub fn load(
        code: Option<Table>,
        toml_text: Option<(&str, &str)>,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        Self::load_with(code, toml_text, env, [])
    }

    /// As [`load`](EngineConfig::load), with options of a command line above all: keys such as `links.link_heartbeat_ms`, and values.
    ///
    /// # Errors
    ///
    /// As for [`load`](EngineConfig::load).
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

    /// Checks a configuration that was made by hand.
    ///
    /// # Errors
    ///
    /// As for [`load`](EngineConfig::load).
    ///
    /// ```
    /// use tidewire_engine::config::EngineConfig;
    ///
    /// let config = EngineConfig { mailbox_capacity: 0, ..EngineConfig::default() };
    /// assert_eq!(
    ///     config.check().unwrap_err().to_string(),
    ///     "configuration: mailbox_capacity: 0 is out of range; 1 to 1000000 messages are allowed (from code)"
    /// );
    /// ```
    pub fn check(&self) -> Result<(), ConfigError> {
        ConfigError::unless_empty(check::all(self))
    }

    /// The dispatcher whose threads this one uses: itself, or the one at the end of its shares.
    pub fn owner<'a>(&'a self, name: &'a str) -> &'a str {
        let mut at = name;
        // A ring of shares is refused by check(); the count ends the walk for a configuration that was not checked.
        for _ in 0..self.dispatchers.len() {
            match self.share_of(at) {
                Some(next) => at = next,
                None => break,
            }
        }
        at
    }

    /// What is allowed, but rarely meant: more than ten threads per core.
    pub fn warnings(&self, cores: usize) -> Vec<String> {
        let own = self.dispatchers.values().filter(|dispatcher| dispatcher.share.is_none());
        let threads: usize =
            own.map(|dispatcher| if dispatcher.threads == 0 { cores } else { dispatcher.threads }).sum();
        if threads <= cores.saturating_mul(10) {
            return Vec::new();
        }
        vec![format!(
            "dispatchers: {threads} threads on {cores} cores are more than ten per core; fewer are usually faster, \
             and spare_threads cover handlers that block"
        )]
    }

    /// The whole configuration as a table that [`load`](EngineConfig::load) accepts.
    pub fn to_table(&self) -> Table {
        let mut table = numbers(self, &ENGINE_KEYS);
        let dispatchers = self.dispatchers.iter().map(|(name, one)| (name.clone(), Value::Table(one.to_table())));
        table.insert(keys::DISPATCHERS.to_owned(), Value::Table(dispatchers.collect()));
        for sub in &tables::SUBS {
            let numbers = (sub.of)(self).iter().map(|(key, value)| (key.to_owned(), integer(value)));
            table.insert(sub.name.to_owned(), Value::Table(numbers.collect()));
        }
        table
    }

    fn share_of(&self, name: &str) -> Option<&str> {
        self.dispatchers.get(name)?.share.as_deref()
    }
}

impl DispatcherConfig {
    fn to_table(&self) -> Table {
        let mut table = numbers(self, &DISPATCHER_KEYS);
        if let Some(share) = &self.share {
            table.retain(|key, _| !keys::is_of_threads(key));
            table.insert(keys::SHARE.to_owned(), Value::String(share.clone()));
        }
        table
    }
}

fn numbers<T>(settings: &T, keys: &[Key<T>]) -> Table {
    keys.iter().map(|key| (key.limit.name.to_owned(), integer((key.get)(settings)))).collect()
}

fn integer(value: u64) -> Value {
    Value::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

fn default_of(limit: &Limit) -> usize {
    usize::try_from(limit.default).unwrap_or(usize::MAX)
}
