//! The balancer of a caller: the instances of one service, their load as this caller sees it, and
//! the policy that chooses one for a call.

mod decision;
mod estimate;
mod health;

use std::sync::Arc;

use super::{FAR, STANDBY};
use decision::DecisionRing;
pub use decision::{DECISIONS_MAX, RouteRow, RoutingDecision, RoutingEstimate, RoutingExplanation, RoutingReason};
use estimate::{InstanceEstimate, MethodModel};
use health::Health;

/// Methods with a model of their own; the calls of all others share the last one.
pub const METHODS_MAX: usize = 64;
/// Expected time of a call before the first one has ended.
const UNKNOWN_US: f64 = 1_000.0;
/// An instance is slow if its calls take this many times longer than normal.
const SLOW: f64 = 1.5;
/// Calls under way are overdue when they have taken this many times longer than expected.
const OVERDUE: f64 = 3.0;

/// How an instance is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// The one that came first.
    First,
    /// Any.
    Random,
    /// The one with the fewest calls under way; of equal ones, in turn.
    LeastOutstanding,
    /// The one with the lowest expected time for this call, with its calls under way counted. It
    /// learns by method and cost. New instances start slowly, and failing ones are ejected.
    LowestLatency {
        /// The largest share of calls, 0 to 1, that probe another instance than the best.
        explore: f64,
    },
}

/// The facts of a call that a policy uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallProfile<'a> {
    /// The name of the method.
    pub method: &'a str,
    /// A feature that the time of the call depends on, such as a number of rows; 0: none.
    pub cost: f64,
    /// True if the call may run twice. Others never probe an ejected instance.
    pub is_idempotent: bool,
    /// The time, from any fixed origin.
    pub now_us: u64,
    /// Any number, drawn anew for each call.
    pub dice: u64,
}

impl CallProfile<'_> {
    fn cost(&self) -> f64 {
        if self.cost.is_finite() { self.cost.max(0.0) } else { 0.0 }
    }
}

/// The load of one call at its instance, from its begin to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CallLoad {
    /// The method, if the policy learns from the call.
    method: Option<u16>,
    cost: f64,
    work_us: f64,
    begun_us: u64,
}

/// How a call has ended, and after how many microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The call was answered.
    Answered(u64),
    /// The call failed.
    Failed(u64),
    /// An end that does not rate the instance: the call was cancelled or not taken, or was a
    /// stream.
    Untold,
}

/// The instances of one service in the order in which they came, each with what a caller needs to
/// reach it.
///
/// ```
/// use tidewire_core::rpc::balancer::{Balancer, CallProfile, Ended, Policy};
///
/// let mut balancer = Balancer::default();
/// balancer.add("a", "at home")?;
/// balancer.add("b", "abroad")?;
/// let call = CallProfile { method: "quote", ..CallProfile::default() };
/// let load = balancer.began("a", Policy::LeastOutstanding, &call);
/// assert_eq!(balancer.choose(Policy::LeastOutstanding, &call, |_| false).map(|(id, way)| (&**id, *way)), Some(("b", "abroad")));
/// balancer.ended("a", load, Ended::Answered(1_500));
/// assert!(balancer.choose(Policy::First, &call, |id| id == "a" || id == "b").is_none());
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug)]
pub struct Balancer<T> {
    instances: Vec<Instance<T>>,
    turn: usize,
    methods: Vec<MethodModel>,
    /// Variance of the logarithms of the ratios of times to their estimates.
    variance: f64,
    /// Probes that the policy may make now.
    credit: f64,
    calls: u64,
    probes: u64,
    decisions: DecisionRing,
}

#[derive(Debug)]
struct Instance<T> {
    id: Arc<str>,
    target: T,
    outstanding: u64,
    learned: Learned,
}

/// The knowledge that the lowest-latency policy has of an instance.
#[derive(Debug, Default)]
struct Learned {
    /// Its calls under way, the sum of their expected times, and that of their begins.
    calls: u64,
    work_us: f64,
    begun_us: u64,
    estimate: InstanceEstimate,
    health: Health,
}

impl Learned {
    /// True if no call has ended there in success or failure.
    fn is_new(&self) -> bool {
        !self.estimate.has_samples() && self.health.failures == 0.0
    }

