//! Discrete-event simulation of callers and instances in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidewire_core::rpc::balancer::CallLoad;

use crate::routing::router::Router;
use crate::routing::scenario::{Caches, INSTANCES, SECONDS, SLOTS, Scenario, SimulatedCall};

/// Time on the network, each way.
const NETWORK_US: u64 = 100;
/// Time of a failed call at its instance, pause before the next attempt, and most attempts.
const FAILED_US: u64 = 500;
const PAUSE_US: u64 = 20_000;
const ATTEMPTS: usize = 3;
/// Added to the time of a call that fails in all attempts.
const GIVEN_UP_US: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub struct RunFigures {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub mean_ms: f64,
    /// Share of the busy time of the instances that a choice of healthy ones would not have used.
    pub wasted: f64,
    /// The 99th percentile of the calls of each second.
    pub by_second: Vec<f64>,
}

/// Plays the traffic of a scenario. Without routers, an oracle chooses the instance that ends a
/// call first: it knows all queues and the time of the call.
pub fn simulate(scenario: Scenario, routers: Vec<Box<dyn Router>>, traffic: &[SimulatedCall]) -> RunFigures {
    let mut run = Run::new(scenario, routers);
    let mut next = traffic.iter().copied().enumerate().peekable();
    loop {
        let event_us = run.events.peek().map_or(u64::MAX, |Reverse((at_us, _, _))| *at_us);
        match next.next_if(|(_, call)| call.at_us <= event_us) {
            Some((number, call)) => {
                run.calls.push(CallState { call, load: CallLoad::default(), tried: Vec::new() });
                run.send(number, call.at_us);
            }
            None => match run.events.pop() {
                Some(Reverse((at_us, _, event))) => run.happens(at_us, event),
                None => break,
            },
        }
    }
    run.figures()
}

struct CallState {
    call: SimulatedCall,
    load: CallLoad,
    tried: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Joins { instance: usize },
    Ends { number: usize, instance: usize, sent_us: u64, failed: bool },
    Sends { number: usize },
}

struct Run {
    scenario: Scenario,
    routers: Vec<Box<dyn Router>>,
    /// When each slot of each instance is free.
    slots: [[u64; SLOTS]; INSTANCES],
    caches: Caches,
    calls: Vec<CallState>,
    /// Events by time, and by order of creation.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    created: u64,
    /// Begin and time of each call that has ended.
    times: Vec<(u64, u64)>,
    busy_us: f64,
    needed_us: f64,
}

impl Run {
    fn new(scenario: Scenario, routers: Vec<Box<dyn Router>>) -> Self {
        let mut run = Self {
            scenario,
            routers,
            slots: [[0; SLOTS]; INSTANCES],
            caches: Caches::new(),
            calls: Vec::new(),
            events: BinaryHeap::new(),
            created: 0,
            times: Vec::new(),
            busy_us: 0.0,
            needed_us: 0.0,
        };
        for instance in 0..INSTANCES {
            match scenario.join_us(instance) {
                0 => run.routers.iter_mut().for_each(|router| router.add(instance)),
                at_us => run.at(at_us, Event::Joins { instance }),
            }
        }
        run
    }

    fn at(&mut self, at_us: u64, event: Event) {
        self.created += 1;
        self.events.push(Reverse((at_us, self.created, event)));
    }

    fn send(&mut self, number: usize, now_us: u64) {
        let (call, arrival_us) = (self.calls[number].call, now_us + NETWORK_US);
        let instance = match self.routers.get_mut(call.caller) {
            None => self.quickest(&call, arrival_us),
            Some(router) => {
                let state = &mut self.calls[number];
                let instance = router.choose(&call, now_us, &state.tried);
                state.load = router.began(instance, &call, now_us);
                instance
            }
        };
        let failed = self.scenario.fails(instance, arrival_us);
        let (slot, start_us, service_us) = self.place(instance, &call, arrival_us);
        let end_us = if failed {
            arrival_us + FAILED_US
        } else {
            self.slots[instance][slot] = start_us + service_us;
            self.caches.fill(instance, call.key);
            self.needed_us += call.work_us;
            start_us + service_us
        };
        self.busy_us += if failed { FAILED_US } else { service_us } as f64;
        self.at(end_us + NETWORK_US, Event::Ends { number, instance, sent_us: now_us, failed });
    }

    /// The slot that takes a call, when it begins there, and how long it takes.
    fn place(&self, instance: usize, call: &SimulatedCall, arrival_us: u64) -> (usize, u64, u64) {
        let slots = &self.slots[instance];
        let slot = (0..SLOTS).min_by_key(|slot| slots[*slot]).unwrap_or(0);
        let start_us = slots[slot].max(arrival_us);
        let slowdown = self.scenario.slowdown(instance, call, start_us, &self.caches);
        (slot, start_us, (call.work_us * slowdown) as u64)
    }

    fn quickest(&self, call: &SimulatedCall, arrival_us: u64) -> usize {
        let here = |at: &usize| self.scenario.join_us(*at) <= arrival_us && !self.scenario.fails(*at, arrival_us);
        let end_us = |at: &usize| {
            let (_, start_us, service_us) = self.place(*at, call, arrival_us);
            start_us + service_us
        };
        (0..INSTANCES).filter(here).min_by_key(end_us).unwrap_or(0)
    }

    fn happens(&mut self, now_us: u64, event: Event) {
        match event {
            Event::Joins { instance } => self.routers.iter_mut().for_each(|router| router.add(instance)),
            Event::Sends { number } => self.send(number, now_us),
            Event::Ends { number, instance, sent_us, failed } => {
                let state = &mut self.calls[number];
                if let Some(router) = self.routers.get_mut(state.call.caller) {
                    router.ended(instance, state.load, now_us, now_us - sent_us, failed);
                }
                let took_us = now_us - state.call.at_us;
                if !failed {
                    self.times.push((state.call.at_us, took_us));
                    return;
                }
                state.tried.push(instance);
                if state.tried.len() == ATTEMPTS {
                    self.times.push((state.call.at_us, took_us + GIVEN_UP_US));
                } else {
                    self.at(now_us + PAUSE_US, Event::Sends { number });
                }
            }
        }
    }

    fn figures(self) -> RunFigures {
        let mut seconds = vec![Vec::new(); SECONDS as usize];
        for (at_us, took_us) in &self.times {
            seconds[(at_us / 1_000_000) as usize].push(*took_us);
        }
        let mut times: Vec<u64> = self.times.iter().map(|(_, took_us)| *took_us).collect();
        let mean_us = times.iter().sum::<u64>() as f64 / times.len().max(1) as f64;
        times.sort_unstable();
        let by_second = seconds.iter_mut().map(|second| {
            second.sort_unstable();
            quantile_ms(second, 0.99)
        });
        RunFigures {
            p50_ms: quantile_ms(&times, 0.5),
            p99_ms: quantile_ms(&times, 0.99),
            mean_ms: mean_us / 1e3,
            wasted: 1.0 - (self.needed_us / self.busy_us).min(1.0),
            by_second: by_second.collect(),
        }
    }
}

fn quantile_ms(sorted: &[u64], share: f64) -> f64 {
    let at = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or(0) as f64 / 1e3
}
