//! Campaigns on SQL: the common part of all databases with transactions.
//!
//! [`Store`] is [`Campaigns`] on a [`Database`]. The statements, the ledger and the checks are
//! here, once. A database adds its transactions, its tables, its bulk inserts, and its clock.

mod books;
mod database;
mod results;

use tidewire_core::campaign::ledger::{Ledger, Terms};
use tidewire_core::campaign::precision::PrecisionTarget;
use tidewire_core::campaign::seed::Seed;

use crate::plan::invalid;
use crate::{
    Campaign, CampaignId, Campaigns, Claim, ClaimState, ErrorKind, Event, Failure, Lease, Plan, Precision,
    PrecisionSample, RangeResults, Result, Rows, Schema, Settings, Stages, State, Status, StoreError, StoredFailure,
    Summary, WorkerId, WorkerInfo, WorkerStatus,
};
use books::Books;

pub use database::{Access, CAMPAIGN, Cell, Database, Field, Now, Record};
pub use results::{ResultTable, quoted};

/// The version of the tables. A store with a higher one is of a newer Tidewire.
pub const SCHEMA_VERSION: i64 = 1;
/// Parameter sets that are stored by one statement.
const PARAMETERS_AT_ONCE: usize = 250;
/// Workers that have left, of which status tells.
const GONE_SHOWN: u64 = 1_000;

/// Campaigns on a SQL database.
#[derive(Debug)]
pub struct Store<D> {
    database: D,
}

impl<D: Database> Store<D> {
    /// The store on a database that has its tables.
    pub const fn new(database: D) -> Self {
        Self { database }
    }

    fn within<T>(&mut self, access: Access, work: impl FnOnce(&mut D, Now) -> Result<(T, bool)>) -> Result<T> {
        let now = self.database.begin(access)?;
        let done = work(&mut self.database, now);
        self.end(done)
    }

    /// Ends a transaction with its value, and notifies other connections if necessary.
    fn end<T>(&mut self, done: Result<(T, bool)>) -> Result<T> {
        let ended = done.and_then(|(value, has_changed)| {
            self.database.commit(has_changed)?;
            Ok(value)
        });
        if ended.is_err() {
            self.database.rollback();
        }
        ended
    }

    fn read<T>(&mut self, work: impl FnOnce(&mut D, Now) -> Result<T>) -> Result<T> {
        self.within(Access::Read, |database, now| Ok((work(database, now)?, false)))
    }

    /// One transaction of a campaign's ledger.
    fn write<T>(&mut self, id: CampaignId, work: impl FnOnce(&mut Books<'_, D>) -> Result<T>) -> Result<T> {
        let (now, record) = self.database.begin_campaign(id)?;
        let opened =
            record.ok_or_else(|| no_such(id)).and_then(|record| Books::open(&mut self.database, id, now, record));
        let done = opened.and_then(|mut books| {
            let value = work(&mut books)?;
            Ok((value, books.keep()?))
        });
        self.end(done)
    }
}

impl<D: Database> Campaigns for Store<D> {
    fn create(&mut self, plan: &Plan, parameters: &[String]) -> Result<CampaignId> {
        plan.check()?;
        check_parameters(parameters)?;
        self.within(Access::Write, |database, now| {
            let id = insert_campaign(database, plan, parameters.len() as u64, now)?;
            insert_parameters(database, id, parameters)?;
            let record = one(database, CAMPAIGN, id)?;
            let mut books = Books::open(database, id, now, record)?;
            if let Some(schema) = &plan.schema {
                books.set_schema(schema)?;
            }
            books.event(State::Draft, State::Draft, "created")?;
            books.keep()?;
            Ok((id, true))
        })
    }

    fn list(&mut self, state: Option<State>) -> Result<Vec<Summary>> {
        self.read(|database, _| {
            let statement = "SELECT id, name, state, runs, done, failed, quarantined, created FROM tidewire_campaigns \
                WHERE ?1 = '' OR state = ?1 ORDER BY id DESC";
            let values = [Cell::Text(state.map_or("", State::name))];
            database.query(statement, &values)?.into_iter().map(|mut record| summary(&mut record)).collect()
        })
    }

