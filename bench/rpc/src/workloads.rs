//! The caller's side of the workloads, as in `bench/python/rpc_workloads.py`.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use crate::Fault;
use crate::payloads::{SMALL_BYTES, payloads_of};
use crate::ticks::{now_ns, ticks};
use crate::usage::Usage;

const ASK_TALLY: &[u8] = b"?";
const BESIDE_INTERVAL_NS: u64 = 2_000_000;
const TALLY_TIMEOUT_NS: u64 = 50_000_000_000;

type Figures = Map<String, Value>;

/// A caller's connection to the echo service.
pub trait Link: Clone + Send + Sync + 'static {
    /// Sends a payload and waits for it to come back.
    fn echo(&self, data: Bytes) -> impl Future<Output = Result<Bytes, Fault>> + Send;

    /// Sends messages one way, as fast as the contender takes them.
    fn stream(&self, messages: Vec<Bytes>) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// Runs one workload.
pub async fn run(link: &impl Link, workload: &str, count: usize, usage: &mut Usage) -> Result<Figures, Fault> {
    match workload.split_once('-') {
        Some((size, order)) => requests(link, size, order, count, usage).await,
        None if workload == "beside" => beside(link, count, usage).await,
        None if workload == "stream" => stream(link, count, usage).await,
        None => Err(format!("workload {workload}: SIZE-seq, SIZE-conc, beside or stream is expected").into()),
    }
}

/// `count` requests, one after another or all at once; replies are compared when the clock has
/// stopped.
async fn requests(
    link: &impl Link,
    size: &str,
    order: &str,
    count: usize,
    usage: &mut Usage,
) -> Result<Figures, Fault> {
    let payloads = payloads_of(size, count);
    usage.start();
    let start_ns = now_ns();
    let timed = if order == "seq" { in_turn(link, &payloads).await? } else { at_once(link, &payloads).await? };
    let elapsed_ns = now_ns() - start_ns;
    usage.stop();
    let (replies, samples): (Vec<_>, Vec<_>) = timed.into_iter().unzip();
    assert!(replies == payloads, "{size}-{order}: a reply differs from its request");
    let total = payloads.iter().map(Bytes::len).sum();
    Ok(with_percentiles(figures(count, total, elapsed_ns), samples))
}

async fn in_turn(link: &impl Link, payloads: &[Bytes]) -> Result<Vec<(Bytes, u64)>, Fault> {
    let mut replies = Vec::with_capacity(payloads.len());
    for payload in payloads {
        replies.push(timed(link, payload.clone(), now_ns()).await?);
    }
    Ok(replies)
}

/// All requests at once: each one's time counts from its own start.
async fn at_once(link: &impl Link, payloads: &[Bytes]) -> Result<Vec<(Bytes, u64)>, Fault> {
    let start = |payload: &Bytes| {
        let (link, payload) = (link.clone(), payload.clone());
        tokio::spawn(async move { timed(&link, payload, now_ns()).await })
    };
    let tasks: Vec<_> = payloads.iter().map(start).collect();
    let mut replies = Vec::with_capacity(tasks.len());
    for task in tasks {
        replies.push(task.await??);
    }
    Ok(replies)
}

/// One request, and how long it took from `began_ns`.
async fn timed(link: &impl Link, payload: Bytes, began_ns: u64) -> Result<(Bytes, u64), Fault> {
    let reply = link.echo(payload.clone()).await?;
    let took_ns = now_ns() - began_ns;
    assert_eq!(reply.len(), payload.len(), "the reply has another length");
    assert_eq!((reply.first(), reply.last()), (payload.first(), payload.last()), "other bytes came back");
    Ok((reply, took_ns))
}

