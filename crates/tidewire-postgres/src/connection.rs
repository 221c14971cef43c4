//! A connection to a server: transactions, statements and notifications of other connections.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::ops::Range;
use std::time::{Duration, Instant};

use fallible_iterator::FallibleIterator as _;
use postgres::types::ToSql;
use postgres::{Client, NoTls, SimpleQueryMessage, Statement};
use tidewire_backend::sql::{Access, CAMPAIGN, Cell, Database, Field, Now, Record, ResultTable};
use tidewire_backend::{CampaignId, ErrorKind, Result, Rows, StoreError};
use tidewire_core::campaign::ledger::Clock;

use crate::address::Address;
use crate::tls::Check;
use crate::values::Parameter;
use crate::{error, literal, results, values};

/// Settings of every connection. Waits for a lock are limited. A process that is suspended in the
/// middle of a transaction must not hold its campaign for ever. A commit is on disk when it
/// returns. Results are read in the order of their key. The planner knows nothing of a table that
/// has just grown: it would sort results in files, and fail on a full disk.
const BEGIN: &str = "SET lock_timeout = '5s'; SET idle_in_transaction_session_timeout = '10s'; SET TimeZone = 'UTC'; \
    SET standard_conforming_strings = on; SET client_encoding = 'UTF8'; SET enable_sort = off; SET jit = off; \
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";
/// Statements that wait for the next one go as soon as they are longer than this.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Prepared statements: those of all calls, and one for each table of results.
const STATEMENTS_MAX: usize = 128;
const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// A connection to a database with the tables of campaigns.
pub struct Postgres {
    address: Address,
    client: Client,
    statements: BTreeMap<String, Statement>,
    /// The number of this connection at the server.
    process: i32,
    listening: bool,
    /// Statements that go with the next one.
    waiting: String,
    /// True if another connection has done something since the end of the last `wait`.
    has_changed: bool,
}

impl Postgres {
    pub(crate) fn connect(address: Address) -> Result<Self> {
        let (client, process) = connect(&address)?;
        Ok(Self {
            address,
            client,
            statements: BTreeMap::new(),
            process,
            listening: false,
            waiting: String::new(),
            has_changed: true,
        })
    }

    /// Where it is, for errors.
    pub(crate) fn shown(&self) -> &str {
        &self.address.shown
    }

    /// Reconnects after a lost connection.
    fn revive(&mut self) -> Result<()> {
        if self.client.is_closed() {
            let (client, process) = connect(&self.address)?;
            (self.client, self.process) = (client, process);
            self.statements.clear();
            (self.listening, self.has_changed) = (false, true);
        }
        Ok(())
    }

    fn failed(&self, error: &postgres::Error) -> StoreError {
        error::store_error(&self.address.shown, error)
    }

    pub(crate) fn batch(&mut self, statements: &str) -> Result<()> {
        self.client.batch_execute(statements).map_err(|error| self.failed(&error))
    }

    /// The first column of the results of statements, as text.
    pub(crate) fn texts(&mut self, statements: &str) -> Result<Vec<String>> {
        let answers = self.client.simple_query(statements).map_err(|error| self.failed(&error))?;
        let text = |answer: SimpleQueryMessage| match answer {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        Ok(answers.into_iter().filter_map(text).collect())
    }

    fn prepared(&mut self, statement: &str) -> Result<Statement> {
        if let Some(ready) = self.statements.get(statement) {
            return Ok(ready.clone());
        }
        let ready = self.client.prepare(&statement.replace('?', "$")).map_err(|error| self.failed(&error))?;
        if self.statements.len() >= STATEMENTS_MAX {
            self.statements.clear();
        }
        self.statements.insert(statement.to_owned(), ready.clone());
        Ok(ready)
    }

    /// Sends the waiting statements.
    fn flush(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let waiting = mem::take(&mut self.waiting);
        self.batch(&waiting)
    }

    /// Begins a transaction with statements, of which the last returns the time; returns the row of
    /// the one before.
    fn begin_with(&mut self, statements: &str) -> Result<(Now, Option<Vec<Option<String>>>)> {
        self.waiting.clear();
        let answers = self.client.simple_query(statements).map_err(|error| self.failed(&error));
        if answers.is_err() {
            self.rollback();
        }
        let mut rows: Vec<Vec<Option<String>>> = answers?
            .into_iter()
            .filter_map(|answer| match answer {
                SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect()),
                _ => None,
            })
            .collect();
        let time = rows.pop().and_then(|row| row.into_iter().next().flatten());
        let utc_us: i64 = time.and_then(|text| text.parse().ok()).unwrap_or_default();
        // Leases go by the server's clock; the ledger sees when it is set back.
        Ok((Now { clock: Clock { epoch: 0, us: utc_us.max(0) as u64 }, utc_us }, rows.pop()))
    }

    /// Reads the notifications of other connections, without waiting.
    fn hear(&mut self) -> Result<()> {
        let mut notifications = self.client.notifications();
        let mut told = notifications.iter();
        loop {
            match told.next() {
                Ok(Some(one)) => self.has_changed |= one.process_id() != self.process,
                Ok(None) => return Ok(()),
                Err(error) => return Err(error::store_error(&self.address.shown, &error)),
            }
        }
    }

    /// Waits for a notification of another connection. False after the timeout.
    fn listen(&mut self, time: Duration) -> Result<bool> {
        let mut notifications = self.client.notifications();
        let told = notifications.timeout_iter(time).next();
        let told = told.map_err(|error| error::store_error(&self.address.shown, &error))?;
        Ok(told.is_some_and(|one| one.process_id() != self.process))
    }
}

