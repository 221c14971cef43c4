//! Signs of life that callers receive for long calls.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewire_node::{ErrorCode, Node, NodeOptions, Service};

use crate::support::{PATIENCE, Told, hub, join};

/// Blocks a thread of a node until it is dropped.
struct BlockingService {
    _unblock: SyncSender<()>,
    blocked: Receiver<()>,
}

impl BlockingService {
    /// A service whose method `block` blocks its thread, and whose methods `slow` and `waiting` are
    /// called meanwhile.
    fn new() -> (Self, Service) {
        let (_unblock, unblocked) = sync_channel::<()>(1);
        let (say, blocked) = sync_channel(16);
        let unblocked = Arc::new(Mutex::new(unblocked));
        let service = Service::new("taker")
            .method("slow", &[], |_, ()| std::future::pending::<Result<(), _>>())
            .method("waiting", &[], |_, ()| async { Ok(()) })
            .method("block", &[], move |_, ()| {
                let (say, unblocked) = (say.clone(), Arc::clone(&unblocked));
                async move {
                    let _ = say.send(());
                    // It ends with the other side of the channel.
                    let _ = unblocked.lock().map(|unblocked| unblocked.recv());
                    Ok(())
                }
            });
        (Self { _unblock, blocked }, service)
    }

    fn wait_blocked(&self) {
        self.blocked.recv_timeout(PATIENCE).expect("the thread is blocked");
    }
}

fn narrow(hub: &Node, log: &Told<String>) -> Node {
    let say = log.0.clone();
    let options = NodeOptions::named("narrow").threads(1).log(move |line| drop(say.send(line.to_owned())));
    Node::join(&hub.urls()[0], options).wait().expect("it joins")
}

#[test]
fn a_slow_handler_is_known_to_be_at_work() {
    let (hub, (_blocking, service)) = (hub(), BlockingService::new());
    let server = join(&hub, "server");
    server.serve(service).wait().expect("it serves");
    let hasty = hub.client("taker").timeout(Duration::from_millis(2_000));
    let late = hasty.call::<()>("slow", &()).wait().expect_err("it never answers");
    assert_eq!((late.code(), late.blocked()), (ErrorCode::AskTimeout, Some(Duration::ZERO)));
    assert!(late.to_string().contains("its handler was at work"), "{late}");
}

// Promises: P13.69.
#[test]
fn a_node_whose_threads_are_blocked_says_so_and_logs_it_once() {
    let (hub, log, (blocking, service)) = (hub(), Told::new(), BlockingService::new());
    let server = narrow(&hub, &log);
    server.serve(service).wait().expect("it serves");
    let blocked = hub.client("taker").call::<()>("block", &());
    blocking.wait_blocked();
    let late = hub.client("taker").timeout(Duration::from_millis(2_000)).call::<()>("waiting", &()).wait();
    let late = late.expect_err("no thread is left");
    assert!(late.blocked().is_some_and(|blocked| blocked >= Duration::from_millis(100)), "{late}");
    let line = log.next();
    assert!(line.contains("handlers could not begin for"), "{line}");
    assert!(log.is_quiet(), "it is logged once");
    drop(blocking);
    blocked.wait().expect("it is answered");
    hub.client("taker").call::<()>("waiting", &()).wait().expect("threads are free again");
}

#[test]
fn joins_and_services_are_logged_at_the_hub_and_at_the_node() {
    let (at_hub, at_node) = (Told::new(), Told::new());
    let (say_hub, say_node) = (at_hub.0.clone(), at_node.0.clone());
    let options = NodeOptions::named("hub").changes(move |line| drop(say_hub.send(line.to_owned())));
    let hub = Node::listen("tide://127.0.0.1:0", options).wait().expect("it listens");
    let options = NodeOptions::named("server").changes(move |line| drop(say_node.send(line.to_owned())));
    let server = Node::join(&hub.urls()[0], options).wait().expect("it joins");
    assert_eq!(at_hub.next(), "node \"server\" has joined");
    assert_eq!(at_node.next(), "node \"server\" has joined the hub \"hub\"");
    let (_blocking, service) = BlockingService::new();
    let served = server.serve(service.instance("one")).wait().expect("it serves");
    assert_eq!(at_node.next(), "serves \"taker\", instance \"one\"");
    assert_eq!(at_hub.next(), "node \"server\" serves svc.taker.one.*");
    served.stop(PATIENCE).wait().expect("it stops");
    assert_eq!(at_node.next(), "serves \"taker\", instance \"one\", no longer");
    server.stop(PATIENCE).wait().expect("it stops");
    drop(server);
    let mut lines = std::iter::from_fn(|| Some(at_hub.next()));
    assert!(lines.any(|line| line == "node \"server\" has left"), "it says goodbye");
}
