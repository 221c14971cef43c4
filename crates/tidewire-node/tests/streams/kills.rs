//! A hub that is killed while a publisher is at work, and begun again: nothing that was acked is
//! lost, and by its id nothing is there twice.

use std::collections::BTreeMap;
use std::sync::mpsc::sync_channel;

use tidewire_node::streams::{BucketOptions, ConsumerOptions, Message, Publisher, ReadOptions, StreamOptions};
use tidewire_node::{ErrorCode, Node, NodeOptions};

use crate::hubs::{Away, Folder};
use crate::support::{PATIENCE, in_time};

const MESSAGES: u32 = 20_000;
const KILLS: usize = 3;

type Start = fn(&std::path::Path, &str) -> Option<(Away, String)>;

fn message(number: u32) -> Message {
    Message::new("orders.x", &number).id(format!("o-{number}"))
}

/// Ids of messages that a publisher has not stored, or does not know to be stored.
fn unknown(out: &Publisher) -> Vec<u32> {
    let number = |id: Option<String>| id.and_then(|id| id.strip_prefix("o-")?.parse().ok()).expect("it has an id");
    out.failures().into_iter().map(|failure| number(failure.id)).collect()
}

fn story(start: Start) {
    let folder = Folder::new();
    let Some((mut hub, url)) = start(&folder.0, "tide://127.0.0.1:0") else { return };
    let (say, joined) = sync_channel(100);
    let options = NodeOptions::named("shop").changes(move |line| {
        if line.ends_with("again") {
            let _ = say.send(());
        }
    });
    let node = Node::join(&url, options).wait().expect("it joins");
    let orders = in_time(node.stream_with("orders", StreamOptions::new(["orders.>"]))).on_outage(|_| ());
    let limits = in_time(node.bucket_with("limits", BucketOptions::default())).on_outage(|_| ());
    let mut watch = limits.watch(">");
    let watched = std::thread::spawn(move || watch.next_blocking().expect("it waits for the hub"));
    let mut billing = in_time(orders.consumer("billing", ConsumerOptions::all()));
    let consumed = std::thread::spawn(move || {
        let mut seen = BTreeMap::<u32, u32>::new();
        while seen.len() < MESSAGES as usize {
            let came = billing.next_blocking_within(PATIENCE).expect("it waits for the hub");
            let event = came.unwrap_or_else(|| panic!("{} of {MESSAGES} came", seen.len()));
            *seen.entry(event.read().expect("a number")).or_default() += 1;
            // One that is lost comes again.
            drop(event.ack().wait());
        }
        seen
    });
    let out = orders.publisher(500).expect("a window");
    let (mut todo, mut kills): (Vec<u32>, usize) = ((0..MESSAGES).rev().collect(), 0);
    let mut acked = 0;
    while let Some(number) = todo.pop() {
        let told = out.publish(message(number)).wait();
        if out.acked() > acked + u64::from(MESSAGES) / 5 && kills < KILLS {
            acked = out.acked();
            kills += 1;
            hub.kill();
            (hub, _) = start(&folder.0, &url).expect("it was there before");
            joined.recv_timeout(PATIENCE).expect("it joins again");
        }
        let told = told.and_then(|()| if todo.is_empty() { out.flush().wait() } else { Ok(()) });
        if let Err(error) = told {
            assert_eq!(error.code(), ErrorCode::PublishFailed, "{error}");
            let again = unknown(&out);
            assert!(!again.is_empty() && again.len() <= 500, "{} of a window of 500", again.len());
            // In front of this one if it was refused: it is published again in any case, and stored
            // once.
            todo.push(number);
            todo.extend(again.into_iter().rev());
        }
    }
    assert_eq!(kills, KILLS);
    in_time(limits.put("eu", &5));
    assert_eq!(watched.join().expect("it does not panic").read::<u8>().expect("a number"), Some(5));
    let mut stored = BTreeMap::<u32, u32>::new();
    let mut events = orders.read(ReadOptions::default());
    while let Some(event) = events.next_blocking() {
        *stored.entry(event.expect("it is read").read().expect("a number")).or_default() += 1;
    }
    assert_eq!(stored.len(), MESSAGES as usize, "nothing is lost");
    assert!(stored.values().all(|count| *count == 1), "nothing is there twice");
    assert_eq!(consumed.join().expect("it does not panic").len(), MESSAGES as usize);
}

#[test]
fn a_hub_of_rust_that_is_killed_loses_nothing_that_was_acked() {
    story(|folder, url| Some(Away::rust(folder, url)));
}

#[test]
fn a_hub_of_python_that_is_killed_loses_nothing_that_was_acked() {
    story(Away::python);
}
