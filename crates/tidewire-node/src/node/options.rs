//! Options of a node: name, tokens, TLS, storage, runtime and logging.

use std::future::Future;
#[cfg(feature = "embedded")]
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tidewire_backend::home::Home;
use tidewire_link::{Access, Tls};
use tidewire_proto::generated::limits::{self, Limit};

use crate::error::Error;
use crate::token::Token;
use crate::tracing;

/// A task that runs a handler, for the runtime of the application.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) type Spawn = Arc<dyn Fn(Task) + Send + Sync>;
pub(crate) type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Most spans that a node stores.
const SPANS_MAX: usize = 100_000;

/// Options of a node. Each setting documents its unit and its default.
#[derive(Clone, derive_more::Debug)]
// Tokens and keys are secrets.
#[debug("NodeOptions({name:?}, {} tokens)", self.tokens.len())]
pub struct NodeOptions {
    pub(crate) name: String,
    pub(crate) token: Option<String>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) tls: Option<Tls>,
    pub(crate) insecure: bool,
    pub(crate) threads: usize,
    pub(crate) heartbeat: Duration,
    pub(crate) resends: u32,
    pub(crate) spawn: Option<Spawn>,
    pub(crate) inspect: bool,
    pub(crate) spans: usize,
    pub(crate) log: Log,
    pub(crate) changes: Log,
    home: Option<Arc<dyn Home>>,
    #[cfg(feature = "embedded")]
    data: Option<PathBuf>,
}

impl NodeOptions {
    /// Options of a node of this name, which must be unique on its hub; at most `name_bytes`.
    pub fn named(name: impl Into<String>) -> Self {
        let name = name.into();
        let (log, changes): (Log, Log) = (Arc::new(tracing::log(&name)), Arc::new(tracing::changes(&name)));
        Self {
            name,
            token: None,
            tokens: Vec::new(),
            tls: None,
            insecure: false,
            threads: 0,
            heartbeat: Duration::from_millis(limits::LINK_HEARTBEAT_MS.default),
            resends: limits::LINK_RESENDS.default as u32,
            spawn: None,
            inspect: false,
            spans: 0,
            log,
            changes,
            home: None,
            #[cfg(feature = "embedded")]
            data: None,
        }
    }

    /// The storage backend of the node, if it has its own. Opening a folder blocks.
    pub(crate) fn open_home(&self) -> Result<Option<Arc<dyn Home>>, Error> {
        #[cfg(feature = "embedded")]
        if let Some(folder) = &self.data {
            if self.home.is_some() {
                return Err(Error::invalid("data: it is given together with home: give one of them"));
            }
            let home = tidewire_embedded::open(folder, tidewire_embedded::Options::default())?;
            for notice in home.notices() {
                (self.log)(&format!("{}: {notice}", folder.display()));
            }
            return Ok(Some(home));
        }
        Ok(self.home.clone())
    }

    /// True if the node opens the storage backend; the node then closes it.
    pub(crate) fn owns_home(&self) -> bool {
        self.home.is_none()
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let max = limits::NAME_BYTES.max as usize;
        if self.name.is_empty() || self.name.len() > max {
            return Err(Error::invalid(format!("name: {:?} is not allowed: give 1 to {max} bytes", self.name)));
        }
        if self.spans > SPANS_MAX {
            return Err(Error::invalid(format!("spans: {} is not allowed: give 0 to {SPANS_MAX}", self.spans)));
        }
        if self.spans > 0 && !self.inspect {
            let fix = "add inspect(true)";
            let text = format!("spans: {} are stored at a node that nobody may inspect: {fix}", self.spans);
            return Err(Error::invalid(text));
        }
        within(&limits::THREADS, "threads", self.threads as u64)?;
        within(&limits::LINK_RESENDS, "resends", self.resends.into())?;
        within(&limits::LINK_HEARTBEAT_MS, "heartbeat", self.heartbeat.as_millis() as u64)
    }

    pub(crate) fn access(&self) -> Result<Access, Error> {
        let grants = self.tokens.iter().map(Token::grant).collect::<Result<_, _>>()?;
        Ok(Access::new(grants))
    }
}

