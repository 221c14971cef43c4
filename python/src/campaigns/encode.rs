//! The encoder of results: a run's return value, written into typed columns.

use std::fmt::Display;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDateTime, PyDict, PyFloat, PyInt, PyString, PyType};
use tidewire_backend::{Column, ColumnType, Rows, Schema};
use tidewire_core::campaign::rows::{Value, Values};

use crate::interpreter::once::Once;
use crate::values::{instant, shown};

/// The column of a function that returns a single value.
pub const SINGLE: &str = "value";

/// Columns, and the results that are collected in them.
pub struct Encoder {
    schema: Schema,
    names: Vec<Py<PyString>>,
    /// The class of the last record, and how it is read.
    last: Option<(Py<PyType>, Form)>,
    pub rows: Rows,
    /// About how much memory the texts of the rows take.
    pub text_bytes: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Single,
    Mapping,
    Attributes,
}

/// Why a result does not fit; the run goes before it.
pub type Fits = Result<(), String>;

impl Encoder {
    pub fn new(py: Python<'_>, schema: Schema) -> Self {
        let names = schema.columns.iter().map(|column| PyString::intern(py, &column.name).unbind()).collect();
        let rows = Rows::new(&schema.columns);
        Self { schema, names, last: None, rows, text_bytes: 0 }
    }

    /// Takes what was collected.
    pub fn take(&mut self) -> Rows {
        self.text_bytes = 0;
        std::mem::replace(&mut self.rows, Rows::new(&self.schema.columns))
    }

    /// Writes the result of a run; nothing of it if some of it does not fit.
    #[inline]
    pub fn push(&mut self, run: u64, result: &Bound<'_, PyAny>) -> Fits {
        let before = self.rows.len();
        let pushed = if self.schema.many { self.list(run, result) } else { self.row(run, 0, result) };
        if pushed.is_err() {
            self.rows.truncate(before);
        }
        pushed
    }

    fn list(&mut self, run: u64, result: &Bound<'_, PyAny>) -> Fits {
        let unfit = || format!("{} is no list of rows, and other runs give lists", shown(result));
        if result.is_instance_of::<PyString>() || result.is_instance_of::<PyDict>() {
            return Err(unfit());
        }
        let rows = result.try_iter().map_err(|_| unfit())?;
        for (row, item) in rows.enumerate() {
            let item = item.map_err(|failure| failure.to_string())?;
            let row = u32::try_from(row).map_err(|_| "more than 4,294,967,295 rows".to_owned())?;
            self.row(run, row, &item).map_err(|why| format!("row {row}: {why}"))?;
        }
        Ok(())
    }

    #[inline]
    fn row(&mut self, run: u64, row: u32, result: &Bound<'_, PyAny>) -> Fits {
        let class = result.get_type_ptr();
        let form = match &self.last {
            Some((last, form)) if last.as_ptr() == class.cast() => *form,
            _ => self.form(result)?,
        };
        match form {
            Form::Single => self.cell(0, result)?,
            Form::Mapping => self.mapping(result)?,
            Form::Attributes => {
                for index in 0..self.names.len() {
                    let value = result
                        .getattr(self.names[index].bind(result.py()))
                        .map_err(|_| format!("column {}: it is missing", self.schema.columns[index].name))?;
                    self.cell(index, &value)?;
                }
            }
        }
        self.rows.runs.push(run);
        self.rows.rows.push(row);
        Ok(())
    }

    fn mapping(&mut self, result: &Bound<'_, PyAny>) -> Fits {
        let py = result.py();
        if let Ok(dict) = result.cast::<PyDict>() {
            for index in 0..self.names.len() {
                match dict.get_item(self.names[index].bind(py)) {
                    Ok(Some(value)) => self.cell(index, &value)?,
                    _ => return Err(self.other_keys(result)),
                }
            }
            return if dict.len() == self.names.len() { Ok(()) } else { Err(self.other_keys(result)) };
        }
        for index in 0..self.names.len() {
            let value = result.get_item(self.names[index].bind(py)).map_err(|_| self.other_keys(result))?;
            self.cell(index, &value)?;
        }
        if result.len().is_ok_and(|len| len == self.names.len()) { Ok(()) } else { Err(self.other_keys(result)) }
    }

