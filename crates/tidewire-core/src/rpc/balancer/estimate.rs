//! Estimate of the time that a call takes at an instance: a model of the method, and the slowness
//! of the instance.

use std::sync::Arc;

/// Weight that a new call has in the model of its method, once there are many.
const MODEL_WEIGHT: f64 = 0.01;
/// Samples that the slowness of an instance remembers, and those of its recent mean.
const SAMPLES_MAX: f64 = 24.0;
const RECENT: f64 = 4.0;
/// Samples lose weight with this time constant.
const AGE_US: f64 = 5e6;
/// Spread that instances are expected to have, as a variance of logarithms.
const PRIOR_VARIANCE: f64 = 0.25;
/// Distance of the recent mean from the mean, in standard errors, that is a change.
const CHANGE: f64 = 2.5;
/// Largest logarithm of a slowness.
const LOG_MAX: f64 = 4.5;

/// The time of one method at an instance of normal speed: a line over the cost of the call.
#[derive(Clone, Debug, Default)]
pub(super) struct MethodModel {
    pub name: Arc<str>,
    weight: f64,
    cost: f64,
    time: f64,
    cost_square: f64,
    cost_time: f64,
    fixed_us: f64,
    slope_us: f64,
    /// Mean logarithm of the ratio of times to the line.
    bias: f64,
    scale: f64,
}

impl MethodModel {
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The expected time; None before the first call has ended.
    pub fn expected_us(&self, cost: f64) -> Option<f64> {
        (self.weight > 0.0).then(|| (self.scale * (self.fixed_us + self.slope_us * cost)).max(1.0))
    }

    /// Learns from a call that took `time_us` at normal speed.
    fn observe(&mut self, cost: f64, time_us: f64) {
        let line_us = self.expected_us(cost).map_or(time_us, |expected_us| expected_us / self.scale).max(1.0);
        let time_us = time_us.clamp(line_us / 30.0, line_us * 30.0);
        // Times spread in proportion to their length.
        let weight = (time_us.max(line_us) * line_us).recip();
        let forgets = 1.0 - MODEL_WEIGHT;
        for (sum, value) in [
            (&mut self.weight, 1.0),
            (&mut self.cost, cost),
            (&mut self.time, time_us),
            (&mut self.cost_square, cost * cost),
            (&mut self.cost_time, cost * time_us),
        ] {
            *sum = *sum * forgets + value * weight;
        }
        let spread = self.weight * self.cost_square - self.cost * self.cost;
        let varies = spread > 1e-6 * self.weight * self.cost_square;
        let slope = if varies { (self.weight * self.cost_time - self.cost * self.time) / spread } else { 0.0 };
        self.slope_us = slope.max(0.0);
        self.fixed_us = (self.time - self.slope_us * self.cost) / self.weight;
        if self.fixed_us < 0.0 {
            (self.fixed_us, self.slope_us) = (0.0, self.cost_time / self.cost_square);
        }
        let line_us = (self.fixed_us + self.slope_us * cost).max(1.0);
        self.bias += 0.05 * ((time_us.max(1.0) / line_us).ln() - self.bias);
        self.scale = self.bias.exp();
    }
}

/// How much slower than normal an instance is: a decayed mean of logarithms of ratios.
#[derive(Clone, Debug)]
pub(super) struct Slowness {
    mean: f64,
    recent: f64,
    weight: f64,
    at_us: u64,
    /// Number of samples.
    pub samples: u64,
    /// The estimate as a factor, and its standard error as a share.
    pub factor: f64,
    pub error: f64,
}

impl Default for Slowness {
    fn default() -> Self {
        Self { mean: 0.0, recent: 0.0, weight: 0.0, at_us: 0, samples: 0, factor: 1.0, error: f64::INFINITY }
    }
}

impl Slowness {
    fn observe(&mut self, ratio: f64, now_us: u64, variance: f64) {
        let age_us = now_us.saturating_sub(self.at_us) as f64;
        self.weight = (self.weight * (-age_us / AGE_US).exp() + 1.0).min(SAMPLES_MAX);
        self.at_us = now_us;
        self.samples += 1;
        self.mean += (ratio - self.mean) / self.weight;
        self.recent += (ratio - self.recent) / self.weight.min(RECENT);
        if (self.recent - self.mean).abs() > CHANGE * (variance / RECENT).sqrt() {
            (self.mean, self.weight) = (self.recent, RECENT);
        }
    }

    /// The mean, drawn towards `prior` as long as samples are few or spread far.
    fn shrunk(&self, prior: f64, variance: f64) -> f64 {
        let doubt = variance / PRIOR_VARIANCE;
        let count = (self.samples as f64).min(SAMPLES_MAX);
        (count * self.mean + doubt * prior) / (count + doubt)
    }
}

/// The slowness of one instance, for all methods together and for each of them.
#[derive(Clone, Debug, Default)]
pub(super) struct InstanceEstimate {
    all: Slowness,
    methods: Vec<Slowness>,
}

impl InstanceEstimate {
    /// How many times longer than normal a call of this method takes.
    pub fn factor(&self, method: usize) -> f64 {
        self.methods.get(method).filter(|one| one.samples > 0).map_or(self.all.factor, |one| one.factor)
    }

    /// The number of samples of a method, and the standard error of its factor as a share.
    pub fn confidence(&self, method: usize) -> (u64, f64) {
        self.methods.get(method).map_or((0, f64::INFINITY), |one| (one.samples, one.error))
    }

    /// True if a call has ended there.
    pub fn has_samples(&self) -> bool {
        self.all.samples > 0
    }

    /// Learns from a call, for the model of its method too. `variance` is that of all ratios.
    pub fn observe(
        &mut self,
        method: usize,
        model: &mut MethodModel,
        cost: f64,
        took_us: f64,
        now_us: u64,
        variance: &mut f64,
    ) {
        if self.methods.len() <= method {
            self.methods.resize_with(method + 1, Slowness::default);
        }
        let one = &mut self.methods[method];
        let expected_us = model.expected_us(cost).unwrap_or(took_us).max(1.0);
        let ratio = (took_us.max(1.0) / expected_us).ln().clamp(-LOG_MAX, LOG_MAX);
        let known = if one.samples > 0 { one.mean } else { self.all.mean };
        *variance += 0.02 * ((ratio - known).powi(2).min(4.0) - *variance);
        let doubt = variance.max(0.02);
        self.all.observe(ratio, now_us, doubt);
        one.observe(ratio, now_us, doubt);
        let prior = self.all.shrunk(0.0, doubt);
        self.all.factor = prior.exp();
        one.factor = one.shrunk(prior, doubt).exp();
        one.error = (doubt / (one.weight + doubt / PRIOR_VARIANCE)).sqrt();
        model.observe(cost, took_us / one.factor);
    }
}