setters! {
    NodeOptions:
    /// Token that identifies the node at a hub with access control. None by default.
    token(token: impl Into<String>) => token = Some(token.into());
    /// Only nodes with one of these may join this hub. Without any, everybody may.
    tokens(tokens: impl IntoIterator<Item = Token>) => tokens = tokens.into_iter().collect();
    /// Certificates for `tide+tls://` and `wss://`. By default a node trusts the certificates of
    /// the system.
    tls(tls: Tls) => tls = Some(tls);
    /// Lets a hub listen for other computers without a token or without TLS. Off by default.
    insecure(insecure: bool) => insecure = insecure;
    /// The number of threads that run handlers; 0, the default, means one per core. A node with
    /// [`spawn`](Self::spawn) starts none.
    threads(threads: usize) => threads = threads;
    /// How often the node wants to hear something of its hub; the limit `link_heartbeat_ms` has the
    /// default.
    heartbeat(heartbeat: Duration) => heartbeat = heartbeat;
    /// Maximal number of retries of an [idempotent](crate::Client::idempotent) call whose link was
    /// lost, within its deadline; `link_resends` by default. 0: never.
    resends(calls: u32) => resends = calls;
    /// Runs handlers elsewhere than on threads of the node: on a runtime of the program, which its
    /// libraries may need. It is called on the thread of the links, and must not run the task
    /// itself.
    ///
    /// ```
    /// # use tidewire_node::NodeOptions;
    /// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// let handle = runtime.handle().clone();
    /// let options = NodeOptions::named("worker").spawn(move |task| {
    ///     handle.spawn(task);
    /// });
    /// ```
    spawn(spawn: impl Fn(Task) + Send + Sync + 'static) => spawn = Some(Arc::new(spawn));
    /// Serves the statistics of the node to nodes of its hub, as the service `$sys`: for
    /// `tidewire top --url`, `/metrics` and the console. A token needs the right
    /// [`inspect`](Token::inspect) to look, and to serve `$sys`. Off by default: the node then
    /// measures no times. With this it reads the clock twice for each call.
    ///
    /// ```
    /// # use tidewire_node::{Node, NodeOptions};
    /// let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub").inspect(true)).wait()?;
    /// let seen: serde_json::Value = hub.client("$sys").call("statistics", &()).wait()?;
    /// assert_eq!((&seen["node"], &seen["services_count"]), (&"hub".into(), &0.into()));
    /// # Ok::<(), tidewire_node::Error>(())
    /// ```
    inspect(inspect: bool) => inspect = inspect;
    /// Stores the newest spans of the node for the view Trace of the console: calls, messages and
    /// events, up to 100,000 of them, each of about 1 KiB. It needs [`inspect`](Self::inspect).
    /// None are stored by default.
    spans(spans: usize) => spans = spans;
    /// Callback for log lines: a link is lost or refused, or handlers block all handler threads
    /// while calls wait. By default there is none. The callback runs on the thread of the links,
    /// and must not block.
    log(log: impl Fn(&str) + Send + Sync + 'static) => log = Arc::new(log);
    /// Callback for changes, one line each: the node joins its hub, or starts or stops serving. At
    /// a hub, also when others join, leave, or serve. By default there is none. The callback runs
    /// on any thread, and must not block.
    changes(changes: impl Fn(&str) + Send + Sync + 'static) => changes = Arc::new(changes);
    /// The storage backend of the [streams](crate::streams), buckets and leases of this node,
    /// instead of the hub that it has joined. It may be a folder, a cluster of NATS, or any other
    /// [`Home`]. A hub offers it to the nodes that join. The node does not close it on stop.
    home(home: Arc<dyn Home>) => home = Some(home);
    /// A folder in which the [streams](crate::streams), buckets and leases of this node live, and
    /// which a hub offers to those that join it. It is made if it is not there, opened by one
    /// process at a time, and closed when the node has stopped.
    #[cfg(feature = "embedded")]
    data(folder: impl Into<PathBuf>) => data = Some(folder.into());
}

/// Refuses a number that a limit does not allow.
pub(crate) fn within(limit: &Limit, name: &str, value: u64) -> Result<(), Error> {
    if limit.allows(value) {
        return Ok(());
    }
    let text = format!("{name}: {value} is not allowed: give {} to {} {}", limit.min, limit.max, limit.unit);
    Err(Error::invalid(text))
}