    #[cold]
    fn other_keys(&self, result: &Bound<'_, PyAny>) -> String {
        let mut names = Vec::new();
        if let Ok(keys) = result.try_iter() {
            names.extend(keys.flatten().take(50).map(|key| key.to_string()));
        }
        let columns = self.column_names();
        let missing: Vec<&str> = columns.iter().copied().filter(|name| !names.iter().any(|key| key == name)).collect();
        let more: Vec<&str> = names.iter().map(String::as_str).filter(|key| !columns.contains(key)).collect();
        let mut text = String::from("other columns than the campaign has:");
        if !missing.is_empty() {
            text += &format!(" {} missing;", list(&missing));
        }
        if !more.is_empty() {
            text += &format!(" {} not among them;", list(&more));
        }
        text + &format!(" its columns are {}", list(&columns))
    }

    /// The reader of results of a class, remembered for the next result.
    #[cold]
    fn form(&mut self, result: &Bound<'_, PyAny>) -> Result<Form, String> {
        let class = result.get_type();
        let (mut form, names) = form_of(&class).map_err(text_of)?;
        if self.is_single() && (form == Form::Single || self.schema.columns[0].kind == ColumnType::Json) {
            form = Form::Single;
        } else if form == Form::Attributes {
            self.check_fields(&class, &names)?;
        } else if form == Form::Single && result.is_none() {
            return Err(format!("it returned None, and the campaign has the columns {}", list(&self.column_names())));
        } else if form == Form::Single {
            let columns = list(&self.column_names());
            return Err(format!("{} has no columns, and those of the campaign are {columns}", shown(result)));
        }
        self.last = Some((class.unbind(), form));
        Ok(form)
    }

    fn is_single(&self) -> bool {
        matches!(&*self.schema.columns, [column] if column.name == SINGLE)
    }

    fn check_fields(&self, class: &Bound<'_, PyType>, names: &[String]) -> Fits {
        let columns = self.column_names();
        if names.len() == columns.len() && names.iter().all(|name| columns.contains(&name.as_str())) {
            return Ok(());
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Err(format!("{class} has the fields {}, and the columns of the campaign are {}", list(&names), list(&columns)))
    }

    fn column_names(&self) -> Vec<&str> {
        self.schema.columns.iter().map(|column| column.name.as_str()).collect()
    }

    #[inline]
    fn cell(&mut self, index: usize, value: &Bound<'_, PyAny>) -> Fits {
        let column = &mut self.rows.columns[index];
        match write(column, value) {
            Ok(bytes) => {
                self.text_bytes += bytes;
                Ok(())
            }
            Err(why) => Err(format!("column {}: {} {why}", self.schema.columns[index].name, shown(value))),
        }
    }
}

fn list(names: &[&str]) -> String {
    names.join(", ")
}

/// How results of a class are read, and the fields of a record, as `tidewire._campaigns.results`
/// finds them.
fn form_of(class: &Bound<'_, PyType>) -> PyResult<(Form, Vec<String>)> {
    static FIND: Once<Py<PyAny>> = Once::new();
    let found = FIND.of(class.py(), "tidewire._campaigns.results", "form_of")?.call1((class,))?;
    let (form, names): (String, Vec<String>) = found.extract()?;
    let form = match form.as_str() {
        "record" => Form::Attributes,
        "mapping" => Form::Mapping,
        _ => Form::Single,
    };
    Ok((form, names))
}

/// Appends a value to a column; how many bytes of text that takes, or why it can't be.
#[inline]
fn write(column: &mut Values, value: &Bound<'_, PyAny>) -> Result<usize, String> {
    let kind = column.kind();
    let mut put = |value: Value<'_>| column.push(value).map_err(|kind| format!("is of the column type {kind}"));
    match kind {
        ColumnType::Integer if value.is_exact_instance_of::<PyInt>() => {
            put(Value::Integer(value.extract().map_err(|_| too_large())?)).map(|()| 0)
        }
        ColumnType::Float if value.is_exact_instance_of::<PyFloat>() => {
            put(Value::Float(value.extract().map_err(text_of)?)).map(|()| 0)
        }
        ColumnType::Boolean if value.is_exact_instance_of::<PyBool>() => {
            put(Value::Boolean(value.is_truthy().map_err(text_of)?)).map(|()| 0)
        }
        ColumnType::Text if value.is_exact_instance_of::<PyString>() => {
            let text = text(value)?;
            put(Value::Text(text)).map(|()| text.len())
        }
        _ if value.is_none() => put(Value::Null).map(|()| 0),
        _ => write_other(column, value),
    }
}

/// The same for values that are not just of the column's own type.
#[cold]
fn write_other(column: &mut Values, value: &Bound<'_, PyAny>) -> Result<usize, String> {
    let kind = column.kind();
    let mut put = |value: Value<'_>| column.push(value).map_err(|kind| format!("is of the column type {kind}"));
    let value = &plain(value).map_err(text_of)?;
    let unfit = || format!("({}) is not what a column of type {kind} holds{}", type_name(value), fix(kind, value));
    match kind {
        _ if value.is_none() => put(Value::Null).map(|()| 0),
        ColumnType::Integer if value.is_instance_of::<PyInt>() => {
            put(Value::Integer(value.extract().map_err(|_| too_large())?)).map(|()| 0)
        }
        ColumnType::Float if value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>() => {
            let number: f64 = value.extract().map_err(|_| "is beyond the range of a float".to_owned())?;
            put(Value::Float(number)).map(|()| 0)
        }
        ColumnType::Boolean if value.is_instance_of::<PyBool>() => {
            put(Value::Boolean(value.is_truthy().map_err(text_of)?)).map(|()| 0)
        }
        ColumnType::Text if value.is_instance_of::<PyString>() => {
            let text = text(value)?;
            put(Value::Text(text)).map(|()| text.len())
        }
        ColumnType::Time => {
            let time = value.cast::<PyDateTime>().map_err(|_| unfit())?;
            let micros = instant(time).map_err(text_of)?.ok_or("has no time zone: use datetime.now(timezone.utc)")?;
            put(Value::Time(micros)).map(|()| 0)
        }
        ColumnType::Json => {
            let json = json(value)?;
            put(Value::Json(&json)).map(|()| json.len())
        }
        _ => Err(unfit()),
    }
}

/// The value of an enumeration's member or of a scalar of NumPy; any other value as it is.
fn plain<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static PLAIN: Once<Py<PyAny>> = Once::new();
    PLAIN.of(value.py(), "tidewire._campaigns.results", "plain")?.call1((value,))
}

