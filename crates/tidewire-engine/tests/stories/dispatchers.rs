//! Threads and who gets them: a handler that blocks holds up nobody else as long as a thread is
//! left.

use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use tidewire_engine::config::{DispatcherConfig, EngineConfig};
use tidewire_engine::*;

use crate::support::{PATIENCE, drain, engine, engine_with, wait};

fn config(threads: usize, spin_us: u64) -> EngineConfig {
    let mut config = EngineConfig { spin_us, ..EngineConfig::default() };
    config.dispatchers.insert(
        DEFAULT_DISPATCHER.to_owned(),
        DispatcherConfig { threads, spare_threads: 0, ..DispatcherConfig::default() },
    );
    config
}

fn engine_of(threads: usize, spin_us: u64) -> Engine {
    Engine::builder().config(config(threads, spin_us)).build().unwrap()
}

/// Actors whose handler says that it has begun, and then blocks until the test lets everybody go.
fn blockers(engine: &Engine, count: usize) -> (Vec<ActorRef<()>>, Receiver<usize>, Vec<SyncSender<()>>) {
    let (began, begun) = channel();
    let mut gates = Vec::new();
    let actors = (0..count)
        .map(|n| {
            let (gate, open) = sync_channel::<()>(1);
            gates.push(gate);
            let began = began.clone();
            engine
                .spawn_fn(move |(): (), _| {
                    began.send(n)?;
                    open.recv()?;
                    Ok(())
                })
                .unwrap()
        })
        .collect();
    (actors, begun, gates)
}

fn tell_all(actors: &[ActorRef<()>]) {
    actors.iter().for_each(|actor| assert_eq!(actor.tell(()).unwrap(), Sent::Accepted));
}

fn wait_for(begun: &Receiver<usize>, count: usize) {
    let mut who: Vec<usize> = (0..count).map(|_| wait(begun)).collect();
    who.sort_unstable();
    assert_eq!(who, (0..count).collect::<Vec<_>>(), "each has begun once");
}

#[test]
fn as_many_handlers_can_block_as_there_are_threads() {
    for threads in 2..=4 {
        for spin in [0, 50, 1_000] {
            let engine = engine_of(threads, spin);
            let (actors, begun, gates) = blockers(&engine, threads);
            tell_all(&actors);
            wait_for(&begun, threads);
            gates.iter().for_each(|gate| gate.send(()).unwrap());
            assert!(engine.shutdown(PATIENCE).threads.is_empty());
        }
    }
}

#[test]
fn a_thread_that_looks_for_work_and_finds_two_pieces_shares_them() {
    // One thread is looking; two actors become ready for it; the first one blocks.
    for round in 0..300 {
        let engine = engine_of(2, 1_000);
        let (done, finished) = channel();
        let warm = engine.spawn_fn(move |(): (), _| Ok(done.send(())?)).unwrap();
        let (actors, begun, gates) = blockers(&engine, 2);
        warm.tell(()).unwrap();
        wait(&finished);
        for _ in 0..round * 10 {
            std::hint::spin_loop();
        }
        tell_all(&actors);
        wait_for(&begun, 2);
        gates.iter().for_each(|gate| gate.send(()).unwrap());
        engine.shutdown(PATIENCE);
    }
}

// Promises: P5.3, P5.5.
#[test]
fn actors_behind_a_blocked_handler_spread_over_all_threads() {
    for threads in 2..=4_usize {
        let engine = engine_of(threads, 0);
        let (actors, begun, gates) = blockers(&engine, threads - 1);
        let (began, first) = channel();
        let (gate, open) = sync_channel::<()>(1);
        let told = actors.clone();
        // All the others wait in the line of this one's thread when it blocks, and then each of
        // them blocks.
        let head = engine
            .spawn_fn(move |(): (), _| {
                for actor in &told {
                    actor.tell(())?;
                }
                began.send(())?;
                open.recv()?;
                Ok(())
            })
            .unwrap();
        head.tell(()).unwrap();
        wait(&first);
        wait_for(&begun, threads - 1);
        gate.send(()).unwrap();
        gates.iter().for_each(|gate| gate.send(()).unwrap());
        engine.shutdown(PATIENCE);
    }
}

#[test]
fn messages_told_before_the_start_use_all_threads() {
    for threads in 2..=4 {
        let engine = Engine::builder().config(config(threads, 0)).paused(true).build().unwrap();
        let (actors, begun, gates) = blockers(&engine, threads);
        tell_all(&actors);
        engine.start().unwrap();
        wait_for(&begun, threads);
        gates.iter().for_each(|gate| gate.send(()).unwrap());
        engine.shutdown(PATIENCE);
    }
}

