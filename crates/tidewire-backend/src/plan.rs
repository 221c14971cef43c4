//! The plan of a campaign: function, number of runs, settings and columns.

use tidewire_core::campaign::ledger::Terms;
use tidewire_core::campaign::seed::Seed;

use crate::{Column, ErrorKind, Result, StoreError};

/// The longest name of a campaign, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// The longest time of a setting: thirty days, in microseconds.
const TIME_US_MAX: u64 = 30 * 86_400_000_000;

/// The number of a campaign in its store, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[display("{_0}")]
pub struct CampaignId(pub u64);

/// The plan of a campaign. It is stored once, and changes only where the number of runs or the
/// columns were unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Unique in its store; 1 to 128 bytes.
    pub name: String,
    /// How many runs, over all parameter sets; up to 2^48.
    pub runs: u64,
    /// The seed as it was given.
    pub seed: Seed,
    /// The function, as `module:qualname`.
    pub function: String,
    /// The function as bytes, for those that no import finds; their form is the binding's.
    pub pickled: Option<Vec<u8>>,
    /// The identity of its code, as JSON: modules with the hash of their sources, versions.
    pub code: String,
    /// The columns of its results, if they are known before the first run.
    pub schema: Option<Schema>,
    /// How it is run.
    pub settings: Settings,
}

/// The columns of a campaign's results. The store adds `run`, `row` if a run may give several rows,
/// and `param_set` if there is more than one parameter set.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// Names and types, in order. Names are unique without regard to case, 1 to 63 bytes, and none
    /// of `run`, `row` and `param_set`.
    pub columns: Vec<Column>,
    /// True if a run gives a list of rows, false if each gives one.
    pub many: bool,
}

/// How a campaign is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How often a run is tried before it counts as failed.
    pub attempts: u32,
    /// The time limit of a run, in microseconds.
    pub timeout_us: Option<u64>,
    /// The campaign fails when more runs than this have failed or are quarantined.
    pub failed_max: Option<u64>,
    /// How long a lease is valid that is not renewed, in microseconds.
    pub lease_us: u64,
    /// The time that a range should take, in microseconds.
    pub range_us: u64,
    /// Ends the campaign when a mean is known well enough.
    pub until: Option<Precision>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { attempts: 3, timeout_us: None, failed_max: None, lease_us: 5_000_000, range_us: 200_000, until: None }
    }
}

/// How well the mean of a column must be known, for every parameter set, for a campaign to end
/// early.
#[derive(Clone, Debug, PartialEq)]
pub struct Precision {
    /// A column of integers, floats or booleans. Of a run with several rows their mean counts.
    pub column: String,
    /// Half the width of the confidence interval; above 0.
    pub half_width: f64,
    /// The confidence over all looks together, between 0 and 1.
    pub confidence: f64,
}

/// A campaign as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Campaign {
    /// Its number.
    pub id: CampaignId,
    /// Its plan, with the runs and columns that it has by now.
    pub plan: Plan,
    /// How many parameter sets there are, from 1.
    pub sets: u64,
    /// The table with its results, once its columns are known.
    pub table: String,
    /// When it was created, in microseconds since 1970 by the store's clock.
    pub created_us: i64,
}

impl Plan {
    /// Checks everything that can be checked without a store.
    ///
    /// # Errors
    ///
    /// [`Invalid`](ErrorKind::Invalid), naming field, value and fix.
    pub fn check(&self) -> Result<()> {
        let (name, settings) = (&self.name, &self.settings);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return invalid(format!("name: {name:?}; give it 1 to {NAME_BYTES_MAX} bytes without control characters"));
        }
        if self.runs > Terms::RUNS_MAX {
            return invalid(format!("runs: {}; at most {}", self.runs, Terms::RUNS_MAX));
        }
        for (field, text) in [("function", &self.function), ("code", &self.code)] {
            if text.contains('\0') {
                return invalid(format!("{field}: text with NUL, which no store keeps: leave it out"));
            }
        }
        if settings.attempts == 0 {
            return invalid("attempts: 0; a run is tried once at least");
        }
        for (field, us, least) in [
            ("timeout", settings.timeout_us.unwrap_or(TIME_US_MAX), 1),
            ("lease", settings.lease_us, 1_000),
            ("range", settings.range_us, 1),
        ] {
            if us < least || us > TIME_US_MAX {
                return invalid(format!("{field}_us: {us}; give it {least} to {TIME_US_MAX}, which is 30 days"));
            }
        }
        if let Some(schema) = &self.schema {
            schema.check()?;
        }
        settings.until.as_ref().map_or(Ok(()), Precision::check)
    }
}

impl Precision {
    fn check(&self) -> Result<()> {
        if !self.half_width.is_finite() || self.half_width <= 0.0 {
            return invalid(format!("until: half_width {}; give it a number above 0", self.half_width));
        }
        if !(self.confidence > 0.0 && self.confidence < 1.0) {
            return invalid(format!(
                "until: confidence {}; give it a number between 0 and 1, as 0.99",
                self.confidence
            ));
        }
        if self.column.contains('\0') {
            return invalid("until: column with NUL: leave it out");
        }
        Ok(())
    }
}

/// An error about a value that can't be stored.
pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T> {
    Err(StoreError::new(ErrorKind::Invalid, message))
}