fn json(value: &Bound<'_, PyAny>) -> Result<String, String> {
    static JSON: Once<Py<PyAny>> = Once::new();
    let py = value.py();
    let to_json = JSON.of(py, "tidewire._campaigns.results", "to_json").map_err(text_of)?;
    to_json.call1((value,)).and_then(|json| json.extract()).map_err(|failure| {
        let why = failure.value(py).to_string();
        if failure.is_instance_of::<PyTypeError>(py) { format!("can't be written as JSON: {why}") } else { why }
    })
}

#[inline]
fn text<'a>(value: &'a Bound<'_, PyAny>) -> Result<&'a str, String> {
    let surrogate = "has a lone surrogate, which UTF-8 can't write: leave it out";
    let text = value.cast::<PyString>().ok().and_then(|text| text.to_str().ok()).ok_or(surrogate)?;
    if text.contains('\0') {
        return Err("has a NUL, which stores can't keep: leave it out".to_owned());
    }
    Ok(text)
}

fn too_large() -> String {
    "does not fit into 64 bits: return it as text or as a float".to_owned()
}

fn fix(kind: ColumnType, value: &Bound<'_, PyAny>) -> String {
    let number = value.is_instance_of::<PyFloat>() && kind == ColumnType::Integer;
    let fix = if number { ": annotate the column as float" } else { ": return the same types from every run" };
    fix.to_owned()
}

fn text_of(failure: impl Display) -> String {
    failure.to_string()
}

fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map(|name| name.to_string()).unwrap_or_default()
}

/// The columns that the result of a pilot has, as `tidewire._campaigns.columns` finds them.
pub fn schema_of(result: &Bound<'_, PyAny>) -> Result<Schema, String> {
    static FIND: Once<Py<PyAny>> = Once::new();
    let py = result.py();
    let find = FIND.of(py, "tidewire._campaigns.columns", "of_result").map_err(text_of)?;
    let found = find.call1((result,)).map_err(|failure| failure.value(py).to_string())?;
    let (columns, many): (Vec<(String, String)>, bool) = found.extract().map_err(text_of)?;
    schema(columns, many)
}

/// Columns from their names and types.
pub fn schema(columns: Vec<(String, String)>, many: bool) -> Result<Schema, String> {
    let columns: Result<Vec<Column>, String> =
        columns.into_iter().map(|(name, kind)| Ok(Column::new(name, kind.parse()?))).collect();
    Ok(Schema { columns: columns?, many })
}
