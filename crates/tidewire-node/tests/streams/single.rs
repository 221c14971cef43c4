//! Single active services: one instance answers at a time, the others queue calls, and the next
//! takes over at once.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tidewire_node::streams::{ConsumerOptions, DurableHandler, LeaseOptions, Message};
use tidewire_node::{ErrorCode, Failure, Node, NodeOptions, Service, SingleActive};

use crate::hubs::Place;
use crate::support::python::Python;
use crate::support::{Told, in_time, join};

/// The numbers that one instance counts, with its name.
struct Count(u32);

impl futures_core::Stream for Count {
    type Item = Result<u32, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0 += 1;
        Poll::Ready(Some(Ok(self.0)).filter(|_| self.0 <= 100))
    }
}

/// A service of one method: it returns its instance, its fence and its argument.
fn answering(name: &'static str) -> Service {
    Service::new("matching").instance(name).method(
        "who",
        &["greeting"],
        move |call, greeting: Option<String>| async move {
            let shop = call.headers().get("shop").cloned().unwrap_or_default();
            Ok((name, call.fence()?, greeting.unwrap_or_default(), shop))
        },
    )
}

fn matching(name: &'static str) -> Service {
    answering(name)
        .method("fails", &[], |_, ()| async { Err::<(), _>(Failure::new("shop:Closed", "we are closed")) })
        .stream("count", &[], |_, ()| Count(0))
}

type Who = (String, u64, String, String);

fn who(node: &Node) -> Who {
    in_time_call(node.client("matching").call("who", &()))
}

fn in_time_call<T: serde::de::DeserializeOwned + Send + 'static>(call: tidewire_node::Call<T>) -> T {
    call.wait().expect("it is answered")
}

fn active(single: &SingleActive) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let active = async { tokio::time::timeout(crate::support::PATIENCE, single.active()).await };
    runtime.block_on(active).expect("in time").expect("it is not stopped")
}

#[test]
fn one_is_active_and_another_follows_when_it_is_stopped() {
    let place = Place::new();
    let (ann, ben) = (join(&place.hub, "ann"), join(&place.hub, "ben"));
    let first = in_time(ann.serve_single(matching("first")));
    let fence = active(&first);
    let second = in_time(ben.serve_single(matching("second")));
    for node in [&place.hub, &place.node, &ann, &ben] {
        // Whichever gets the call, the active one answers.
        for _ in 0..20 {
            assert_eq!(who(node), ("first".to_owned(), fence, String::new(), String::new()));
        }
    }
    assert!(first.is_active() && !second.is_active());
    assert_eq!(second.fence().expect_err("it stands by").code(), ErrorCode::LeaseLost);
    in_time(first.stop(Duration::from_secs(20)));
    let newer = active(&second);
    assert!(newer > fence, "{newer} after {fence}");
    assert_eq!(who(&place.node).0, "second");
    in_time(second.stop(Duration::from_secs(20)));
    assert_eq!(
        place.node.client("matching").call::<Who>("who", &()).wait().expect_err("nobody").code(),
        ErrorCode::NoResponders
    );
}

#[test]
fn one_that_stands_by_passes_on_what_was_said_and_what_was_answered() {
    let place = Place::new();
    let (ann, ben) = (join(&place.hub, "ann"), join(&place.hub, "ben"));
    let first = in_time(ann.serve_single(matching("first")));
    active(&first);
    in_time(ben.serve_single(matching("second")));
    let by = place.node.client("matching").instance("~second").header("shop", "corner");
    let said: Who = in_time_call(by.call("who", &("hello",)));
    assert_eq!((said.0.as_str(), said.2.as_str(), said.3.as_str()), ("first", "hello", "corner"));
    let named = std::collections::BTreeMap::from([("greeting", "hi")]);
    assert_eq!(in_time_call(by.call::<Who>("who", &named)).2, "hi");
    let failed = by.call::<()>("fails", &()).wait().expect_err("it fails");
    assert_eq!(failed.remote().map(|remote| remote.type_name.as_str()), Some("shop:Closed"));
    let mut items = by.stream::<u32>("count", &());
    let counted: Vec<_> = std::iter::from_fn(|| items.next_blocking()).map(|item| item.expect("a number")).collect();
    assert_eq!(counted, (1..=100).collect::<Vec<_>>());
}