    /// How long a call of `base_us` may take there: it waits behind those that are under way.
    fn expected_us(&self, method: usize, base_us: f64, now_us: u64) -> f64 {
        let mut factor = self.estimate.factor(method);
        let age_us = now_us.saturating_mul(self.calls).saturating_sub(self.begun_us) as f64;
        // Calls that don't end show a slow instance before its next answer.
        if age_us > OVERDUE * factor * self.work_us && self.calls > 0 {
            factor = age_us / self.work_us;
        }
        factor * (base_us + self.work_us) * self.health.risk()
    }
}

impl<T> Balancer<T> {
    /// Adds an instance. If there is one with this id, that one stays, and `target` is given back.
    ///
    /// # Errors
    /// There is one with this id.
    pub fn add(&mut self, id: impl Into<Arc<str>>, target: T) -> Result<(), T> {
        let id = id.into();
        if self.get(&id).is_some() {
            return Err(target);
        }
        self.instances.push(Instance { id, target, outstanding: 0, learned: Learned::default() });
        Ok(())
    }

    /// Forgets an instance, and gives back how it was reached. Calls that it is still at may end
    /// afterwards.
    pub fn remove(&mut self, id: &str) -> Option<T> {
        let at = self.instances.iter().position(|one| *one.id == *id)?;
        Some(self.instances.remove(at).target)
    }

    /// Forgets all others than these.
    pub fn retain(&mut self, keeps: impl Fn(&str) -> bool) {
        self.instances.retain(|one| keeps(&one.id));
    }

    /// The instance with an id.
    pub fn get(&self, id: &str) -> Option<(&Arc<str>, &T)> {
        self.instances.iter().find(|one| *one.id == *id).map(|one| (&one.id, &one.target))
    }

