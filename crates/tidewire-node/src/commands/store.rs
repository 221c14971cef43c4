//! The records of commands in a key-value bucket, and the queue of their tokens: started, changed
//! by compare-and-set, listed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tidewire_backend::home::{
    BucketSettings, ConsumerSettings, Entry, Expect, Full, Home, HomeError, HomeErrorKind, HomeResult, Purge, Start,
    StreamSettings, Watch,
};
use tidewire_core::stream::command::{Begin, Command, End, Stage};
use tidewire_engine::raw::Mutex;
use tidewire_proto::generated::limits::{COMMAND_ARGUMENT_BYTES, COMMAND_LEASE_MS, COMMANDS_QUEUED};
use tidewire_proto::subject::Pattern;

use super::attempt::AttemptEnd;
use super::info::CommandInfo;
use super::record::{CommandRecord, ENDS, PAGE, QUEUE, Report, WAIT_US, now_us, progress_key, state_key};
use super::watch::CommandWatch;
use crate::names;
use crate::streams::message::Message;
use crate::streams::opening::Opening;
use crate::values::{self, Bytes};

/// The priorities, each with a queue of its own; the most urgent first.
pub const PRIORITIES: [&str; 4] = ["urgent", "high", "normal", "low"];
const ID_BYTES: usize = 64;
const KEY_BYTES: usize = 256;
const CONSUMER_BYTES: usize = 64;
const ENDS_MAX: u64 = 100_000;
const ENDS_AGE_US: u64 = 86_400_000_000;
const CONFLICTS_MAX: u32 = 64;
const IN_FLIGHT_MAX: u32 = 10_000;

/// The commands of one storage backend.
#[derive(derive_more::Debug)]
#[debug("CommandStore({})", self.home.place())]
pub struct CommandStore {
    home: Arc<dyn Home>,
    stores: Arc<Opening<()>>,
    consumers: Mutex<HashMap<String, Arc<Opening<()>>>>,
    watch: Arc<CommandWatch>,
}

/// A command that is to be started.
#[derive(Clone, Debug)]
pub struct NewCommand {
    /// The name of the service.
    pub service: String,
    /// The name of its command.
    pub command: String,
    /// A list by position and a map by name, as they travel.
    pub arguments: Vec<u8>,
    /// The key of the command.
    pub key: Option<String>,
    /// An idempotency key, which is the id of the command.
    pub id: Option<String>,
    /// `urgent`, `high`, `normal` or `low`.
    pub priority: String,
    /// The node that starts it.
    pub caller: String,
    /// The headers of the trace context of its start.
    pub trace: BTreeMap<String, String>,
}

/// Decision for a worker that has received a token.
#[derive(Debug)]
pub enum Begun {
    /// The worker runs the command. The number is the revision of the record.
    Run(Box<CommandRecord>, u64),
    /// The token is not needed: it is acked.
    Ack,
}

/// Fate of the token of an attempt that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenEnd {
    /// The command is over, and the token is acked.
    Ack,
    /// The token returns to its queue after these microseconds.
    Again(u64),
    /// Another attempt has the token.
    Stale,
}

/// State of the reports of a command.
#[derive(Clone, Debug)]
pub struct Reported {
    /// The newest report.
    pub report: Option<Report>,
    /// The revision after which the next call continues.
    pub after: u64,
    /// True if the command has ended.
    pub is_over: bool,
}

impl CommandStore {
    /// The commands of a storage backend. Its streams and its bucket are made when they are first
    /// needed.
    pub fn new(home: Arc<dyn Home>) -> Self {
        let opened = Arc::clone(&home);
        let stores = Opening::new(move || Box::pin(open(Arc::clone(&opened))));
        Self { watch: CommandWatch::new(Arc::clone(&home)), home, stores, consumers: Mutex::default() }
    }

    pub(super) fn home(&self) -> &Arc<dyn Home> {
        &self.home
    }

    /// The name of the consumer with the tokens of a command; it is made if it is not there.
    ///
    /// # Errors
    /// Those of the storage backend; the same holds for all calls.
    pub async fn consumer(&self, service: &str, command: &str, priority: &str) -> HomeResult<String> {
        self.stores.get().await?;
        let plain = format!("{service}-{command}-{priority}");
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let fits = plain.len() <= CONSUMER_BYTES && plain.bytes().all(is_name);
        let name = if fits { plain } else { hash(&[plain.as_bytes()]) };
        let opening = {
            let mut consumers = self.consumers.lock();
            let make = || {
                let (home, name) = (Arc::clone(&self.home), name.clone());
                let subject = token_subject(service, command, priority);
                Opening::new(move || Box::pin(make_consumer(Arc::clone(&home), name.clone(), subject.clone())))
            };
            Arc::clone(consumers.entry(name.clone()).or_insert_with(make))
        };
        if let Err(error) = opening.get().await {
            self.consumers.lock().remove(&name);
            return Err(error);
        }
        Ok(name)
    }

