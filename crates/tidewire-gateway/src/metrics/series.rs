//! Series with labels, whose number is bounded.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use tidewire_node::{DURATION_ENDS_MS, Durations};

/// Most combinations of labels of one series. Further ones are counted together, as `other`.
const COMBINATIONS_MAX: usize = 1_000;
const OTHER: &str = "other";

/// A series: its name, type, help and labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Series(pub &'static str, pub &'static str, pub &'static str, pub &'static [&'static str]);

/// The values of series: one each, or of a histogram the counts of its buckets and the sum.
#[derive(Debug, Default)]
pub(crate) struct Samples(BTreeMap<Series, BTreeMap<Vec<String>, Vec<f64>>>);

impl Samples {
    /// Adds a value. Values with the same labels are added up; of gauges in seconds, the longest
    /// stays.
    pub fn add(&mut self, series: Series, labels: &[&str], value: f64) {
        self.add_all(series, labels, &[value]);
    }

    /// Adds durations to a histogram.
    pub fn add_durations(&mut self, series: Series, labels: &[&str], times: &Durations) {
        let counts = times.buckets.iter().map(|count| *count as f64);
        self.add_all(series, labels, &counts.chain([times.sum_us as f64 / 1e6]).collect::<Vec<_>>());
    }

    fn add_all(&mut self, series: Series, labels: &[&str], values: &[f64]) {
        let all = self.0.entry(series).or_default();
        let mut labels: Vec<String> = labels.iter().map(ToString::to_string).collect();
        if all.len() >= COMBINATIONS_MAX && !all.contains_key(&labels) {
            labels = vec![OTHER.to_owned(); labels.len()];
        }
        let is_longest = series.1 == "gauge" && series.0.ends_with("_seconds");
        let there = all.entry(labels).or_insert_with(|| vec![0.0; values.len()]);
        for (there, value) in there.iter_mut().zip(values) {
            *there = if is_longest { there.max(*value) } else { *there + value };
        }
    }

    /// All of them in the text format of Prometheus.
    pub fn text(&self) -> String {
        let mut out = String::with_capacity(4_096);
        for (series, all) in &self.0 {
            // Writing to memory does not fail.
            let _ = writeln!(out, "# HELP {0} {2}\n# TYPE {0} {1}", series.0, series.1, series.2);
            for Sample { name, labels, value } in all.iter().flat_map(|(labels, values)| series.expand(labels, values))
            {
                let labels: Vec<_> =
                    labels.iter().map(|(name, label)| format!("{name}=\"{}\"", escaped(label))).collect();
                let _ = match labels.is_empty() {
                    true => writeln!(out, "{name} {value}"),
                    false => writeln!(out, "{name}{{{}}} {value}", labels.join(",")),
                };
            }
        }
        out
    }

    /// All of them.
    pub fn each(&self) -> impl Iterator<Item = Sample> + '_ {
        let series =
            self.0.iter().flat_map(|(series, all)| all.iter().map(move |(labels, values)| (series, labels, values)));
        series.flat_map(|(series, labels, values)| series.expand(labels, values))
    }
}

/// A value with its name and labels. A histogram has one for each bucket, their sum and count.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sample {
    /// Name of its series; of a histogram with `_bucket`, `_sum` or `_count`.
    pub name: Cow<'static, str>,
    /// Its labels that have a value.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: f64,
}

impl Series {
    fn expand(&self, labels: &[String], values: &[f64]) -> Vec<Sample> {
        let labels = self.3.iter().zip(labels).filter(|(_, label)| !label.is_empty());
        let labels: Vec<_> = labels.map(|(name, label)| (*name, label.clone())).collect();
        let (Some((sum, buckets)), "histogram") = (values.split_last(), self.1) else {
            return vec![Sample { name: self.0.into(), labels, value: values.iter().sum() }];
        };
        let named = |end: &str, labels, value| Sample { name: format!("{}_{end}", self.0).into(), labels, value };
        let ends = DURATION_ENDS_MS.iter().map(|ms| (*ms as f64 / 1e3).to_string()).chain(["+Inf".to_owned()]);
        let mut count = 0.0;
        let mut all: Vec<_> = ends
            .zip(buckets)
            .map(|(end, more)| {
                count += more;
                named("bucket", [&labels[..], &[("le", end)]].concat(), count)
            })
            .collect();
        all.extend([named("sum", labels.clone(), *sum), named("count", labels, count)]);
        all
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
