//! Results as rows of a table: written by `COPY` in its binary form, read as they come.

use std::io::Write as _;
use std::ops::Range;

use fallible_iterator::FallibleIterator as _;
use postgres::types::ToSql;
use postgres::{Client, Row, Statement};
use tidewire_backend::sql::{Cell, ResultTable, quoted};
use tidewire_backend::{ColumnType, Rows};
use tidewire_core::campaign::rows::{Data, Value, Values};

use crate::values::{EPOCH_US, Parameter, Raw};

/// The bytes before the first row, and after the last.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const TRAILER: [u8; 2] = (-1_i16).to_be_bytes();
/// So many bytes are written at once.
const CHUNK_BYTES: usize = 1 << 17;

pub(crate) fn create(table: &ResultTable) -> String {
    let row = if table.schema.many { ", \"row\" BIGINT NOT NULL" } else { "" };
    let set = if table.swept() { ", \"param_set\" BIGINT NOT NULL" } else { "" };
    let theirs = table.schema.columns.iter();
    let columns: String = theirs.map(|column| format!(", {} {}", quoted(&column.name), type_of(column.kind))).collect();
    format!("CREATE TABLE {} (\"run\" BIGINT NOT NULL{row}{set}{columns}, PRIMARY KEY ({}))", table.name, table.key())
}

const fn type_of(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Integer => "BIGINT",
        ColumnType::Float => "DOUBLE PRECISION",
        ColumnType::Text => "TEXT",
        ColumnType::Boolean => "BOOLEAN",
        ColumnType::Time => "TIMESTAMPTZ",
        // Kept as it was written; JSONB is not.
        ColumnType::Json => "JSON",
    }
}

/// The statement that inserts rows.
pub(crate) fn copy(table: &ResultTable) -> String {
    format!("COPY {} ({}) FROM STDIN BINARY", table.name, table.quoted_columns().join(", "))
}

/// Stores rows.
pub(crate) fn insert(
    client: &mut Client,
    copy: &Statement,
    table: &ResultTable,
    rows: &Rows,
) -> Result<(), postgres::Error> {
    let mut writer = client.copy_in(copy)?;
    let mut chunk = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
    chunk.extend_from_slice(HEADER);
    let fields = (table.quoted_columns().len() as i16).to_be_bytes();
    for index in 0..rows.len() {
        chunk.extend_from_slice(&fields);
        let run = rows.runs[index];
        word(&mut chunk, run);
        if table.schema.many {
            word(&mut chunk, u64::from(rows.rows[index]));
        }
        if table.swept() {
            word(&mut chunk, run % table.sets);
        }
        for values in &rows.columns {
            encode(&mut chunk, values, index);
        }
        if chunk.len() >= CHUNK_BYTES && writer.write_all(&chunk).is_ok() {
            chunk.clear();
        }
    }
    chunk.extend_from_slice(&TRAILER);
    // The server's description of an error comes with the end.
    let _said_below = writer.write_all(&chunk);
    writer.finish().map(|_| ())
}

fn word(chunk: &mut Vec<u8>, word: u64) {
    field(chunk, &word.to_be_bytes());
}

fn field(chunk: &mut Vec<u8>, bytes: &[u8]) {
    chunk.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    chunk.extend_from_slice(bytes);
}

fn encode(chunk: &mut Vec<u8>, values: &Values, index: usize) {
    if values.is_null(index) {
        return chunk.extend_from_slice(&(-1_i32).to_be_bytes());
    }
    match values.data() {
        Data::Integer(values) => word(chunk, values[index] as u64),
        Data::Float(values) => word(chunk, values[index].to_bits()),
        Data::Text(texts) | Data::Json(texts) => field(chunk, texts.at(index).as_bytes()),
        Data::Boolean(values) => field(chunk, &[u8::from(values[index])]),
        Data::Time(values) => word(chunk, values[index].saturating_sub(EPOCH_US) as u64),
    }
}

/// Reads rows in order.
pub(crate) fn read(
    client: &mut Client,
    table: &ResultTable,
    runs: Range<u64>,
    most: u64,
) -> Result<Rows, postgres::Error> {
    let columns = table.quoted_columns();
    let statement = format!(
        "SELECT {} FROM {} WHERE \"run\" >= $1 AND \"run\" < $2 ORDER BY {} LIMIT $3",
        columns.join(", "),
        table.name,
        table.key()
    );
    let schema = &table.schema;
    let mut rows = Rows::new(&schema.columns);
    let ours = columns.len() - schema.columns.len();
    let numbers = [runs.start, runs.end, most].map(|number| Parameter(Cell::number(number)));
    let mut found = client.query_raw(statement.as_str(), numbers.iter().map(|number| number as &dyn ToSql))?;
    while let Some(row) = found.next()? {
        rows.runs.push(row.try_get::<_, i64>(0)? as u64);
        rows.rows.push(if schema.many { row.try_get::<_, i64>(1)? as u32 } else { 0 });
        for (at, column) in schema.columns.iter().enumerate() {
            let value = value(&row, ours + at, column.kind)?;
            // A column that was changed by hand reads as nulls, and the digest reveals it.
            let _of_another_type = rows.columns[at].push(value);
        }
    }
    Ok(rows)
}

fn value(row: &Row, at: usize, kind: ColumnType) -> Result<Value<'_>, postgres::Error> {
    let Some(raw) = row.try_get::<_, Option<Raw<'_>>>(at)? else { return Ok(Value::Null) };
    let text = || std::str::from_utf8(raw.0).ok();
    let value = match kind {
        ColumnType::Integer => raw.integer().map(Value::Integer),
        ColumnType::Float => raw.float().map(Value::Float),
        ColumnType::Text => text().map(Value::Text),
        ColumnType::Boolean => raw.boolean().map(Value::Boolean),
        ColumnType::Time => raw.integer().map(|since| Value::Time(since.saturating_add(EPOCH_US))),
        ColumnType::Json => text().map(Value::Json),
    };
    Ok(value.unwrap_or(Value::Null))
}

/// Each value of a column that is not null, in order.
pub(crate) fn each_number(
    client: &mut Client,
    table: &ResultTable,
    column: usize,
    runs: Range<u64>,
    take: &mut dyn FnMut(u64, f64),
) -> Result<(), postgres::Error> {
    let column = &table.schema.columns[column];
    let (name, from, key) = (quoted(&column.name), &table.name, table.key());
    let number = if column.kind == ColumnType::Boolean { "::int::float8" } else { "::float8" };
    let statement = format!(
        "SELECT \"run\", {name}{number} FROM {from} WHERE \"run\" >= $1 AND \"run\" < $2 AND {name} IS NOT NULL ORDER BY {key}"
    );
    let numbers = [runs.start, runs.end].map(|number| Parameter(Cell::number(number)));
    let mut found = client.query_raw(statement.as_str(), numbers.iter().map(|number| number as &dyn ToSql))?;
    while let Some(row) = found.next()? {
        take(row.try_get::<_, i64>(0)? as u64, row.try_get(1)?);
    }
    Ok(())
}
