//! The small costs: one tell, one ask, one spawn, one timer. `cargo bench -p tidewire-engine`;
//! `make bench` measures whole workloads beside peers.

#![allow(missing_docs)]

use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tidewire_engine::{ActorRef, Engine, Mailbox, Overflow, Reply, SpawnOptions, Stop};

/// Messages told in one go, so that the actor's thread works beside the sender.
const BURST: u64 = 1_000;

fn nobody_waits(engine: &Engine, capacity: usize) -> ActorRef<u64> {
    let options = SpawnOptions::new().mailbox(Mailbox::new(capacity));
    engine.spawn_fn_with(options, |_: u64, _| Ok(())).expect("an actor")
}

fn tell(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tell");
    let engine = Engine::new().expect("an engine");
    let actor = nobody_waits(&engine, 10_000);
    group.throughput(Throughput::Elements(BURST));
    group.bench_function("a burst of 1,000, handled meanwhile", |bencher| {
        bencher.iter(|| (0..BURST).for_each(|n| drop(actor.send_blocking(n))));
    });
    group.throughput(Throughput::Elements(1));
    let paused = Engine::builder().paused(true).build().expect("an engine");
    let options = SpawnOptions::new().mailbox(Mailbox::new(1_000).overflow(Overflow::Fail));
    let full = paused.spawn_fn_with(options, |_: u64, _| Ok(())).expect("an actor");
    (0..1_000).for_each(|n| drop(full.tell(n)));
    group.bench_function("refused by a full mailbox", |bencher| bencher.iter(|| full.tell(1).is_err()));
    group.finish();
}

fn ask(criterion: &mut Criterion) {
    let engine = Engine::new().expect("an engine");
    let echo = engine
        .spawn_fn(|reply: Reply<u64>, _| {
            reply.send(1);
            Ok(())
        })
        .expect("an actor");
    criterion.bench_function("ask from a plain thread", |bencher| {
        bencher.iter(|| echo.ask(|reply| reply, Duration::from_secs(10)).wait().expect("a reply"));
    });
}

fn spawn(criterion: &mut Criterion) {
    let engine = Engine::new().expect("an engine");
    criterion.bench_function("spawn a function, and stop it", |bencher| {
        bencher.iter_batched(
            || (),
            |()| {
                let actor = nobody_waits(&engine, 16);
                actor.stop(Stop::now(Duration::from_secs(10))).wait().expect("a report")
            },
            BatchSize::SmallInput,
        );
    });
}

fn timers(criterion: &mut Criterion) {
    let engine = Engine::new().expect("an engine");
    let actor = nobody_waits(&engine, 16);
    criterion.bench_function("schedule and cancel", |bencher| {
        bencher.iter(|| engine.schedule(Duration::from_secs(60), &actor, 1).cancel());
    });
}

criterion_group!(benches, tell, ask, spawn, timers);
criterion_main!(benches);