    fn find(&mut self, name_or_id: &str) -> Result<CampaignId> {
        let number = name_or_id.parse().ok().filter(|number| i64::try_from(*number).is_ok()).unwrap_or(0);
        let values = [Cell::Text(name_or_id), Cell::number(number)];
        let named = !name_or_id.contains('\0');
        self.read(|database, _| {
            let statement =
                "SELECT id FROM tidewire_campaigns WHERE name = ?1 OR id = ?2 ORDER BY name = ?1 DESC LIMIT 1";
            let found = if named { database.query(statement, &values)?.pop() } else { None };
            match found {
                Some(mut record) => Ok(CampaignId(record.number()?)),
                None => Err(StoreError::new(
                    ErrorKind::NoSuchCampaign,
                    format!("no campaign has the name or number {name_or_id:?}: list those that there are"),
                )),
            }
        })
    }

    fn campaign(&mut self, id: CampaignId) -> Result<Campaign> {
        self.read(|database, _| {
            let statement = "SELECT name, runs, seed, sets, attempts, timeout_us, failed_max, lease_us, range_us, \
                until_column, until_half_width, until_confidence, results, columns, many, created, function, pickled, code \
                FROM tidewire_campaigns JOIN tidewire_functions ON campaign = id WHERE id = ?1";
            campaign(id, &mut one(database, statement, id)?)
        })
    }

    fn parameters(&mut self, id: CampaignId, first: u64, most: u32) -> Result<Vec<String>> {
        self.read(|database, _| {
            let sets = one(database, "SELECT sets FROM tidewire_campaigns WHERE id = ?1", id)?.number()?;
            if first >= sets {
                return invalid(format!("set: {first}, but campaign {id} has {sets} parameter sets, counted from 0"));
            }
            let statement = "SELECT parameters FROM tidewire_parameters WHERE campaign = ?1 AND param_set >= ?2 \
                ORDER BY param_set LIMIT ?3";
            let values = [Cell::number(id.0), Cell::number(first), Cell::number(u64::from(most.max(1)))];
            database.query(statement, &values)?.into_iter().map(|mut record| record.text()).collect()
        })
    }

    fn status(&mut self, id: CampaignId) -> Result<Status> {
        self.read(|database, now| {
            let statement = "SELECT id, name, state, runs, done, failed, quarantined, created, ledger FROM tidewire_campaigns \
                WHERE id = ?1";
            let mut record = one(database, statement, id)?;
            let summary = summary(&mut record)?;
            let mut ledger = books::ledger(id, &record.text()?)?;
            ledger.tick(now.clock);
            let workers = workers(database, id, &ledger, now)?;
            Ok(status(summary, &ledger, workers, now))
        })
    }

    fn events(&mut self, id: CampaignId) -> Result<Vec<Event>> {
        self.read(|database, _| {
            one(database, "SELECT id FROM tidewire_campaigns WHERE id = ?1", id)?;
            let statement =
                "SELECT happened, state_before, state_after, reason FROM tidewire_events WHERE campaign = ?1 ORDER BY number";
            let event = |mut record: Record| {
                let at_us = record.integer()?;
                Ok(Event { at_us, from: state(&record.text()?)?, to: state(&record.text()?)?, reason: record.text()? })
            };
            database.query(statement, &[Cell::number(id.0)])?.into_iter().map(event).collect()
        })
    }

    fn transition(&mut self, id: CampaignId, to: State, reason: &str) -> Result<()> {
        let reason = clean(reason);
        self.write(id, |books| books.decide(|ledger, clock| ledger.transition(clock, to, &reason)))
    }

    fn extend(&mut self, id: CampaignId, more: u64) -> Result<()> {
        self.write(id, |books| books.decide(|ledger, clock| ledger.extend(clock, more)))
    }

    fn note(&mut self, id: CampaignId, note: &str) -> Result<()> {
        let note = clean(note);
        self.write(id, |books| {
            let state = books.ledger.state();
            books.event(state, state, &note)
        })
    }

    fn join(&mut self, id: CampaignId, worker: &WorkerInfo) -> Result<WorkerId> {
        self.write(id, |books| books.join(worker))
    }

    fn leave(&mut self, id: CampaignId, worker: WorkerId) -> Result<()> {
        self.write(id, |books| {
            books.worker_state(worker, "left")?;
            books.decide(|ledger, clock| {
                ledger.leave(clock, worker.0);
                Ok(())
            })
        })
    }

