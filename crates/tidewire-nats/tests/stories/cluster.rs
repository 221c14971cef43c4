//! A story of three servers: the leader of a stream dies under load, and nothing that was acked is lost.

use std::collections::HashSet;

use tidewire_backend::home::{ConsumerSettings, Durability, Fetch, Home, Settle, Settlement, Start};

use crate::servers::{Server, message, settings};

const ROUNDS: u32 = 40;
const OF_ONE_ROUND: u32 = 50;

#[test]
fn a_cluster_whose_leader_is_killed_loses_nothing_that_was_acked() {
    let Some(mut cluster) = Server::cluster() else { return };
    let home = cluster.home();
    assert!(home.capabilities().has(tidewire_backend::home::Capability::Replicas));
    let mut replicated = settings("cluster");
    replicated.replicas = 3;
    let stream = home.create_stream(replicated).wait().unwrap().settings.name;
    let settings = ConsumerSettings { start: Start::All, ack_wait_us: 5_000_000, ..ConsumerSettings::new("billing") };
    home.create_consumer(&stream, settings).wait().unwrap();
    let grant = home.acquire("single.active", "first", 60_000_000, 0).wait().unwrap();
    let mut acked = HashSet::new();
    let mut killed = None;
    for round in 0..ROUNDS {
        if round == ROUNDS / 4 {
            let leader = leader(&cluster.url, &stream);
            cluster.order(&format!("kill {leader}"));
            killed = Some(leader);
        }
        if round == ROUNDS * 3 / 4
            && let Some(killed) = &killed
        {
            cluster.order(&format!("start {killed}"));
        }
        let messages = (0..OF_ONE_ROUND).map(|number| {
            let text = format!("{round}.{number}");
            let mut sent = message(&stream, "n", text.clone());
            sent.id = Some(text);
            sent
        });
        let acks = home.publish(&stream, messages.collect(), false).wait().unwrap();
        for (number, ack) in acks.into_iter().enumerate() {
            assert_eq!(ack.unwrap().durability, Durability::Replicated);
            acked.insert(format!("{round}.{number}"));
        }
    }
    assert_eq!(acked.len(), (ROUNDS * OF_ONE_ROUND) as usize);
    assert_eq!(consumed(&*home, &stream, acked.len()), acked);
    assert_eq!(home.stream_info(&stream).wait().unwrap().messages, acked.len() as u64, "stored once");
    assert_eq!(home.renew("single.active", grant.fence).wait().unwrap().fence, grant.fence);
    cluster.end();
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
            delivery: delivery.delivery,
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
        let first = url.split(',').next().unwrap();
        let client = async_nats::connect(first).await.unwrap();
        let info = client.request(format!("$JS.API.STREAM.INFO.{stream}"), "".into()).await.unwrap();
        let info: serde_json::Value = serde_json::from_slice(&info.payload).unwrap();
        info["cluster"]["leader"].as_str().unwrap().to_owned()
    })
}
