//! Conformance cases of consumers.

use std::collections::BTreeSet;

use tidewire_backend::home::{Capability, Delivery, Fault, Fetch, Home, HomeErrorKind, Order, Settlement, Start};

use super::{
    SECOND_US, ack, can, consumer, fetch, fetch_exactly, good, message, orders, pattern, publish, publish_all, refused,
    settle,
};

fn nak() -> Settlement {
    let fault = Fault { error: "ValueError: no".to_owned(), traceback: "line 7".to_owned() };
    Settlement::Nak { delay_us: None, fault: Some(fault) }
}

fn sequences(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries.iter().map(|delivery| delivery.event.sequence).collect()
}

pub fn those_who_compete_share_the_events(home: &dyn Home) {
    orders(home);
    consumer(home, |_| {});
    publish_all(home, &["x"; 40]);
    let (mut one, mut two) = (Vec::new(), Vec::new());
    while one.len() + two.len() < 40 {
        one.extend(fetch(home, 7, SECOND_US));
        two.extend(fetch(home, 7, SECOND_US));
    }
    let all: BTreeSet<u64> = sequences(&one).into_iter().chain(sequences(&two)).collect();
    assert_eq!((one.len() + two.len(), all.len()), (40, 40), "each event went to one of them");
    assert!(!one.is_empty() && !two.is_empty());
    one.iter().chain(&two).for_each(|delivery| ack(home, delivery));
    let info = good(home.consumer_info("orders", "c"));
    assert_eq!((info.acked_to, info.lag, info.in_flight), (40, 0, 0));
}

pub fn patterns_select_what_they_match_and_nothing_else(home: &dyn Home) {
    orders(home);
    let names = ["orders.created", "orders.eu.created", "orders.gone", "orders.eu.gone", "orders.created.late"];
    let patterns = ["orders.created", "orders.*", "orders.*.created", "orders.>", "orders.eu.>"];
    for (number, name) in patterns.iter().enumerate() {
        let filter = vec![pattern(name)];
        let settings = tidewire_backend::home::ConsumerSettings {
            filter,
            start: Start::All,
            ..tidewire_backend::home::ConsumerSettings::new(&format!("c{number}"))
        };
        good(home.create_consumer("orders", settings));
    }
    publish(home, names.iter().map(|name| message(name, name)).collect());
    for (number, name) in patterns.iter().enumerate() {
        let expected: Vec<&str> = names.into_iter().filter(|subject| pattern(name).matches_str(subject)).collect();
        let mut found = Vec::new();
        while found.len() < expected.len() {
            let fetch = Fetch { max_messages: 10, max_bytes: 1 << 20, wait_us: 10 * SECOND_US };
            let some = good(home.fetch("orders", &format!("c{number}"), fetch));
            assert!(!some.is_empty(), "{name}: only {found:?} came");
            found.extend(some.into_iter().map(|delivery| delivery.event.subject.as_str().to_owned()));
        }
        assert_eq!(found, expected, "{name}");
        let fetch = Fetch { max_messages: 10, max_bytes: 1 << 20, wait_us: 1_000 };
        assert_eq!(good(home.fetch("orders", &format!("c{number}"), fetch)), [], "{name}");
    }
}

pub fn a_fetch_waits_for_what_is_published_next(home: &dyn Home) {
    orders(home);
    consumer(home, |_| {});
    let waits = home.fetch("orders", "c", Fetch { max_messages: 1, max_bytes: 1, wait_us: 20 * SECOND_US });
    publish_all(home, &["1"]);
    let delivery = good(waits).remove(0);
    assert_eq!((delivery.event.sequence, delivery.delivery), (1, 1));
    assert_eq!(fetch(home, 1, 1_000), [], "it is out");
}

// Promises: P17.29, P17.30.
pub fn a_failed_event_comes_again_and_ends_as_a_dead_letter(home: &dyn Home) {
    orders(home);
    consumer(home, |settings| settings.max_deliver = 3);
    publish_all(home, &["poison", "fine"]);
    let mut deliveries = Vec::new();
    while deliveries.len() < 4 {
        for delivery in fetch_exactly(home, 1) {
            deliveries.push((delivery.event.sequence, delivery.delivery));
            if delivery.event.sequence == 1 {
                settle(home, &delivery, nak()).expect("it is out");
            } else {
                ack(home, &delivery);
            }
        }
    }
    deliveries.sort_unstable();
    assert_eq!(deliveries, [(1, 1), (1, 2), (1, 3), (2, 1)]);
    assert_eq!(fetch(home, 1, 1_000), []);
    let letter = good(home.dead_letters("orders", "c", 0, 10)).remove(0);
    assert_eq!((letter.sequence, letter.deliveries, letter.reason.as_str()), (1, 3, "max_deliver"));
    assert_eq!((letter.fault.error.as_str(), letter.fault.traceback.as_str()), ("ValueError: no", "line 7"));
    assert_eq!(letter.event.map(|event| event.payload), Some("poison".into()));
    assert_eq!(good(home.consumer_info("orders", "c")).dead, 1);
    assert_eq!(good(home.requeue("orders", "c", vec![1, 99])), 1);
    let again = fetch_exactly(home, 1).remove(0);
    assert_eq!((&again.event.payload[..], again.delivery), (&b"poison"[..], 1));
    ack(home, &again);
    assert_eq!(good(home.dead_letters("orders", "c", 0, 10)), []);
}

