//! Scenarios of the routing simulation: traffic, instances and faults in virtual time.

use tidewire_core::campaign::random::Stream;

pub const INSTANCES: usize = 10;
/// Calls that one instance runs at a time.
pub const SLOTS: usize = 2;
/// Callers; each sees only its own calls.
pub const CALLERS: usize = 4;
pub const SECONDS: u64 = 20;

const SECOND_US: u64 = 1_000_000;
const MEAN_US: f64 = 10_000.0;
/// Keys of the cold cache, and the slowdown of a call whose key is not in the cache.
const KEYS: u64 = 200;
const MISS: f64 = 8.0;
/// The instances that join late, and when they do.
const LATE: [usize; 2] = [8, 9];
const JOIN_US: u64 = 5 * SECOND_US;

/// One call of the traffic, the same under every rule.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedCall {
    pub at_us: u64,
    pub caller: usize,
    pub method: usize,
    /// The feature that the caller knows, such as rows of a request.
    pub rows: f64,
    /// Time of the call at a healthy instance without a queue.
    pub work_us: f64,
    pub key: u64,
    pub is_idempotent: bool,
}

/// A service under some traffic, with the faults of its instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Ten equal instances, and calls of similar length.
    Uniform,
    /// Ten equal instances; one call in a hundred takes thirty times the median.
    HeavyTails,
    SlowOne,
    ColdCache,
    /// The load swings between 20 % and 90 % of the capacity; two instances are twice as slow.
    Diurnal,
    /// Two instances are ten times slower in turns of two seconds.
    Flapping,
    /// Two instances join after five seconds, ten times slower at first.
    SlowStart,
    /// Three methods of different length; two instances are five times slower at the longest one.
    Methods,
    /// Calls with many rows take longer; two instances are four times slower at each row.
    Payload,
    /// One instance fails every call at once between the third and the twelfth second.
    FailsFast,
}

impl Scenario {
    pub const ALL: [Self; 10] = [
        Self::Uniform,
        Self::HeavyTails,
        Self::SlowOne,
        Self::ColdCache,
        Self::Diurnal,
        Self::Flapping,
        Self::SlowStart,
        Self::Methods,
        Self::Payload,
        Self::FailsFast,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::HeavyTails => "heavy tails",
            Self::SlowOne => "one slow of ten",
            Self::ColdCache => "cold cache",
            Self::Diurnal => "diurnal load",
            Self::Flapping => "flapping",
            Self::SlowStart => "slow start",
            Self::Methods => "methods of different cost",
            Self::Payload => "payload-dependent cost",
            Self::FailsFast => "fails fast",
        }
    }

    pub fn join_us(self, instance: usize) -> u64 {
        let joins_late = matches!(self, Self::ColdCache | Self::SlowStart) && LATE.contains(&instance);
        if joins_late { JOIN_US } else { 0 }
    }

    /// True if an instance fails the call that it gets now.
    pub fn fails(self, instance: usize, now_us: u64) -> bool {
        self == Self::FailsFast && instance == 3 && (3..12).contains(&(now_us / SECOND_US))
    }

    /// How many times longer a call takes at an instance that begins it now.
    pub fn slowdown(self, instance: usize, call: &SimulatedCall, start_us: u64, caches: &Caches) -> f64 {
        match self {
            Self::SlowOne if instance == 0 => 10.0,
            Self::ColdCache if caches.misses(instance, call.key) => MISS,
            Self::Diurnal if instance < 2 => 2.0,
            Self::Flapping if instance < 2 && (start_us / (2 * SECOND_US)) as usize % 2 == instance => 10.0,
            Self::SlowStart if LATE.contains(&instance) => {
                let age_s = start_us.saturating_sub(JOIN_US) as f64 / SECOND_US as f64;
                1.0 + 9.0 * (1.0 - age_s / 5.0).max(0.0)
            }
            Self::Methods if instance < 2 && call.method == 2 => 5.0,
            Self::Payload if instance < 2 => (1_000.0 + 4.0 * call.rows * ROW_US) / (1_000.0 + call.rows * ROW_US),
            _ => 1.0,
        }
    }

    pub fn traffic(self, seed: u64) -> Vec<SimulatedCall> {
        let mut random = Random::new(seed.wrapping_mul(31).wrapping_add(self as u64));
        let mut calls = Vec::new();
        let mut at_us = 0.0;
        loop {
            let mean_us = MEAN_US / (INSTANCES * SLOTS) as f64 / self.load(at_us);
            at_us += random.exponential() * mean_us;
            if at_us >= (SECONDS * SECOND_US) as f64 {
                return calls;
            }
            calls.push(self.call(at_us as u64, &mut random));
        }
    }

    /// The share of the capacity that calls use.
    fn load(self, at_us: f64) -> f64 {
        match self {
            Self::Diurnal => 0.5 + 0.3 * (std::f64::consts::TAU * at_us / 1e7).sin(),
            Self::ColdCache | Self::SlowStart | Self::Flapping => 0.5,
            Self::HeavyTails => 0.55,
            _ => 0.6,
        }
    }

    fn call(self, at_us: u64, random: &mut Random) -> SimulatedCall {
        let (caller, draw) = (random.below(CALLERS), random.unit());
        // The square favours the first keys.
        let key = (random.unit().powi(2) * KEYS as f64) as u64;
        let spread = if self == Self::HeavyTails { 1.45 } else { 0.4 };
        let noise = (spread * random.normal() - spread * spread / 2.0).exp();
        let (method, rows, mean_us) = match self {
            Self::Methods if draw < 0.70 => (0, 0.0, 2_000.0),
            Self::Methods if draw < 0.93 => (1, 0.0, 10_000.0),
            Self::Methods => (2, 0.0, 90_000.0),
            Self::Payload => {
                let rows = (random.normal() - 0.5).exp() * (MEAN_US - 1_000.0) / ROW_US;
                (0, rows, 1_000.0 + rows * ROW_US)
            }
            _ => (0, 0.0, MEAN_US),
        };
        let is_idempotent = random.unit() < 0.5;
        SimulatedCall { at_us, caller, method, rows, work_us: mean_us * noise, key, is_idempotent }
    }
}

const ROW_US: f64 = 10.0;

/// The keys that each instance has read. Instances that join late begin without any.
pub struct Caches(Vec<Vec<bool>>);

impl Caches {
    pub(crate) fn new() -> Self {
        Self((0..INSTANCES).map(|instance| vec![!LATE.contains(&instance); KEYS as usize]).collect())
    }

    fn misses(&self, instance: usize, key: u64) -> bool {
        !self.0[instance][key as usize]
    }

    pub(crate) fn fill(&mut self, instance: usize, key: u64) {
        self.0[instance][key as usize] = true;
    }
}

/// Random numbers of a seed.
#[derive(Clone, Debug)]
pub struct Random(Stream);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Stream::new([seed, 0], [0; 4]))
    }

    pub fn bits(&mut self) -> u64 {
        self.0.word()
    }

    pub fn unit(&mut self) -> f64 {
        self.0.unit()
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.unit() * end as f64) as usize
    }

    /// A number of the exponential distribution with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// A number of the standard normal distribution.
    pub fn normal(&mut self) -> f64 {
        (2.0 * self.exponential()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}
