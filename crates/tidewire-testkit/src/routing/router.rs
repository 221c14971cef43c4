//! Callers of the routing simulation, and the policies of the balancer as such.

use tidewire_core::rpc::balancer::{Balancer, CallLoad, CallProfile, Ended, Policy};

use crate::routing::scenario::Random;
use crate::routing::scenario::SimulatedCall;

/// A caller's view of the instances. It learns from the calls of this caller alone.
pub trait Router {
    fn add(&mut self, instance: usize);
    /// The instance for a call, without those that have failed it.
    fn choose(&mut self, call: &SimulatedCall, now_us: u64, tried: &[usize]) -> usize;
    fn began(&mut self, instance: usize, call: &SimulatedCall, now_us: u64) -> CallLoad;
    fn ended(&mut self, instance: usize, load: CallLoad, now_us: u64, took_us: u64, failed: bool);
}

pub struct PolicyRouter {
    balancer: Balancer<usize>,
    policy: Policy,
    random: Random,
}

impl PolicyRouter {
    pub fn new(policy: Policy, random: Random) -> Self {
        Self { balancer: Balancer::default(), policy, random }
    }
}

impl Router for PolicyRouter {
    fn add(&mut self, instance: usize) {
        let _ = self.balancer.add(instance.to_string(), instance);
    }

    fn choose(&mut self, call: &SimulatedCall, now_us: u64, tried: &[usize]) -> usize {
        let profile = profile(call, now_us, self.random.bits());
        let was_tried = |id: &str| tried.iter().any(|at| at.to_string() == id);
        self.balancer.choose(self.policy, &profile, was_tried).map_or(0, |(_, at)| *at)
    }

    fn began(&mut self, instance: usize, call: &SimulatedCall, now_us: u64) -> CallLoad {
        self.balancer.began(&instance.to_string(), self.policy, &profile(call, now_us, 0))
    }

    fn ended(&mut self, instance: usize, load: CallLoad, _: u64, took_us: u64, failed: bool) {
        let how = if failed { Ended::Failed(took_us) } else { Ended::Answered(took_us) };
        self.balancer.ended(&instance.to_string(), load, how);
    }
}

fn profile(call: &SimulatedCall, now_us: u64, dice: u64) -> CallProfile<'static> {
    let method = ["short", "middle", "long"][call.method];
    CallProfile { method, cost: call.rows, is_idempotent: call.is_idempotent, now_us, dice }
}
