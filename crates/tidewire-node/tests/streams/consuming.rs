//! Consumers: deliveries, settlement, dead letters, and events that a leaving consumer returns.

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake};
use std::time::{Duration, Instant};

use tidewire_node::ErrorCode;
use tidewire_node::streams::{Consumer, ConsumerOptions, Delivery, Message, Settlement, Start, Stream};

use crate::hubs::Place;
use crate::support::{PATIENCE, in_time};

fn publish(stream: &Stream, numbers: std::ops::Range<u32>) {
    for number in numbers {
        in_time(stream.publish(Message::new("orders.x", &number)));
    }
}

fn next(consumer: &mut Consumer) -> Delivery {
    consumer.next_blocking_within(PATIENCE).expect("it is fetched").expect("it comes in time")
}

fn at_once() -> ConsumerOptions {
    ConsumerOptions::all().backoff([])
}

#[test]
fn a_failed_event_ends_as_a_dead_letter_and_is_requeued() {
    let (_place, orders) = Place::with_orders();
    publish(&orders, 0..2);
    let mut billing = in_time(orders.consumer("billing", at_once().max_deliver(2)));
    let first = next(&mut billing);
    in_time(first.ack());
    assert_eq!(first.ack().wait().expect_err("twice").code(), ErrorCode::StaleDelivery);
    let poison = next(&mut billing);
    assert_eq!((poison.delivery(), poison.sequence()), (1, 2));
    in_time(poison.fail("no such customer"));
    let poison = next(&mut billing);
    assert_eq!(poison.delivery(), 2);
    in_time(poison.settle(Settlement::Nak { delay_us: None, fault: None }));
    let [dead] = &in_time(billing.dead_letters(0, 10))[..] else { panic!("there is one") };
    assert_eq!((dead.sequence, dead.deliveries, dead.reason.as_str()), (2, 2, "max_deliver"));
    assert_eq!(dead.event.as_ref().and_then(|event| event.read::<u32>().ok()), Some(1));
    assert_eq!(in_time(billing.requeue([2])), 1);
    let mended = next(&mut billing);
    assert_eq!((mended.delivery(), mended.sequence()), (1, 2));
    in_time(mended.working());
    in_time(mended.term("not ours"));
    in_time(billing.flush());
    let [dead] = &in_time(billing.dead_letters(0, 10))[..] else { panic!("there is one") };
    assert_eq!(dead.reason, "not ours");
    assert_eq!(in_time(billing.drop_dead([2])), 1);
    assert_eq!(in_time(billing.info()).dead, 0);
}

#[test]
fn a_settlement_that_is_waited_for_says_when_the_event_went_to_another() {
    let (_place, orders) = Place::with_orders();
    publish(&orders, 0..1);
    let mut slow = in_time(orders.consumer("billing", at_once().ack_wait(Duration::from_millis(100))));
    let late = next(&mut slow);
    let again = next(&mut slow);
    assert_eq!((late.sequence(), again.sequence(), again.delivery()), (1, 1, 2));
    let stale = late.settle(Settlement::Ack).wait().expect_err("it went to another");
    assert_eq!(stale.code(), ErrorCode::StaleDelivery);
    in_time(again.settle(Settlement::Ack));
    assert_eq!(in_time(slow.info()).lag, 0);
}

#[test]
fn events_not_taken_by_a_consumer_go_to_another_when_it_leaves() {
    let (_place, orders) = Place::with_orders();
    publish(&orders, 0..50);
    let mut first = in_time(orders.consumer("billing", ConsumerOptions::all()));
    for number in 0..5 {
        let event = next(&mut first);
        assert_eq!(event.read::<u32>().ok(), Some(number));
        in_time(event.ack());
    }
    in_time(first.close());
    let mut second = in_time(orders.consumer("billing", ConsumerOptions::all()));
    for _ in 5..50 {
        let event = next(&mut second);
        assert_eq!(event.delivery(), 1, "what was given back does not count");
        in_time(event.ack());
    }
    in_time(second.flush());
    assert_eq!(in_time(second.info()).lag, 0);
}

struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_wait_that_is_dropped_loses_nothing() {
    let (_place, orders) = Place::with_orders();
    let mut billing = in_time(orders.consumer("billing", ConsumerOptions::all()));
    let waker = Arc::new(Nobody).into();
    for number in 0..20 {
        {
            let mut waits = pin!(billing.next());
            assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        publish(&orders, number..number + 1);
        // Every other time the wait that follows is a shorter one.
        let event = if number % 2 == 0 { billing.next_blocking().expect("an event") } else { next(&mut billing) };
        assert_eq!((event.read::<u32>().ok(), event.delivery()), (Some(number), 1));
        in_time(event.ack());
    }
    assert!(billing.next_blocking_within(Duration::from_millis(20)).expect("it is asked").is_none());
}

#[test]
fn each_broadcast_consumer_gets_all() {
    let (_place, orders) = Place::with_orders();
    let mut all: Vec<_> =
        (0..2).map(|_| in_time(orders.consumer("prices", ConsumerOptions::all().broadcast()))).collect();
    assert_ne!(all[0].name(), all[1].name());
    publish(&orders, 0..3);
    for consumer in &mut all {
        assert_eq!([0, 1, 2].map(|_| next(consumer).sequence()), [1, 2, 3]);
    }
    in_time(all[0].pause());
    assert!(in_time(all[0].info()).paused_until_us.is_some());
    in_time(all[0].resume());
    in_time(all[0].seek(Start::Sequence(2)));
    assert_eq!(next(&mut all[0]).sequence(), 2);
    let other = orders.consumer("x", ConsumerOptions::new().max_in_flight(0)).wait().expect_err("none may be out");
    assert!(other.code() == ErrorCode::InvalidArgument && other.to_string().contains("max_in_flight"), "{other}");
    in_time(all[1].delete());
    assert_eq!(all[1].next_blocking().expect_err("it was deleted").code(), ErrorCode::NotFound);
}

#[test]
fn a_hub_that_stops_ends_the_waits_and_the_node_ends_with_what_is_under_way() {
    let (place, orders) = Place::with_orders();
    let mut billing = in_time(orders.consumer("billing", ConsumerOptions::all()));
    let waits = std::thread::spawn(move || billing.next_blocking().map(drop));
    let begun = Instant::now();
    while in_time(place.node.services()).iter().all(|service| service.name != "tidewire-streams") {}
    assert!(in_time(place.hub.stop(Duration::from_secs(20))).is_drained);
    assert!(begun.elapsed() < Duration::from_secs(15), "nobody waits for who waits");
    // One that had not reached the hub waits for its link.
    in_time(place.node.stop(Duration::ZERO));
    let ended = waits.join().expect("it does not panic").expect_err("the hub has stopped");
    assert!([ErrorCode::HomeUnavailable, ErrorCode::HomeError].contains(&ended.code()), "{ended}");
}

#[test]
fn everything_may_be_dropped_while_acks_are_under_way() {
    for _ in 0..20 {
        let (place, orders) = Place::with_orders();
        publish(&orders, 0..1);
        let mut billing = in_time(orders.consumer("billing", ConsumerOptions::all()));
        let event = next(&mut billing);
        drop(event.ack());
        drop(orders.publish(Message::new("orders.x", &2)));
        drop((event, billing, orders));
        drop(place);
    }
}

#[test]
fn consumers_are_streams_for_any_runtime() {
    use futures_core::Stream as _;
    let (_place, orders) = Place::with_orders();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut billing = pin!(orders.consumer("billing", ConsumerOptions::all()).await.expect("a consumer"));
        let published: Vec<_> = (0..100_u32).map(|number| orders.publish(Message::new("orders.x", &number))).collect();
        for ack in published {
            ack.await.expect("it is stored");
        }
        for number in 0..100 {
            let event = std::future::poll_fn(|context| billing.as_mut().poll_next(context)).await;
            let event = event.expect("no end").expect("an event");
            assert_eq!(event.read::<u32>().ok(), Some(number));
            event.ack().await.expect("it is settled");
        }
        billing.flush().await.expect("it is stored");
        assert_eq!((billing.info().await.expect("it is there").lag, billing.stale()), (0, 0));
    });
}
