//! Figures of the routing simulation as JSON: `cargo run --profile fast -p tidewire-testkit
//! --example routing [FIRST_SEED] [SEEDS]`. `make routing` writes the page of them.

mod peers;

use std::env::args;
use std::fmt::Write;
use std::ops::Range;

use tidewire_testkit::routing::router::Router;
use tidewire_testkit::routing::scenario::{CALLERS, Scenario};
use tidewire_testkit::routing::simulation::{RunFigures, simulate};

use peers::Rule;

fn main() {
    let mut numbers =
        args().skip(1).map(|text| text.parse::<u64>().unwrap_or_else(|_| panic!("{text}: give a number")));
    let first = numbers.next().unwrap_or(0);
    let seeds = first..first + numbers.next().unwrap_or(20);
    print!("{}", json(&figures(&Scenario::ALL, &Rule::ALL, seeds.clone()), &seeds));
}

/// Figures of one rule in one scenario.
#[derive(Clone, Debug)]
struct Figures {
    /// The scenario.
    scenario: Scenario,
    /// The rule.
    rule: Rule,
    /// Means over the seeds.
    mean: RunFigures,
    /// How much longer the mean call takes than under the oracle, as a share.
    regret: f64,
}

/// Plays scenarios under rules with each of these seeds. The figures of a scenario follow one
/// another in the order of the rules.
fn figures(scenarios: &[Scenario], rules: &[Rule], seeds: Range<u64>) -> Vec<Figures> {
    let mut all = Vec::new();
    for &scenario in scenarios {
        let traffic: Vec<_> = seeds.clone().map(|seed| (seed, scenario.traffic(seed))).collect();
        let mean = |rule| mean(traffic.iter().map(|(seed, calls)| simulate(scenario, callers(rule, *seed), calls)));
        let oracle_ms = mean(Rule::Oracle).mean_ms;
        all.extend(rules.iter().map(|&rule| {
            let mean = mean(rule);
            Figures { scenario, rule, regret: mean.mean_ms / oracle_ms - 1.0, mean }
        }));
    }
    all
}

fn callers(rule: Rule, seed: u64) -> Vec<Box<dyn Router>> {
    let count = if rule == Rule::Oracle { 0 } else { CALLERS as u64 };
    (0..count).map(|caller| rule.router(seed * CALLERS as u64 + caller)).collect()
}

/// The figures as JSON, for `bench/routing.py`.
fn json(figures: &[Figures], seeds: &Range<u64>) -> String {
    let mut text = format!("{{\"first_seed\": {}, \"seeds\": {}, \"runs\": [", seeds.start, seeds.end - seeds.start);
    for (number, one) in figures.iter().enumerate() {
        let RunFigures { p50_ms, p99_ms, mean_ms, wasted, by_second } = &one.mean;
        let (comma, scenario, rule) = (if number == 0 { "" } else { "," }, one.scenario.name(), one.rule.name());
        let _ = write!(
            text,
            "{comma}\n{{\"scenario\": {scenario:?}, \"rule\": {rule:?}, \"p50_ms\": {p50_ms:.3}, \"p99_ms\": {p99_ms:.3}, \
             \"mean_ms\": {mean_ms:.3}, \"wasted\": {wasted:.5}, \"regret\": {:.5}, \"by_second\": {by_second:.2?}}}",
            one.regret
        );
    }
    text + "\n]}\n"
}

fn mean(runs: impl Iterator<Item = RunFigures>) -> RunFigures {
    let runs: Vec<RunFigures> = runs.collect();
    let count = runs.len().max(1) as f64;
    let of = |figure: &dyn Fn(&RunFigures) -> f64| runs.iter().map(figure).sum::<f64>() / count;
    let seconds = runs.first().map_or(0, |one| one.by_second.len());
    RunFigures {
        p50_ms: of(&|one| one.p50_ms),
        p99_ms: of(&|one| one.p99_ms),
        mean_ms: of(&|one| one.mean_ms),
        wasted: of(&|one| one.wasted),
        by_second: (0..seconds).map(|second| of(&|one| one.by_second[second])).collect(),
    }
}