// Promises: P17.58.
#[test]
fn calls_that_come_while_none_is_active_wait() {
    let place = Place::new();
    // Somebody else has the lease.
    let lease = in_time(place.hub.lease("active.matching"));
    let single = in_time(place.node.serve_single(matching("first")));
    let waits = place.hub.client("matching").call::<Who>("who", &());
    assert!(!single.is_active());
    in_time(lease.release());
    assert_eq!(in_time_call(waits).0, "first");
}

#[test]
fn a_node_that_stops_makes_room_for_another_at_once() {
    let place = Place::new();
    let long = || LeaseOptions::default().ttl(Duration::from_secs(600));
    let ann = join(&place.hub, "ann");
    let first = in_time(ann.serve_single_with(matching("first"), long()));
    active(&first);
    let second = in_time(place.node.serve_single_with(matching("second"), long()));
    in_time(ann.stop(Duration::from_secs(20)));
    active(&second);
    assert_eq!(who(&place.hub).0, "second");
}

#[test]
fn instances_of_python_and_of_rust_follow_each_other() {
    let place = Place::new();
    let Some(mut python) = Python::start_with("single.py", &[&place.hub.urls()[0]]) else { return };
    python.expect("active");
    let here = in_time(place.node.serve_single(answering("here")));
    assert_eq!(who(&place.node).0, "python");
    python.kill();
    // The lease of the one that was killed has ten minutes to go.
    active(&here);
    assert_eq!(who(&place.node).0, "here");
    let Some(mut python) = Python::start_with("single.py", &[&place.hub.urls()[0]]) else { return };
    python.expect("stands by, and the call goes to here");
    in_time(here.stop(Duration::from_secs(20)));
    python.expect("active");
    assert_eq!(who(&place.node).0, "python");
    python.go_on();
    python.expect("done");
}

// Promises: P17.132.
#[test]
fn a_node_calls_its_own_holder_while_the_hub_lists_one_that_stands_still() {
    let place = Place::new();
    let Some(mut python) = Python::start_with("single.py", &[&place.hub.urls()[0], "1"]) else { return };
    python.expect("active");
    let here = in_time(place.node.serve_single(answering("here")));
    python.say("stand still");
    active(&here);
    for _ in 0..4 {
        assert_eq!(who(&place.node).0, "here");
    }
}

#[test]
fn events_are_handled_by_the_one_that_is_active() {
    let (place, orders) = Place::with_orders();
    let told = Told::new();
    let serve = |node: &Node, name: &'static str| {
        let say = told.0.clone();
        let handler = DurableHandler::new("matching", "orders.*", move |_, number: u32| {
            let said = say.send((name, number));
            async move { Ok(said?) }
        });
        in_time(node.serve_single(matching(name).with_durable(handler.options(ConsumerOptions::all()))))
    };
    let first = serve(&place.node, "first");
    active(&first);
    let second = serve(&place.hub, "second");
    in_time(orders.publish(Message::new("orders.x", &1)));
    assert_eq!(told.next(), ("first", 1));
    in_time(first.stop(Duration::from_secs(20)));
    active(&second);
    in_time(orders.publish(Message::new("orders.x", &2)));
    assert_eq!(told.next(), ("second", 2));
}

#[test]
fn wrong_calls_get_an_error() {
    let place = Place::new();
    let told = place.node.serve_single(Service::new("x").instance("~y")).wait().expect_err("it is reserved");
    assert!(told.to_string().contains("instance: \"~y\" is not allowed"), "{told}");
    let plain = Service::new("plain").method("fence", &[], |call, ()| async move { Ok(call.fence()?) });
    in_time(place.node.serve(plain));
    let told = place.node.client("plain").call::<u64>("fence", &()).wait().expect_err("it has none");
    assert!(told.code() == ErrorCode::LeaseLost && told.to_string().contains("Node::serve_single"), "{told}");
    let (say, heard) = std::sync::mpsc::sync_channel(100);
    let options = NodeOptions::named("lonely").log(move |line| drop(say.try_send(line.to_owned())));
    let lonely = Node::listen("tide://127.0.0.1:0", options).wait().expect("a hub");
    let single = in_time(lonely.serve_single(matching("first")));
    let line = heard.recv_timeout(crate::support::PATIENCE).expect("it is told");
    assert!(line.contains("can't become active") && line.contains("has no place for streams"), "{line}");
    in_time(single.stop(Duration::from_secs(20)));
}