/// A small request every 2 ms while 2 MiB travel to and fro all the time on the same link.
async fn beside(link: &impl Link, count: usize, usage: &mut Usage) -> Result<Figures, Fault> {
    let (enough, transfers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    usage.start();
    let start_ns = now_ns();
    let moving = tokio::spawn(transfer(link.clone(), enough.clone(), transfers.clone()));
    let samples = paced(link, count, BESIDE_INTERVAL_NS).await?;
    let elapsed_ns = now_ns() - start_ns;
    usage.stop();
    let during = transfers.load(Ordering::Relaxed);
    enough.store(true, Ordering::Relaxed);
    moving.await??;
    let mut found = with_percentiles(figures(count, SMALL_BYTES * count, elapsed_ns), samples);
    found.insert("transfers".into(), during.into());
    Ok(found)
}

async fn transfer(link: impl Link, enough: Arc<AtomicBool>, transfers: Arc<AtomicU64>) -> Result<(), Fault> {
    let large = payloads_of("large", 1).remove(0);
    while !enough.load(Ordering::Relaxed) {
        timed(&link, large.clone(), now_ns()).await?;
        transfers.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Starts requests when they are due, without waiting for the ones before; their time counts from
/// when they were due.
async fn paced(link: &impl Link, count: usize, interval_ns: u64) -> Result<Vec<u64>, Fault> {
    let mut payloads = payloads_of("small", count).into_iter();
    let mut due = ticks(now_ns(), interval_ns, count);
    let mut calls = JoinSet::new();
    while let (Some(due_ns), Some(payload)) = (due.recv().await, payloads.next()) {
        let link = link.clone();
        // A reply may be a slice of a large buffer: keeping it would keep the buffer.
        calls.spawn(async move { timed(&link, payload, due_ns).await.map(|(_, took_ns)| took_ns) });
    }
    let mut samples = Vec::with_capacity(count);
    while let Some(done) = calls.join_next().await {
        samples.push(done??);
    }
    Ok(samples)
}

/// `count` small messages one way, from the first that is sent to the last that the service has
/// received.
async fn stream(link: &impl Link, count: usize, usage: &mut Usage) -> Result<Figures, Fault> {
    let messages = payloads_of("small", count);
    let (before, _) = tally(link).await?;
    usage.start();
    let start_ns = now_ns();
    link.stream(messages).await?;
    let at_ns = received(link, before + count as u64).await?;
    usage.stop();
    Ok(figures(count, SMALL_BYTES * count, at_ns - start_ns))
}

/// When the service had `count` messages.
async fn received(link: &impl Link, count: u64) -> Result<u64, Fault> {
    let give_up_ns = now_ns() + TALLY_TIMEOUT_NS;
    loop {
        let (have, at_ns) = tally(link).await?;
        if have >= count {
            return Ok(at_ns);
        }
        if now_ns() > give_up_ns {
            return Err(format!("{have} of {count} messages arrived in 50 s").into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn tally(link: &impl Link) -> Result<(u64, u64), Fault> {
    Ok(serde_json::from_slice(&link.echo(Bytes::from_static(ASK_TALLY)).await?)?)
}

fn figures(count: usize, total_bytes: usize, elapsed_ns: u64) -> Figures {
    let seconds = elapsed_ns as f64 / 1e9;
    Map::from_iter([
        ("count".into(), count.into()),
        ("seconds".into(), seconds.into()),
        ("rate".into(), (count as f64 / seconds).into()),
        ("mb_s".into(), (total_bytes as f64 / seconds / 1e6).into()),
    ])
}

fn with_percentiles(mut figures: Figures, mut samples_ns: Vec<u64>) -> Figures {
    samples_ns.sort_unstable();
    let rank = |share: f64| ((share * samples_ns.len() as f64).ceil() as usize).max(1) - 1;
    for (name, share) in [("p50_ms", 0.5), ("p99_ms", 0.99), ("p999_ms", 0.999), ("max_ms", 1.0)] {
        figures.insert(name.into(), (samples_ns[rank(share)] as f64 / 1e6).into());
    }
    figures
}
