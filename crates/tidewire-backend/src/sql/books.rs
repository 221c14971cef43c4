//! Transaction of a campaign in a database: the ledger is loaded, changed once and saved, together
//! with the resulting rows.

use tidewire_core::campaign::ledger::{Clock, Completion, Ledger, Refusal};
use tidewire_core::campaign::precision::{Moments, Verdict};
use tidewire_core::campaign::{digest, precision::Checkpoints};

use super::database::{Cell, Database, Now, Record};
use super::results::{self, ResultTable};
use super::{clean, one};
use crate::plan::invalid;
use crate::{
    CampaignId, ClaimState, ErrorKind, Failure, Lease, RangeResults, Result, Schema, State, StoreError, WorkerId,
    WorkerInfo,
};

/// The longest message and traceback of a failure, in characters.
const MESSAGE_CHARACTERS: usize = 2_000;
const TRACEBACK_CHARACTERS: usize = 8_000;
/// The most characters of what a worker says of itself: its name, its host.
const NAME_CHARACTERS: usize = 255;

/// The ledger of a campaign within a transaction.
pub(super) struct Books<'a, D> {
    database: &'a mut D,
    id: CampaignId,
    pub now: Now,
    pub ledger: Ledger,
    /// The name of the table of results, and its columns as soon as they are known.
    results: String,
    schema: Option<Schema>,
    sets: u64,
    until: Option<String>,
    has_changed: bool,
}

impl<'a, D: Database> Books<'a, D> {
    /// Of a row of [`CAMPAIGN`](super::CAMPAIGN).
    pub fn open(database: &'a mut D, id: CampaignId, now: Now, mut record: Record) -> Result<Self> {
        let ledger = ledger(id, &record.text()?)?;
        let (results, columns, many) = (record.text()?, record.maybe_text()?, record.boolean()?);
        let schema = columns.map(|columns| Schema::from_json(&columns, many)).transpose()?;
        let (sets, until) = (record.number()?, record.maybe_text()?);
        Ok(Self { database, id, now, ledger, results, schema, sets, until, has_changed: false })
    }

    /// Saves the ledger and its decisions. True if other connections must be notified.
    pub fn keep(mut self) -> Result<bool> {
        while let Some((from, to)) = self.ledger.look_due() {
            let verdict = self.look(from, to)?;
            self.ledger.looked(verdict);
        }
        for lost in self.ledger.take_losses() {
            let (kind, why) = if lost.overtime {
                ("timeout", "was over its time limit")
            } else {
                ("quarantined", "killed its worker")
            };
            let times = if lost.attempts == 1 { "once".to_owned() } else { format!("{} times", lost.attempts) };
            let failure = Failure {
                run: lost.run,
                kind: kind.to_owned(),
                message: format!("the run {why} {times}"),
                attempts: lost.attempts,
                ..Failure::default()
            };
            self.failure(&failure, WorkerId(lost.worker))?;
        }
        for turn in self.ledger.take_turns() {
            self.event(turn.from, turn.to, &turn.reason)?;
        }
        let stored = self.ledger.stored();
        self.database.write(
            "UPDATE tidewire_campaigns SET state = ?2, reason = ?3, runs = ?4, done = ?5, failed = ?6, quarantined = ?7, \
                result_rows = ?8, digest = ?9, ledger = ?10 WHERE id = ?1",
            &[
                Cell::number(self.id.0),
                Cell::Text(self.ledger.state().name()),
                Cell::Text(self.ledger.reason()),
                Cell::number(self.ledger.runs()),
                Cell::number(stored.done),
                Cell::number(stored.failed),
                Cell::number(stored.quarantined),
                Cell::number(stored.rows),
                Cell::Text(&digest::written(stored.digest)),
                Cell::Text(&written(&self.ledger)?),
            ],
        )?;
        Ok(self.has_changed)
    }

    /// Calls the ledger for a decision that other connections must be notified of.
    pub fn decide<T>(&mut self, ask: impl FnOnce(&mut Ledger, Clock) -> std::result::Result<T, Refusal>) -> Result<T> {
        self.has_changed = true;
        ask(&mut self.ledger, self.now.clock).map_err(|refusal| self.refused(refusal, None))
    }