    fn claim(&mut self, id: CampaignId, worker: WorkerId, leases: &[Lease]) -> Result<Claim> {
        let leases: Vec<u64> = leases.iter().map(|lease| lease.id).collect();
        self.write(id, |books| {
            books.mark_working(worker)?;
            Ok(books.ledger.claim(books.now.clock, worker.0, &leases))
        })
    }

    fn renew(&mut self, id: CampaignId, lease: &Lease) -> Result<ClaimState> {
        self.write(id, |books| {
            let standing = books.with_lease(lease, Ledger::renew)?;
            books.mark_working(WorkerId(lease.worker))?;
            Ok(standing)
        })
    }

    fn commit(&mut self, id: CampaignId, lease: &mut Lease, results: &RangeResults) -> Result<ClaimState> {
        let requested = *lease;
        let standing = self.write(id, |books| books.commit(&requested, results))?;
        lease.first += u64::from(results.count);
        lease.count = standing.left;
        Ok(standing)
    }

    fn give_back(&mut self, id: CampaignId, lease: &Lease) -> Result<()> {
        self.write(id, |books| {
            books.decide(|ledger, clock| {
                ledger.give_back(clock, lease);
                Ok(())
            })
        })
    }

    fn worker_lost(&mut self, id: CampaignId, worker: WorkerId, at_run: Option<u64>, overtime: bool) -> Result<()> {
        self.write(id, |books| {
            books.worker_state(worker, "lost")?;
            books.decide(|ledger, clock| {
                ledger.worker_lost(clock, worker.0, at_run, overtime);
                Ok(())
            })
        })
    }

    fn wait(&mut self, timeout_us: u64) -> Result<bool> {
        self.database.wait(timeout_us)
    }

    fn read_rows(&mut self, id: CampaignId, from_run: u64, rows_max: u32) -> Result<Rows> {
        let most = u64::from(rows_max);
        self.read(|database, _| {
            let Some(table) = books::table(database, id)? else { return Ok(Rows::default()) };
            let all = from_run..Terms::RUNS_MAX + 1;
            let mut rows = database.read_results(&table, all.clone(), most + 1)?;
            if rows.len() as u64 <= most {
                return Ok(rows);
            }
            let last = rows.runs[rows.len() - 1];
            let whole = rows.runs.partition_point(|run| *run < last);
            if whole == 0 {
                return database.read_results(&table, last..last + 1, u64::from(u32::MAX));
            }
            rows.truncate(whole);
            Ok(rows)
        })
    }

