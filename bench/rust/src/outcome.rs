//! Outcome of a run, and its line of JSON.

use std::time::Duration;

use crate::job::Job;

/// Named figures of one run, in the order in which they were added.
#[derive(Debug, Default)]
pub struct Outcome {
    figures: Vec<(&'static str, f64)>,
}

impl Outcome {
    /// `count` things in `elapsed`.
    pub fn rate(count: u64, elapsed: Duration) -> Outcome {
        let seconds = elapsed.as_secs_f64();
        Outcome::default().with("seconds", seconds).with("rate", count as f64 / seconds)
    }

    /// Percentiles of samples in nanoseconds, given in microseconds.
    pub fn latency(mut samples: Vec<u64>) -> Outcome {
        assert!(!samples.is_empty(), "a latency run recorded nothing");
        samples.sort_unstable();
        let mean = samples.iter().sum::<u64>() as f64 / samples.len() as f64;
        Outcome::default()
            .with("samples", samples.len() as f64)
            .with("p50_us", at(&samples, 0.5))
            .with("p99_us", at(&samples, 0.99))
            .with("p999_us", at(&samples, 0.999))
            .with("mean_us", mean / 1e3)
            .with("max_us", at(&samples, 1.0))
    }

    /// Adds one more figure.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: f64) -> Outcome {
        self.figures.push((name, value));
        self
    }

    /// The line that the runner reads.
    pub fn to_json(&self, allocator: &str, job: &Job) -> String {
        let figures: Vec<String> = self.figures.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
        format!(
            "{{\"contender\": \"{}\", \"allocator\": \"{allocator}\", \"workload\": \"{}\", \"params\": {{\"count\": {}, \
             \"actors\": {}, \"idle\": {}, \"in_flight\": {}, \"threads\": {}, \"mailbox\": {}}}, \"figures\": {{{}}}}}",
            job.contender,
            job.workload.id(),
            job.count,
            job.actors,
            job.idle,
            job.in_flight,
            job.threads,
            job.mailbox,
            figures.join(", ")
        )
    }
}

/// The percentile `share` of the sorted samples, in microseconds.
fn at(sorted: &[u64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1] as f64 / 1e3
}
