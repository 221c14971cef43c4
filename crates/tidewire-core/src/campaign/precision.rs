//! Sequential stopping: a campaign ends when the mean of a column is known well enough.
//!
//! Looks are made at fixed run indices, when every run before them has ended and none behind them
//! has begun. So the end does not depend on workers or timing. The k-th look may err with
//! probability alpha / (k (k + 1)). Over all looks the sum is alpha, so that the confidence holds
//! although there are many looks.

use serde::{Deserialize, Deserializer, Serialize};

/// Runs of each parameter set before the first look.
const FIRST: u64 = 100;
/// The least number of values of a parameter set; with fewer its mean counts as unknown.
const VALUES_MIN: u64 = 30;

/// How well means must be known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrecisionTarget {
    /// Half the width of the confidence interval, at most.
    pub half_width: f64,
    /// The confidence over all looks together, between 0 and 1; for each parameter set by itself.
    pub confidence: f64,
}

/// The verdict of a look: the mean of the parameter set that is known least precisely.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Runs before this one were looked at.
    pub runs: u64,
    /// Which parameter set that is.
    pub set: u64,
    /// How many values it has.
    pub values: u64,
    /// Their mean; NaN if it is not finite.
    #[serde(deserialize_with = "or_nan")]
    pub mean: f64,
    /// Half the width of its interval; absent with too few values, or with values that are not
    /// finite.
    pub half_width: Option<f64>,
    /// True if all means are known well enough.
    pub reached: bool,
}

/// JSON has no NaN, and serde writes null for it.
fn or_nan<'de, D: Deserializer<'de>>(input: D) -> Result<f64, D::Error> {
    Option::deserialize(input).map(|mean| mean.unwrap_or(f64::NAN))
}

/// The runs at which a look is due, and the latest verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoints {
    aim: PrecisionTarget,
    sets: u64,
    next: u64,
    looks: u32,
    last: Option<Verdict>,
}

impl Checkpoints {
    /// Looks from `100 x sets` runs on, each at a quarter more runs than the last, in whole rounds
    /// of the parameter sets.
    pub fn new(aim: PrecisionTarget, sets: u64) -> Self {
        Self { aim, sets: sets.max(1), next: FIRST.saturating_mul(sets.max(1)), looks: 0, last: None }
    }

    /// The run before which the next look is made.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Runs before this one were looked at.
    pub fn seen(&self) -> u64 {
        self.last.map_or(0, |last| last.runs)
    }

    /// The latest verdict.
    pub const fn last(&self) -> Option<&Verdict> {
        self.last.as_ref()
    }

    /// Makes the verdict of a look at all runs before `runs`.
    pub fn judge(&self, runs: u64, moments: &Moments) -> Verdict {
        let look = f64::from(self.looks + 1);
        let alpha = (1.0 - self.aim.confidence) / (look * (look + 1.0));
        let mut worst = Verdict { runs, set: 0, values: 0, mean: f64::NAN, half_width: None, reached: false };
        for (set, moment) in moments.0.iter().enumerate() {
            let half_width = moment.half_width(alpha);
            let worse = match (half_width, worst.half_width) {
                (None, _) => true,
                (Some(this), Some(other)) => this > other,
                (Some(_), None) => set == 0,
            };
            if worse {
                worst = Verdict { set: set as u64, values: moment.values, mean: moment.mean, half_width, ..worst };
            }
            if half_width.is_none() {
                break;
            }
        }
        worst.reached = worst.half_width.is_some_and(|width| width <= self.aim.half_width);
        worst
    }

    /// Takes a verdict in.
    pub(super) fn looked(&mut self, verdict: Verdict) {
        if verdict.runs >= self.next {
            let grown = verdict.runs.saturating_add(verdict.runs.div_ceil(4));
            self.next = grown.div_ceil(self.sets).saturating_mul(self.sets);
        }
        self.looks += 1;
        self.last = Some(verdict);
    }