// Promises: P5.4.
#[test]
fn a_blocked_dispatcher_does_not_delay_another() {
    let engine = engine_with(&[("slow", 1), ("quick", 1)]);
    let (began, inside) = channel();
    let (gate, open) = sync_channel::<()>(0);
    let slow = engine
        .spawn_fn_with(SpawnOptions::new().dispatcher("slow"), move |(): (), _| {
            began.send(())?;
            Ok(open.recv()?)
        })
        .unwrap();
    slow.tell(()).unwrap();
    wait(&inside);
    let (done, finished) = channel();
    let quick =
        engine.spawn_fn_with(SpawnOptions::new().dispatcher("quick"), move |n: u64, _| Ok(done.send(n)?)).unwrap();
    (0..1_000).for_each(|n| assert_eq!(quick.send_blocking(n).unwrap(), Sent::Accepted));
    (0..1_000).for_each(|n| assert_eq!(wait(&finished), n));
    gate.send(()).unwrap();
    slow.stop(drain()).wait().unwrap();
}

#[test]
fn two_dispatchers_can_share_threads() {
    let mut config = EngineConfig::default();
    config.dispatchers.insert("owner".into(), DispatcherConfig { threads: 1, ..DispatcherConfig::default() });
    let guest = DispatcherConfig { share: Some("owner".into()), ..DispatcherConfig::default() };
    config.dispatchers.insert("guest".into(), guest);
    let engine = Engine::builder().config(config).build().unwrap();
    let (report, threads) = channel();
    for dispatcher in ["owner", "guest"] {
        let report = report.clone();
        let actor = engine
            .spawn_fn_with(SpawnOptions::new().dispatcher(dispatcher), move |(): (), _| {
                Ok(report.send(std::thread::current().name().unwrap().to_owned())?)
            })
            .unwrap();
        actor.tell(()).unwrap();
    }
    let seen = [wait(&threads), wait(&threads)];
    assert_eq!(seen[0], seen[1]);
    assert!(seen[0].starts_with("tidewire-owner-"), "{}", seen[0]);
}

// Promises: P4.14.
#[test]
fn nested_blocking_asks_use_spare_threads_and_give_them_back() {
    const DEPTH: u64 = 40;
    let engine = engine(1);
    let mut next: Option<ActorRef<Reply<u64>>> = None;
    for _ in 0..DEPTH {
        let below = next.take();
        let link = engine
            .spawn_fn(move |reply: Reply<u64>, _| {
                let sum = match &below {
                    Some(below) => below.ask(|reply| reply, PATIENCE).wait()?,
                    None => 0,
                };
                reply.send(sum + 1);
                Ok(())
            })
            .unwrap();
        next = Some(link);
    }
    let top = next.unwrap();
    for _ in 0..20 {
        assert_eq!(top.ask(|reply| reply, PATIENCE).wait().unwrap(), DEPTH);
    }
    let report = engine.shutdown(PATIENCE);
    assert!(report.threads.is_empty() && report.stuck.is_empty(), "{report:?}");
}

#[test]
fn without_spare_threads_a_blocking_ask_ends_at_its_deadline() {
    let engine = engine_of(1, 0);
    let asked = engine
        .spawn_fn(|reply: Reply<u8>, _| {
            reply.send(1);
            Ok(())
        })
        .unwrap();
    let asker = engine
        .spawn_fn(move |reply: Reply<bool>, _| {
            let answer = asked.ask(|reply| reply, Duration::from_millis(20)).wait();
            reply.send(matches!(answer, Err(AskError::Timeout { .. })));
            Ok(())
        })
        .unwrap();
    assert!(asker.ask(|reply| reply, PATIENCE).wait().unwrap());
}

#[test]
fn another_thread_takes_over_as_soon_as_a_handler_waits_in_an_ask() {
    const ASKS: u32 = 20;
    const STALL: Duration = Duration::from_secs(1);
    for (spin, eager) in [(0, false), (50, false), (1_000, false), (0, true), (50, true)] {
        let mut config = config(1, spin);
        config.stall_us = STALL.as_micros() as u64;
        config.dispatchers.get_mut(DEFAULT_DISPATCHER).unwrap().spare_threads = 2;
        let engine = Engine::builder().config(config).hooks(ThreadHooks::default(), eager).build().unwrap();
        let asked = engine
            .spawn_fn(|reply: Reply<()>, _| {
                reply.send(());
                Ok(())
            })
            .unwrap();
        let asker = engine
            .spawn_fn(move |reply: Reply<()>, _| {
                reply.send(asked.ask(|reply| reply, PATIENCE).wait()?);
                Ok(())
            })
            .unwrap();
        let begun = Instant::now();
        for _ in 0..ASKS {
            asker.ask(|reply| reply, PATIENCE).wait().unwrap();
        }
        // One that had to wait until the first thread is found to be stuck would take this long by
        // itself.
        assert!(begun.elapsed() < STALL, "{:?} with spin_us = {spin}, eager = {eager}", begun.elapsed());
    }
}
