//! Results as rows of a table: many to a statement when they are written.

use std::ops::Range;

use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, Result};
use tidewire_backend::sql::{ResultTable, quoted};
use tidewire_backend::{ColumnType, Rows};
use tidewire_core::campaign::rows::{Data, Value, Values};

/// About so many values go with one statement.
const VALUES: usize = 256;
/// SQLite has no NaN, and makes NULL of it.
const NAN: &str = "NaN";

pub(crate) fn create(table: &ResultTable) -> String {
    let many = table.schema.many;
    let run = if many { "\"run\" INTEGER NOT NULL, \"row\" INTEGER NOT NULL" } else { "\"run\" INTEGER PRIMARY KEY" };
    let set = if table.swept() { ", \"param_set\" INTEGER NOT NULL" } else { "" };
    let theirs = table.schema.columns.iter();
    let columns: String = theirs.map(|column| format!(", {} {}", quoted(&column.name), type_of(column.kind))).collect();
    let key = if many { ", PRIMARY KEY (\"run\", \"row\")) WITHOUT ROWID" } else { ")" };
    format!("CREATE TABLE {} ({run}{set}{columns}{key}", table.name)
}

/// The type decides how SQLite stores a value: text that looks like a number must stay text.
const fn type_of(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Integer | ColumnType::Time => "INTEGER",
        ColumnType::Float => "REAL",
        ColumnType::Text | ColumnType::Json => "TEXT",
        ColumnType::Boolean => "BOOLEAN",
    }
}

/// Stores rows.
pub(crate) fn insert(connection: &Connection, table: &ResultTable, rows: &Rows) -> Result<()> {
    let columns = table.quoted_columns();
    let at_once = (VALUES / columns.len()).max(1);
    let statement = |count: usize| {
        let one = format!("({}?)", "?, ".repeat(columns.len() - 1));
        let all = format!("{}{one}", format!("{one}, ").repeat(count - 1));
        connection.prepare_cached(&format!("INSERT INTO {} ({}) VALUES {all}", table.name, columns.join(", ")))
    };
    let (mut at, len) = (0, rows.len());
    for count in [at_once, 1] {
        if len - at < count {
            continue;
        }
        let mut ready = statement(count)?;
        while len - at >= count {
            bind(&mut ready, table, rows, at..at + count)?;
            ready.raw_execute()?;
            at += count;
        }
    }
    Ok(())
}

fn bind(ready: &mut CachedStatement<'_>, table: &ResultTable, rows: &Rows, part: Range<usize>) -> Result<()> {
    let mut place = 0;
    for index in part {
        let run = rows.runs[index];
        let mut number = |ready: &mut CachedStatement<'_>, value: u64| {
            place += 1;
            ready.raw_bind_parameter(place, value as i64)
        };
        number(ready, run)?;
        if table.schema.many {
            number(ready, u64::from(rows.rows[index]))?;
        }
        if table.swept() {
            number(ready, run % table.sets)?;
        }
        for values in &rows.columns {
            place += 1;
            bind_value(ready, place, values, index)?;
        }
    }
    Ok(())
}

fn bind_value(ready: &mut CachedStatement<'_>, place: usize, values: &Values, index: usize) -> Result<()> {
    if values.is_null(index) {
        return ready.raw_bind_parameter(place, rusqlite::types::Null);
    }
    match values.data() {
        Data::Integer(values) | Data::Time(values) => ready.raw_bind_parameter(place, values[index]),
        Data::Float(values) if values[index].is_nan() => ready.raw_bind_parameter(place, NAN),
        Data::Float(values) => ready.raw_bind_parameter(place, values[index]),
        Data::Boolean(values) => ready.raw_bind_parameter(place, values[index]),
        Data::Text(texts) | Data::Json(texts) => ready.raw_bind_parameter(place, texts.at(index)),
    }
}

pub(crate) fn read(connection: &Connection, table: &ResultTable, runs: Range<u64>, most: u64) -> Result<Rows> {
    let columns = table.quoted_columns();
    let statement = format!(
        "SELECT {} FROM {} WHERE \"run\" >= ?1 AND \"run\" < ?2 ORDER BY {} LIMIT ?3",
        columns.join(", "),
        table.name,
        table.key()
    );
    let mut ready = connection.prepare_cached(&statement)?;
    let mut found = ready.query([number(runs.start), number(runs.end), number(most)])?;
    let schema = &table.schema;
    let mut rows = Rows::new(&schema.columns);
    let ours = columns.len() - schema.columns.len();
    while let Some(record) = found.next()? {
        rows.runs.push(record.get::<_, i64>(0)? as u64);
        rows.rows.push(if schema.many { record.get(1)? } else { 0 });
        for (at, column) in schema.columns.iter().enumerate() {
            let place = ours + at;
            let strange =
                || rusqlite::Error::InvalidColumnType(place, column.name.clone(), rusqlite::types::Type::Text);
            let value = value(column.kind, record.get_ref(place)?).ok_or_else(strange)?;
            rows.columns[at].push(value).map_err(|_| strange())?;
        }
    }
    Ok(rows)
}

fn value(kind: ColumnType, stored: ValueRef<'_>) -> Option<Value<'_>> {
    match (kind, stored) {
        (_, ValueRef::Null) => Some(Value::Null),
        (ColumnType::Integer, ValueRef::Integer(value)) => Some(Value::Integer(value)),
        (ColumnType::Time, ValueRef::Integer(value)) => Some(Value::Time(value)),
        (ColumnType::Boolean, ValueRef::Integer(value)) => Some(Value::Boolean(value != 0)),
        (ColumnType::Float, stored) => float(stored).map(Value::Float),
        (ColumnType::Text, ValueRef::Text(text)) => std::str::from_utf8(text).ok().map(Value::Text),
        (ColumnType::Json, ValueRef::Text(text)) => std::str::from_utf8(text).ok().map(Value::Json),
        _ => None,
    }
}

fn float(stored: ValueRef<'_>) -> Option<f64> {
    match stored {
        ValueRef::Real(value) => Some(value),
        ValueRef::Integer(value) => Some(value as f64),
        ValueRef::Text(text) if text == NAN.as_bytes() => Some(f64::NAN),
        _ => None,
    }
}

/// Each value of a column that is not null, in order.
pub(crate) fn each_number(
    connection: &Connection,
    table: &ResultTable,
    column: usize,
    runs: Range<u64>,
    take: &mut dyn FnMut(u64, f64),
) -> Result<()> {
    let name = quoted(&table.schema.columns[column].name);
    let (from, key) = (&table.name, table.key());
    let statement = format!(
        "SELECT \"run\", {name} FROM {from} WHERE \"run\" >= ?1 AND \"run\" < ?2 AND {name} IS NOT NULL ORDER BY {key}"
    );
    let mut ready = connection.prepare_cached(&statement)?;
    let mut found = ready.query([number(runs.start), number(runs.end)])?;
    while let Some(record) = found.next()? {
        take(record.get::<_, i64>(0)? as u64, float(record.get_ref(1)?).unwrap_or(f64::NAN));
    }
    Ok(())
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
