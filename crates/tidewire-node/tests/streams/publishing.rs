//! Publishing, and reading again what was published.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidewire_node::streams::{Durability, Full, Message, ReadOptions, Start, StreamOptions};
use tidewire_node::values::Bytes;
use tidewire_node::{Error, ErrorCode, Node, NodeOptions};

use crate::hubs::{Folder, Place};
use crate::support::{hub, in_time, join};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    customer: String,
    total: f64,
}

fn order(number: u32) -> Order {
    Order { customer: format!("c{number}"), total: f64::from(number) }
}

#[test]
fn an_event_is_read_as_what_was_published() {
    let (place, orders) = Place::with_orders();
    let ack = in_time(orders.publish(Message::new("orders.new", &order(7)).key("c7").id("o-7").header("from", "shop")));
    assert_eq!((ack.sequence, ack.durability, ack.duplicate), (1, Durability::Disk, false));
    let again = in_time(orders.publish(Message::new("orders.new", &order(7)).id("o-7")));
    assert_eq!((again.sequence, again.duplicate), (1, true));
    in_time(orders.publish(Message::json("orders.json", &order(8))));
    in_time(orders.publish(Message::bytes("orders.raw", vec![0, 255])));

    let mut events = orders.read(ReadOptions::default());
    let mut next = || events.next_blocking().expect("there is one more").expect("it is read");
    let (first, json, raw) = (next(), next(), next());
    assert_eq!((first.read::<Order>().expect("an order"), first.subject()), (order(7), "orders.new"));
    assert_eq!((first.key(), first.id(), first.sequence()), (Some("c7"), Some("o-7"), 1));
    assert!(first.headers().contains(&("from".to_owned(), "shop".to_owned())), "{:?}", first.headers());
    assert!(first.time().elapsed().expect("a time that was") < Duration::from_secs(60));
    assert_eq!(json.read::<Order>().expect("an order"), order(8));
    assert_eq!((raw.read::<Bytes>().expect("bytes").0, raw.payload()), (vec![0, 255], &[0, 255][..]));
    let wrong = json.read::<Vec<u8>>().expect_err("it is no list");
    assert!(wrong.code() == ErrorCode::InvalidArgument && wrong.to_string().contains("event 2"), "{wrong}");
    assert!(events.next_blocking().is_none(), "that was all");

    let mut some =
        orders.read(ReadOptions::default().start(Start::Sequence(2)).stop(3).filter(["orders.r*w", "orders.raw"]));
    let refused = some.next_blocking().expect("an error").expect_err("no such pattern");
    assert_eq!(refused.code(), ErrorCode::InvalidSubject);
    let mut some = orders.read(ReadOptions::default().start(Start::Sequence(2)).filter(["orders.raw"]));
    assert_eq!(some.next_blocking().and_then(Result::ok).map(|event| event.sequence()), Some(3));
    assert!(some.next_blocking().is_none());

    let info = in_time(orders.info());
    assert_eq!((info.messages, info.first, info.last), (3, 1, 3));
    assert_eq!(in_time(place.node.streams()), [info]);
    assert_eq!(in_time(orders.purge_keep(1)), 2);
    in_time(orders.delete());
    let gone = orders.publish(Message::new("orders.new", &1)).wait().expect_err("it was deleted");
    assert_eq!(gone.code(), ErrorCode::NotFound);
}

#[test]
fn a_follower_gets_the_events_published_next() {
    let (_place, orders) = Place::with_orders();
    let mut follows = orders.read(ReadOptions::default().start(Start::All).follow());
    in_time(orders.publish(Message::new("orders.x", &1)));
    assert_eq!(follows.next_blocking().and_then(Result::ok).and_then(|event| event.read::<u32>().ok()), Some(1));
    let waits = std::thread::spawn(move || follows.next_blocking());
    in_time(orders.publish(Message::new("orders.x", &2)));
    let next = waits.join().expect("it does not panic").expect("no end").expect("an event");
    assert_eq!(next.read::<u32>().ok(), Some(2));
}

