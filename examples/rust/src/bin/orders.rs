//! Orders in a durable stream: published with a window, and billed by two competing workers, of
//! which one leaves in the middle.
//!
//! An order that cannot be billed becomes a dead letter, and is requeued after a fix. Each bill is
//! written to a bucket under the id of the order, so that a redelivery changes nothing. Here the
//! hub has a folder of its own. With the URL of another hub, such as that of `tidewire up --data
//! DIR`, the program does the same there.
//!
//! Run it with `cargo run -p tidewire-examples --bin orders`, or `... --bin orders --
//! tide://127.0.0.1:7420`.

use std::collections::BTreeSet;
use std::env;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidewire_node::streams::{Bucket, BucketOptions, ConsumerOptions, Message, Stream, StreamOptions};
use tidewire_node::{ErrorCode, Node, NodeOptions};

const ORDERS: u32 = 2_000;
/// The customer who is unknown at first.
const UNKNOWN: u32 = 7;
/// So many orders the first worker handles before it goes.
const FIRST_WORKER: usize = 300;

type Done<T> = Result<T, tidewire_node::Error>;

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    customer: u32,
    cents: u64,
}

/// Takes orders until it has handled enough, or none comes any more. Returns how many deliveries
/// were not billed.
fn work(orders: &Stream, billed: &Bucket, knows_all: &AtomicBool, enough: usize) -> Done<usize> {
    let options = ConsumerOptions::all().max_deliver(2).backoff([Duration::from_millis(1)]);
    let mut billing = orders.consumer("billing", options).wait()?;
    let (mut handled, mut failed) = (0, 0);
    while handled < enough
        && let Some(event) = billing.next_blocking_within(Duration::from_millis(500))?
    {
        handled += 1;
        let order: Order = event.read()?;
        if order.customer == UNKNOWN && !knows_all.load(Ordering::Relaxed) {
            failed += 1;
            event.fail("no such customer").wait()?;
            continue;
        }
        match billed.create(event.id().unwrap_or_default(), &order.cents).wait() {
            // Billed already, by a delivery whose ack was lost.
            Err(error) if error.code() == ErrorCode::RevisionConflict => {}
            other => drop(other?),
        }
        event.ack().wait()?;
    }
    // Fetched events that were not handled go to the other worker.
    billing.close().wait()?;
    Ok(failed)
}

fn run(node: &Node) -> Result<(), Box<dyn Error>> {
    let orders = node.stream_with("orders", StreamOptions::new(["orders.>"])).wait()?;
    let billed = node.bucket_with("billed", BucketOptions::default()).wait()?;

    let out = orders.publisher(500)?;
    for number in 0..ORDERS {
        let order = Order { customer: number, cents: u64::from(number) * 10 };
        out.publish(Message::new("orders.created", &order).id(format!("order-{number}"))).wait()?;
    }
    out.flush().wait()?;
    println!("{} orders are stored", out.acked());

    let knows_all = Arc::new(AtomicBool::new(false));
    let workers = [FIRST_WORKER, usize::MAX].map(|enough| {
        let (orders, billed, knows_all) = (orders.clone(), billed.clone(), Arc::clone(&knows_all));
        thread::spawn(move || work(&orders, &billed, &knows_all, enough))
    });
    let mut failed = 0;
    for worker in workers {
        failed += worker.join().expect("a worker does not panic")?;
    }
    let billing = orders.consumer("billing", ConsumerOptions::all().max_deliver(2).backoff([Duration::from_millis(1)]));
    let billing = billing.wait()?;
    let dead = billing.dead_letters(0, 10).wait()?;
    println!("{failed} deliveries failed, {} dead letter: {}", dead.len(), dead[0].error);

    knows_all.store(true, Ordering::Relaxed);
    billing.requeue(dead.iter().map(|letter| letter.sequence)).wait()?;
    work(&orders, &billed, &knows_all, usize::MAX)?;

    let keys: BTreeSet<String> = billed.keys(">").wait()?.into_iter().collect();
    assert_eq!(keys, (0..ORDERS).map(|number| format!("order-{number}")).collect());
    let mut cents = 0;
    for key in &keys {
        cents += billed.get(key).wait()?.ok_or("it is billed")?.read::<u64>()?.ok_or("it has a value")?;
    }
    assert_eq!(cents, (0..u64::from(ORDERS)).map(|number| number * 10).sum::<u64>());
    assert_eq!(billing.info().wait()?.lag, 0);
    println!("{} orders are billed once, {cents} cents in all", keys.len());
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(url) = env::args().nth(1) {
        return run(&Node::join(&url, NodeOptions::named("shop")).wait()?);
    }
    let folder = env::temp_dir().join(format!("tidewire-orders-{}", std::process::id()));
    let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub").data(&folder)).wait()?;
    let shop = Node::join(&hub.urls()[0], NodeOptions::named("shop")).wait()?;
    let ran = run(&shop);
    hub.stop(Duration::from_secs(5)).wait()?;
    std::fs::remove_dir_all(folder)?;
    ran
}
