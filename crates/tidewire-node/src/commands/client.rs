//! Commands: long work that is started, followed, and found again by its id. The hub decides the
//! state of each command.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
pub use tidewire_core::stream::command::Stage;
use tidewire_engine::raw::clock;
use tidewire_proto::generated::errors::ErrorCode;

use super::info::{CommandInfo, Ended, State, time_of};
use super::record::{SERVICE, WAIT_US};
use crate::calls::client::Client;
use crate::calls::item_stream::Items;
use crate::calls::priority::Priority;
use crate::delay::Delay;
use crate::error::Error;
use crate::names;
use crate::node::core::{Core, Node};
use crate::pending::{Pending, wait};
use crate::streams::conventions::micros;
use crate::values::{self, Bytes, Value};

/// Pause before a retry at an unreachable hub. A restored link ends the pause.
const PAUSE: Duration = Duration::from_secs(1);

/// The commands of the hub that a node has joined, a hub with a data folder or on NATS; made by
/// [`Node::commands`]. Services with a [`Command`](super::Command) run them.
///
/// ```no_run
/// use tidewire_node::streams::StartOptions;
/// use tidewire_node::{Node, NodeOptions};
///
/// let shop = Node::join("tide://127.0.0.1:7420", NodeOptions::named("shop")).wait()?;
/// let run = shop.commands().start_with("books", "reindex", &(7,), StartOptions::default().key("shard-7")).wait()?;
/// println!("{} rows", run.result::<u64>().wait()?);                       // in any process, also tomorrow: shop.commands().find(id)
/// # Ok::<(), tidewire_node::Error>(())
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("Commands of {:?}", self.core.name)]
pub struct Commands {
    core: Arc<Core>,
    client: Client,
}

/// Options of a command, besides its arguments.
#[derive(Clone, Debug, Default)]
pub struct StartOptions {
    key: Option<String>,
    id: Option<String>,
    priority: Priority,
}

setters! {
    StartOptions:
    /// The key of the command, such as a shard or a customer. Of the commands that are exclusive by
    /// key, only one of a key runs at a time.
    key(key: impl Into<String>) => key = Some(key.into());
    /// An idempotency key, which is the command's id: a second start with it returns the existing
    /// command.
    id(id: impl Into<String>) => id = Some(id.into());
    /// Which go first where some wait.
    priority(priority: Priority) => priority = priority;
}

/// How far a command is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CommandProgress {
    /// From 0 to 1.
    pub fraction: f64,
    /// The note of its worker.
    pub note: String,
    /// Which attempt it is of, from 1.
    pub attempt: u32,
    /// When it was reported, by the clock of the worker.
    pub time: SystemTime,
}

type Report = (f64, String, u32, Value);

impl Node {
    /// The commands of the hub that it has joined. The hub is asked only when they are used.
    pub fn commands(&self) -> Commands {
        // Calls about commands are idempotent: the start of a command carries the command's id.
        Commands { core: Arc::clone(self.core()), client: self.client(SERVICE).idempotent() }
    }
}

impl Commands {
    /// Starts a command; see [`start_with`](Commands::start_with).
    ///
    /// # Errors
    /// As for `start_with`.
    ///
    /// # Cancel safety
    /// As for `start_with`.
    pub fn start(&self, service: &str, command: &str, args: &(impl Serialize + ?Sized)) -> Pending<CommandRun> {
        self.start_with(service, command, args, StartOptions::default())
    }

    /// Starts a command. A tuple passes its arguments in order, a struct or a map by name, `()`
    /// none, any other value is the only one. Once awaited, the command is stored as durably as a
    /// message of a stream, and one of its services runs it. The command is started once, also if
    /// the link is lost meanwhile.
    ///
    /// # Errors
    /// Awaiting it fails with `invalid_argument` if a name or an option is not allowed, and with
    /// `settings_differ` if the id is that of another command. It fails with `payload_too_large`
    /// above 512 KiB of arguments, with `stream_full` if too many are stored, and with
    /// `no_responders` if the hub stores no commands. The worker checks the arguments: a command
    /// with unfit arguments fails.
    ///
    /// # Cancel safety
    /// If it is dropped, it may have been started.
    pub fn start_with(
        &self,
        service: &str,
        command: &str,
        args: &(impl Serialize + ?Sized),
        options: StartOptions,
    ) -> Pending<CommandRun> {
        let arguments = match arguments(&format!("{service}.{command}"), args) {
            Ok(arguments) => arguments,
            Err(error) => return Pending::failed(error),
        };
        let StartOptions { key, id, priority } = options;
        let id = id.unwrap_or_else(|| names::random_hex(8));
        let request = (service, command, Bytes(arguments), key, id, priority.name());
        let (started, commands) = (self.client.call::<String>("start", &request), self.clone());
        Pending::new(async move {
            let id = started.await.map_err(explained)?;
            Ok(commands.find(&id))
        })
    }

