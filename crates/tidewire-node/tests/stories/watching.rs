//! Watches of services: instances that join and leave.

use std::time::Duration;

use tidewire_node::{ErrorCode, InstanceChange, Node, NodeOptions, Service, ServiceChanges};

use crate::support::{hub, in_time, join};

fn math(instance: &str, version: &str) -> Service {
    Service::new("math").instance(instance).version(version).method("zero", &[], |_, ()| async { Ok(0) })
}

/// The next change, read on another thread; fails after a timeout.
fn next(mut changes: ServiceChanges) -> (Option<InstanceChange>, ServiceChanges) {
    let (say, heard) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let next = changes.next_blocking().map(|change| change.expect("it is no error"));
        drop(say.send((next, changes)));
    });
    heard.recv_timeout(crate::support::PATIENCE).expect("it comes in time")
}

fn told(change: Option<InstanceChange>) -> (bool, String, String, String) {
    let InstanceChange { has_joined, service, instance, .. } = change.expect("the node runs");
    (has_joined, service, instance.id, instance.version)
}

fn is(has_joined: bool, instance: &str, version: &str) -> (bool, String, String, String) {
    (has_joined, "math".to_owned(), instance.to_owned(), version.to_owned())
}

#[test]
fn those_there_are_come_first_and_then_whichever_come_and_go() {
    let hub = hub();
    let (node, watcher) = (join(&hub, "node"), join(&hub, "watcher"));
    let blue = in_time(node.serve(math("blue", "1.0.0")));
    in_time(node.serve(Service::new("other").method("zero", &[], |_, ()| async { Ok(0) })));
    let (change, changes) = next(watcher.watch_services(Some("math")));
    assert_eq!(told(change), is(true, "blue", "1.0.0"));
    let green = in_time(hub.serve(math("green", "")));
    let (change, changes) = next(changes);
    assert_eq!(change.as_ref().map(|change| change.instance.node.as_str()), Some("hub"));
    assert_eq!(told(change), is(true, "green", ""));
    in_time(blue.stop(Duration::from_secs(20)));
    let (change, changes) = next(changes);
    assert_eq!(told(change), is(false, "blue", "1.0.0"));
    in_time(green.stop(Duration::from_secs(20)));
    let (change, changes) = next(changes);
    assert_eq!(told(change), is(false, "green", ""));
    in_time(watcher.stop(Duration::from_secs(20)));
    assert!(next(changes).0.is_none(), "the node has stopped");
}

#[test]
fn a_reader_that_is_slow_gets_the_difference() {
    let hub = hub();
    let watcher = join(&hub, "watcher");
    let blue = in_time(hub.serve(math("blue", "1.0.0")));
    let (_, changes) = next(watcher.watch_services(None));
    in_time(blue.stop(Duration::from_secs(20)));
    for _ in 0..10 {
        in_time(in_time(hub.serve(math("red", "2.0.0"))).stop(Duration::from_secs(20)));
    }
    in_time(hub.serve(math("blue", "1.1.0")));
    // Until the last change has come to the watcher, it may see some of the others.
    let (mut seen, mut changes) = (Vec::new(), changes);
    while seen.last() != Some(&is(true, "blue", "1.1.0")) {
        let (change, rest) = next(changes);
        seen.push(told(change));
        changes = rest;
    }
    assert_eq!(seen.iter().filter(|one| one.2 == "blue").count(), 2, "{seen:?}");
    let red: Vec<_> = seen.iter().filter(|one| one.2 == "red").map(|one| one.0).collect();
    assert!(red.chunks(2).all(|pair| *pair == [true, false]), "it comes, and goes: {seen:?}");
}

#[test]
fn a_link_that_is_lost_is_waited_for() {
    let url = crate::support::unix_url();
    let first = Node::listen(&url, NodeOptions::named("hub")).wait().expect("a hub");
    let watcher = Node::join(&url, NodeOptions::named("watcher")).wait().expect("it joins");
    in_time(first.serve(math("blue", "1.0.0")));
    let (change, changes) = next(watcher.watch_services(None));
    assert_eq!(told(change), is(true, "blue", "1.0.0"));
    in_time(first.stop(Duration::from_secs(20)));
    let second = Node::listen(&url, NodeOptions::named("hub")).wait().expect("a hub");
    in_time(second.serve(math("green", "2.0.0")));
    let (change, changes) = next(changes);
    assert_eq!(told(change), is(false, "blue", "1.0.0"));
    assert_eq!(told(next(changes).0), is(true, "green", "2.0.0"));
}

#[test]
fn a_name_that_is_none_is_refused() {
    let told = hub().watch_services(Some("a.b")).next_blocking().expect("an answer").expect_err("it is no name");
    assert!(told.code() == ErrorCode::InvalidArgument && told.to_string().contains("service: \"a.b\""), "{told}");
}
