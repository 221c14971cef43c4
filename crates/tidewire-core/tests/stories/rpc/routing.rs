//! The lowest-latency policy in the routing simulation.

use tidewire_core::rpc::balancer::Policy;
use tidewire_testkit::routing::router::{PolicyRouter, Router};
use tidewire_testkit::routing::scenario::{CALLERS, Random, Scenario};
use tidewire_testkit::routing::simulation::simulate;

const SEEDS: [u64; 2] = [20, 21];

// Promises: P13.85.
#[test]
fn calls_take_little_longer_than_under_an_oracle() {
    for scenario in Scenario::ALL {
        let policies = [None, Some(Policy::LeastOutstanding), Some(Policy::LowestLatency { explore: 0.01 })];
        let [oracle, least, learned] =
            policies.map(|policy| SEEDS.map(|seed| p99_ms(scenario, policy, seed)).iter().sum::<f64>());
        let name = scenario.name();
        assert!(learned <= 1.1 * least, "{name}: {learned:.1} ms beside {least:.1} ms of the fewest calls");
        assert!(learned <= 1.3 * oracle, "{name}: {learned:.1} ms beside {oracle:.1} ms of the oracle");
    }
}

fn p99_ms(scenario: Scenario, policy: Option<Policy>, seed: u64) -> f64 {
    let router = |policy, caller| Box::new(PolicyRouter::new(policy, Random::new(caller))) as Box<dyn Router>;
    let routers =
        policy.map_or_else(Vec::new, |policy| (0..CALLERS as u64).map(|caller| router(policy, caller)).collect());
    simulate(scenario, routers, &scenario.traffic(seed)).p99_ms
}
