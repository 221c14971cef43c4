//! A connection to a file: opening it, transactions, statements.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, OpenFlags};
use tidewire_backend::sql::{Access, CAMPAIGN, Cell, Database, Field, Now, Record, ResultTable, SCHEMA_VERSION, Store};
use tidewire_backend::{CampaignId, ErrorKind, Missing, Result, Rows, StoreError};

use crate::{clock, error, results};

/// Marks a file as one of Tidewire: `Tidw` in ASCII, at byte 68 of the file.
const APPLICATION: i64 = 0x5469_6477;
const SCHEMA: &str = include_str!("schema.sql");
/// How long a lock is waited for.
const BUSY: Duration = Duration::from_secs(5);
/// The first and the longest pause between two looks at a lock. A commit takes a few milliseconds.
const PAUSE: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(5);
/// The first and the longest pause between two looks for writes of other processes.
const LOOK: Duration = Duration::from_millis(2);
const LOOK_MAX: Duration = Duration::from_millis(50);
/// Number of prepared statements in the cache.
const STATEMENTS: usize = 64;

/// A connection to a file with the tables of campaigns.
pub struct Sqlite {
    connection: Connection,
    path: PathBuf,
    epoch: u64,
    /// The version of the data that the last `wait` has seen.
    seen: Option<i64>,
}

/// Opens the store in a file. An empty or new file gets the tables.
///
/// # Errors
///
/// [`Unreachable`](ErrorKind::Unreachable) if the folder does not exist or the file cannot be
/// opened; with [`Missing::Fail`] also if the file does not exist. [`Foreign`](ErrorKind::Foreign)
/// if the file is not one of Tidewire, [`Newer`](ErrorKind::Newer) if a newer Tidewire has made it.
/// [`Locked`](ErrorKind::Locked), or [`ReadOnly`](ErrorKind::ReadOnly) if the file cannot be
/// written. A read-only file can be read while a process with write access has it open: readers
/// need the index of the write-ahead log.
pub fn open(path: &Path, missing: Missing) -> Result<Store<Sqlite>> {
    check_path(path, missing)?;
    let failed = |error: rusqlite::Error| error::store_error(path, &error);
    let create = if missing == Missing::Create { OpenFlags::SQLITE_OPEN_CREATE } else { OpenFlags::empty() };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | create;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_handler(Some(busy)).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    prepare(&connection, path)?;
    Ok(Store::new(Sqlite { connection, path: path.to_owned(), epoch: clock::epoch(), seen: None }))
}

fn check_path(path: &Path, missing: Missing) -> Result<()> {
    let unreachable = |message| Err(StoreError::new(ErrorKind::Unreachable, message));
    if path.is_dir() {
        let message = format!("{}: is a folder: name a file in it", path.display());
        return Err(StoreError::new(ErrorKind::Url, message));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return unreachable(format!("{}: there is no folder {}: make it first", path.display(), folder.display()));
    }
    if missing == Missing::Fail && !path.exists() {
        return unreachable(format!(
            "{}: there is no such file: check the path, or create a campaign there",
            path.display()
        ));
    }
    Ok(())
}

/// Waits for a lock. SQLite can only look again and again; its own handler sleeps up to 100 ms, in
/// which ten others commit.
fn busy(times: i32) -> bool {
    let (mut slept, mut pause) = (Duration::ZERO, PAUSE);
    for _ in 0..times.min(64) {
        slept += pause;
        pause = (pause * 5 / 4).min(PAUSE_MAX);
    }
    slept += PAUSE_MAX * (times - 64).max(0) as u32;
    let go_on = slept < BUSY;
    if go_on {
        thread::sleep(pause);
    }
    go_on
}

/// Makes sure that the file is ours, has the tables, and is in WAL mode.
fn prepare(connection: &Connection, path: &Path) -> Result<()> {
    let failed = |error: rusqlite::Error| error::store_error(path, &error);
    let fresh = !ours(connection, path)?;
    if fresh && connection.is_readonly("main").map_err(failed)? {
        let message = format!("{}: has no tables, and can't be written: give this user the right to", path.display());
        return Err(StoreError::new(ErrorKind::ReadOnly, message));
    }
    if !connection.is_readonly("main").map_err(failed)? {
        write_ahead(connection).map_err(failed)?;
    }
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON").map_err(failed)?;
    if fresh {
        connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
        // Another process may have been quicker.
        let made = ours(connection, path).and_then(|made| if made { Ok(()) } else { make(connection).map_err(failed) });
        let end = if made.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = connection.execute_batch(end).map_err(failed);
        made.and(ended)?;
    }
    Ok(())
}

fn make(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(SCHEMA)?;
    connection.pragma_update(None, "application_id", APPLICATION)?;
    connection.pragma_update(None, "user_version", SCHEMA_VERSION)
}

/// True if the file has our tables, false if it has none at all.
fn ours(connection: &Connection, path: &Path) -> Result<bool> {
    let failed = |error: rusqlite::Error| error::store_error(path, &error);
    let number = |statement: &str| connection.query_row(statement, [], |row| row.get::<_, i64>(0)).map_err(failed);
    // The order matters: the creator of the tables sets the application id in the same transaction,
    // which may end between the two queries.
    let things = number("SELECT count(*) FROM sqlite_schema")?;
    let (version, application) = (number("PRAGMA user_version")?, number("PRAGMA application_id")?);
    if application == APPLICATION {
        if version > SCHEMA_VERSION {
            let message = format!(
                "{}: its tables have version {version}, and this Tidewire knows {SCHEMA_VERSION}: use a newer one",
                path.display()
            );
            return Err(StoreError::new(ErrorKind::Newer, message));
        }
        return Ok(true);
    }
    if application != 0 || version != 0 || things != 0 {
        let message = format!("{}: is a database of another application: name another file", path.display());
        return Err(StoreError::new(ErrorKind::Foreign, message));
    }
    Ok(false)
}

