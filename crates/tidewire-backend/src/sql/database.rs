//! The port of SQL databases: transactions, statements, bulk results, a clock, and notifications
//! from other connections.
//!
//! Statements are written once for all databases, with `?1`, `?2`, ... for their values. Integers
//! are of 64 bits.

use std::ops::Range;

use tidewire_core::campaign::ledger::Clock;

use super::ResultTable;
use crate::{CampaignId, ErrorKind, Result, Rows, StoreError};

/// The use of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads one state of the database, and keeps nobody from writing.
    Read,
    /// Writes.
    Write,
}

/// The query of [`Database::begin_campaign`].
pub const CAMPAIGN: &str =
    "SELECT ledger, results, columns, many, sets, until_column FROM tidewire_campaigns WHERE id = ?1";

/// The time of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The clock of leases.
    pub clock: Clock,
    /// Time for display: microseconds since 1970-01-01 00:00 UTC.
    pub utc_us: i64,
}

/// A value of a statement.
#[derive(Clone, Copy, Debug, PartialEq, derive_more::From)]
pub enum Cell<'a> {
    /// NULL.
    Null,
    /// An integer.
    Integer(i64),
    /// A float.
    #[from]
    Float(f64),
    /// True or false; a database without booleans keeps 1 and 0.
    Boolean(bool),
    /// Text without NUL.
    #[from]
    Text(&'a str),
    /// Bytes.
    #[from]
    Bytes(&'a [u8]),
    /// Microseconds since 1970-01-01 00:00 UTC.
    Time(i64),
}

impl Cell<'_> {
    /// An integer of a number; one that is too large is the largest.
    pub fn number(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl From<u64> for Cell<'_> {
    fn from(number: u64) -> Self {
        Self::number(number)
    }
}

/// A value of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    /// NULL.
    Null,
    /// An integer, or a boolean or time of a database that has none.
    Integer(i64),
    /// A float.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// A row of an answer, read from the left.
#[derive(Debug)]
pub struct Record(std::vec::IntoIter<Field>);

impl Record {
    /// A row of these values.
    pub fn new(fields: Vec<Field>) -> Self {
        Self(fields.into_iter())
    }

    /// The next value, if it is not NULL: an integer.
    pub(super) fn maybe_integer(&mut self) -> Result<Option<i64>> {
        match self.0.next() {
            Some(Field::Integer(value)) => Ok(Some(value)),
            Some(Field::Null) => Ok(None),
            other => Err(unexpected("an integer", other.as_ref())),
        }
    }

    pub(super) fn integer(&mut self) -> Result<i64> {
        self.maybe_integer()?.ok_or_else(|| unexpected("an integer", None))
    }

    pub(super) fn maybe_number(&mut self) -> Result<Option<u64>> {
        self.maybe_integer()?.map(|value| u64::try_from(value).map_err(|_| unexpected("a count", None))).transpose()
    }

    pub(super) fn number(&mut self) -> Result<u64> {
        self.maybe_number()?.ok_or_else(|| unexpected("a count", None))
    }

    pub(super) fn boolean(&mut self) -> Result<bool> {
        self.integer().map(|value| value != 0)
    }

    pub(super) fn maybe_float(&mut self) -> Result<Option<f64>> {
        match self.0.next() {
            Some(Field::Float(value)) => Ok(Some(value)),
            Some(Field::Integer(value)) => Ok(Some(value as f64)),
            Some(Field::Null) => Ok(None),
            other => Err(unexpected("a float", other.as_ref())),
        }
    }

    pub(super) fn maybe_text(&mut self) -> Result<Option<String>> {
        match self.0.next() {
            Some(Field::Text(value)) => Ok(Some(value)),
            Some(Field::Null) => Ok(None),
            other => Err(unexpected("text", other.as_ref())),
        }
    }

    pub(super) fn text(&mut self) -> Result<String> {
        self.maybe_text()?.ok_or_else(|| unexpected("text", None))
    }

    pub(super) fn maybe_bytes(&mut self) -> Result<Option<Vec<u8>>> {
        match self.0.next() {
            Some(Field::Bytes(value)) => Ok(Some(value)),
            Some(Field::Null) => Ok(None),
            other => Err(unexpected("bytes", other.as_ref())),
        }
    }
}

fn unexpected(what: &str, found: Option<&Field>) -> StoreError {
    let found = found.map_or_else(|| "nothing that fits".to_owned(), |field| format!("{field:?}"));
    StoreError::new(ErrorKind::Corrupt, format!("a table of Tidewire has {found} where {what} belongs"))
}

/// A connection to a database that has, or gets, the tables of campaigns.
pub trait Database: Send {
    /// Begins a transaction, and tells the time.
    ///
    /// # Errors
    ///
    /// As [`Campaigns`](crate::Campaigns) says of every call; so do all other methods.
    fn begin(&mut self, access: Access) -> Result<Now>;

    /// Begins a transaction that writes to a campaign, to which nobody else writes meanwhile. Tells
    /// the time at which it got it, and the row of [`CAMPAIGN`], if there is such a campaign.
    fn begin_campaign(&mut self, id: CampaignId) -> Result<(Now, Option<Record>)>;

    /// Commits the transaction: its writes are on disk when this returns. With `has_changed`,
    /// waiting connections are woken, where the database can do this.
    fn commit(&mut self, has_changed: bool) -> Result<()>;

    /// Ends the transaction as if it had not been.
    fn rollback(&mut self);

    /// Runs a statement, and counts the rows that it changed.
    fn execute(&mut self, statement: &str, values: &[Cell<'_>]) -> Result<u64>;

    /// Runs a statement that changes rows; it may go to a server with those that follow, `commit`
    /// at the latest.
    fn write(&mut self, statement: &str, values: &[Cell<'_>]) -> Result<()>;

    /// Runs a statement, and gives its rows.
    fn query(&mut self, statement: &'static str, values: &[Cell<'_>]) -> Result<Vec<Record>>;

    /// Creates the table of a campaign's results.
    fn create_results(&mut self, table: &ResultTable) -> Result<()>;

    /// Stores rows that fit the table.
    fn insert_results(&mut self, table: &ResultTable, rows: &Rows) -> Result<()>;

    /// The first rows from a run on, in order of run and row, at most so many.
    fn read_results(&mut self, table: &ResultTable, runs: Range<u64>, most: u64) -> Result<Rows>;

    /// Each value of a column of numbers that is not null, in order of run and row.
    fn each_number(
        &mut self,
        table: &ResultTable,
        column: usize,
        runs: Range<u64>,
        take: &mut dyn FnMut(u64, f64),
    ) -> Result<()>;

    /// See [`Campaigns::wait`](crate::Campaigns::wait).
    fn wait(&mut self, timeout_us: u64) -> Result<bool>;
}