    /// All of them, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &T)> {
        self.instances.iter().map(|one| (&one.id, &one.target))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.instances.len()
    }

    /// True if there are no instances.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    /// How many calls are under way at an instance; 0 if it is not known.
    pub fn outstanding(&self, id: &str) -> u64 {
        self.instances.iter().find(|one| *one.id == *id).map_or(0, |one| one.outstanding)
    }

    /// A call was sent to an instance. Its load is for [`ended`](Self::ended).
    pub fn began(&mut self, id: &str, policy: Policy, call: &CallProfile<'_>) -> CallLoad {
        let mut load = CallLoad { method: None, cost: call.cost(), work_us: 0.0, begun_us: call.now_us };
        if matches!(policy, Policy::LowestLatency { .. }) {
            let method = self.method(call.method).unwrap_or_else(|| {
                self.methods.push(MethodModel::new(call.method));
                self.methods.len() - 1
            });
            load.work_us = self.methods[method].expected_us(call.cost()).unwrap_or(UNKNOWN_US);
            load.method = Some(method as u16);
        }
        if let Some(one) = self.instances.iter_mut().find(|one| *one.id == *id) {
            one.outstanding += 1;
            if load.method.is_some() {
                one.learned.calls += 1;
                one.learned.work_us += load.work_us;
                one.learned.begun_us = one.learned.begun_us.saturating_add(load.begun_us);
            }
        }
        load
    }

    /// A call of an instance has ended, with the load that [`began`](Self::began) gave.
    pub fn ended(&mut self, id: &str, load: CallLoad, how: Ended) {
        let Some(at) = self.instances.iter().position(|one| *one.id == *id) else { return };
        let one = &mut self.instances[at];
        one.outstanding = one.outstanding.saturating_sub(1);
        let Some(method) = load.method.map(usize::from) else { return };
        let one = &mut one.learned;
        one.calls = one.calls.saturating_sub(1);
        one.begun_us = one.begun_us.saturating_sub(load.begun_us);
        one.work_us = if one.calls == 0 { 0.0 } else { (one.work_us - load.work_us).max(0.0) };
        match how {
            Ended::Untold => {}
            Ended::Answered(took_us) => {
                let (model, now_us) = (&mut self.methods[method], load.begun_us + took_us);
                one.estimate.observe(method, model, load.cost, took_us as f64, now_us, &mut self.variance);
                let is_slow = one.estimate.factor(method) > SLOW;
                one.health.answered(now_us, is_slow);
            }
            Ended::Failed(took_us) => self.failed(at, method, load, took_us),
        }
    }

    fn failed(&mut self, at: usize, method: usize, load: CallLoad, took_us: u64) {
        let now_us = load.begun_us + took_us;
        let others = self.instances.iter().enumerate().filter(|(other, _)| *other != at);
        let (sum, ejected) = others.fold((0.0, 0), |(sum, ejected), (_, one)| {
            (sum + one.learned.health.failures, ejected + usize::from(one.learned.health.ejected_us(now_us) > 0))
        });
        let count = self.instances.len();
        let one = &mut self.instances[at];
        // A quick failure says nothing of the speed.
        let model = &mut self.methods[method];
        if model.expected_us(load.cost).is_some_and(|expected_us| took_us as f64 > expected_us) {
            one.learned.estimate.observe(method, model, load.cost, took_us as f64, now_us, &mut self.variance);
        }
        let others = sum / (count - 1).max(1) as f64;
        if one.learned.health.failed(now_us, others) && 2 * (ejected + 1) <= count {
            one.learned.health.eject(now_us);
        }
    }

    fn method(&self, name: &str) -> Option<usize> {
        let found = self.methods.iter().position(|model| *model.name == *name);
        found.or_else(|| (self.methods.len() == METHODS_MAX).then_some(METHODS_MAX - 1))
    }

    /// The instance that a policy chooses, without some.
    pub fn choose(
        &mut self,
        policy: Policy,
        call: &CallProfile<'_>,
        without: impl Fn(&str) -> bool,
    ) -> Option<(&Arc<str>, &T)> {
        let is_candidate = |one: &Instance<T>| !without(&one.id);
        let at = match policy {
            Policy::First => self.instances.iter().position(is_candidate)?,
            Policy::Random => {
                let count = self.instances.iter().filter(|one| is_candidate(one)).count() as u64;
                let nth = ((call.dice & 0xffff_ffff) * count) >> 32;
                let mut candidates = (0..self.instances.len()).filter(|at| is_candidate(&self.instances[*at]));
                candidates.nth(nth as usize)?
            }
            Policy::LeastOutstanding => {
                let candidates = self.turned().filter(|at| is_candidate(&self.instances[*at]));
                candidates.min_by_key(|at| self.instances[*at].outstanding)?
            }
            Policy::LowestLatency { explore } => self.quickest(explore, call, without)?,
        };
        let chosen = &self.instances[at];
        Some((&chosen.id, &chosen.target))
    }

    /// The instance for the next attempt of a call, without those that it has tried: an active one
    /// of the own hub. Without one, an instance that stands by, or one of another hub. After one
    /// without capacity, an instance that stands by would only pass the call back to it.
    pub fn choose_next(
        &mut self,
        policy: Policy,
        call: &CallProfile<'_>,
        tried: &[impl AsRef<str>],
        is_overloaded: bool,
    ) -> Option<(&Arc<str>, &T)> {
        let was_tried = |id: &str| tried.iter().any(|other| other.as_ref() == id);
        let is_active = |id: &str| !id.starts_with(STANDBY) && !was_tried(id);
        if self.instances.iter().any(|one| is_active(&one.id)) {
            return self.choose(policy, call, |id| !is_active(id));
        }
        self.choose(policy, call, |id| was_tried(id) || (is_overloaded && !id.starts_with(FAR)))
    }

    /// The places of the instances from the next turn on.
    fn turned(&mut self) -> impl Iterator<Item = usize> + use<T> {
        let count = self.instances.len();
        self.turn = if self.turn + 1 < count { self.turn + 1 } else { 0 };
        (self.turn..count).chain(0..self.turn)
    }

    fn quickest(&mut self, explore: f64, call: &CallProfile<'_>, without: impl Fn(&str) -> bool) -> Option<usize> {
        let (method, now_us) = (self.method(call.method), call.now_us);
        let base_us = method.and_then(|method| self.methods[method].expected_us(call.cost())).unwrap_or(UNKNOWN_US);
        let method = method.unwrap_or(usize::MAX);
        self.calls += 1;
        self.credit = (self.credit + explore).min(1.0);
        let may_probe = self.credit >= 1.0;
        let (mut best, mut probe, mut fallback, mut count) = (None, None, None, 0);
        for at in self.turned() {
            let one = &self.instances[at];
            if without(&one.id) {
                continue;
            }
            count += 1;
            let expected_us = one.learned.expected_us(method, base_us, now_us);
            let (is_idle, is_ejected) = (one.outstanding == 0, one.learned.health.ejected_us(now_us) > 0);
            if is_ejected {
                lower(&mut fallback, at, f64::INFINITY);
            } else if one.learned.health.is_full(one.outstanding) {
                lower(&mut fallback, at, expected_us);
            } else {
                let is_new = is_idle && one.learned.is_new();
                lower(&mut best, at, if is_new { f64::NEG_INFINITY } else { expected_us });
            }
            let is_allowed = call.is_idempotent || !is_ejected;
            if may_probe && is_idle && is_allowed && one.learned.health.wants_probe(now_us) {
                lower(&mut probe, at, one.learned.health.probe_us as f64);
            }
        }
        let (mut at, mut reason) = match (best, fallback) {
            (Some((at, expected_us)), _) if expected_us == f64::NEG_INFINITY => (at, RoutingReason::New),
            (Some((at, _)), _) => (at, RoutingReason::LowestTime),
            (None, Some((at, _))) => (at, RoutingReason::Fallback),
            (None, None) => return None,
        };
        if count == 1 {
            reason = RoutingReason::Only;
        } else if let Some((other, _)) = probe.filter(|(other, _)| *other != at && reason != RoutingReason::New) {
            let is_ejected = self.instances[other].learned.health.ejected_us(now_us) > 0;
            (at, reason) = (other, if is_ejected { RoutingReason::EjectedProbe } else { RoutingReason::Probe });
            self.credit -= 1.0;
            self.probes += 1;
        }
        let one = &self.instances[at];
        let instance = Arc::clone(&one.id);
        let expected_us = one.learned.expected_us(method, base_us, now_us);
        let method = self.methods.get(method).map_or_else(|| call.method.into(), |model| Arc::clone(&model.name));
        self.decisions.push(RoutingDecision { at_us: now_us, method, instance, reason, expected_us });
        Some(at)
    }

    /// The estimates of the lowest-latency policy for each method at each instance.
    pub fn routes(&self, now_us: u64) -> Vec<RouteRow> {
        let rows = self.methods.iter().flat_map(|model| {
            let method = Arc::clone(&model.name);
            let found = self.explain(&CallProfile { method: &method, now_us, ..CallProfile::default() });
            found.instances.into_iter().map(move |estimate| {
                let is_here = |one: &&RoutingDecision| one.method == method && one.instance == estimate.id;
                let last = found.decisions.iter().rfind(is_here);
                let last = last.map(|one| (now_us.saturating_sub(one.at_us), one.reason));
                RouteRow { method: Arc::clone(&method), estimate, last }
            })
        });
        rows.collect()
    }

    /// The state of the lowest-latency policy for a call, and its last decisions.
    pub fn explain(&self, call: &CallProfile<'_>) -> RoutingExplanation {
        let method = self.method(call.method).unwrap_or(usize::MAX);
        let base_us = self.methods.get(method).and_then(|model| model.expected_us(call.cost()));
        let view = |one: &Instance<T>| {
            let (samples, error) = one.learned.estimate.confidence(method);
            RoutingEstimate {
                id: Arc::clone(&one.id),
                expected_us: base_us.map(|base_us| base_us * one.learned.estimate.factor(method)),
                error,
                samples,
                outstanding: one.outstanding,
                failures: one.learned.health.failures,
                ejected_us: one.learned.health.ejected_us(call.now_us),
                is_starting: one.learned.health.is_full(u64::MAX),
            }
        };
        RoutingExplanation {
            instances: self.instances.iter().map(view).collect(),
            decisions: self.decisions.iter().cloned().collect(),
            calls: self.calls,
            probes: self.probes,
        }
    }
}

fn lower(lowest: &mut Option<(usize, f64)>, at: usize, expected_us: f64) {
    if lowest.is_none_or(|(_, other_us)| expected_us < other_us) {
        *lowest = Some((at, expected_us));
    }
}

impl<T> Default for Balancer<T> {
    /// A balancer without instances.
    fn default() -> Self {
        Self {
            instances: Vec::new(),
            turn: 0,
            methods: Vec::new(),
            variance: 0.3,
            credit: 0.0,
            calls: 0,
            probes: 0,
            decisions: DecisionRing::default(),
        }
    }
}