    /// Starts a command, or finds the one with this id; returns its id.
    ///
    /// # Errors
    /// `Invalid` if a name or an option is not allowed, `TooLarge` above 512 KiB of arguments,
    /// `Differs` if the id is that of another command, and `Full` if too many are stored.
    ///
    /// # Cancel safety
    /// If it is dropped, the command may have been started. A second start with the same id ends
    /// the first.
    pub async fn start(&self, new: NewCommand) -> HomeResult<String> {
        let mut record = new_record(new)?;
        self.stores.get().await?;
        match self.put(&record, Expect::Absent, None).await {
            Ok(_) => {}
            Err(error) if error.kind() == HomeErrorKind::Revision => {
                let (found, _) = self.record(&record.id).await?;
                if found.digest != record.digest {
                    let text = "is that of a command with another name, key or arguments: give each its own id";
                    return Err(HomeError::new(HomeErrorKind::Differs, format!("id: {:?} {text}", record.id)));
                }
                if !is_unqueued(&found) {
                    return Ok(found.id);
                }
                // The first caller may have failed before it queued the record. One of two tokens
                // counts.
                record = found;
            }
            Err(error) => return Err(error),
        }
        self.enqueue(&record).await?;
        Ok(record.id)
    }

    async fn enqueue(&self, record: &CommandRecord) -> HomeResult<()> {
        let CommandRecord { id, service, command, priority, round, .. } = record;
        self.consumer(service, command, priority).await?;
        let message = Message::new(&token_subject(service, command, priority), id);
        self.publish(QUEUE, message.id(format!("{id}.{round}"))).await
    }

    async fn publish(&self, stream: &str, message: Message) -> HomeResult<()> {
        let message = message.checked()?;
        let acks = self.home.publish(stream, vec![message], false).await?;
        acks.into_iter().try_for_each(|ack| ack.map(drop))
    }

