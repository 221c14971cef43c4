//! Decisions of the balancer: what it knows of each instance, and its last choices with their
//! reasons.

use std::collections::VecDeque;
use std::sync::Arc;

/// Decisions that a balancer remembers.
pub const DECISIONS_MAX: usize = 32;

/// Why an instance was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutingReason {
    /// No other instance was left.
    Only,
    /// No call has ended at the instance yet.
    New,
    /// The expected time is the lowest.
    LowestTime,
    /// A probe of an instance that has not been used for a while.
    Probe,
    /// A probe of an ejected instance, with an idempotent call.
    EjectedProbe,
    /// All instances are ejected, or as busy as new instances may be.
    Fallback,
}

impl RoutingReason {
    /// The reason as users see it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Only => "only",
            Self::New => "new",
            Self::LowestTime => "lowest time",
            Self::Probe => "probe",
            Self::EjectedProbe => "probe of an ejected instance",
            Self::Fallback => "fallback",
        }
    }
}

/// One choice of the balancer.
#[derive(Clone, Debug)]
pub struct RoutingDecision {
    /// When the choice was made.
    pub at_us: u64,
    /// The method of the call.
    pub method: Arc<str>,
    /// The instance that was chosen.
    pub instance: Arc<str>,
    /// Why.
    pub reason: RoutingReason,
    /// The expected time of the call there, the calls in progress included.
    pub expected_us: f64,
}

/// The view that a balancer has of one instance, for one method.
#[derive(Clone, Debug)]
pub struct RoutingEstimate {
    /// The id of the instance.
    pub id: Arc<str>,
    /// The expected time of a call, without the calls in progress; None before the first answer.
    pub expected_us: Option<f64>,
    /// Standard error of the expected time, as a share of it; infinite without samples.
    pub error: f64,
    /// Calls of the method that have ended there.
    pub samples: u64,
    /// Calls in progress from this caller.
    pub outstanding: u64,
    /// Decayed share of failed calls, 0 to 1.
    pub failures: f64,
    /// The rest of the ejection; 0: the instance is not ejected.
    pub ejected_us: u64,
    /// True if a new instance gets few calls at a time.
    pub is_starting: bool,
}

/// The state of a balancer for one method, and its last decisions.
#[derive(Clone, Debug, Default)]
pub struct RoutingExplanation {
    /// The instances in the order in which they came.
    pub instances: Vec<RoutingEstimate>,
    /// The last decisions under the lowest-latency policy, oldest first.
    pub decisions: Vec<RoutingDecision>,
    /// Calls under this policy, and the probes among them.
    pub calls: u64,
    /// Probes among the calls.
    pub probes: u64,
}

/// The view that a balancer has of one instance for one method, with its last decision.
#[derive(Clone, Debug)]
pub struct RouteRow {
    /// The method.
    pub method: Arc<str>,
    /// The view of the instance.
    pub estimate: RoutingEstimate,
    /// The last decision for both: how long ago it was made, and why.
    pub last: Option<(u64, RoutingReason)>,
}

/// The last decisions; the oldest makes room for a new one.
#[derive(Debug, Default)]
pub(super) struct DecisionRing(VecDeque<RoutingDecision>);

impl DecisionRing {
    pub fn push(&mut self, decision: RoutingDecision) {
        self.0.reserve(DECISIONS_MAX - self.0.len());
        if self.0.len() == DECISIONS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(decision);
    }

    pub fn iter(&self) -> impl Iterator<Item = &RoutingDecision> {
        self.0.iter()
    }
}
