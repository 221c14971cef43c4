//! Results of runs as typed columns, for workers, stores and readers.

use std::str::FromStr;

/// The type of a column. Every column may have nulls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, derive_more::Display)]
#[display("{}", self.name())]
pub enum ColumnType {
    /// 64 bits with a sign.
    Integer,
    /// 64 bits; NaN and infinities are preserved.
    Float,
    /// UTF-8 without NUL.
    Text,
    /// True or false.
    Boolean,
    /// Microseconds since 1970-01-01 00:00 UTC.
    Time,
    /// JSON, stored byte for byte.
    Json,
}

impl ColumnType {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Integer, Self::Float, Self::Text, Self::Boolean, Self::Time, Self::Json];

    /// Its name, as stores and people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Float => "float",
            Self::Text => "text",
            Self::Boolean => "boolean",
            Self::Time => "time",
            Self::Json => "json",
        }
    }
}

impl FromStr for ColumnType {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| format!("{name:?} is no type of column: write integer, float, text, boolean, time or json"))
    }
}

/// A column of a result table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, as the function of the user gives it.
    pub name: String,
    /// The type of its values.
    pub kind: ColumnType,
}

impl Column {
    /// A column of a name and a type.
    pub fn new(name: impl Into<String>, kind: ColumnType) -> Self {
        Self { name: name.into(), kind }
    }
}

/// One value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nothing: None in Python, NULL in SQL.
    Null,
    /// Of an integer column.
    Integer(i64),
    /// Of a float column.
    Float(f64),
    /// Of a text column.
    Text(&'a str),
    /// Of a boolean column.
    Boolean(bool),
    /// Of a time column: microseconds since 1970-01-01 00:00 UTC.
    Time(i64),
    /// Of a JSON column.
    Json(&'a str),
}

impl Value<'_> {
    /// The type of column that it belongs to; None of a null, which belongs to any.
    pub const fn kind(&self) -> Option<ColumnType> {
        match self {
            Self::Null => None,
            Self::Integer(_) => Some(ColumnType::Integer),
            Self::Float(_) => Some(ColumnType::Float),
            Self::Text(_) => Some(ColumnType::Text),
            Self::Boolean(_) => Some(ColumnType::Boolean),
            Self::Time(_) => Some(ColumnType::Time),
            Self::Json(_) => Some(ColumnType::Json),
        }
    }
}

/// Texts one after the other in one buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    buffer: String,
    ends: Vec<usize>,
}

impl Texts {
    /// How many texts there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True without texts.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The text at a place.
    ///
    /// # Panics
    ///
    /// If there is none at that place.
    pub fn at(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.buffer[start..self.ends[index]]
    }

    /// Appends a text.
    pub fn push(&mut self, text: &str) {
        self.buffer.push_str(text);
        self.ends.push(self.buffer.len());
    }

    fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.buffer.truncate(self.ends.last().copied().unwrap_or(0));
    }
}

/// The values of one column, without its nulls: where there is a null, stands 0, false or an empty
/// text.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Of an integer column.
    Integer(Vec<i64>),
    /// Of a float column.
    Float(Vec<f64>),
    /// Of a text column.
    Text(Texts),
    /// Of a boolean column.
    Boolean(Vec<bool>),
    /// Of a time column: microseconds since 1970-01-01 00:00 UTC.
    Time(Vec<i64>),
    /// Of a JSON column.
    Json(Texts),
}

/// One column of [`Rows`].
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    data: Data,
    /// Where there are values, as soon as there is a null.
    valid: Option<Vec<bool>>,
}

impl Values {
    /// A column without values.
    pub fn new(kind: ColumnType) -> Self {
        let data = match kind {
            ColumnType::Integer => Data::Integer(Vec::new()),
            ColumnType::Float => Data::Float(Vec::new()),
            ColumnType::Text => Data::Text(Texts::default()),
            ColumnType::Boolean => Data::Boolean(Vec::new()),
            ColumnType::Time => Data::Time(Vec::new()),
            ColumnType::Json => Data::Json(Texts::default()),
        };
        Self { data, valid: None }
    }

    /// The type of its values.
    pub const fn kind(&self) -> ColumnType {
        match &self.data {
            Data::Integer(_) => ColumnType::Integer,
            Data::Float(_) => ColumnType::Float,
            Data::Text(_) => ColumnType::Text,
            Data::Boolean(_) => ColumnType::Boolean,
            Data::Time(_) => ColumnType::Time,
            Data::Json(_) => ColumnType::Json,
        }
    }

    /// How many values it has, nulls counted.
    pub fn len(&self) -> usize {
        match &self.data {
            Data::Integer(values) | Data::Time(values) => values.len(),
            Data::Float(values) => values.len(),
            Data::Boolean(values) => values.len(),
            Data::Text(texts) | Data::Json(texts) => texts.len(),
        }
    }