    /// No look before this run: it was asked for by a person.
    pub(super) fn go_on_to(&mut self, runs: u64) {
        self.next = self.next.max(runs);
    }
}

/// Count, mean and squared deviations of each parameter set (Welford 1962). The order of the values
/// is part of the result, to the last bit: they are added in order of run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moments(Vec<Moment>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Moment {
    values: u64,
    mean: f64,
    squares: f64,
}

impl Moments {
    const BYTES: usize = 24;

    /// No values of so many parameter sets.
    pub fn new(sets: u64) -> Self {
        Self(vec![Moment::default(); usize::try_from(sets.max(1)).unwrap_or(1)])
    }

    /// Adds the value of a run.
    pub fn add(&mut self, run: u64, value: f64) {
        let sets = self.0.len() as u64;
        let moment = &mut self.0[(run % sets) as usize];
        moment.values += 1;
        let from_old = value - moment.mean;
        moment.mean += from_old / moment.values as f64;
        moment.squares += from_old * (value - moment.mean);
    }

    /// As bytes, for a store: three little-endian words for each parameter set.
    pub fn to_bytes(&self) -> Vec<u8> {
        let words = self.0.iter().flat_map(|moment| [moment.values, moment.mean.to_bits(), moment.squares.to_bits()]);
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// Reads what [`Moments::to_bytes`] has written.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let words = |chunk: &[u8]| -> Option<Moment> {
            let word = |at: usize| chunk.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
            Some(Moment { values: word(0)?, mean: f64::from_bits(word(8)?), squares: f64::from_bits(word(16)?) })
        };
        let whole = !bytes.is_empty() && bytes.len().is_multiple_of(Self::BYTES);
        whole.then(|| bytes.chunks(Self::BYTES).map(words).collect::<Option<_>>().map(Self))?
    }
}

impl Moment {
    fn half_width(&self, alpha: f64) -> Option<f64> {
        if self.values < VALUES_MIN || !self.squares.is_finite() || !self.mean.is_finite() {
            return None;
        }
        let freedom = (self.values - 1) as f64;
        let error = (self.squares.max(0.0) / freedom / self.values as f64).sqrt();
        Some(student(1.0 - alpha / 2.0, freedom) * error)
    }
}

/// The quantile of Student's distribution, by its expansion around the normal one (Abramowitz and
/// Stegun 26.7.5).
fn student(p: f64, freedom: f64) -> f64 {
    let z = normal(p);
    let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
    z + (z3 + z) / (4.0 * freedom)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * freedom.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * freedom.powi(3))
}

/// The quantile of the normal distribution for p of one half or more, by Acklam's rational
/// approximation (2003).
fn normal(p: f64) -> f64 {
    const CENTRE: [[f64; 6]; 2] = [
        [
            -3.969683028665376e1,
            2.209460984245205e2,
            -2.759285104469687e2,
            1.383_577_518_672_69e2,
            -3.066479806614716e1,
            2.506628277459239,
        ],
        [
            -5.447609879822406e1,
            1.615858368580409e2,
            -1.556989798598866e2,
            6.680131188771972e1,
            -1.328068155288572e1,
            1.0,
        ],
    ];
    const TAIL: ([f64; 6], [f64; 5]) = (
        [
            -7.784894002430293e-3,
            -3.223964580411365e-1,
            -2.400758277161838,
            -2.549732539343734,
            4.374664141464968,
            2.938163982698783,
        ],
        [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416, 1.0],
    );
    let horner = |terms: &[f64], x: f64| terms.iter().fold(0.0, |sum, term| sum * x + term);
    if p <= 0.97575 {
        let q = p - 0.5;
        return q * horner(&CENTRE[0], q * q) / horner(&CENTRE[1], q * q);
    }
    let q = (-2.0 * (1.0 - p).ln()).sqrt();
    -horner(&TAIL.0, q) / horner(&TAIL.1, q)
}

#[cfg(test)]
mod tests;