    /// A record with its revision.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub async fn record(&self, id: &str) -> HomeResult<(CommandRecord, u64)> {
        self.stores.get().await?;
        read(id, self.home.get(QUEUE, state_key(id)?, None).await?)
    }

    /// Waits for a record that is newer than a revision and fits.
    ///
    /// # Errors
    /// `NotFound` if there is none, or it was removed.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub async fn wait_for(
        &self,
        id: &str,
        after: u64,
        fits: impl Fn(&CommandRecord) -> bool + Send,
    ) -> HomeResult<(CommandRecord, u64)> {
        self.stores.get().await?;
        let mut changes = self.watch.changes(id, after);
        loop {
            let (record, revision) = read(id, changes.next().await?)?;
            if fits(&record) {
                return Ok((record, revision));
            }
        }
    }

    async fn put(&self, record: &CommandRecord, expect: Expect, ttl_us: Option<u64>) -> HomeResult<u64> {
        let value = values::to_bytes(record)?;
        self.home.put(QUEUE, state_key(&record.id)?, value.into(), expect, ttl_us).await
    }

    /// Changes a record by a function, which is called again if another writer was faster. The
    /// function returns the new state of the state machine, or None to leave the record as it is.
    async fn change<R>(
        &self,
        id: &str,
        mut decide: impl FnMut(&mut CommandRecord) -> (R, Option<Command>) + Send,
    ) -> HomeResult<(R, CommandRecord, u64)> {
        for _ in 0..CONFLICTS_MAX {
            let (mut record, revision) = self.record(id).await?;
            let (decision, machine) = decide(&mut record);
            let Some(machine) = machine else { return Ok((decision, record, revision)) };
            record.set(machine);
            let ttl_us = record.keep_us.filter(|_| machine.stage.is_over());
            match self.put(&record, Expect::Revision(revision), ttl_us).await {
                Ok(revision) => return Ok((decision, record, revision)),
                Err(error) if error.kind() == HomeErrorKind::Revision => {}
                Err(error) => return Err(error),
            }
        }
        let text = format!("command {id:?}: its record was changed {CONFLICTS_MAX} times meanwhile: try again");
        Err(HomeError::new(HomeErrorKind::Busy, text))
    }

    /// Cancels a command. True if that changes anything.
    pub async fn cancel(&self, id: &str) -> HomeResult<bool> {
        let decide = |record: &mut CommandRecord| {
            let mut machine = record.machine();
            let changes = machine.cancel();
            if changes && machine.stage.is_over() {
                record.ended_us = Some(now_us());
            }
            (changes, changes.then_some(machine))
        };
        self.change(id, decide).await.map(|(changed, ..)| changed)
    }

    /// Restarts a failed or cancelled command. True if it restarts.
    pub async fn renew(&self, id: &str) -> HomeResult<bool> {
        let decide = |record: &mut CommandRecord| {
            let mut machine = record.machine();
            let renews = machine.renew();
            if renews {
                record.round += 1;
                (record.worker, record.began_us, record.ended_us, record.progress) = (None, None, None, None);
            }
            (renews, renews.then_some(machine))
        };
        let (renews, record, _) = self.change(id, decide).await?;
        if renews || is_unqueued(&record) {
            self.enqueue(&record).await?;
        }
        Ok(renews)
    }

    /// Begins an attempt of the worker of node `worker` with a token.
    pub async fn begin(&self, id: &str, token: u64, worker: &str, retries: u32, keep_us: u64) -> HomeResult<Begun> {
        let decide = |record: &mut CommandRecord| {
            (record.retries, record.keep_us) = (retries, Some(keep_us));
            let mut machine = record.machine();
            let verdict = machine.begin(token);
            match verdict {
                Begin::Run(_) => (record.worker, record.began_us) = (Some(worker.to_owned()), Some(now_us())),
                Begin::Cancelled | Begin::Lost => record.ended_us = Some(now_us()),
                Begin::Over | Begin::Duplicate => return (verdict, None),
            }
            if verdict != Begin::Cancelled {
                (record.error, record.error_text, record.traceback) = (None, None, None);
            }
            (verdict, Some(machine))
        };
        match self.change(id, decide).await {
            Ok((Begin::Run(_), record, revision)) => Ok(Begun::Run(Box::new(record), revision)),
            Ok((Begin::Duplicate, ..)) => Ok(Begun::Ack),
            Ok((_, record, _)) => self.finish(&record).await.map(|()| Begun::Ack),
            Err(error) if error.kind() == HomeErrorKind::NotFound => Ok(Begun::Ack),
            Err(error) => Err(error),
        }
    }

    /// Stores the end of an attempt.
    pub async fn end(&self, id: &str, attempt: u32, end: AttemptEnd, report: Option<Report>) -> HomeResult<TokenEnd> {
        let decide = |record: &mut CommandRecord| {
            let mut machine = record.machine();
            let next = machine.ended(attempt, end.outcome);
            if next == End::Stale {
                return (next, None);
            }
            let end = end.clone();
            if end.error.is_some() {
                record.error = end.error.map(Bytes);
                (record.error_text, record.traceback) = (end.error_text, end.traceback);
            }
            record.result = end.result.map(Bytes).or(record.result.take());
            record.progress = report.clone().or(record.progress.take());
            if machine.stage.is_over() {
                record.ended_us = Some(now_us());
            }
            if machine.stage == Stage::Succeeded {
                record.arguments = None;
            }
            (next, Some(machine))
        };
        let (next, record, _) = self.change(id, decide).await?;
        match next {
            End::Again(delay_us) => Ok(TokenEnd::Again(delay_us)),
            // After a lost answer, this attempt may have ended the command itself.
            End::Stale if !(record.is_over() && record.attempt == attempt) => Ok(TokenEnd::Stale),
            End::Over(_) | End::Stale => self.finish(&record).await.map(|()| TokenEnd::Ack),
        }
    }

    /// Publishes that a command has ended, once, and removes its reports.
    async fn finish(&self, record: &CommandRecord) -> HomeResult<()> {
        let CommandRecord { id, service, command, stage, attempt, key, error_text, round, .. } = record;
        let error = error_text.as_deref().unwrap_or_default();
        let ended = Ended { id, service, command, stage, attempt: *attempt, key: key.as_deref(), error };
        let subject = format!("tidewire.command-ended.{service}.{command}");
        let message = Message::new(&subject, &ended).id(format!("{id}.{round}"));
        self.publish(ENDS, key.iter().fold(message, |message, key| message.key(key))).await?;
        if record.progress.is_some() || *attempt > 1 || stage != Stage::Succeeded.name() {
            // A report that stays costs its bytes alone.
            drop(self.home.delete(QUEUE, progress_key(id)?, Expect::Any, true).await);
        }
        Ok(())
    }

    /// Waits until an attempt is to end: true if its command is cancelled, false if another attempt
    /// has begun or the command is over.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub async fn interrupted(&self, id: &str, attempt: u32, revision: u64) -> HomeResult<bool> {
        let ends = |record: &CommandRecord| !record.machine().is_current(attempt) || record.is_cancelling;
        match self.wait_for(id, revision, ends).await {
            Ok((record, _)) => Ok(record.machine().is_current(attempt)),
            Err(error) if error.kind() == HomeErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Stores a report of an attempt.
    pub async fn report(&self, id: &str, report: Report) -> HomeResult<()> {
        let value = values::to_bytes(&report)?;
        self.home.put(QUEUE, progress_key(id)?, value.into(), Expect::Any, None).await.map(drop)
    }

    /// Waits for the newest report of a command, for some seconds at most. Further calls continue
    /// after the revision of the one before; the first has 0.
    ///
    /// # Errors
    /// `NotFound` if there is no such command.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub async fn reported(&self, id: &str, after: u64) -> HomeResult<Reported> {
        if after == 0 {
            let (record, revision) = self.record(id).await?;
            if record.is_over() {
                return Ok(Reported { report: record.progress, after: revision, is_over: true });
            }
        }
        let watch = Watch { filter: pattern(&format!("{id}.*"))?, after, max: 10, wait_us: WAIT_US };
        let changes = self.home.watch(QUEUE, watch).await?;
        let mut reported = Reported { report: None, after: changes.upto.max(after), is_over: false };
        for entry in changes.entries {
            match (entry.key.as_str().ends_with(".progress"), entry.value) {
                (true, value) => reported.report = value.map(|value| values::from_bytes(&value)).transpose()?,
                (false, None) => return Ok(Reported { report: None, is_over: true, ..reported }),
                (false, Some(value)) => {
                    let record: CommandRecord = values::from_bytes(&value)?;
                    if record.is_over() {
                        return Ok(Reported { report: record.progress, is_over: true, ..reported });
                    }
                }
            }
        }
        Ok(reported)
    }

    /// The state of a command.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub async fn info(&self, id: &str) -> HomeResult<CommandInfo> {
        let (record, _) = self.record(id).await?;
        let report = self.home.get(QUEUE, progress_key(id)?, None).await?.and_then(|entry| entry.value);
        Ok(record.info(report.map(|value| values::from_bytes(&value)).transpose()?))
    }

    /// The states of all stored commands, the oldest first.
    pub async fn infos(&self) -> HomeResult<Vec<CommandInfo>> {
        self.stores.get().await?;
        let (mut records, mut reports) = (BTreeMap::new(), BTreeMap::new());
        let mut after = 0;
        loop {
            let watch = Watch { filter: pattern(">")?, after, max: PAGE, wait_us: 0 };
            let changes = self.home.watch(QUEUE, watch).await?;
            let is_last = !changes.more || changes.entries.is_empty();
            after = changes.upto;
            for Entry { key, value, .. } in changes.entries {
                let Some((id, kind)) = key.as_str().rsplit_once('.') else { continue };
                let id = id.to_owned();
                match (kind, value) {
                    ("state", Some(value)) => drop(records.insert(id, values::from_bytes::<CommandRecord>(&value)?)),
                    ("state", None) => drop(records.remove(&id)),
                    (_, Some(value)) => drop(reports.insert(id, values::from_bytes::<Report>(&value)?)),
                    (_, None) => drop(reports.remove(&id)),
                }
            }
            if is_last {
                break;
            }
        }
        let mut infos: Vec<_> = records.into_iter().map(|(id, record)| record.info(reports.remove(&id))).collect();
        infos.sort_by_key(|info| info.created);
        Ok(infos)
    }

    /// Removes tokens of ended commands from the queue.
    pub async fn tidy(&self) -> HomeResult<()> {
        let consumers = self.home.list_consumers(QUEUE).await?;
        match consumers.iter().map(|consumer| consumer.acked_to).min() {
            None | Some(0) => Ok(()),
            Some(least) => {
                let purge = Purge { before: Some(least + 1), ..Purge::default() };
                self.home.purge(QUEUE, purge).await.map(drop)
            }
        }
    }
}