fn connect(address: &Address) -> Result<(Client, i32)> {
    let failed = |error: postgres::Error| error::store_error(&address.shown, &error);
    let mut client = match address.tls.check {
        Check::Off => address.config.connect(NoTls),
        _ => address.config.connect(address.tls.connector()?),
    }
    .map_err(failed)?;
    client.batch_execute(BEGIN).map_err(failed)?;
    let process = client.query_one("SELECT pg_backend_pid()", &[]).and_then(|row| row.try_get(0)).map_err(failed)?;
    Ok((client, process))
}

impl Database for Postgres {
    fn begin(&mut self, access: Access) -> Result<Now> {
        self.revive()?;
        if self.listening {
            self.hear()?;
        }
        let begin = match access {
            Access::Read => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            Access::Write => "BEGIN ISOLATION LEVEL READ COMMITTED",
        };
        Ok(self.begin_with(&format!("{begin}; {NOW}"))?.0)
    }

    fn begin_campaign(&mut self, id: CampaignId) -> Result<(Now, Option<Record>)> {
        self.revive()?;
        if self.listening {
            self.hear()?;
        }
        let select = literal::filled(CAMPAIGN, &[Cell::number(id.0)]);
        let (now, row) =
            self.begin_with(&format!("BEGIN ISOLATION LEVEL READ COMMITTED; {select} FOR NO KEY UPDATE; {NOW}"))?;
        // Ledger, results, columns, many, sets, until_column.
        let field = |(at, text): (usize, Option<String>)| match (at, text) {
            (_, None) => Field::Null,
            (3, Some(text)) => Field::Integer(i64::from(text == "t")),
            (4, Some(text)) => text.parse().map_or(Field::Null, Field::Integer),
            (_, Some(text)) => Field::Text(text),
        };
        Ok((now, row.map(|row| Record::new(row.into_iter().enumerate().map(field).collect()))))
    }

    fn commit(&mut self, has_changed: bool) -> Result<()> {
        let has_changed = if has_changed { "NOTIFY tidewire_campaigns; " } else { "" };
        let last = format!("{}{has_changed}COMMIT", mem::take(&mut self.waiting));
        self.batch(&last)
    }

    fn rollback(&mut self) {
        self.waiting.clear();
        let _the_server_does_it_when_the_connection_ends = self.client.batch_execute("ROLLBACK");
    }

    fn write(&mut self, statement: &str, values: &[Cell<'_>]) -> Result<()> {
        self.waiting.push_str(&literal::filled(statement, values));
        self.waiting.push_str("; ");
        if self.waiting.len() > WAITING_BYTES_MAX { self.flush() } else { Ok(()) }
    }

    fn execute(&mut self, statement: &str, values: &[Cell<'_>]) -> Result<u64> {
        self.flush()?;
        let ready = self.prepared(statement)?;
        let parameters: Vec<_> = values.iter().copied().map(Parameter).collect();
        let parameters: Vec<_> = parameters.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        self.client.execute(&ready, &parameters).map_err(|error| self.failed(&error))
    }

    fn query(&mut self, statement: &'static str, values: &[Cell<'_>]) -> Result<Vec<Record>> {
        self.flush()?;
        let ready = self.prepared(statement)?;
        let parameters: Vec<_> = values.iter().copied().map(Parameter).collect();
        let parameters: Vec<_> = parameters.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        let rows = self.client.query(&ready, &parameters).map_err(|error| self.failed(&error))?;
        let records: std::result::Result<Vec<_>, _> =
            rows.iter().map(|row| values::fields(row).map(Record::new)).collect();
        records.map_err(|error| self.failed(&error))
    }

    fn create_results(&mut self, table: &ResultTable) -> Result<()> {
        self.flush()?;
        self.batch(&results::create(table))
    }

    fn insert_results(&mut self, table: &ResultTable, rows: &Rows) -> Result<()> {
        self.flush()?;
        let copy = self.prepared(&results::copy(table))?;
        results::insert(&mut self.client, &copy, table, rows).map_err(|error| self.failed(&error))
    }

    fn read_results(&mut self, table: &ResultTable, runs: Range<u64>, most: u64) -> Result<Rows> {
        self.flush()?;
        results::read(&mut self.client, table, runs, most).map_err(|error| self.failed(&error))
    }

    fn each_number(
        &mut self,
        table: &ResultTable,
        column: usize,
        runs: Range<u64>,
        take: &mut dyn FnMut(u64, f64),
    ) -> Result<()> {
        self.flush()?;
        results::each_number(&mut self.client, table, column, runs, take).map_err(|error| self.failed(&error))
    }

    fn wait(&mut self, timeout_us: u64) -> Result<bool> {
        self.revive()?;
        if !self.listening {
            self.batch("LISTEN tidewire_campaigns")?;
            (self.listening, self.has_changed) = (true, true);
        }
        self.hear()?;
        let until = Instant::now().checked_add(Duration::from_micros(timeout_us));
        while !self.has_changed {
            let left =
                until.map_or(Duration::from_secs(3_600), |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(false);
            }
            self.has_changed = self.listen(left)?;
            if self.client.is_closed() {
                let message = format!("{}: the connection was lost: try again", self.shown());
                return Err(StoreError::new(ErrorKind::Unreachable, message));
            }
            self.hear()?;
        }
        self.has_changed = false;
        Ok(true)
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Postgres").field("at", &self.address.shown).finish_non_exhaustive()
    }
}
