//! Series with labels, whose number is bounded.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Most combinations of labels of one series. Further ones are counted together, as `other`.
const COMBINATIONS_MAX: usize = 1_000;
const OTHER: &str = "other";

/// A series: its name, type, help and labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Series(pub &'static str, pub &'static str, pub &'static str, pub &'static [&'static str]);

/// The values of series.
#[derive(Debug, Default)]
pub(crate) struct Samples(BTreeMap<Series, BTreeMap<Vec<String>, f64>>);

impl Samples {
    /// Adds a value. Values with the same labels are added up; of seconds, the longest stays.
    pub fn add(&mut self, series: Series, labels: &[&str], value: f64) {
        let values = self.0.entry(series).or_default();
        let mut labels: Vec<String> = labels.iter().map(ToString::to_string).collect();
        if values.len() >= COMBINATIONS_MAX && !values.contains_key(&labels) {
            labels = vec![OTHER.to_owned(); labels.len()];
        }
        let there = values.entry(labels).or_default();
        *there = if series.0.ends_with("_seconds") { there.max(value) } else { *there + value };
    }

    /// Writes all of them in the text format of Prometheus.
    pub fn write(&self, out: &mut String) {
        for (Series(name, kind, help, names), values) in &self.0 {
            // Writing to memory does not fail.
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in values {
                let labels: Vec<String> =
                    names.iter().zip(labels).map(|(name, label)| format!("{name}=\"{}\"", escaped(label))).collect();
                let _ = match labels.is_empty() {
                    true => writeln!(out, "{name} {value}"),
                    false => writeln!(out, "{name}{{{}}} {value}", labels.join(",")),
                };
            }
        }
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