// Promises: P17.29.
pub fn a_terminated_event_is_dead_at_once(home: &dyn Home) {
    orders(home);
    consumer(home, |_| {});
    publish_all(home, &["1"]);
    let delivery = fetch_exactly(home, 1).remove(0);
    settle(home, &delivery, Settlement::Term { reason: "no such customer".to_owned(), fault: None })
        .expect("it is out");
    let letter = good(home.dead_letters("orders", "c", 0, 10)).remove(0);
    assert_eq!((letter.sequence, letter.reason.as_str()), (1, "no such customer"));
    assert_eq!(good(home.drop_dead("orders", "c", vec![1])), 1);
    assert_eq!(good(home.dead_letters("orders", "c", 0, 10)), []);
}

// Promises: P17.23, P17.26.
pub fn an_ack_wait_that_is_over_gives_the_event_to_another(home: &dyn Home) {
    orders(home);
    consumer(home, |settings| settings.ack_wait_us = 300_000);
    publish_all(home, &["1"]);
    let first = fetch_exactly(home, 1).remove(0);
    let second = fetch_exactly(home, 1).remove(0);
    assert_eq!((second.event.sequence, second.delivery), (1, 2));
    let stale = settle(home, &first, Settlement::Ack).map_err(|error| error.kind());
    assert_eq!(stale, Err(HomeErrorKind::Stale));
    ack(home, &second);
}

pub fn a_delivery_is_settled_once(home: &dyn Home) {
    orders(home);
    consumer(home, |_| {});
    publish_all(home, &["1"]);
    let delivery = fetch_exactly(home, 1).remove(0);
    settle(home, &delivery, Settlement::Working).expect("it is out");
    ack(home, &delivery);
    let twice = settle(home, &delivery, Settlement::Ack).map_err(|error| error.kind());
    assert_eq!(twice, Err(HomeErrorKind::Stale));
    let mut foreign = delivery;
    foreign.event.sequence = 77;
    let never = settle(home, &foreign, Settlement::Ack).map_err(|error| error.kind());
    assert_eq!(never, Err(HomeErrorKind::Stale));
}

// Promises: P17.26.
pub fn a_delivery_of_before_a_move_is_stale(home: &dyn Home) {
    orders(home);
    consumer(home, |_| {});
    publish_all(home, &["1"]);
    let before = fetch_exactly(home, 1).remove(0);
    if !can(home, Capability::Seek, || home.seek("orders", "c", Start::All)) {
        return;
    }
    good(home.seek("orders", "c", Start::All));
    let after = fetch_exactly(home, 1).remove(0);
    assert_eq!((before.delivery, after.delivery), (1, 1));
    for how in [Settlement::Ack, Settlement::Working, nak()] {
        let stale = settle(home, &before, how.clone()).map_err(|error| error.kind());
        assert_eq!(stale, Err(HomeErrorKind::Stale), "{how:?}");
    }
    ack(home, &after);
}

// Promises: P17.26.
pub fn a_delivery_of_before_a_requeue_is_stale(home: &dyn Home) {
    orders(home);
    consumer(home, |settings| settings.max_deliver = 1);
    publish_all(home, &["1"]);
    let before = fetch_exactly(home, 1).remove(0);
    settle(home, &before, nak()).expect("it is out");
    assert_eq!(good(home.requeue("orders", "c", vec![1])), 1);
    let after = fetch_exactly(home, 1).remove(0);
    assert_eq!((before.delivery, after.delivery), (1, 1));
    let stale = settle(home, &before, Settlement::Ack).map_err(|error| error.kind());
    assert_eq!(stale, Err(HomeErrorKind::Stale));
    ack(home, &after);
    assert_eq!(good(home.dead_letters("orders", "c", 0, 10)), []);
}

// Promises: P17.27, P17.28.
pub fn events_that_no_handler_began_are_given_back(home: &dyn Home) {
    orders(home);
    consumer(home, |settings| settings.backoff_us = vec![3_600 * SECOND_US]);
    publish_all(home, &["1", "2"]);
    let both = fetch_exactly(home, 2);
    settle(home, &both[0], Settlement::Release).expect("it is out");
    let again = fetch_exactly(home, 1).remove(0);
    let counted = !home.capabilities().has(Capability::Release);
    assert_eq!((again.event.sequence, again.delivery), (1, 1 + u32::from(counted)), "at once, without the backoff");
    let stale = settle(home, &both[0], Settlement::Ack).map_err(|error| error.kind());
    assert_eq!(stale, Err(HomeErrorKind::Stale));
    ack(home, &again);
    ack(home, &both[1]);
}

