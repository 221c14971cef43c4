//! Publishing, asking and subscribing between nodes of Rust.

use tidewire_node::{ErrorCode, Failure, Node, SubscribeOptions, Subscription};

use crate::support::{PATIENCE, Told, hub, join};

fn read(subscription: &mut Subscription) -> i64 {
    subscription.next_blocking().expect("a message").read().expect("a number")
}

#[test]
fn messages_reach_all_subscribers_in_order() {
    let hub = hub();
    let (one, other) = (join(&hub, "one"), join(&hub, "other"));
    let nodes: [&Node; 3] = [&hub, &one, &other];
    let mut all: Vec<_> = nodes.iter().map(|node| node.subscribe("numbers.*").wait().expect("it subscribes")).collect();
    for number in 0..500 {
        one.publish("numbers.next", &number).expect("it is sent");
    }
    for subscription in &mut all {
        for number in 0..500 {
            let message = subscription.next_blocking().expect("a message");
            assert_eq!((message.subject(), message.node()), ("numbers.next", "one"));
            assert_eq!(message.read::<i64>().ok(), Some(number));
        }
    }
}

#[test]
fn one_member_of_a_queue_group_gets_a_message() {
    let hub = hub();
    let (one, other, sender) = (join(&hub, "one"), join(&hub, "other"), join(&hub, "sender"));
    let member = |node: &Node| {
        let options = SubscribeOptions::default().queue("workers");
        node.subscribe_with("jobs", options).wait().expect("it subscribes")
    };
    let (mut first, mut second) = (member(&one), member(&other));
    for number in 0..100 {
        sender.publish("jobs", &number).expect("it is sent");
    }
    let told = Told::new();
    std::thread::scope(|scope| {
        for subscription in [&mut first, &mut second] {
            let say = told.0.clone();
            scope.spawn(move || {
                while let Some(message) = subscription.next_blocking() {
                    say.send(message.read::<i64>().expect("a number")).expect("somebody listens");
                }
            });
        }
        let mut seen: Vec<_> = (0..100).map(|_| told.next()).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
        for node in [&one, &other] {
            node.stop(PATIENCE).wait().expect("it stops");
        }
    });
    assert!(told.is_quiet(), "a message came twice");
}

// Promises: P13.66.
#[test]
fn a_request_is_answered_here_or_elsewhere_or_not_at_all() {
    let hub = hub();
    let (one, other) = (join(&hub, "one"), join(&hub, "other"));
    let mut doubles = other.subscribe("double").wait().expect("it subscribes");
    for asker in [&one, &other] {
        let asked = asker.request::<i64>("double", &21);
        let message = doubles.next_blocking().expect("a request");
        assert!(message.is_request() && message.node() == asker.name());
        let number: i64 = message.read().expect("a number");
        message.reply(&(number * 2)).expect("it is sent");
        assert_eq!(asked.wait().ok(), Some(42));

        let ignored = asker.request::<i64>("double", &21);
        drop(doubles.next_blocking().expect("a request"));
        assert_eq!(ignored.wait().expect_err("nobody answered").code(), ErrorCode::NoReply);

        let failed = asker.request::<i64>("double", &21);
        doubles.next_blocking().expect("a request").fail(Failure::new("test:No", "no"));
        assert_eq!(
            failed.wait().expect_err("it failed").remote().map(|remote| remote.message.clone()),
            Some("no".to_owned())
        );
    }
    drop(doubles);
    assert_eq!(one.request::<i64>("treble", &1).wait().expect_err("nobody is there").code(), ErrorCode::NoResponders);
}

#[test]
fn messages_without_room_are_counted_and_a_request_is_refused() {
    let hub = hub();
    let mut narrow = hub.subscribe_with("x", SubscribeOptions::default().capacity(2)).wait().expect("it subscribes");
    for number in 0..5 {
        hub.publish("x", &number).expect("it is sent");
    }
    assert_eq!(hub.request::<()>("x", &1).wait().expect_err("it is full").code(), ErrorCode::LimitExceeded);
    assert_eq!(narrow.dropped(), 4);
    assert_eq!((read(&mut narrow), read(&mut narrow)), (0, 1));
    hub.publish("x", &9).expect("it is sent");
    assert_eq!(read(&mut narrow), 9);
}

#[test]
fn subjects_and_options_that_are_not_allowed_are_named() {
    let hub = hub();
    assert_eq!(hub.publish("a..b", &1).expect_err("no subject").code(), ErrorCode::InvalidSubject);
    assert_eq!(hub.publish("a.*", &1).expect_err("a pattern").code(), ErrorCode::InvalidSubject);
    assert_eq!(hub.subscribe("a b").wait().expect_err("no pattern").code(), ErrorCode::InvalidSubject);
    let none = hub.subscribe_with("a", SubscribeOptions::default().capacity(0)).wait().expect_err("no room");
    assert_eq!(none.to_string(), "capacity: 0 is not allowed: give 1 to 1000000 messages");
    let own = hub.subject("a").header("tw-x", "1").publish(&1).expect_err("it belongs to the protocol");
    assert!(own.to_string().starts_with("header: \"tw-x\" is not allowed"), "{own}");
}
