//! Durable handlers of services: events are handled at least once, fail, are returned, and are
//! shared.

use std::future::pending;
use std::time::Duration;

use tidewire_node::streams::{ConsumerOptions, DurableHandler, Message, Stream, StreamOptions};
use tidewire_node::{ErrorCode, Failure, Node, NodeOptions, Service};

use crate::hubs::{Away, Folder, Place};
use crate::support::{Told, in_time, join};

fn publish(stream: &Stream, numbers: std::ops::Range<u32>) {
    for number in numbers {
        in_time(stream.publish(Message::new("orders.x", &number).key(format!("key-{}", number % 3))));
    }
}

fn all() -> ConsumerOptions {
    ConsumerOptions::all().backoff([Duration::from_millis(1)])
}

/// A service that reports the numbers that it has handled.
fn billing(told: &Told<u32>, options: ConsumerOptions) -> Service {
    let say = told.0.clone();
    let handler = DurableHandler::new("billing", "orders.*", move |_, number: u32| {
        let said = say.send(number);
        async move { Ok(said?) }
    });
    Service::new("billing").with_durable(handler.options(options))
}

fn lag(stream: &Stream) -> u64 {
    in_time(stream.consumers())[0].lag
}

#[test]
fn a_failed_event_comes_again_and_ends_as_a_dead_letter_with_its_error() {
    let (place, orders) = Place::with_orders();
    let told = Told::new();
    let say = told.0.clone();
    let fails = DurableHandler::new("billing", "orders.*", move |event, number: u32| {
        say.send((number, event.delivery())).expect("it is heard");
        async move {
            match number {
                0 => Err(Failure::new("shop:NoCustomer", "there is no such customer")),
                1 => panic!("it is broken"),
                2 => Ok(event.term("not ours").await?),
                _ => Ok(()),
            }
        }
    });
    let served = in_time(place.node.serve(Service::new("billing").with_durable(fails.options(all().max_deliver(2)))));
    publish(&orders, 0..4);
    in_time(orders.publish(Message::new("orders.x", "no number")));
    let mut handled: Vec<_> = (0..6).map(|_| told.next()).collect();
    handled.sort_unstable();
    assert_eq!(handled, [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (3, 1)]);
    let consumer = served.consumer("billing").expect("it is there");
    // Dead letters come in any order: the last one may still be on its way.
    let dead = loop {
        let dead = in_time(consumer.dead_letters(0, 10));
        if dead.len() == 4 {
            break dead;
        }
    };
    let said: Vec<_> = dead.iter().map(|dead| (dead.sequence, dead.reason.as_str(), dead.error.as_str())).collect();
    assert_eq!(
        said[..2],
        [
            (1, "max_deliver", "shop:NoCustomer: there is no such customer"),
            (2, "max_deliver", "std:Panic: it is broken")
        ]
    );
    assert_eq!((said[2].0, said[2].1), (3, "not ours"));
    assert!(said[3].0 == 5 && said[3].2.contains("event 5 of \"orders.x\"") && said[3].2.contains("u32"), "{said:?}");
    assert_eq!(in_time(served.stop(Duration::from_secs(20))).event_errors, 6);
}

#[test]
fn events_not_begun_or_cut_go_to_another_consumer_at_once() {
    let (place, orders) = Place::with_orders();
    publish(&orders, 0..50);
    let told = Told::new();
    let say = told.0.clone();
    let stuck = DurableHandler::new("billing", "orders.*", move |_, number: u32| {
        say.send(number).expect("it is heard");
        pending::<Result<(), Failure>>()
    });
    let served = in_time(place.node.serve(Service::new("billing").with_durable(stuck.options(all()).concurrency(2))));
    assert_eq!((told.next(), told.next()), (0, 1));
    let counts = in_time(served.stop(Duration::ZERO));
    assert_eq!((counts.events, counts.event_errors), (2, 0));
    let (again, say) = (Told::new(), told.0.clone());
    let handler = DurableHandler::new("billing", "orders.*", move |event, number: u32| {
        say.send(event.delivery()).expect("it is heard");
        let said = again.0.send(number);
        async move { Ok(said?) }
    });
    // Its ack wait is 30 s: what comes in time was given back.
    let other = join(&place.hub, "other");
    let served = in_time(other.serve(Service::new("billing").with_durable(handler.options(all()))));
    assert!((0..50).all(|_| told.next() == 1), "an attempt that was cut does not count");
    in_time(served.stop(Duration::from_secs(20)));
    assert_eq!(lag(&orders), 0);
}