// Promises: P17.31, P17.32.
pub fn a_key_that_fails_holds_back_itself_alone(home: &dyn Home) {
    orders(home);
    let by_key = || {
        let mut settings = tidewire_backend::home::ConsumerSettings::new("c");
        (settings.start, settings.order, settings.backoff_us) = (Start::All, Order::Key, vec![100_000]);
        home.create_consumer("orders", settings)
    };
    if !can(home, Capability::KeyOrder, by_key) {
        return;
    }
    good(by_key());
    let keyed = ["a", "b", "a", "b", "a"].into_iter().map(|key| {
        let mut message = message("orders.x", key);
        message.key = Some(key.to_owned());
        message
    });
    publish(home, keyed.collect());
    let first = fetch_exactly(home, 2);
    assert_eq!(sequences(&first), [1, 2], "one of each key is out");
    settle(home, &first[0], nak()).expect("it is out");
    ack(home, &first[1]);
    let next = fetch_exactly(home, 1).remove(0);
    assert_eq!(next.event.sequence, 4, "b goes on while a waits");
    ack(home, &next);
    let mut order = Vec::new();
    for _ in 0..3 {
        let delivery = fetch_exactly(home, 1).remove(0);
        order.push((delivery.event.sequence, delivery.delivery));
        ack(home, &delivery);
    }
    assert_eq!(order, [(1, 2), (3, 1), (5, 1)]);
}

pub fn credit_bounds_what_is_out(home: &dyn Home) {
    orders(home);
    consumer(home, |settings| settings.max_in_flight = 5);
    publish_all(home, &["x"; 20]);
    let out = fetch_exactly(home, 5);
    assert_eq!(fetch(home, 10, 1_000), [], "five are out");
    ack(home, &out[2]);
    assert_eq!(sequences(&fetch_exactly(home, 1)), [6]);
}

pub fn a_consumer_begins_where_it_was_told(home: &dyn Home) {
    orders(home);
    publish_all(home, &["1", "2", "3"]);
    for (name, start, expected) in [("all", Start::All, 1), ("third", Start::Sequence(3), 3), ("new", Start::New, 4)] {
        let settings =
            tidewire_backend::home::ConsumerSettings { start, ..tidewire_backend::home::ConsumerSettings::new(name) };
        good(home.create_consumer("orders", settings));
        if start == Start::New {
            publish_all(home, &["4"]);
        }
        let fetch = Fetch { max_messages: 1, max_bytes: 1, wait_us: 10 * SECOND_US };
        assert_eq!(sequences(&good(home.fetch("orders", name, fetch))), [expected], "{name}");
    }
}

pub fn a_consumer_is_paused_and_resumed(home: &dyn Home) {
    orders(home);
    consumer(home, |_| {});
    publish_all(home, &["1"]);
    if !can(home, Capability::Pause, || home.pause("orders", "c", None)) {
        return;
    }
    good(home.pause("orders", "c", None));
    assert!(good(home.consumer_info("orders", "c")).paused_until_us.is_some());
    assert_eq!(fetch(home, 1, 50_000), []);
    let waits = home.fetch("orders", "c", Fetch { max_messages: 1, max_bytes: 1, wait_us: 15 * SECOND_US });
    // When this one has waited in vain, the other waits for sure.
    assert_eq!(fetch(home, 1, SECOND_US), []);
    good(home.resume("orders", "c"));
    assert_eq!(sequences(&good(waits)), [1]);
}

pub fn a_consumer_is_moved(home: &dyn Home) {
    orders(home);
    consumer(home, |_| {});
    publish_all(home, &["1", "2", "3"]);
    fetch_exactly(home, 3).iter().for_each(|delivery| ack(home, delivery));
    if !can(home, Capability::Seek, || home.seek("orders", "c", Start::Sequence(2))) {
        return;
    }
    good(home.seek("orders", "c", Start::Sequence(2)));
    assert_eq!(sequences(&fetch_exactly(home, 2)), [2, 3]);
}

pub fn a_consumer_is_made_once(home: &dyn Home) {
    orders(home);
    consumer(home, |_| {});
    consumer(home, |settings| settings.start = Start::New);
    let mut other = tidewire_backend::home::ConsumerSettings::new("c");
    (other.backoff_us, other.max_deliver) = (vec![7 * SECOND_US], 9);
    let text = refused(home.create_consumer("orders", other), HomeErrorKind::Differs);
    for named in ["max_deliver is 5, not 9;", "backoff is"] {
        assert!(text.contains(named), "{text}");
    }
    assert_eq!(good(home.list_consumers("orders")).len(), 1);
    let waits = home.fetch("orders", "c", Fetch { max_messages: 1, max_bytes: 1, wait_us: 20 * SECOND_US });
    good(home.delete_consumer("orders", "c"));
    refused(waits, HomeErrorKind::NotFound);
    refused(home.consumer_info("orders", "c"), HomeErrorKind::NotFound);
}