    /// Asks the ledger about a lease.
    pub fn with_lease<T>(
        &mut self,
        lease: &Lease,
        ask: impl FnOnce(&mut Ledger, Clock, &Lease) -> std::result::Result<T, Refusal>,
    ) -> Result<T> {
        ask(&mut self.ledger, self.now.clock, lease).map_err(|refusal| self.refused(refusal, Some(lease)))
    }

    pub fn commit(&mut self, lease: &Lease, results: &RangeResults) -> Result<ClaimState> {
        if let Some(standing) = self.ledger.completed(lease, results.count) {
            return Ok(standing);
        }
        let part = Completion {
            count: results.count,
            failed: results.failures.len().try_into().unwrap_or(u32::MAX),
            rows: results.rows.len() as u64,
            digest: results.digest,
            columns: self.schema.is_none() && results.schema.is_some(),
            run_us: results.run_us,
            overhead_us: results.overhead_us,
        };
        // First of all: a lease that was taken away is no mistake in the results.
        let standing = self.with_lease(lease, |ledger, clock, lease| ledger.complete(clock, lease, &part))?;
        self.has_changed = true;
        if let Some(schema) = &results.schema {
            self.set_schema(schema)?;
        }
        results::check(lease, results, self.schema.as_ref())?;
        if !results.rows.is_empty() {
            let table = self.table()?;
            self.database.insert_results(&table, &results.rows)?;
        }
        for failure in &results.failures {
            self.failure(failure, WorkerId(lease.worker))?;
        }
        self.worked(WorkerId(lease.worker), results)?;
        Ok(standing)
    }

    /// Takes in the columns, and creates the table of results. Those that it has already are no
    /// error.
    pub fn set_schema(&mut self, schema: &Schema) -> Result<()> {
        if let Some(known) = &self.schema {
            let (known, other) = (known.to_json(), schema.to_json());
            let same = self.schema.as_ref() == Some(schema);
            return if same { Ok(()) } else { invalid(format!("schema: {other}, where the campaign has {known}")) };
        }
        schema.check()?;
        if let Some(until) = &self.until {
            schema.number(until)?;
        }
        self.schema = Some(schema.clone());
        let table = self.table()?;
        self.database.create_results(&table)?;
        self.database.write(
            "UPDATE tidewire_campaigns SET columns = ?2, many = ?3 WHERE id = ?1",
            &[Cell::number(self.id.0), Cell::Text(&schema.to_json()), Cell::Boolean(schema.many)],
        )
    }

    pub fn event(&mut self, from: State, to: State, reason: &str) -> Result<()> {
        self.has_changed = true;
        self.database.write(
            "INSERT INTO tidewire_events (campaign, number, happened, state_before, state_after, reason) \
             SELECT ?1, coalesce(max(number), 0) + 1, ?2, ?3, ?4, ?5 FROM tidewire_events WHERE campaign = ?1",
            &[
                Cell::number(self.id.0),
                Cell::Time(self.now.utc_us),
                Cell::Text(from.name()),
                Cell::Text(to.name()),
                Cell::Text(reason),
            ],
        )
    }

    pub fn join(&mut self, worker: &WorkerInfo) -> Result<WorkerId> {
        self.has_changed = true;
        let mut added = self.database.query(
            "INSERT INTO tidewire_workers (campaign, id, name, host, process, code, state, joined, seen, runs, stage_lease_us, \
                stage_warm_up_us, stage_run_us, stage_encode_us, stage_persist_us, stage_wait_us, stage_idle_us) \
             SELECT ?1, coalesce(max(id), 0) + 1, ?2, ?3, ?4, ?5, 'working', ?6, ?6, 0, 0, 0, 0, 0, 0, 0, 0 \
             FROM tidewire_workers WHERE campaign = ?1 RETURNING id",
            &[
                Cell::number(self.id.0),
                Cell::Text(&cut(&worker.name, NAME_CHARACTERS)),
                Cell::Text(&cut(&worker.host, NAME_CHARACTERS)),
                Cell::number(u64::from(worker.process)),
                Cell::Text(&clean(&worker.code)),
                Cell::Time(self.now.utc_us),
            ],
        )?;
        match added.pop() {
            Some(mut record) => Ok(WorkerId(record.number()?)),
            None => Err(StoreError::new(ErrorKind::Database, format!("campaign {}: no worker was added", self.id))),
        }
    }

