//! Some services of a node for the console: searched, sorted and cut at the node.

use serde_json::{Map, Value, json};
use tidewire_proto::generated::errors::ErrorCode;

use super::snapshot::{fields, seconds};
use crate::node::core::Core;
use crate::services::failure::Failure;

/// Kinds that nodes may have; nodes in Rust have services alone.
const KINDS: [&str; 4] = ["agents", "actors", "pools", "services"];
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1_000;

/// The number or the text that rows are sorted by.
type SortKey = fn(&Value) -> (u64, String);

const SORTS: [(&str, SortKey); 9] = [
    ("load", |row| (number(row, "waiting"), String::new())),
    ("depth", |row| (number(row, "waiting"), String::new())),
    ("name", |row| (0, text(row, "service").to_owned())),
    ("status", |row| (0, if number(row, "waiting") > 0 { "busy" } else { "idle" }.to_owned())),
    ("handled", |row| (number(row, "handled"), String::new())),
    ("failed", |row| (number(row, "errors"), String::new())),
    ("restarts", |_| (0, String::new())),
    ("queueing_p99_us", |row| (number(row, "p99_us"), String::new())),
    ("handling_p99_us", |row| (number(row, "p99_us"), String::new())),
];

/// Kinds, rows to leave out, rows at most, the order, true for the largest first, and the search.
pub type Query = (Vec<String>, Option<usize>, Option<usize>, Option<String>, Option<bool>, Option<String>);

/// The names of the parts of a query.
pub const PARAMETERS: [&str; 6] = ["kinds", "first", "limit", "sort", "descending", "search"];

/// Which rows a caller asks for.
pub struct RowQuery {
    has_services: bool,
    first: usize,
    limit: usize,
    sort: SortKey,
    is_down: bool,
    search: String,
}

impl RowQuery {
    /// The query, if it is allowed.
    ///
    /// # Errors
    /// The part that is not allowed.
    pub fn checked((kinds, first, limit, sort, descending, search): Query) -> Result<Self, Failure> {
        let refused = |text: String| Err(Failure::of(ErrorCode::InvalidArgument, text));
        if kinds.is_empty() || kinds.iter().any(|kind| !KINDS.contains(&kind.as_str())) {
            return refused(format!("kinds: {kinds:?} is not allowed: give a list of {}", KINDS.join(", ")));
        }
        let limit = limit.unwrap_or(LIMIT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return refused(format!("limit: {limit} is not allowed: give 1 to {LIMIT_MAX}"));
        }
        let column = sort.as_deref().unwrap_or("load");
        let Some((_, sort)) = SORTS.into_iter().find(|(name, _)| *name == column) else {
            let names = SORTS.map(|(name, _)| name).join(", ");
            return refused(format!("sort: {column:?} is not allowed: give one of {names}"));
        };
        Ok(Self {
            has_services: kinds.iter().any(|kind| kind == "services"),
            first: first.unwrap_or(0),
            limit,
            sort,
            is_down: descending.unwrap_or(true),
            search: search.unwrap_or_default().to_lowercase(),
        })
    }

    /// The rows, how many fit the search, and how many there are.
    pub fn answer(&self, core: &Core) -> Map<String, Value> {
        let instances = if self.has_services { core.instances() } else { Vec::new() };
        let mut rows: Vec<Value> = instances.iter().filter_map(|instance| instance.row()).collect();
        let total = rows.len();
        rows.retain(|row| {
            let names = format!("{} {}", text(row, "service"), text(row, "instance")).to_lowercase();
            self.search.split_whitespace().all(|word| names.contains(word))
        });
        let found = rows.len();
        rows.sort_by_cached_key(self.sort);
        if self.is_down {
            rows.reverse();
        }
        let mut rows: Vec<Value> = rows.into_iter().skip(self.first).take(self.limit).collect();
        rows.iter_mut().for_each(|row| row["table"] = json!("services"));
        fields([
            ("node", json!(core.name)),
            ("at_s", json!(seconds(core))),
            ("rows", Value::Array(rows)),
            ("found", json!(found)),
            ("total", json!(total)),
        ])
    }
}

fn number(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap_or_default()
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_default()
}
