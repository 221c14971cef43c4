//! Limits of a service, repeats of calls, and the instance with the lowest latency.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use tidewire_node::{Choice, Client, ErrorCode, Failure, Node, NodeOptions, Service, Token};

use crate::support::{PATIENCE, Told, hub, join};

/// Holds its calls until they are cancelled.
fn holding(say: SyncSender<&'static str>) -> Service {
    Service::new("jobs").method("hold", &[], move |_, ()| {
        let _ = say.send("call");
        std::future::pending::<Result<(), Failure>>()
    })
}

#[test]
fn settings_that_are_not_allowed_are_named() {
    let hub = hub();
    let refused = |service: Service| hub.serve(service).wait().expect_err("not allowed").to_string();
    let jobs = || holding(Told::new().0);
    assert_eq!(refused(jobs().waiting(10_001)), "waiting: 10001 is not allowed: give 0 to 10000 calls");
    assert_eq!(refused(jobs().streams(0)), "streams: 0 is not allowed: give 1 to 10000 streams");
    let many = NodeOptions::named("many").resends(1_001);
    let refused = Node::join(&hub.urls()[0], many).wait().expect_err("not allowed");
    assert_eq!(refused.to_string(), "resends: 1001 is not allowed: give 0 to 1000 calls");
}

/// Serves `jobs.hold` at one node after the other, and ends each as soon as it is called; answers
/// how often it was called.
fn calls_until_given_up(resends: u32) -> usize {
    let (hub, told) = (hub(), Told::new());
    let mut nodes: Vec<Node> = (0..4).map(|number| join(&hub, &format!("server-{number}"))).collect();
    for (number, node) in nodes.iter().enumerate() {
        let served = holding(told.0.clone()).instance(format!("{number}"));
        node.serve(served).wait().expect("it serves");
    }
    let options = NodeOptions::named("caller").resends(resends);
    let caller = Node::join(&hub.urls()[0], options).wait().expect("it joins");
    let call = caller.client("jobs").choice(Choice::First).idempotent().call::<()>("hold", &());
    let waits = std::thread::spawn(move || call.wait());
    let mut calls = 0;
    while calls <= resends as usize {
        assert_eq!(told.next(), "call");
        calls += 1;
        drop(nodes.remove(0));
    }
    let lost = waits.join().expect("it waits").expect_err("it is given up");
    assert_eq!(lost.code(), ErrorCode::LinkLost);
    assert!(told.is_quiet());
    calls
}

// Promises: P13.15.
#[test]
fn an_idempotent_call_is_made_again_as_often_as_its_node_says() {
    assert_eq!([0, 1, 2].map(calls_until_given_up), [1, 2, 3]);
}

fn named(name: &'static str, takes: Duration) -> Service {
    Service::new("taker").instance(name).method("where", &[], move |_, ()| async move {
        // The test measures the time that this takes.
        std::thread::park_timeout(takes);
        Ok(name)
    })
}

/// Names of the instances that answer so many calls, one after another.
fn answers(client: &Client, calls: usize) -> Vec<String> {
    (0..calls).map(|_| client.call::<String>("where", &()).wait().expect("an answer")).collect()
}

fn count(answers: &[String], name: &str) -> usize {
    answers.iter().filter(|by| *by == name).count()
}

// Promises: P13.87, P13.100.
#[test]
fn the_quickest_instance_gets_the_calls_and_the_next_one_when_it_has_gone() {
    let hub = hub();
    let (slow, quick, caller) = (join(&hub, "slow"), join(&hub, "quick"), join(&hub, "caller"));
    slow.serve(named("slow", Duration::from_millis(150))).wait().expect("it serves");
    quick.serve(named("quick", Duration::ZERO)).wait().expect("it serves");
    let client = caller.client("taker").choice(Choice::LowestLatency);
    let got = answers(&client, 100);
    assert!(count(&got, "slow") >= 1 && count(&got, "quick") >= 80, "{got:?}");
    let explained = client.explain("where");
    let [slower, quicker] =
        ["slow", "quick"].map(|id| explained.instances.iter().find(|one| &*one.id == id).expect(id));
    assert!(slower.expected_us > quicker.expected_us && slower.samples < quicker.samples, "{explained:?}");
    assert!(explained.calls == 100 && explained.probes <= 1, "{explained:?}");
    assert!(explained.decisions.iter().any(|one| &*one.instance == "quick" && one.reason.name() == "lowest time"));
    quick.stop(PATIENCE).wait().expect("it stops");
    assert_eq!(count(&answers(&client, 3), "slow"), 3);
    // One that comes is tried.
    let late = join(&hub, "late");
    late.serve(named("late", Duration::ZERO)).wait().expect("it serves");
    let got = answers(&client, 30);
    assert!(count(&got, "late") >= 20, "{got:?}");
    let nobody = caller.client("nobody").choice(Choice::LowestLatency).call::<()>("x", &()).wait();
    assert_eq!(nobody.expect_err("nobody is there").code(), ErrorCode::NoResponders);
}

#[test]
fn a_token_has_limits_of_its_own() {
    let narrow = Token::new("a secret of few nodes", "ann").hub_links(1).link_subscriptions(4);
    let listens = |narrow| {
        let tokens = [Token::new("the secret of the hub", "hub"), narrow];
        Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub").tokens(tokens)).wait()
    };
    let hub = listens(narrow.clone()).expect("it listens");
    let joins = |name| Node::join(&hub.urls()[0], NodeOptions::named(name).token("a secret of few nodes")).wait();
    let first = joins("first").expect("it joins");
    let second = joins("second").expect_err("there is one already");
    assert_eq!(second.code(), ErrorCode::LimitExceeded);
    assert!(second.to_string().contains("hub_links=1 of the token of \"ann\""), "{second}");
    let subscriptions: Vec<_> = (0..4).map(|number| first.subscribe(&format!("news.{number}")).wait()).collect();
    let refused = subscriptions.into_iter().find_map(Result::err).expect("a node has some of its own");
    assert_eq!(refused.code(), ErrorCode::LimitExceeded);
    assert!(refused.to_string().contains("link_subscriptions=4 of the token"), "{refused}");

    let more = listens(narrow.link_in_flight(100_000)).expect_err("the hub has fewer");
    assert_eq!(more.code(), ErrorCode::InvalidArgument);
    assert!(more.to_string().contains("link_in_flight=100000 of \"ann\" is not allowed: give 16 to 65536"), "{more}");
}