#[test]
fn a_publisher_names_what_was_not_stored() {
    let place = Place::new();
    let small = StreamOptions::new(["small.>"]).max_messages(10).full(Full::Refuse);
    let stream = in_time(place.node.stream_with("small", small));
    let out = stream.publisher(1_000).expect("a window");
    let mut failures = Vec::new();
    let mut reports = Vec::new();
    let mut report = |failed: Error| {
        assert_eq!(failed.code(), ErrorCode::PublishFailed);
        failures.extend(out.failures());
        reports.push(failed.to_string());
    };
    for number in 0..15 {
        let message = || Message::new("small.x", &number).id(format!("m-{number}"));
        // A failure may be known already; then this message was not published.
        while let Err(failed) = out.publish(message()).wait() {
            report(failed);
        }
    }
    if let Err(failed) = out.flush().wait() {
        report(failed);
    }
    assert!(reports[0].contains("messages were not stored: message 10 (id \"m-10\"): StreamFull"), "{reports:?}");
    assert_eq!(failures.iter().map(|failure| failure.number).collect::<Vec<_>>(), [10, 11, 12, 13, 14]);
    assert!(failures.iter().all(|failure| failure.error.code() == ErrorCode::StreamFull), "{failures:?}");
    in_time(out.flush());
    let wrong = out.publish(Message::new("small.*", &1)).wait().expect_err("a pattern is no subject");
    assert_eq!(wrong.code(), ErrorCode::InvalidSubject);
    let elsewhere = stream.publish(Message::new("other.x", &1)).wait().expect_err("the stream does not take it");
    assert_eq!(elsewhere.code(), ErrorCode::InvalidArgument);
}

#[test]
fn a_node_has_streams_in_a_folder_of_its_own() {
    let folder = Folder::new();
    let options = || NodeOptions::named("alone").data(&folder.0);
    let node = Node::listen("tide://127.0.0.1:0", options()).wait().expect("a node with a folder");
    let orders = in_time(node.stream_with("orders", StreamOptions::new(["orders.>"])));
    in_time(orders.publish(Message::new("orders.x", &1)));
    let twice = Node::listen("tide://127.0.0.1:0", options()).wait().expect_err("the folder is in use");
    assert_eq!(twice.code(), ErrorCode::DataInUse);
    in_time(node.stop(Duration::from_secs(10)));
    let closed = orders.publish(Message::new("orders.x", &2)).wait().expect_err("the node has stopped");
    assert_eq!(closed.code(), ErrorCode::HomeError);
    let again = Node::listen("tide://127.0.0.1:0", options()).wait().expect("it was closed");
    assert_eq!(in_time(in_time(again.stream("orders")).info()).messages, 1);
}

#[test]
fn a_request_that_is_not_allowed_is_refused_with_its_fix() {
    let place = Place::new();
    let bare = hub();
    let nowhere = join(&bare, "nowhere").stream_with("orders", StreamOptions::new(["orders.>"])).wait();
    let nowhere = nowhere.expect_err("the hub has no folder");
    assert!(nowhere.code() == ErrorCode::HomeUnavailable && nowhere.to_string().contains("--data"), "{nowhere}");
    let missing = place.node.stream("missing").wait().expect_err("there is none");
    assert_eq!(missing.code(), ErrorCode::NotFound);
    let orders = place.orders();
    let other = place.node.stream_with("orders", StreamOptions::new(["orders.*"])).wait().expect_err("it has others");
    assert!(other.code() == ErrorCode::SettingsDiffer && other.to_string().contains("subjects"), "{other}");
    let replicas = StreamOptions::new(["many.>"]).replicas(3);
    let many = place.node.stream_with("many", replicas).wait().expect_err("a folder is on one machine");
    assert_eq!(many.code(), ErrorCode::Unsupported);
    for window in [0, 100_001] {
        let refused = orders.publisher(window).expect_err("out of range");
        assert!(refused.code() == ErrorCode::InvalidArgument && refused.to_string().contains("window"), "{refused}");
    }
    let some = orders.purge_subjects("orders.x").wait().expect_err("whole files only");
    assert_eq!(some.code(), ErrorCode::Unsupported);
}

#[test]
fn many_more_than_may_wait_for_their_acks_are_refused() {
    let (_place, orders) = Place::with_orders();
    let acks: Vec<_> = (0..30_000).map(|number| orders.publish(Message::new("orders.x", &number))).collect();
    let (mut stored, mut refused) = (0, 0);
    for ack in acks {
        match ack.wait() {
            Ok(_) => stored += 1,
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::LimitExceeded, "{error}");
                refused += 1;
            }
        }
    }
    assert!(stored >= 10_000 && stored + refused == 30_000, "{stored} stored");
    assert_eq!(in_time(orders.info()).messages, stored);
}
