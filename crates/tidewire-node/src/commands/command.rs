//! Commands of a service: handlers of long work with their options.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tidewire_core::stream::command::Outcome;
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;

use super::attempt::{Attempt, AttemptEnd, Interruption};
use super::store::CommandStore;
use super::worker::{AttemptFuture, CommandHandler, CommandWorker, WorkerOptions};
use crate::discovery::ServiceCommand;
use crate::error::Error;
use crate::names;
use crate::node::core::Core;
use crate::node::options::within;
use crate::services::failure::Failure;
use crate::services::method::{Answers, answers};
use crate::services::service::untyped;

/// Time of a record after the end of its command, and of an attempt, by default.
const KEEP: Duration = Duration::from_secs(86_400);
const TIMEOUT: Duration = Duration::from_secs(3_600);

/// A command of a service: long work that callers start with
/// [`Node::commands`](crate::Node::commands), and that survives its worker. Records and tokens are
/// in the storage backend of the node, or in that of its hub.
///
/// ```
/// use std::time::Duration;
/// use tidewire_node::streams::Command;
/// use tidewire_node::{Failure, Service};
///
/// let reindex = Command::new("reindex", &["shard"], |run, shard: u32| async move {
///     for part in 0..10 {
///         run.report(f64::from(part) / 10.0, "rows");
///     }
///     Ok(shard * 100)
/// })
/// .retries(2)
/// .timeout(Duration::from_secs(60))
/// .exclusive_by_key();
/// let books = Service::new("books").with_command(reindex);
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("Command({:?})", info.name)]
pub struct Command {
    info: ServiceCommand,
    runs: Arc<Answers<CommandContext>>,
    concurrency: usize,
    keep: Duration,
    problem: Option<Error>,
}

impl Command {
    /// A command with a handler. The handler receives the attempt and the arguments: a tuple takes
    /// the parameters in order, `()` none, any other type is the only one. A failed attempt is
    /// retried; a command with unfit arguments fails at once.
    ///
    /// # Cancel safety
    /// The future of the handler is dropped where it awaits when the command is cancelled, its
    /// timeout ends, another worker has the command, or the service stops. After a stop, the
    /// command starts again elsewhere, and the attempt does not count.
    pub fn new<A, O, F, Fut>(name: &str, parameters: &[&str], handler: F) -> Self
    where
        A: DeserializeOwned,
        O: Serialize,
        F: Fn(CommandContext, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        let info = ServiceCommand {
            name: name.to_owned(),
            parameters: untyped(parameters),
            result: json!({}),
            progress: true,
            timeout: Some(TIMEOUT.as_secs_f64()),
            retries: 3,
            ..ServiceCommand::default()
        };
        Self {
            info,
            runs: answers(parameters, handler),
            concurrency: 1,
            keep: KEEP,
            problem: names::method(name).err(),
        }
    }

    /// Of the commands with one [key](super::StartOptions::key), only one runs at a time.
    pub fn exclusive_by_key(mut self) -> Self {
        self.info.exclusive = Some("key".to_owned());
        self
    }

    /// How many an instance runs at once, 1 to 1,000; 1 by default.
    pub fn concurrency(mut self, commands: usize) -> Self {
        let checked = within(&limits::COMMAND_CONCURRENCY, "concurrency", commands as u64);
        self.problem = self.problem.or(checked.err());
        self.concurrency = commands;
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.info.name
    }

    /// Its description for callers.
    pub(crate) fn info(&self) -> &ServiceCommand {
        &self.info
    }

    /// The error of an invalid command.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.problem.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn worker(self, core: &Core, store: &Arc<CommandStore>, service: &str) -> Arc<CommandWorker> {
        let options = WorkerOptions {
            service: service.to_owned(),
            command: self.info.name,
            node: core.name.clone(),
            timeout: self.info.timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            retries: self.info.retries,
            is_exclusive: self.info.exclusive.is_some(),
            concurrency: self.concurrency,
            keep: self.keep,
        };
        let (runner, handler, log) =
            (Arc::clone(&core.runner), Box::new(FutureHandler(self.runs)), Arc::clone(&core.log));
        CommandWorker::new(Arc::clone(store), runner, options, handler, Box::new(|| {}), log)
    }
}

setters! {
    Command:
    /// How long an attempt may take; one hour by default.
    timeout(timeout: Duration) => info.timeout = Some(timeout.as_secs_f64());
    /// How often a failed or lost attempt is tried again, after 0.5 s, 1 s and so on up to a
    /// minute; 3 by default.
    retries(retries: u32) => info.retries = retries;
    /// How long the record stays after the end; a day by default.
    keep(keep: Duration) => keep = keep;
}

/// The attempt at a command that a handler works at.
#[derive(Clone, derive_more::Debug)]
#[debug("{_0:?}")]
pub struct CommandContext(Arc<Attempt>);

impl CommandContext {
    /// The id of the command.
    pub fn id(&self) -> &str {
        self.0.id()
    }

    /// The number of the attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.0.number()
    }

    /// The key of the command.
    pub fn key(&self) -> Option<&str> {
        self.0.record().key.as_deref()
    }

    /// The node that has started the command.
    pub fn caller(&self) -> &str {
        &self.0.record().caller
    }

    /// Reports the progress from 0 to 1, with a note. The newest report is stored as soon as the
    /// one before is; a caller sees at least the newest.
    pub fn report(&self, fraction: f64, note: &str) {
        self.0.report(fraction, note);
    }
}

/// Runs attempts as futures, which are dropped when they are interrupted.
struct FutureHandler(Arc<Answers<CommandContext>>);

impl CommandHandler for FutureHandler {
    fn run(&self, attempt: &Arc<Attempt>) -> AttemptFuture {
        let attempt = Arc::clone(attempt);
        let begin = || {
            let input = attempt.record().arguments.as_deref().unwrap_or_default();
            (self.0)(CommandContext(Arc::clone(&attempt)), input)
        };
        let mut running = match catch_unwind(AssertUnwindSafe(begin)) {
            Ok(Ok(running)) => running,
            // The arguments do not fit.
            Ok(Err(failure)) => return Box::pin(std::future::ready(failed(Outcome::Refused, &failure))),
            Err(panic) => return Box::pin(std::future::ready(failed(Outcome::Raised, &Failure::of_panic(&*panic)))),
        };
        Box::pin(async move {
            let ended = poll_fn(|context| {
                if let Poll::Ready(why) = attempt.poll_interrupted(context) {
                    return Poll::Ready(Err(why));
                }
                Failure::polled(|| running.as_mut().poll(context)).map(Ok)
            });
            match ended.await {
                Ok(Ok(blob)) => AttemptEnd { result: Some(blob.into_bytes()), ..AttemptEnd::of(Outcome::Returned) },
                Ok(Err(failure)) => failed(Outcome::Raised, &failure),
                Err(Interruption::Cancelled) => AttemptEnd::of(Outcome::Cancelled),
                Err(Interruption::Cut | Interruption::Lost) => AttemptEnd::of(Outcome::Interrupted),
                Err(Interruption::Timeout) => {
                    let text = "the attempt took longer than its timeout: allow more, or do less";
                    failed(Outcome::Raised, &Failure::of(ErrorCode::TaskTimeout, text))
                }
            }
        })
    }
}

fn failed(outcome: Outcome, failure: &Failure) -> AttemptEnd {
    let (error, error_text) = (Some(failure.value().into_bytes()), Some(failure.line()));
    AttemptEnd { error, error_text, ..AttemptEnd::of(outcome) }
}