    /// True without values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values, for those who write whole columns; see [`Values::is_null`] for which of them
    /// count.
    pub const fn data(&self) -> &Data {
        &self.data
    }

    /// True if there is a null at a place.
    #[inline]
    pub fn is_null(&self, index: usize) -> bool {
        self.valid.as_ref().is_some_and(|valid| !valid[index])
    }

    /// The value at a place.
    ///
    /// # Panics
    ///
    /// If there is none at that place.
    pub fn at(&self, index: usize) -> Value<'_> {
        if self.is_null(index) {
            return Value::Null;
        }
        match &self.data {
            Data::Integer(values) => Value::Integer(values[index]),
            Data::Float(values) => Value::Float(values[index]),
            Data::Text(texts) => Value::Text(texts.at(index)),
            Data::Boolean(values) => Value::Boolean(values[index]),
            Data::Time(values) => Value::Time(values[index]),
            Data::Json(texts) => Value::Json(texts.at(index)),
        }
    }

    /// Appends a value.
    ///
    /// # Errors
    ///
    /// If the value is of another type than the column: the type that it has.
    #[inline]
    pub fn push(&mut self, value: Value<'_>) -> Result<(), ColumnType> {
        match (&mut self.data, value) {
            (_, Value::Null) => {
                self.push_null();
                return Ok(());
            }
            (Data::Integer(values), Value::Integer(value)) | (Data::Time(values), Value::Time(value)) => {
                values.push(value);
            }
            (Data::Float(values), Value::Float(value)) => values.push(value),
            (Data::Boolean(values), Value::Boolean(value)) => values.push(value),
            (Data::Text(texts), Value::Text(text)) | (Data::Json(texts), Value::Json(text)) => texts.push(text),
            (_, value) => return value.kind().map_or(Ok(()), Err),
        }
        if let Some(valid) = &mut self.valid {
            valid.push(true);
        }
        Ok(())
    }

    fn push_null(&mut self) {
        let len = self.len();
        self.valid.get_or_insert_with(|| vec![true; len]).push(false);
        match &mut self.data {
            Data::Integer(values) | Data::Time(values) => values.push(0),
            Data::Float(values) => values.push(0.0),
            Data::Boolean(values) => values.push(false),
            Data::Text(texts) | Data::Json(texts) => texts.push(""),
        }
    }

    /// Keeps the first `len` values.
    pub fn truncate(&mut self, len: usize) {
        match &mut self.data {
            Data::Integer(values) | Data::Time(values) => values.truncate(len),
            Data::Float(values) => values.truncate(len),
            Data::Boolean(values) => values.truncate(len),
            Data::Text(texts) | Data::Json(texts) => texts.truncate(len),
        }
        if let Some(valid) = &mut self.valid {
            valid.truncate(len);
        }
    }
}

/// Rows in order of run, then of row, by columns.
///
/// ```
/// use tidewire_core::campaign::rows::{Column, ColumnType, Rows, Value};
///
/// let columns = [Column::new("hits", ColumnType::Integer), Column::new("area", ColumnType::Float)];
/// let mut rows = Rows::new(&columns);
/// rows.push(0, 0, &[Value::Integer(65), Value::Float(3.13)])?;
/// rows.push(1, 0, &[Value::Integer(64), Value::Null])?;
/// assert_eq!((rows.len(), rows.columns[1].at(1)), (2, Value::Null));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// The run of each row.
    pub runs: Vec<u64>,
    /// The number of each row in its run, from 0.
    pub rows: Vec<u32>,
    /// The columns, in their order in the table.
    pub columns: Vec<Values>,
}

impl Rows {
    /// No rows of these columns.
    pub fn new(columns: &[Column]) -> Self {
        let columns = columns.iter().map(|column| Values::new(column.kind)).collect();
        Self { runs: Vec::new(), rows: Vec::new(), columns }
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Appends a row: the number of the row in its run, and a value for each column.
    ///
    /// # Errors
    ///
    /// If there are more or fewer values than columns, or one is of another type than its column;
    /// nothing is appended then.
    pub fn push(&mut self, run: u64, row: u32, values: &[Value<'_>]) -> Result<(), String> {
        if values.len() != self.columns.len() {
            return Err(format!("{} values for {} columns", values.len(), self.columns.len()));
        }
        let len = self.len();
        for (index, value) in values.iter().enumerate() {
            let column = &mut self.columns[index];
            if let Err(kind) = column.push(*value) {
                let expected = column.kind();
                self.truncate(len);
                return Err(format!("column {index}: a value of type {kind}, where the column has {expected}"));
            }
        }
        self.runs.push(run);
        self.rows.push(row);
        Ok(())
    }

    /// Keeps the first `len` rows, also where columns are longer.
    pub fn truncate(&mut self, len: usize) {
        self.runs.truncate(len);
        self.rows.truncate(len);
        for column in &mut self.columns {
            column.truncate(len);
        }
    }
}
