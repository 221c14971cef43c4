//! Stories of three servers: whatever becomes of them under load, nothing that was acked is lost,
//! and nothing comes twice.

use std::collections::HashSet;

use tidewire_backend::home::{Capability, ConsumerSettings, Durability, Fetch, Home, Settle, Settlement, Start};

use crate::servers::{Server, message, settings};
use crate::streams::store_common_ids;

const ROUNDS: u32 = 40;
const OF_ONE_ROUND: u32 = 50;

#[test]
fn a_cluster_loses_nothing_that_was_acked() {
    let Some(mut cluster) = Server::cluster() else { return };
    // A frozen server is found out soon.
    let url = format!("{}?ping_interval_ms=500&request_timeout_ms=10000&connect_timeout_ms=10000", cluster.url);
    let home = tidewire_nats::open(&url).unwrap();
    assert!(home.capabilities().has(Capability::Replicas));
    let grant = home.acquire("single.active", "first", 600_000_000, 0).wait().unwrap();
    // All at once: a server that has just come back is no place for a stream yet.
    let streams = [(); 3].map(|()| replicated(&*home));
    let mut hurt = String::new();
    under_load(&*home, &streams[0], |round, stream| match round {
        10 => {
            hurt = leader(&cluster.url, stream);
            cluster.order(&format!("kill {hurt}"));
        }
        30 => cluster.order(&format!("start {hurt}")),
        _ => (),
    });
    under_load(&*home, &streams[1], |round, stream| match round {
        10 => {
            hurt = leader(&cluster.url, stream);
            cluster.order(&format!("freeze {hurt}"));
        }
        30 => cluster.order(&format!("thaw {hurt}")),
        _ => (),
    });
    under_load(&*home, &streams[2], |round, _| {
        if let 10 | 20 | 30 = round {
            cluster.order(&format!("restart n{}", round / 10));
        }
    });
    assert_eq!(home.renew("single.active", grant.fence).wait().unwrap().fence, grant.fence);
    let held = home.acquire("single.active", "second", 1_000_000, 0).wait().unwrap_err();
    assert!(held.message().contains("first holds it"), "{held}");
    cluster.end();
}

// Promises: P17.122.
#[test]
fn batches_store_a_common_id_once_in_a_cluster() {
    let Some(cluster) = Server::cluster() else { return };
    let url = format!("{}?request_timeout_ms=10000&connect_timeout_ms=10000", cluster.url);
    let homes = [(); 2].map(|()| tidewire_nats::open(&url).unwrap());
    let stream = replicated(&*homes[0]);
    store_common_ids(&[&*homes[0], &*homes[1]], &stream);
    cluster.end();
}

/// A stream of three replicas, with a consumer.
fn replicated(home: &dyn Home) -> String {
    let mut replicated = settings("cluster");
    replicated.replicas = 3;
    let stream = home.create_stream(replicated).wait().unwrap().settings.name;
    let settings = ConsumerSettings { start: Start::All, ack_wait_us: 5_000_000, ..ConsumerSettings::new("billing") };
    home.create_consumer(&stream, settings).wait().unwrap();
    stream
}

/// Publishes into a stream while something is done to the servers; then everything is there once,
/// and is consumed.
fn under_load(home: &dyn Home, stream: &str, mut hurt: impl FnMut(u32, &str)) {
    let mut acked = HashSet::new();
    for round in 0..ROUNDS {
        hurt(round, stream);
        let messages = (0..OF_ONE_ROUND).map(|number| {
            let text = format!("{round}.{number}");
            let mut sent = message(stream, "n", text.clone());
            sent.id = Some(text);
            sent
        });
        let acks = home.publish(stream, messages.collect(), false).wait().unwrap();
        for (number, ack) in acks.into_iter().enumerate() {
            assert_eq!(ack.unwrap().durability, Durability::Replicated);
            acked.insert(format!("{round}.{number}"));
        }
    }
    assert_eq!(consumed(home, stream, acked.len()), acked);
    assert_eq!(home.stream_info(stream).wait().unwrap().messages, acked.len() as u64, "stored once");
}

/// Consumes until every event was acked once.
fn consumed(home: &dyn Home, stream: &str, count: usize) -> HashSet<String> {
    let fetch = Fetch { max_messages: 500, max_bytes: 1 << 20, wait_us: 10_000_000 };
    let mut seen = HashSet::new();
    while seen.len() < count {
        let deliveries = home.fetch(stream, "billing", fetch).wait().unwrap();
        assert!(!deliveries.is_empty(), "{} of {count} came", seen.len());
        let ack = |delivery: &tidewire_backend::home::Delivery| Settle {
            sequence: delivery.event.sequence,
            ticket: delivery.ticket,
            how: Settlement::Ack,
        };
        let results = home.settle(stream, "billing", deliveries.iter().map(ack).collect()).wait().unwrap();
        for (delivery, result) in deliveries.iter().zip(results) {
            if result.is_ok() {
                seen.insert(String::from_utf8(delivery.event.payload.to_vec()).unwrap());
            }
        }
    }
    seen
}

/// The server that leads a stream.
fn leader(url: &str, stream: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let servers: Vec<_> =
            url.trim_start_matches("nats://").split(',').map(|server| format!("nats://{server}")).collect();
        let client = async_nats::connect(servers).await.unwrap();
        let info = client.request(format!("$JS.API.STREAM.INFO.{stream}"), "".into()).await.unwrap();
        let info: serde_json::Value = serde_json::from_slice(&info.payload).unwrap();
        info["cluster"]["leader"].as_str().unwrap().to_owned()
    })
}
