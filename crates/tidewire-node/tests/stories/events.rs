//! Event handlers of services: between nodes of Rust, and with Python in both directions.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidewire_node::{ErrorCode, Event, Failure, Node, NodeOptions, Service};

use crate::support::python::Python;
use crate::support::{PATIENCE, Told, hub, join};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: i64,
    shop: String,
}

fn order(id: i64) -> Order {
    Order { id, shop: "north".to_owned() }
}

/// Tells of each order; some fail, panic, or wait for ever.
fn desk(say: SyncSender<(&'static str, i64)>, who: &'static str) -> Event {
    Event::new("on_order", "orders.*", move |event, order: Order| {
        let say = say.clone();
        async move {
            assert_eq!((event.subject(), order.shop.as_str()), ("orders.new", "north"));
            let _ = say.send((who, order.id));
            match order.id {
                -1 => Err(Failure::new("shop:Negative", "an order has an id")),
                -2 => panic!("it panicked"),
                -3 => std::future::pending().await,
                id => Ok(2 * id),
            }
        }
    })
    .description("Notes an order.")
}

// Promises: P13.75.
#[test]
fn each_instance_handles_all_events_in_order_and_failures_end_nothing() {
    let (hub, told, log) = (hub(), Told::new(), Told::new());
    let say = log.0.clone();
    let options = NodeOptions::named("server").log(move |line| drop(say.send(line.to_owned())));
    let server = Node::join(&hub.urls()[0], options).wait().expect("it joins");
    let served = server.serve(Service::new("desk").with_event(desk(told.0.clone(), "desk"))).wait().expect("it serves");
    for id in 0..200 {
        hub.publish("orders.new", &order(id)).expect("it is sent");
    }
    for id in 0..200 {
        assert_eq!(told.next(), ("desk", id));
    }
    for id in [-1, -2] {
        hub.publish("orders.new", &order(id)).expect("it is sent");
    }
    hub.publish("orders.new", "no order").expect("it is sent");
    hub.publish("orders.new", &order(7)).expect("it is sent");
    assert_eq!([told.next(), told.next(), told.next()], [("desk", -1), ("desk", -2), ("desk", 7)]);
    let lines = [log.next(), log.next(), log.next()];
    assert_eq!(
        lines[0],
        "desk.on_order: a message on \"orders.new\" of \"hub\" failed: shop:Negative(\"an order has an id\")"
    );
    assert!(lines[1].contains("it panicked") && lines[2].contains("invalid type: string"), "{lines:?}");
    let counts = served.stop(PATIENCE).wait().expect("it stops");
    assert_eq!((counts.events, counts.event_errors, counts.events_dropped), (204, 3, 0));
}

#[test]
fn one_member_of_a_queue_group_handles_an_event() {
    let (hub, told) = (hub(), Told::new());
    let nodes = [("one", join(&hub, "one")), ("other", join(&hub, "other"))];
    for (who, node) in &nodes {
        let event = desk(told.0.clone(), who).queue("desks");
        node.serve(Service::new("desk").with_event(event)).wait().expect("it serves");
    }
    for id in 0..100 {
        hub.publish("orders.new", &order(id)).expect("it is sent");
    }
    let mut got: Vec<_> = (0..100).map(|_| told.next()).collect();
    got.sort_by_key(|(_, id)| *id);
    assert!(got.iter().map(|(_, id)| *id).eq(0..100), "{got:?}");
    let [one, other] = ["one", "other"].map(|who| got.iter().filter(|(by, _)| *by == who).count());
    assert!(one > 0 && other > 0, "{one} and {other}");
    let listed = hub.services().wait().expect("a list");
    let event = &listed[0].events[0];
    assert_eq!(
        (event.subject.as_str(), event.queue.as_deref(), event.method.as_str()),
        ("orders.*", Some("desks"), "on_order")
    );
}

// Promises: P13.77.
#[test]
fn events_that_came_are_handled_before_a_service_stops_or_dropped_at_its_timeout() {
    let (hub, told) = (hub(), Told::new());
    let serve = |event| hub.serve(Service::new("desk").with_event(event)).wait().expect("it serves");
    let served = serve(desk(told.0.clone(), "first"));
    for id in 0..50 {
        hub.publish("orders.new", &order(id)).expect("it is sent");
    }
    assert_eq!(served.stop(PATIENCE).wait().expect("it stops").events, 50);
    let held = serve(desk(told.0.clone(), "second"));
    hub.publish("orders.new", &order(-3)).expect("it is sent");
    while told.next() != ("second", -3) {}
    let counts = held.stop(Duration::from_millis(20)).wait().expect("it stops");
    assert_eq!((counts.events, counts.event_errors), (1, 0));
    hub.publish("orders.new", &order(1)).expect("nobody is there");
    assert!(told.is_quiet());
}

// Promises: P13.76.
#[test]
fn a_request_is_answered_with_what_the_handler_gives() {
    let (hub, told) = (hub(), Told::new());
    let server = join(&hub, "server");
    server.serve(Service::new("desk").with_event(desk(told.0.clone(), "desk"))).wait().expect("it serves");
    for asker in [&hub, &server] {
        assert_eq!(asker.request::<i64>("orders.new", &order(21)).wait().ok(), Some(42));
        let failed = asker.request::<i64>("orders.new", &order(-1)).wait().expect_err("it fails");
        assert_eq!(failed.remote().map(|remote| remote.type_name.as_str()), Some("shop:Negative"));
    }
}

#[test]
fn declarations_of_events_that_are_not_allowed_are_named() {
    let hub = hub();
    let refused = |event| hub.serve(Service::new("desk").with_event(event)).wait().expect_err("not allowed");
    let event = |name: &str, pattern: &str| Event::new(name, pattern, |_, _: i64| async { Ok(()) });
    assert_eq!(refused(event("on", "a b")).code(), ErrorCode::InvalidSubject);
    assert!(refused(event("a.b", "a")).to_string().starts_with("event: \"a.b\" is not allowed"));
    assert!(refused(event("on", "a").queue("x y")).to_string().starts_with("queue: "));
    assert_eq!(
        refused(event("on", "a").capacity(0)).to_string(),
        "capacity: 0 is not allowed: give 1 to 1000000 messages"
    );
}

#[test]
fn rust_and_python_handle_each_others_events() {
    let (hub, told) = (hub(), Told::new());
    let server = join(&hub, "server");
    let rust =
        Service::new("desk").with_event(desk(told.0.clone(), "rust")).method("ping", &[], |_, ()| async { Ok(()) });
    server.serve(rust).wait().expect("it serves");
    let Some(mut python) = Python::start("giving.py", "events", &hub) else { return };
    python.expect("ready");
    assert_eq!(told.next(), ("rust", 1));
    server.publish("orders.new", &order(2)).expect("it is sent");
    python.expect("python 2 north");
    assert_eq!(told.next(), ("rust", 2));
    let listed = hub.services().wait().expect("a list");
    let events: Vec<_> = listed.iter().flat_map(|info| &info.events).map(|event| event.method.as_str()).collect();
    assert_eq!(events, ["on_order", "noted"]);
    python.go_on();
    python.expect("done");
}
