//! The balancer of a caller: the instances of one service, their load as this caller sees it, and
//! the policy that chooses one for a call.

use std::sync::Arc;

/// How much the last call counts for the average.
const WEIGHT: f64 = 0.2;
/// A failed call counts as slower than the calls before: a quick failure must not attract calls.
const FAILED_FACTOR: f64 = 2.0;

/// How an instance is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// The one that came first.
    First,
    /// Any.
    Random,
    /// The one with the fewest calls under way; of equal ones, in turn.
    LeastOutstanding,
    /// The one whose calls took the least time lately, with its calls under way counted.
    LowestLatency {
        /// The share of calls, 0 to 1, that go to any instance.
        explore: f64,
    },
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
/// use tidewire_core::rpc::balancer::{Balancer, Ended, Policy};
///
/// let mut balancer = Balancer::default();
/// balancer.add("a", "at home")?;
/// balancer.add("b", "abroad")?;
/// balancer.began("a");
/// assert_eq!(balancer.choose(Policy::LeastOutstanding, 0, |_| false).map(|(id, way)| (&**id, *way)), Some(("b", "abroad")));
/// balancer.ended("a", Ended::Answered(1_500));
/// assert!(balancer.choose(Policy::First, 0, |id| id == "a" || id == "b").is_none());
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug)]
pub struct Balancer<T> {
    instances: Vec<Instance<T>>,
    turn: usize,
}

#[derive(Debug)]
struct Instance<T> {
    id: Arc<str>,
    target: T,
    outstanding: u64,
    /// A moving average; None before the first call has ended.
    latency_us: Option<f64>,
}

impl<T> Instance<T> {
    /// How long a call may take there: it waits behind those that are under way.
    fn expected_us(&self) -> f64 {
        self.latency_us.map_or(f64::INFINITY, |latency| latency * (self.outstanding + 1) as f64)
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
        self.instances.push(Instance { id, target, outstanding: 0, latency_us: None });
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

    /// A call was sent to an instance.
    pub fn began(&mut self, id: &str) {
        if let Some(one) = self.instances.iter_mut().find(|one| *one.id == *id) {
            one.outstanding += 1;
        }
    }

    /// A call of an instance has ended.
    pub fn ended(&mut self, id: &str, how: Ended) {
        let Some(one) = self.instances.iter_mut().find(|one| *one.id == *id) else { return };
        one.outstanding = one.outstanding.saturating_sub(1);
        let took_us = match how {
            Ended::Untold => return,
            Ended::Answered(took_us) => took_us as f64,
            Ended::Failed(took_us) => {
                let took_us = took_us as f64;
                took_us.max(one.latency_us.unwrap_or(took_us) * FAILED_FACTOR)
            }
        };
        one.latency_us = Some(one.latency_us.map_or(took_us, |before| before + WEIGHT * (took_us - before)));
    }

    /// The instance for the next call, without those that have refused it. `dice` is any number,
    /// drawn anew for each call.
    pub fn choose(&mut self, policy: Policy, dice: u64, without: impl Fn(&str) -> bool) -> Option<(&Arc<str>, &T)> {
        let left: Vec<usize> = (0..self.instances.len()).filter(|&at| !without(&self.instances[at].id)).collect();
        // The lower half of the dice chooses evenly, the upper half says whether the call explores.
        let any = || left[(((dice & 0xffff_ffff) * left.len() as u64) >> 32) as usize];
        let explores = |share: f64| (dice >> 32) as f64 / 4_294_967_296.0 < share;
        let at = match (&*left, policy) {
            ([], _) => return None,
            ([only], _) => *only,
            ([first, ..], Policy::First) => *first,
            (_, Policy::Random) => any(),
            (_, Policy::LeastOutstanding) => self.least(&left),
            (_, Policy::LowestLatency { explore }) => match self.fresh(&left) {
                Some(fresh) => fresh,
                None if explores(explore) => any(),
                None => self.quickest(&left),
            },
        };
        let chosen = &self.instances[at];
        Some((&chosen.id, &chosen.target))
    }

    /// An instance without measurements gets one call; until its answer comes, other instances get
    /// the calls.
    fn fresh(&self, left: &[usize]) -> Option<usize> {
        let is_fresh = |one: &Instance<T>| one.latency_us.is_none() && one.outstanding == 0;
        left.iter().copied().find(|&at| is_fresh(&self.instances[at]))
    }

    fn quickest(&self, left: &[usize]) -> usize {
        let expected_us = |at: &&usize| self.instances[**at].expected_us();
        left.iter().min_by(|one, other| expected_us(one).total_cmp(&expected_us(other))).copied().unwrap_or(0)
    }

    fn least(&mut self, left: &[usize]) -> usize {
        self.turn = self.turn.wrapping_add(1);
        let turned = (0..left.len()).map(|step| left[(self.turn % left.len() + step) % left.len()]);
        turned.min_by_key(|&at| self.instances[at].outstanding).unwrap_or(0)
    }
}

impl<T> Default for Balancer<T> {
    /// A balancer without instances.
    fn default() -> Self {
        Self { instances: Vec::new(), turn: 0 }
    }
}
