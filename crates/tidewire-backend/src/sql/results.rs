//! The table of a campaign's results: its name, its columns, and the check of results against them.

use serde_json::{Value as Json, json};
use tidewire_core::campaign::rows::{Data, Texts, Values};

use crate::plan::invalid;
use crate::{CampaignId, Column, ColumnType, ErrorKind, Lease, RangeResults, Result, Rows, Schema, StoreError};

/// Names of columns that the store gives.
const OURS: [&str; 3] = ["run", "row", "param_set"];
/// Names that PostgreSQL keeps for itself in every table; refused by all stores, so that a campaign
/// can move.
const SYSTEM: [&str; 6] = ["ctid", "cmin", "cmax", "tableoid", "xmin", "xmax"];
/// The most columns of a campaign.
const COLUMNS_MAX: usize = 1_000;
/// The longest name of a column or table, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// The table of a campaign's results. Its key is `run`, and `row` where a run may give several.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultTable {
    /// Its name; it needs no quotes.
    pub name: String,
    /// The columns that the function gives. Their names need quotes.
    pub schema: Schema,
    /// How many parameter sets there are. With more than one there is a column `param_set`: the run
    /// modulo this.
    pub sets: u64,
}

impl ResultTable {
    /// The name of the table of a campaign: its number, and its name in plain letters.
    pub fn name(campaign: CampaignId, name: &str) -> String {
        let start = format!("results_{campaign}_");
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '_' };
        let mut cleaned: String = name.chars().map(plain).take(NAME_BYTES_MAX - start.len()).collect();
        cleaned.truncate(cleaned.trim_end_matches('_').len());
        format!("{start}{cleaned}").trim_end_matches('_').to_owned()
    }

    /// True if it has a column `param_set`.
    pub const fn swept(&self) -> bool {
        self.sets > 1
    }

    /// The names of all its columns in order, quoted: those of the store, then those of the
    /// function.
    pub fn quoted_columns(&self) -> Vec<String> {
        let ours = [Some("run"), self.schema.many.then_some("row"), self.swept().then_some("param_set")];
        let theirs = self.schema.columns.iter().map(|column| column.name.as_str());
        ours.into_iter().flatten().chain(theirs).map(quoted).collect()
    }

    /// Its key, quoted.
    pub const fn key(&self) -> &'static str {
        if self.schema.many { "\"run\", \"row\"" } else { "\"run\"" }
    }
}

/// A name as a quoted SQL identifier.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl Schema {
    /// Checks that a store can keep these columns.
    ///
    /// # Errors
    ///
    /// [`Invalid`](ErrorKind::Invalid), naming the column.
    pub fn check(&self) -> Result<()> {
        let count = self.columns.len();
        if count == 0 || count > COLUMNS_MAX {
            return invalid(format!("columns: {count} of them; a result has 1 to {COLUMNS_MAX}"));
        }
        let mut names = std::collections::BTreeSet::new();
        for Column { name, .. } in &self.columns {
            let folded = name.to_lowercase();
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
                return invalid(format!("columns: {name:?} is no name of 1 to {NAME_BYTES_MAX} bytes without NUL"));
            }
            if OURS.contains(&folded.as_str()) || SYSTEM.contains(&folded.as_str()) {
                return invalid(format!("columns: {name:?} is a name of the store's own: choose another"));
            }
            if !names.insert(folded) {
                return invalid(format!("columns: {name:?} is there twice, in one spelling or another: rename one"));
            }
        }
        Ok(())
    }

    /// The column of this name whose mean can be taken.
    pub(super) fn number(&self, name: &str) -> Result<usize> {
        let found = self.columns.iter().position(|column| column.name == name);
        let Some(at) = found else {
            let names: Vec<_> = self.columns.iter().map(|column| column.name.as_str()).collect();
            return invalid(format!("until: there is no column {name:?}; there are {}", names.join(", ")));
        };
        match self.columns[at].kind {
            ColumnType::Integer | ColumnType::Float | ColumnType::Boolean => Ok(at),
            kind => invalid(format!("until: column {name:?} has {kind}, and no mean: name one of numbers")),
        }
    }

    pub(super) fn to_json(&self) -> String {
        let one = |column: &Column| json!({"name": column.name, "type": column.kind.name()});
        Json::from(self.columns.iter().map(one).collect::<Vec<_>>()).to_string()
    }

    pub(super) fn from_json(columns: &str, many: bool) -> Result<Self> {
        let corrupt =
            || StoreError::new(ErrorKind::Corrupt, format!("the columns of a campaign are stored as {columns}"));
        let one = |column: &Json| {
            let kind = column["type"].as_str()?.parse().ok()?;
            Some(Column { name: column["name"].as_str()?.to_owned(), kind })
        };
        let list: Vec<Json> = serde_json::from_str(columns).map_err(|_| corrupt())?;
        let columns = list.iter().map(one).collect::<Option<_>>().ok_or_else(corrupt)?;
        Ok(Self { columns, many })
    }
}