/// The message of a command that has ended.
#[derive(serde::Serialize)]
struct Ended<'a> {
    id: &'a str,
    service: &'a str,
    command: &'a str,
    stage: &'a str,
    attempt: u32,
    key: Option<&'a str>,
    error: &'a str,
}

/// Makes the streams and the bucket, if they are not there.
async fn open(home: Arc<dyn Home>) -> HomeResult<()> {
    let queue = StreamSettings {
        max_messages: Some(COMMANDS_QUEUED.default),
        ..StreamSettings::new(QUEUE, vec![pattern("tidewire.command.>")?])
    };
    let ends = StreamSettings {
        max_age_us: Some(ENDS_AGE_US),
        max_messages: Some(ENDS_MAX),
        full: Full::DropOld,
        ..StreamSettings::new(ENDS, vec![pattern("tidewire.command-ended.>")?])
    };
    let answers = (home.create_stream(queue), home.create_stream(ends), home.create_bucket(BucketSettings::new(QUEUE)));
    answers.0.await?;
    answers.1.await?;
    answers.2.await
}

async fn make_consumer(home: Arc<dyn Home>, name: String, subject: String) -> HomeResult<()> {
    let settings = ConsumerSettings {
        filter: vec![pattern(&subject)?],
        start: Start::All,
        ack_wait_us: COMMAND_LEASE_MS.default * 1_000,
        max_deliver: 0,
        backoff_us: vec![0],
        max_in_flight: IN_FLIGHT_MAX,
        ..ConsumerSettings::new(&name)
    };
    home.create_consumer(QUEUE, settings).await.map(drop)
}