    fn errors(&mut self, id: CampaignId, from_run: u64, max: u32) -> Result<Vec<StoredFailure>> {
        self.read(|database, _| {
            one(database, "SELECT id FROM tidewire_campaigns WHERE id = ?1", id)?;
            let statement = "SELECT run, kind, error, message, traceback, attempts, worker, happened FROM tidewire_failures \
                WHERE campaign = ?1 AND run >= ?2 ORDER BY run LIMIT ?3";
            let values = [Cell::number(id.0), Cell::number(from_run), Cell::number(u64::from(max))];
            let failure = |mut record: Record| {
                let failure = Failure {
                    run: record.number()?,
                    kind: record.text()?,
                    error: record.text()?,
                    message: record.text()?,
                    traceback: record.text()?,
                    attempts: record.number()? as u32,
                };
                Ok(StoredFailure { failure, worker: WorkerId(record.number()?), at_us: record.integer()? })
            };
            database.query(statement, &values)?.into_iter().map(failure).collect()
        })
    }
}

fn check_parameters(parameters: &[String]) -> Result<()> {
    if parameters.is_empty() {
        return invalid("parameters: none; a campaign without parameters has one set, {}");
    }
    for (set, text) in parameters.iter().enumerate() {
        let object = text.trim_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        if !object {
            return invalid(format!("parameters: set {set} is no JSON object: {text:.60?}"));
        }
    }
    Ok(())
}

/// Text as all databases keep it.
fn clean(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn insert_campaign<D: Database>(database: &mut D, plan: &Plan, sets: u64, now: Now) -> Result<CampaignId> {
    let settings = &plan.settings;
    let until = settings.until.as_ref();
    let terms = Terms {
        runs: plan.runs,
        sets,
        attempts: settings.attempts,
        failed_max: settings.failed_max,
        lease_us: settings.lease_us,
        range_us: settings.range_us,
        columns: plan.schema.is_some(),
        until: until.map(|until| PrecisionTarget { half_width: until.half_width, confidence: until.confidence }),
    };
    let seed = plan.seed.to_string();
    let ledger = books::written(&Ledger::new(terms))?;
    let inserted = database.query(
        "INSERT INTO tidewire_campaigns (name, state, reason, runs, done, failed, quarantined, result_rows, digest, seed, \
            sets, attempts, timeout_us, failed_max, lease_us, range_us, until_column, until_half_width, until_confidence, \
            many, created, ledger) \
         VALUES (?1, 'draft', '', ?2, 0, 0, 0, 0, '00000000000000000000000000000000', ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, \
            ?12, ?13, ?14, ?15) ON CONFLICT (name) DO NOTHING RETURNING id",
        &[
            Cell::Text(&plan.name),
            Cell::number(plan.runs),
            Cell::Text(&seed),
            Cell::number(sets),
            Cell::number(u64::from(settings.attempts)),
            settings.timeout_us.into(),
            settings.failed_max.into(),
            Cell::number(settings.lease_us),
            Cell::number(settings.range_us),
            until.map(|until| until.column.as_str()).into(),
            until.map(|until| until.half_width).into(),
            until.map(|until| until.confidence).into(),
            Cell::Boolean(false),
            Cell::Time(now.utc_us),
            Cell::Text(&ledger),
        ],
    )?;
    let Some(mut record) = inserted.into_iter().next() else {
        let message = format!("name: a campaign {:?} exists: choose another name, or open that one", plan.name);
        return Err(StoreError::new(ErrorKind::NameTaken, message));
    };
    let id = CampaignId(record.number()?);
    let results = ResultTable::name(id, &plan.name);
    database.execute(
        "UPDATE tidewire_campaigns SET results = ?2 WHERE id = ?1",
        &[Cell::number(id.0), Cell::Text(&results)],
    )?;
    database.execute(
        "INSERT INTO tidewire_functions (campaign, function, pickled, code) VALUES (?1, ?2, ?3, ?4)",
        &[Cell::number(id.0), Cell::Text(&plan.function), plan.pickled.as_deref().into(), Cell::Text(&plan.code)],
    )?;
    Ok(id)
}

/// Many to a statement: ten thousand are not to be ten thousand answers of a server that is far
/// away.
fn insert_parameters<D: Database>(database: &mut D, id: CampaignId, parameters: &[String]) -> Result<()> {
    for (part, some) in parameters.chunks(PARAMETERS_AT_ONCE).enumerate() {
        let rows: Vec<_> = (0..some.len()).map(|at| format!("(?1, ?{}, ?{})", 2 * at + 2, 2 * at + 3)).collect();
        let rows = rows.join(", ");
        let statement = format!("INSERT INTO tidewire_parameters (campaign, param_set, parameters) VALUES {rows}");
        let first = part * PARAMETERS_AT_ONCE;
        let values =
            some.iter().enumerate().flat_map(|(at, text)| [Cell::number((first + at) as u64), Cell::Text(text)]);
        let values: Vec<_> = std::iter::once(Cell::number(id.0)).chain(values).collect();
        database.write(&statement, &values)?;
    }
    Ok(())
}

/// The one row of a statement about a campaign.
fn one<D: Database>(database: &mut D, statement: &'static str, id: CampaignId) -> Result<Record> {
    let found = database.query(statement, &[Cell::number(id.0)])?.pop();
    found.ok_or_else(|| no_such(id))
}

fn no_such(id: CampaignId) -> StoreError {
    StoreError::new(ErrorKind::NoSuchCampaign, format!("no campaign has the number {id}"))
}

fn state(name: &str) -> Result<State> {
    State::parse(name).ok_or_else(|| StoreError::new(ErrorKind::Corrupt, format!("{name:?} is stored as a state")))
}

fn summary(record: &mut Record) -> Result<Summary> {
    Ok(Summary {
        id: CampaignId(record.number()?),
        name: record.text()?,
        state: state(&record.text()?)?,
        runs: record.number()?,
        done: record.number()?,
        failed: record.number()?,
        quarantined: record.number()?,
        created_us: record.integer()?,
    })
}

fn campaign(id: CampaignId, record: &mut Record) -> Result<Campaign> {
    let (name, runs, seed, sets) = (record.text()?, record.number()?, record.text()?, record.number()?);
    let seed: Seed =
        seed.parse().map_err(|error| StoreError::new(ErrorKind::Corrupt, format!("campaign {id}: {error}")))?;
    let mut settings = Settings {
        attempts: record.number()? as u32,
        timeout_us: record.maybe_number()?,
        failed_max: record.maybe_number()?,
        lease_us: record.number()?,
        range_us: record.number()?,
        until: None,
    };
    if let (Some(column), Some(half_width), Some(confidence)) =
        (record.maybe_text()?, record.maybe_float()?, record.maybe_float()?)
    {
        settings.until = Some(Precision { column, half_width, confidence });
    }
    let (table, columns, many) = (record.text()?, record.maybe_text()?, record.boolean()?);
    let schema = columns.map(|columns| Schema::from_json(&columns, many)).transpose()?;
    let created_us = record.integer()?;
    let (function, pickled, code) = (record.text()?, record.maybe_bytes()?, record.text()?);
    let plan = Plan { name, runs, seed, function, pickled, code, schema, settings };
    Ok(Campaign { id, plan, sets, table, created_us })
}

fn workers<D: Database>(database: &mut D, id: CampaignId, ledger: &Ledger, now: Now) -> Result<Vec<WorkerStatus>> {
    let statement = "SELECT id, name, host, process, code, state, joined, seen, runs, stage_lease_us, stage_warm_up_us, \
        stage_run_us, stage_encode_us, stage_persist_us, stage_wait_us, stage_idle_us FROM tidewire_workers \
        WHERE campaign = ?1 AND (state = 'working' OR id > \
            (SELECT max(newest.id) - ?2 FROM tidewire_workers AS newest WHERE newest.campaign = ?1)) ORDER BY id DESC";
    let away_us = 2 * ledger.terms().lease_us;
    let worker = |mut record: Record| {
        let id = WorkerId(record.number()?);
        let (name, host, process, code) = (record.text()?, record.text()?, record.number()? as u32, record.text()?);
        let (mut state, joined_us, seen_us) = (record.text()?, record.integer()?, record.integer()?);
        if state == "working" && now.utc_us.saturating_sub(seen_us) > away_us as i64 {
            "lost".clone_into(&mut state);
        }
        let runs = record.number()?;
        let stages = Stages {
            lease_us: record.number()?,
            warm_up_us: record.number()?,
            run_us: record.number()?,
            encode_us: record.number()?,
            persist_us: record.number()?,
            wait_us: record.number()?,
            idle_us: record.number()?,
        };
        let leased = ledger.leased().filter(|(worker, ..)| *worker == id.0).map(|(_, first, count)| (first, count));
        let info = WorkerInfo { name, host, process, code };
        Ok(WorkerStatus { id, info, state, joined_us, seen_us, runs, stages, leased: leased.collect() })
    };
    database.query(statement, &[Cell::number(id.0), Cell::number(GONE_SHOWN)])?.into_iter().map(worker).collect()
}

fn status(summary: Summary, ledger: &Ledger, workers: Vec<WorkerStatus>, now: Now) -> Status {
    let stored = ledger.stored();
    let (active_us, timeline) = ledger.timeline();
    let look = ledger.checkpoints().and_then(|checkpoints| checkpoints.last()).map(|verdict| PrecisionSample {
        runs: verdict.runs,
        mean: verdict.mean,
        half_width: verdict.half_width.unwrap_or(f64::INFINITY),
        set: verdict.set,
        reached: verdict.reached,
    });
    Status {
        reason: ledger.reason().to_owned(),
        leased: ledger.leased().map(|(_, _, count)| u64::from(count)).sum(),
        rows: stored.rows,
        digest: stored.digest,
        active_us,
        run_us: ledger.run_us(),
        rate: ledger.rate(),
        timeline: timeline.to_vec(),
        losses: ledger.lost_workers(),
        look,
        workers,
        now_us: now.utc_us,
        summary,
    }
}