/// Checks that results are those of the front of a lease, and fit the columns.
pub(super) fn check(lease: &Lease, results: &RangeResults, schema: Option<&Schema>) -> Result<()> {
    if results.first != lease.first || results.count == 0 || results.count > lease.count {
        let (first, count) = (results.first, results.count);
        return invalid(format!(
            "results: {count} runs from {first}, of a lease of {} from {}",
            lease.count, lease.first
        ));
    }
    if let Some(schema) = schema {
        check_columns(&results.rows, schema)?;
        check_runs(results, schema.many)?;
        return check_texts(&results.rows, schema);
    }
    if results.rows.is_empty() {
        check_runs(results, true)
    } else {
        invalid("schema: the first results name no columns")
    }
}

fn check_columns(rows: &Rows, schema: &Schema) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let (count, known) = (rows.columns.len(), schema.columns.len());
    if count != known {
        return invalid(format!("results: {count} columns, where the campaign has {known}"));
    }
    for (values, column) in rows.columns.iter().zip(&schema.columns) {
        if values.kind() != column.kind || values.len() != rows.len() {
            let (name, kind, found) = (&column.name, column.kind, values.kind());
            let (len, rows) = (values.len(), rows.len());
            return invalid(format!("results: column {name:?} of {kind} got {len} values of {found} for {rows} rows"));
        }
    }
    Ok(())
}

/// Every run has its rows or its failure, in order.
fn check_runs(results: &RangeResults, many: bool) -> Result<()> {
    let (runs, rows) = (&results.rows.runs, &results.rows.rows);
    let mut failures = results.failures.iter().map(|failure| failure.run).peekable();
    let mut at = 0;
    for run in results.first..results.first + u64::from(results.count) {
        let begin = at;
        while runs.get(at) == Some(&run) {
            if rows[at] as usize != at - begin {
                return invalid(format!("results: run {run} has row {} where {} comes next", rows[at], at - begin));
            }
            at += 1;
        }
        let failed = failures.next_if_eq(&run).is_some();
        let wrong = if failed { at > begin } else { !many && at != begin + 1 };
        if wrong {
            let failed = if failed { "has failed and" } else { "succeeded and" };
            return invalid(format!("results: run {run} {failed} has {} rows", at - begin));
        }
    }
    match (runs.get(at).copied(), failures.next()) {
        (None, None) => Ok(()),
        (row, failure) => {
            let run = row.or(failure).unwrap_or_default();
            invalid(format!("results: run {run} is out of order, or not of this range"))
        }
    }
}

fn check_texts(rows: &Rows, schema: &Schema) -> Result<()> {
    let columns = || rows.columns.iter().zip(&schema.columns);
    for (values, column) in columns() {
        match values.data() {
            Data::Text(texts) => {
                let wrong = first_wrong(values, texts, |text| text.as_bytes().contains(&0));
                if let Some(at) = wrong {
                    let (run, name) = (rows.runs[at], &column.name);
                    return invalid(format!(
                        "run {run}: column {name:?} has text with NUL, which no store keeps: leave it out"
                    ));
                }
            }
            Data::Json(texts) => {
                let wrong =
                    first_wrong(values, texts, |text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_err());
                if let Some(at) = wrong {
                    let (run, name) = (rows.runs[at], &column.name);
                    return invalid(format!("run {run}: column {name:?} has {:.60?}, which is no JSON", texts.at(at)));
                }
            }
            _ => (),
        }
    }
    Ok(())
}

fn first_wrong(values: &Values, texts: &Texts, wrong: impl Fn(&str) -> bool) -> Option<usize> {
    (0..texts.len()).find(|&at| !values.is_null(at) && wrong(texts.at(at)))
}