    /// Records that a worker is alive.
    pub fn mark_working(&mut self, worker: WorkerId) -> Result<()> {
        let statement = "UPDATE tidewire_workers SET state = 'working', seen = ?3 WHERE campaign = ?1 AND id = ?2";
        self.worker(worker, statement, Cell::Time(self.now.utc_us))
    }

    /// A worker has left, or is lost.
    pub fn worker_state(&mut self, worker: WorkerId, state: &str) -> Result<()> {
        let statement = "UPDATE tidewire_workers SET state = ?3 WHERE campaign = ?1 AND id = ?2";
        self.worker(worker, statement, Cell::Text(state))
    }

    fn worker(&mut self, worker: WorkerId, statement: &'static str, value: Cell<'_>) -> Result<()> {
        let changed = self.database.execute(statement, &[Cell::number(self.id.0), Cell::number(worker.0), value])?;
        if changed == 0 {
            return invalid(format!("worker: campaign {} has no worker {worker}: join it first", self.id));
        }
        Ok(())
    }

    fn worked(&mut self, worker: WorkerId, results: &RangeResults) -> Result<()> {
        let stages = &results.stages;
        self.database.write(
            "UPDATE tidewire_workers SET state = 'working', seen = ?3, runs = runs + ?4, stage_lease_us = ?5, \
                stage_warm_up_us = ?6, stage_run_us = ?7, stage_encode_us = ?8, stage_persist_us = ?9, stage_wait_us = ?10, \
                stage_idle_us = ?11 WHERE campaign = ?1 AND id = ?2",
            &[
                Cell::number(self.id.0),
                Cell::number(worker.0),
                Cell::Time(self.now.utc_us),
                Cell::number(u64::from(results.count)),
                Cell::number(stages.lease_us),
                Cell::number(stages.warm_up_us),
                Cell::number(stages.run_us),
                Cell::number(stages.encode_us),
                Cell::number(stages.persist_us),
                Cell::number(stages.wait_us),
                Cell::number(stages.idle_us),
            ],
        )
    }

