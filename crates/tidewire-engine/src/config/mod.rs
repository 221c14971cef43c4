//! The options of an engine and of its dispatchers. TOML, the environment and tables of other parts
//! are read by `tidewire-config`.

mod check;
pub(crate) mod problem;

use std::collections::BTreeMap;

use tidewire_proto::generated::limits::{self, Limit};

pub use problem::{ConfigError, Problem};

/// The name of the dispatcher that always exists.
pub const DEFAULT_DISPATCHER: &str = "default";

/// The settings of one engine. Their ranges stand in `spec/limits.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Capacity of mailboxes for which nothing is said; unit: messages.
    pub mailbox_capacity: usize,
    /// Dispatchers by name. `default` always exists.
    pub dispatchers: BTreeMap<String, DispatcherConfig>,
    /// Capacity of the dead letter store; one more letter evicts the oldest.
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
    /// Checks a configuration that was made by hand.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with every value out of range, and share of threads that leads nowhere.
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
        ConfigError::unless_empty(self.problems(&|_| "from code".to_owned()))
    }

    /// As [`check`](EngineConfig::check), with the origin of each value by the path of its key:
    /// `dispatchers.io.threads`.
    pub fn problems(&self, origin: &dyn Fn(&str) -> String) -> Vec<Problem> {
        check::all(self, origin)
    }

    /// The dispatcher whose threads this one uses: itself, or the one at the end of its shares.
    pub fn owner<'a>(&'a self, name: &'a str) -> &'a str {
        let mut at = name;
        // A ring of shares is refused by check(); the count ends the walk for a configuration that
        // was not checked.
        for _ in 0..self.dispatchers.len() {
            match self.share_of(at) {
                Some(next) => at = next,
                None => break,
            }
        }
        at
    }

    /// Warnings about allowed, but rarely intended settings: more than ten threads per core.
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

    fn share_of(&self, name: &str) -> Option<&str> {
        self.dispatchers.get(name)?.share.as_deref()
    }

    fn numbers(&self) -> [(&'static Limit, u64); 8] {
        [
            (&limits::MAILBOX_CAPACITY, self.mailbox_capacity as u64),
            (&limits::DEAD_LETTERS, self.dead_letters as u64),
            (&limits::LANE_BURST, self.lane_burst as u64),
            (&limits::SPIN_US, self.spin_us),
            (&limits::STALL_US, self.stall_us),
            (&limits::ASK_TIMEOUT_MS, self.ask_timeout_ms),
            (&limits::STOP_TIMEOUT_MS, self.stop_timeout_ms),
            (&limits::ABORT_TIMEOUT_MS, self.abort_timeout_ms),
        ]
    }
}

impl DispatcherConfig {
    fn numbers(&self) -> [(&'static Limit, u64); 3] {
        [
            (&limits::THREADS, self.threads as u64),
            (&limits::SPARE_THREADS, self.spare_threads as u64),
            (&limits::THROUGHPUT, self.throughput as u64),
        ]
    }
}

fn default_of(limit: &Limit) -> usize {
    usize::try_from(limit.default).unwrap_or(usize::MAX)
}