/// Changing the mode needs the file alone, and SQLite does not call the handler that waits for it.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    for times in 0.. {
        let changed = connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()));
        let locked =
            changed.as_ref().is_err_and(|error| error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy));
        if !locked || !busy(times) {
            return changed;
        }
    }
    Ok(())
}

impl Sqlite {
    fn failed(&self, error: &rusqlite::Error) -> StoreError {
        error::store_error(&self.path, error)
    }

    fn batch(&self, statement: &str) -> Result<()> {
        self.connection
            .prepare_cached(statement)
            .and_then(|mut ready| ready.execute([]))
            .map_err(|error| self.failed(&error))?;
        Ok(())
    }

    fn data_version(&self) -> Result<i64> {
        let version = self
            .connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut ready| ready.query_row([], |row| row.get(0)));
        version.map_err(|error| self.failed(&error))
    }
}

impl Database for Sqlite {
    fn begin(&mut self, access: Access) -> Result<Now> {
        if !self.connection.is_autocommit() {
            self.rollback();
        }
        self.batch(if access == Access::Read { "BEGIN" } else { "BEGIN IMMEDIATE" })?;
        Ok(clock::now(self.epoch))
    }

    fn begin_campaign(&mut self, id: CampaignId) -> Result<(Now, Option<Record>)> {
        let now = self.begin(Access::Write)?;
        let found = self.query(CAMPAIGN, &[Cell::number(id.0)]);
        if found.is_err() {
            self.rollback();
        }
        Ok((now, found?.pop()))
    }

    fn commit(&mut self, _has_changed: bool) -> Result<()> {
        self.batch("COMMIT")
    }

    fn rollback(&mut self) {
        // Some errors have ended the transaction already.
        if !self.connection.is_autocommit() {
            let _ended_either_way = self.batch("ROLLBACK");
        }
    }

    fn execute(&mut self, statement: &str, values: &[Cell<'_>]) -> Result<u64> {
        let ready = self.connection.prepare_cached(statement);
        let changed = ready.and_then(|mut ready| ready.execute(rusqlite::params_from_iter(values.iter().map(output))));
        changed.map(|changed| changed as u64).map_err(|error| self.failed(&error))
    }

    fn write(&mut self, statement: &str, values: &[Cell<'_>]) -> Result<()> {
        self.execute(statement, values).map(|_| ())
    }

    fn query(&mut self, statement: &'static str, values: &[Cell<'_>]) -> Result<Vec<Record>> {
        let run = || {
            let mut ready = self.connection.prepare_cached(statement)?;
            let count = ready.column_count();
            let rows = ready.query_map(rusqlite::params_from_iter(values.iter().map(output)), |row| {
                (0..count).map(|at| row.get_ref(at).map(field)).collect::<rusqlite::Result<Vec<_>>>().map(Record::new)
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        run().map_err(|error| self.failed(&error))
    }

    fn create_results(&mut self, table: &ResultTable) -> Result<()> {
        self.connection.execute_batch(&results::create(table)).map_err(|error| self.failed(&error))
    }

    fn insert_results(&mut self, table: &ResultTable, rows: &Rows) -> Result<()> {
        results::insert(&self.connection, table, rows).map_err(|error| self.failed(&error))
    }

    fn read_results(&mut self, table: &ResultTable, runs: Range<u64>, most: u64) -> Result<Rows> {
        results::read(&self.connection, table, runs, most).map_err(|error| self.failed(&error))
    }

    fn each_number(
        &mut self,
        table: &ResultTable,
        column: usize,
        runs: Range<u64>,
        take: &mut dyn FnMut(u64, f64),
    ) -> Result<()> {
        results::each_number(&self.connection, table, column, runs, take).map_err(|error| self.failed(&error))
    }

    fn wait(&mut self, timeout_us: u64) -> Result<bool> {
        let until = Instant::now().checked_add(Duration::from_micros(timeout_us));
        let mut pause = LOOK;
        loop {
            let version = Some(self.data_version()?);
            if self.seen != version {
                self.seen = version;
                return Ok(true);
            }
            let left = until.map_or(LOOK_MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(false);
            }
            thread::sleep(pause.min(left));
            pause = (pause * 5 / 4).min(LOOK_MAX);
        }
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Sqlite").field("path", &self.path).finish_non_exhaustive()
    }
}

fn output<'a>(cell: &Cell<'a>) -> ToSqlOutput<'a> {
    match *cell {
        Cell::Null => ToSqlOutput::Owned(Value::Null),
        Cell::Integer(value) | Cell::Time(value) => ToSqlOutput::Owned(Value::Integer(value)),
        Cell::Float(value) => ToSqlOutput::Owned(Value::Real(value)),
        Cell::Boolean(value) => ToSqlOutput::Owned(Value::Integer(i64::from(value))),
        Cell::Text(value) => ToSqlOutput::Borrowed(ValueRef::Text(value.as_bytes())),
        Cell::Bytes(value) => ToSqlOutput::Borrowed(ValueRef::Blob(value)),
    }
}

fn field(value: ValueRef<'_>) -> Field {
    match value {
        ValueRef::Null => Field::Null,
        ValueRef::Integer(value) => Field::Integer(value),
        ValueRef::Real(value) => Field::Float(value),
        ValueRef::Text(value) => Field::Text(String::from_utf8_lossy(value).into_owned()),
        ValueRef::Blob(value) => Field::Bytes(value.to_vec()),
    }
}