    /// A command by its id, from any node and at any time. The hub is asked only when the command
    /// is used.
    pub fn find(&self, id: &str) -> CommandRun {
        CommandRun { commands: self.clone(), id: id.into() }
    }

    /// Stored commands, the oldest first: waiting, running and ended ones. `service` restricts the
    /// list to one service.
    ///
    /// # Errors
    /// Awaiting it fails with `no_responders` if the hub stores no commands.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub fn list(&self, service: Option<&str>) -> Pending<Vec<CommandInfo>> {
        let nothing: Option<&str> = None;
        let mut all = self.client.stream::<CommandInfo>("commands", &(service, nothing, nothing));
        Pending::new(async move {
            let mut found = Vec::new();
            while let Some(info) = all.next().await {
                found.push(info.map_err(explained)?);
            }
            Ok(found)
        })
    }

    /// Waits while the hub is away; any other error is returned.
    async fn away(&self, error: Error) -> Result<(), Error> {
        if !error.is_retryable() {
            return Err(explained(error));
        }
        self.core.pause(Delay::begin(&self.core.runner, PAUSE)).await;
        self.core.check()
    }
}

/// A command that was started. Dropping it ends nothing.
#[derive(Clone, derive_more::Debug)]
#[debug("CommandRun({id})")]
pub struct CommandRun {
    commands: Commands,
    id: Arc<str>,
}

impl CommandRun {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The state of the command.
    ///
    /// # Errors
    /// Awaiting it fails with `not_found` if there is no such command. A command that has ended is
    /// stored as long as its service declares.
    pub fn info(&self) -> Pending<CommandInfo> {
        self.call_command("info")
    }

    /// Cancels the command: at once if it waits; if it runs, when its handler ends. True if that
    /// changes anything.
    ///
    /// # Errors
    /// As for [`info`](CommandRun::info).
    pub fn cancel(&self) -> Pending<bool> {
        self.call_command("cancel")
    }

    /// Restarts a failed or cancelled command, with all its attempts. True if it restarts.
    ///
    /// # Errors
    /// As for [`info`](CommandRun::info).
    pub fn retry(&self) -> Pending<bool> {
        self.call_command("retry")
    }

    fn call_command<T: DeserializeOwned + Send + 'static>(&self, what: &str) -> Pending<T> {
        let call = self.commands.client.call(what, &(&*self.id,));
        Pending::new(async move { call.await.map_err(explained) })
    }

    /// Waits until the command has ended, and returns its result. While the hub is away, this waits
    /// on.
    ///
    /// # Errors
    /// Awaiting it fails with `not_found` as [`info`](CommandRun::info) does, and with
    /// `call_cancelled` if the command was cancelled. It fails with `worker_lost` if the worker of
    /// its last attempt was lost. Otherwise it fails with the error of the last attempt.
    ///
    /// # Cancel safety
    /// If it is dropped, the command still runs.
    pub fn result<T: DeserializeOwned + Send + 'static>(&self) -> Pending<T> {
        let run = self.clone();
        Pending::new(async move { run.ended(None).await?.outcome(&run.id) })
    }

    /// As [`result`](CommandRun::result), for so long at most. None: it is not over.
    ///
    /// # Errors
    /// As for `result`.
    ///
    /// # Cancel safety
    /// As for `result`.
    pub fn result_within<T: DeserializeOwned + Send + 'static>(&self, time: Duration) -> Pending<Option<T>> {
        let (run, until) = (self.clone(), clock::now() + time);
        Pending::new(async move {
            let ended = run.ended(Some(until)).await?;
            if ended.stage.is_over() { ended.outcome(&run.id).map(Some) } else { Ok(None) }
        })
    }

    /// How its record is, once it is over, or at that time.
    async fn ended(&self, until: Option<Instant>) -> Result<Ended, Error> {
        let ask = |after: u64, wait_us: u64| {
            self.commands.client.call::<Option<State>>("state", &(&*self.id, after, wait_us))
        };
        let first = ask(0, 0).await.map_err(explained)?;
        let (mut revision, mut is_over, mut ended) =
            first.ok_or_else(|| Error::new(ErrorCode::NotFound, format!("command {:?}: there is none", self.id)))?;
        while !is_over {
            let left = until.map_or(WAIT_US, |until| micros(until.saturating_duration_since(clock::now())));
            if left == 0 {
                break;
            }
            match ask(revision, left.min(WAIT_US)).await {
                Ok(Some(newer)) => (revision, is_over, ended) = newer,
                Ok(None) => {}
                Err(error) => self.commands.away(error).await?,
            }
        }
        Ok(ended)
    }

    /// How far it is, now and then as it changes, until it is over.
    pub fn progress(&self) -> CommandReports {
        CommandReports { run: self.clone(), items: None, has_looked: false, newest: None }
    }
}

