//! Calls when a node dies, a hub is lost, or a node stops.

use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidewire_node::values::Bytes;
use tidewire_node::{ErrorCode, Failure, Node, NodeOptions, Service, Task};

use crate::support::{Latch, OnDrop, PATIENCE, Told, hub, join, unix_url};

/// A service that reports its calls, and never replies.
fn stuck(told: &Told<&'static str>, instance: &'static str) -> Service {
    let say = told.0.clone();
    Service::new("jobs").instance(instance).method("run", &[], move |_, ()| {
        let say = say.clone();
        async move {
            let _ends = OnDrop(say.clone(), "ended");
            say.send("begun").map_err(|_| Failure::new("test:Gone", "nobody listens"))?;
            pending::<Result<String, Failure>>().await
        }
    })
}

fn quick(instance: &'static str) -> Service {
    Service::new("jobs").instance(instance).method("run", &[], move |_, ()| async move { Ok(instance) })
}

#[test]
fn a_node_that_stops_finishes_the_calls_that_it_has() {
    let (hub, told) = (hub(), Told::new());
    let (server, caller) = (join(&hub, "server"), join(&hub, "caller"));
    let (say, open) = (told.0.clone(), Latch::default());
    let gate = open.clone();
    let slow = Service::new("slow").method("long", &[], move |_, ()| {
        let (say, gate) = (say.clone(), gate.clone());
        async move {
            say.send("begun").map_err(|_| Failure::new("test:Gone", "nobody listens"))?;
            gate.await;
            Ok(Bytes(vec![1; 8_000_000]))
        }
    });
    server.serve(slow).wait().expect("it serves");
    let call = caller.client("slow").call::<Bytes>("long", &());
    assert_eq!(told.next(), "begun");
    let stopping = server.stop(PATIENCE);
    let late = caller.client("slow").call::<Bytes>("long", &()).wait().expect_err("it is stopping");
    assert!([ErrorCode::NodeStopped, ErrorCode::NoResponders].contains(&late.code()), "{late:?}");
    assert_eq!(server.publish("x", &1).expect_err("it is stopping").code(), ErrorCode::NodeStopped);
    open.open();
    let stopped = stopping.wait().expect("it stops");
    assert!(stopped.is_drained);
    assert_eq!(call.wait().expect("an answer").len(), 8_000_000);
}

#[test]
fn a_handler_that_waits_for_the_stop_of_its_own_node_is_told_at_once() {
    let hub = hub();
    let (server, caller) = (join(&hub, "server"), join(&hub, "caller"));
    let place = Arc::new(Mutex::new(Some(server.clone())));
    let stops = Service::new("stops").method("stop", &[], move |_, ()| {
        let place = Arc::clone(&place);
        async move {
            let node = place.lock().unwrap_or_else(PoisonError::into_inner).take();
            match node {
                Some(node) => Ok(node.stop(PATIENCE).await.expect_err("it would wait for itself").code().name()),
                None => Ok("nothing to stop"),
            }
        }
    });
    server.serve(stops).wait().expect("it serves");
    assert_eq!(caller.client("stops").call::<String>("stop", &()).wait().ok().as_deref(), Some("AskCycle"));
    assert!(server.stop(PATIENCE).wait().is_ok());
}

// Promises: P13.73.
#[test]
fn a_node_that_has_no_time_to_stop_drops_its_handlers() {
    let (hub, told) = (hub(), Told::new());
    let (server, caller) = (join(&hub, "server"), join(&hub, "caller"));
    server.serve(stuck(&told, "one")).wait().expect("it serves");
    let call = caller.client("jobs").call::<String>("run", &());
    assert_eq!(told.next(), "begun");
    let stopped = server.stop(Duration::from_millis(20)).wait().expect("it stops");
    assert!(!stopped.is_drained);
    assert_eq!(told.next(), "ended");
    let failed = call.wait().expect_err("its callee has stopped").code();
    assert!([ErrorCode::NodeStopped, ErrorCode::LinkLost].contains(&failed), "{failed:?}");
}

#[test]
fn a_runtime_that_takes_no_tasks_any_more_fails_all_calls_that_wait() {
    let tasks = Arc::new(std::sync::Mutex::new(Vec::<Task>::new()));
    let kept = Arc::clone(&tasks);
    let options = NodeOptions::named("hub").spawn(move |task| kept.lock().expect("no panic").push(task));
    let hub = Node::listen("tide://127.0.0.1:0", options).wait().expect("it listens");
    let served = hub.serve(quick("one").concurrency(1)).wait().expect("it serves");
    let calls: Vec<_> = (0..5_000).map(|_| hub.client("jobs").call::<String>("run", &())).collect();
    // All calls have arrived when the hub answers.
    hub.services().wait().expect("a list");
    assert_eq!(served.statistics().waiting, 4_999);
    let dropped = std::mem::take(&mut *tasks.lock().expect("no panic"));
    drop(dropped);
    let failed = calls.into_iter().map(|call| call.wait().expect_err("nothing runs").code());
    let (no_reply, stopped): (Vec<_>, Vec<_>) = failed.partition(|code| *code == ErrorCode::NoReply);
    assert_eq!((no_reply.len(), stopped), (1, vec![ErrorCode::NodeStopped; 4_999]));
}

// Promises: P13.1.
#[test]
fn joining_fails_with_a_reason() {
    let hub = hub();
    let _one = join(&hub, "one");
    let failed = |url: &str, name: &str| Node::join(url, NodeOptions::named(name)).wait().expect_err("it can't join");
    let taken = failed(&hub.urls()[0], "one");
    assert_eq!(taken.code(), ErrorCode::NameTaken);
    let nobody = failed(&unix_url(), "two");
    assert_eq!(nobody.code(), ErrorCode::LinkLost);
    assert!(nobody.to_string().starts_with("url: there is no hub at tide+unix://"), "{nobody}");
    assert!(
        failed("http://127.0.0.1:1", "two").to_string().starts_with("url: \"http://127.0.0.1:1\" is not allowed: use")
    );
    assert!(failed("tide://127.0.0.1:1", "").to_string().starts_with("name: \"\" is not allowed: give 1 to 255 bytes"));
    let open = Node::listen("tide://0.0.0.0:0", NodeOptions::named("open")).wait().expect_err("anybody could join");
    assert_eq!(open.code(), ErrorCode::Unauthorized);
    let place = Node::listen(&hub.urls()[0], NodeOptions::named("other")).wait().expect_err("the place is taken");
    assert_eq!(place.code(), ErrorCode::ConfigError);
    let threads = Node::listen("tide://127.0.0.1:0", NodeOptions::named("x").threads(5_000)).wait().expect_err("many");
    assert_eq!(threads.to_string(), "threads: 5000 is not allowed: give 0 to 1024 threads");
}