    fn failure(&mut self, failure: &Failure, worker: WorkerId) -> Result<()> {
        self.has_changed = true;
        if !matches!(failure.kind.as_str(), "error" | "timeout" | "quarantined") {
            return invalid(format!("kind: {:?} is none of error, timeout and quarantined", failure.kind));
        }
        let traceback = clean(&failure.traceback);
        let long = traceback.chars().count().saturating_sub(TRACEBACK_CHARACTERS);
        let traceback: String = traceback.chars().skip(long).collect();
        self.database.write(
            "INSERT INTO tidewire_failures (campaign, run, kind, error, message, traceback, attempts, worker, happened) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            &[
                Cell::number(self.id.0),
                Cell::number(failure.run),
                Cell::Text(&failure.kind),
                Cell::Text(&cut(&failure.error, NAME_CHARACTERS)),
                Cell::Text(&cut(&failure.message, MESSAGE_CHARACTERS)),
                Cell::Text(&traceback),
                Cell::number(u64::from(failure.attempts)),
                Cell::number(worker.0),
                Cell::Time(self.now.utc_us),
            ],
        )
    }

    /// Examines the results of runs that no look has seen.
    fn look(&mut self, from: u64, to: u64) -> Result<Verdict> {
        let id = [Cell::number(self.id.0)];
        let row = self.database.query("SELECT moments FROM tidewire_moments WHERE campaign = ?1", &id)?.pop();
        let bytes = row.map(|mut record| record.maybe_bytes()).transpose()?.flatten();
        let corrupt =
            || StoreError::new(ErrorKind::Corrupt, format!("the moments of campaign {} can't be read", self.id));
        let mut moments = match &bytes {
            Some(bytes) => Moments::from_bytes(bytes).ok_or_else(corrupt)?,
            None => Moments::new(self.sets),
        };
        if let (Some(until), Some(schema)) = (&self.until, &self.schema) {
            let column = schema.number(until)?;
            let table = self.table()?;
            let mut means = Means::new(&mut moments);
            self.database.each_number(&table, column, from..to, &mut |run, value| means.add(run, value))?;
            means.finish();
        }
        self.database.write(
            "INSERT INTO tidewire_moments (campaign, moments) VALUES (?1, ?2) \
             ON CONFLICT (campaign) DO UPDATE SET moments = excluded.moments",
            &[Cell::number(self.id.0), Cell::Bytes(&moments.to_bytes())],
        )?;
        let none = || StoreError::new(ErrorKind::Corrupt, format!("campaign {} is looked at without an aim", self.id));
        let checkpoints: &Checkpoints = self.ledger.checkpoints().ok_or_else(none)?;
        Ok(checkpoints.judge(to, &moments))
    }

    fn table(&self) -> Result<ResultTable> {
        match &self.schema {
            Some(schema) => Ok(ResultTable { name: self.results.clone(), schema: schema.clone(), sets: self.sets }),
            None => invalid("schema: the columns of the results are not known"),
        }
    }

    fn refused(&self, refusal: Refusal, lease: Option<&Lease>) -> StoreError {
        let id = self.id;
        let (kind, message) = match refusal {
            Refusal::Stale => {
                let lease = lease.map_or(String::new(), |lease| format!(" {} from run {}", lease.id, lease.first));
                let why = "it expired, was given back, or the campaign ended";
                (ErrorKind::Stale, format!("campaign {id}: lease{lease} was taken away ({why}): forget its results"))
            }
            Refusal::Transition { from, to } => {
                (ErrorKind::Transition, format!("campaign {id} is {from} and can't become {to}"))
            }
            other => (ErrorKind::Invalid, format!("campaign {id}: {other}")),
        };
        StoreError::new(kind, message)
    }
}

/// The mean of each run's values, run by run.
struct Means<'a> {
    moments: &'a mut Moments,
    run: Option<u64>,
    sum: f64,
    count: f64,
}

impl<'a> Means<'a> {
    const fn new(moments: &'a mut Moments) -> Self {
        Self { moments, run: None, sum: 0.0, count: 0.0 }
    }

    fn add(&mut self, run: u64, value: f64) {
        if self.run != Some(run) {
            self.finish();
            (self.run, self.sum, self.count) = (Some(run), 0.0, 0.0);
        }
        self.sum += value;
        self.count += 1.0;
    }

    fn finish(&mut self) {
        if let Some(run) = self.run {
            self.moments.add(run, self.sum / self.count);
        }
    }
}

/// The table of a campaign's results, if its columns are known.
pub(super) fn table<D: Database>(database: &mut D, id: CampaignId) -> Result<Option<ResultTable>> {
    let mut record = one(database, "SELECT results, columns, many, sets FROM tidewire_campaigns WHERE id = ?1", id)?;
    let (name, columns, many, sets) = (record.text()?, record.maybe_text()?, record.boolean()?, record.number()?);
    let Some(columns) = columns else { return Ok(None) };
    Ok(Some(ResultTable { name, schema: Schema::from_json(&columns, many)?, sets }))
}

/// Reads a ledger as it is stored.
pub(super) fn ledger(id: CampaignId, text: &str) -> Result<Ledger> {
    let corrupt =
        |error| StoreError::new(ErrorKind::Corrupt, format!("the ledger of campaign {id} can't be read: {error}"));
    serde_json::from_str(text).map_err(corrupt)
}

/// A ledger as it is stored.
pub(super) fn written(ledger: &Ledger) -> Result<String> {
    serde_json::to_string(ledger)
        .map_err(|error| StoreError::new(ErrorKind::Corrupt, format!("the ledger can't be written: {error}")))
}

fn cut(text: &str, characters: usize) -> String {
    clean(text).chars().take(characters).collect()
}