impl Ended {
    fn outcome<T: DeserializeOwned>(self, id: &str) -> Result<T, Error> {
        let title = format!("command {id}");
        match (self.stage, self.result, self.error) {
            (Stage::Succeeded, result, _) => values::read(&title, &result.map_or_else(|| vec![0xc0], |bytes| bytes.0)),
            (Stage::Cancelled, ..) => Err(Error::new(ErrorCode::CallCancelled, format!("{title}: it was cancelled"))),
            (_, _, Some(raised)) => Err(values::read_error(&title, ErrorCode::RemoteError.number(), &raised.0)),
            _ => {
                let worker = self.worker.unwrap_or_default();
                let lost = format!("its worker {worker:?} was lost in attempt {}, the last one", self.attempt);
                let text = format!("{title}: {lost}: find the cause, and retry it");
                Err(Error::new(ErrorCode::WorkerLost, text))
            }
        }
    }
}

/// The progress of a command, as it changes, until it is over. Of changes that come quickly the
/// newest is seen. While the hub is away, that waits on.
#[derive(derive_more::Debug)]
#[must_use = "nothing is heard before it is asked for a report"]
#[debug("CommandReports({})", self.run.id)]
pub struct CommandReports {
    run: CommandRun,
    items: Option<Items<Report>>,
    has_looked: bool,
    newest: Option<Report>,
}

impl CommandReports {
    /// Waits for the next report. None: the command is over.
    ///
    /// # Errors
    /// As for [`CommandRun::info`].
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub async fn next(&mut self) -> Option<Result<CommandProgress, Error>> {
        loop {
            let client = &self.run.commands.client;
            let items = self.items.get_or_insert_with(|| client.stream("progress", &(&*self.run.id,)));
            match items.next().await? {
                Ok(report) if self.newest.as_ref() == Some(&report) => {}
                Ok(report) => {
                    (self.has_looked, self.newest) = (true, Some(report.clone()));
                    let (fraction, note, attempt, time) = report;
                    return Some(Ok(CommandProgress { fraction, note, attempt, time: time_of(&time) }));
                }
                Err(error) => {
                    self.items = None;
                    let away =
                        if self.has_looked { self.run.commands.away(error).await } else { Err(explained(error)) };
                    if let Err(error) = away {
                        return Some(Err(error));
                    }
                }
            }
        }
    }

    /// Blocks this thread until the next report is there.
    ///
    /// # Errors
    /// As for [`next`](CommandReports::next).
    pub fn next_blocking(&mut self) -> Option<Result<CommandProgress, Error>> {
        wait(self.next())
    }
}

/// Arguments as a command stores them: a list by position, and a map by name.
fn arguments(title: &str, args: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, Error> {
    let name = format!("{title}: arguments");
    let value: Value =
        values::from_bytes(&values::to_bytes(args).map_err(|wrong| Error::invalid(format!("{name}: {wrong}")))?)?;
    let nothing = || Value::Map(Vec::new());
    let (by_position, by_name) = match value {
        Value::Nil => (Vec::new(), nothing()),
        Value::Tuple(items) => (items, nothing()),
        map @ Value::Map(_) => (Vec::new(), map),
        one => (vec![one], nothing()),
    };
    values::to_bytes(&Value::List(vec![Value::List(by_position), by_name]))
}

/// The error for a hub that stores no commands.
fn explained(error: Error) -> Error {
    if error.code() != ErrorCode::NoResponders {
        return error;
    }
    let fix = "join one that is started with `tidewire up --data DIR` or `--nats URL`";
    Error::new(ErrorCode::NoResponders, format!("commands: the hub has no place for commands: {fix}"))
}
