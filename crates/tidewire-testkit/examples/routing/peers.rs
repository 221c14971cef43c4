//! Routing rules of the figures: the policies of the balancer, their peers, and an oracle.

use tidewire_core::rpc::balancer::{CallLoad, Policy};
use tidewire_testkit::routing::router::{PolicyRouter, Router};
use tidewire_testkit::routing::scenario::Random;
use tidewire_testkit::routing::scenario::{INSTANCES, SimulatedCall};

/// The largest share of probes, the default of the policy.
const EXPLORE: f64 = 0.01;

/// A routing rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Any instance.
    Random,
    /// Each instance in turn.
    RoundRobin,
    /// The policy of the balancer.
    LeastOutstanding,
    /// Peak EWMA with two random choices, the rule of Finagle.
    PeakEwma,
    /// One moving average for each instance, times its calls in progress.
    OneAverage,
    /// The lowest-latency policy of the balancer.
    Learned,
    /// The instance that ends the call first. It knows all queues and the time of the call.
    Oracle,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Random,
        Self::RoundRobin,
        Self::LeastOutstanding,
        Self::PeakEwma,
        Self::OneAverage,
        Self::Learned,
        Self::Oracle,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::RoundRobin => "round robin",
            Self::LeastOutstanding => "least outstanding",
            Self::PeakEwma => "peak EWMA",
            Self::OneAverage => "one average",
            Self::Learned => "learned",
            Self::Oracle => "oracle",
        }
    }

    pub fn router(self, seed: u64) -> Box<dyn Router> {
        let mut random = Random::new(seed);
        let policy = match self {
            Self::LeastOutstanding => Policy::LeastOutstanding,
            Self::Random | Self::Oracle => Policy::Random,
            Self::Learned => Policy::LowestLatency { explore: EXPLORE },
            Self::RoundRobin | Self::PeakEwma | Self::OneAverage => {
                let (instances, turn) = ([Peer::default(); INSTANCES], random.below(INSTANCES));
                return Box::new(PeerRouter { rule: self, instances, known: Vec::new(), turn, random });
            }
        };
        Box::new(PolicyRouter::new(policy, random))
    }
}

/// A rule that is not a policy of the balancer.
struct PeerRouter {
    rule: Rule,
    instances: [Peer; INSTANCES],
    known: Vec<usize>,
    turn: usize,
    random: Random,
}

#[derive(Clone, Copy, Default)]
struct Peer {
    cost: f64,
    at_us: u64,
    pending: u64,
}

impl Peer {
    /// Finagle's decay: a slow call raises the cost at once, and the cost falls over ten seconds.
    fn observe_peak(&mut self, took_us: f64, now_us: u64) {
        let weight = (-(now_us.saturating_sub(self.at_us) as f64) / 1e7).exp();
        self.cost = if took_us > self.cost { took_us } else { self.cost * weight + took_us * (1.0 - weight) };
        self.at_us = now_us;
    }

    /// The load by Finagle, whose penalty keeps a second call from an instance without an answer.
    fn peak_load(&mut self, now_us: u64) -> f64 {
        self.observe_peak(0.0, now_us);
        if self.cost == 0.0 && self.pending != 0 {
            return 1e15 + self.pending as f64;
        }
        self.cost * (self.pending + 1) as f64
    }
}

impl PeerRouter {
    fn two_choices(&mut self, left: &[usize], now_us: u64) -> usize {
        let one = self.random.below(left.len());
        let step = 1 + self.random.below((left.len() - 1).max(1));
        let (one, other) = (left[one], left[(one + step) % left.len()]);
        if self.instances[one].peak_load(now_us) <= self.instances[other].peak_load(now_us) { one } else { other }
    }

    /// One call in twenty goes to any instance, and each instance without an answer gets one call.
    fn lowest_average(&mut self, left: &[usize]) -> usize {
        let fresh = |at: &usize| self.instances[*at].cost == 0.0;
        if let Some(fresh) = left.iter().copied().find(|at| fresh(at) && self.instances[*at].pending == 0) {
            return fresh;
        }
        if self.random.unit() < 0.05 {
            return left[self.random.below(left.len())];
        }
        let expected = |at: &usize| {
            let Peer { cost, pending, .. } = self.instances[*at];
            if fresh(at) { f64::INFINITY } else { cost * (pending + 1) as f64 }
        };
        left.iter().copied().min_by(|one, other| expected(one).total_cmp(&expected(other))).unwrap_or(0)
    }
}

impl Router for PeerRouter {
    fn add(&mut self, instance: usize) {
        self.known.push(instance);
    }

    fn choose(&mut self, _: &SimulatedCall, now_us: u64, tried: &[usize]) -> usize {
        let left: Vec<usize> = self.known.iter().copied().filter(|at| !tried.contains(at)).collect();
        match self.rule {
            Rule::PeakEwma => self.two_choices(&left, now_us),
            Rule::OneAverage => self.lowest_average(&left),
            _ => {
                self.turn += 1;
                left[self.turn % left.len()]
            }
        }
    }

    fn began(&mut self, instance: usize, _: &SimulatedCall, _: u64) -> CallLoad {
        self.instances[instance].pending += 1;
        CallLoad::default()
    }

    fn ended(&mut self, instance: usize, _: CallLoad, now_us: u64, took_us: u64, failed: bool) {
        let one = &mut self.instances[instance];
        one.pending -= 1;
        let took_us = took_us as f64;
        if self.rule == Rule::PeakEwma {
            return one.observe_peak(took_us, now_us);
        }
        // A failed call counts as twice as slow.
        let took_us = if failed { took_us.max(one.cost * 2.0) } else { took_us };
        one.cost = if one.cost == 0.0 { took_us } else { one.cost + 0.2 * (took_us - one.cost) };
    }
}