fn new_record(new: NewCommand) -> HomeResult<CommandRecord> {
    let NewCommand { service, command, arguments, key, id, priority, caller, trace } = new;
    let title = format!("{service}.{command}");
    let wrong = |text: &str| invalid(format!("{title}: {text}"));
    names::token("service", &service).and_then(|()| names::token("command", &command))?;
    if let Some(id) = &id {
        names::token("id", id).map_err(|error| wrong(error.message()))?;
        if id.len() > ID_BYTES {
            let fix = format!("give at most {ID_BYTES} bytes");
            return Err(wrong(&format!("id: {:?} is not allowed: {fix}", id.chars().take(40).collect::<String>())));
        }
    }
    if key.as_ref().is_some_and(|key| !(1..=KEY_BYTES).contains(&key.len())) {
        let fix = format!("give a text of 1 to {KEY_BYTES} bytes");
        return Err(wrong(&format!("key: {:?} is not allowed: {fix}", key.unwrap_or_default())));
    }
    if !PRIORITIES.contains(&&*priority) {
        return Err(wrong(&format!("priority: {priority:?} is not allowed: give {}", PRIORITIES.join(", "))));
    }
    let max = COMMAND_ARGUMENT_BYTES.max;
    if arguments.len() as u64 > max {
        let fix = "put them into a bucket or a file, and give the name";
        let text = format!("{title}: its arguments take {} bytes, and {max} are allowed: {fix}", arguments.len());
        return Err(HomeError::new(HomeErrorKind::TooLarge, text));
    }
    let digest = hash(&[&values::to_bytes(&(&service, &command, &key))?, &arguments]);
    let mut record = CommandRecord {
        id: id.unwrap_or_else(|| names::random_hex(8)),
        service,
        command,
        arguments: Some(Bytes(arguments)),
        digest,
        key,
        priority,
        caller,
        trace,
        created_us: now_us(),
        ..CommandRecord::default()
    };
    record.set(Command::new(0));
    Ok(record)
}

/// True for a command whose first caller may have failed before it queued a token.
fn is_unqueued(record: &CommandRecord) -> bool {
    record.stage == Stage::Queued.name() && record.token.is_none()
}

fn read(id: &str, entry: Option<Entry>) -> HomeResult<(CommandRecord, u64)> {
    match entry {
        Some(Entry { value: Some(value), revision, .. }) => Ok((values::from_bytes(&value)?, revision)),
        _ => {
            let why = "its id is wrong, or it has ended and was kept as long as its service declares";
            Err(HomeError::new(HomeErrorKind::NotFound, format!("command {id:?}: there is none: {why}")))
        }
    }
}

fn token_subject(service: &str, command: &str, priority: &str) -> String {
    format!("tidewire.command.{service}.{command}.{priority}")
}

fn pattern(text: &str) -> HomeResult<Pattern> {
    Pattern::new(text).map_err(|wrong| invalid(wrong.to_string()))
}

fn invalid(text: impl Into<String>) -> HomeError {
    HomeError::new(HomeErrorKind::Invalid, text)
}

/// 128 bits in hexadecimal digits.
pub(super) fn hash(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