#[test]
fn the_stream_is_found_by_its_subjects_or_named() {
    let place = Place::new();
    let serve = |pattern: &str, stream: Option<&str>| {
        let handler = DurableHandler::new("desk", pattern, |_, (): ()| async { Ok(()) });
        let handler = if let Some(stream) = stream { handler.stream(stream) } else { handler };
        place.node.serve(Service::new("desk").with_durable(handler))
    };
    let told = serve("orders.*", None).wait().expect_err("there is none");
    assert_eq!(told.code(), ErrorCode::NotFound);
    assert!(told.to_string().contains("desk.desk: no stream takes 'orders.*': make one"), "{told}");
    place.orders();
    in_time(place.node.stream_with("more", StreamOptions::new(["more.>"])));
    let told = serve(">", None).wait().expect_err("there are two");
    assert!(told.to_string().contains("the streams more, orders take '>': say stream="), "{told}");
    let told = serve(">", Some("other")).wait().expect_err("there is none of this name");
    assert_eq!(told.code(), ErrorCode::NotFound);
    assert!(in_time(place.node.services()).iter().all(|info| info.name != "desk"), "what was not opened is not served");
    let served = in_time(serve(">", Some("more")));
    let info = in_time(place.hub.services()).into_iter().find(|info| info.name == "desk").expect("it is served");
    assert_eq!((info.events[0].subject.as_str(), info.events[0].method.as_str()), (">", "desk"));
    in_time(served.stop(Duration::from_secs(20)));
}

#[test]
fn a_declaration_that_is_wrong_is_refused_with_what_to_mend() {
    let place = Place::new();
    place.orders();
    let handler = |consumer: &str, pattern: &str| DurableHandler::new(consumer, pattern, |_, (): ()| async { Ok(()) });
    let twice = Service::new("desk").with_durable(handler("one", "orders.a")).with_durable(handler("one", "orders.b"));
    for (service, said) in [
        (twice, "durable: \"one\" is the consumer of two handlers: give each its own"),
        (Service::new("desk").with_durable(handler("one", "orders.a").concurrency(0)), "concurrency"),
        (Service::new("desk").with_durable(handler("one", "orders..a")), "orders..a"),
        (Service::new("desk").with_durable(handler("a.b", "orders.a")), "durable: \"a.b\" is not allowed"),
        (
            Service::new("desk").with_durable(handler("one", "orders.a").options(all().max_in_flight(0))),
            "max_in_flight",
        ),
        (Service::new("desk").with_durable(handler("a/b", "orders.a")), "a/b"),
    ] {
        let told = place.node.serve(service).wait().expect_err("it is wrong").to_string();
        assert!(told.contains(said), "{told}");
    }
    let lonely = Node::listen("tide://127.0.0.1:0", NodeOptions::named("lonely")).wait().expect("a hub");
    let told = lonely.serve(billing(&Told::new(), all())).wait().expect_err("it has no streams");
    assert_eq!(told.code(), ErrorCode::HomeUnavailable, "{told}");
}

#[test]
fn a_hub_that_is_killed_and_begun_again_goes_on_delivering() {
    let folder = Folder::new();
    let (mut hub, url) = Away::rust(&folder.0, "tide://127.0.0.1:0");
    let node = Node::join(&url, NodeOptions::named("node")).wait().expect("it joins");
    let orders = in_time(node.stream_with("orders", StreamOptions::new(["orders.>"])));
    let told = Told::new();
    in_time(node.serve(billing(&told, all().ack_wait(Duration::from_secs(1)))));
    publish(&orders, 0..10);
    (0..10).for_each(|number| assert_eq!(told.next(), number));
    hub.kill();
    let (_hub, _) = Away::rust(&folder.0, &url);
    let ack = loop {
        match orders.publish(Message::new("orders.x", &10).id("ten")).wait() {
            Ok(ack) => break ack,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    };
    assert_eq!(ack.sequence, 11);
    // Acks that were lost with the hub have their events come again.
    while told.next() != 10 {}
}
