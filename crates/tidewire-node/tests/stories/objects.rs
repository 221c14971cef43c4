//! Functions and objects as arguments and results: between nodes of Rust, and with Python in both
//! directions.

use std::pin::Pin;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tidewire_node::{
    Choice, Context as Call, ErrorCode, Failure, Feed, Function, Items, Node, NodeOptions, Object, RemoteFunction,
    RemoteObject, Service, Visibility,
};

use crate::support::python::Python;
use crate::support::{PATIENCE, Told, hub, in_time, join, unix_url};

/// Functions that a service has stored.
type Kept = Arc<Mutex<Vec<RemoteFunction>>>;

struct Counts(std::ops::Range<i64>);

impl Stream for Counts {
    type Item = Result<i64, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.next().map(Ok))
    }
}

fn cart() -> Object {
    let items = Arc::new(Mutex::new(Vec::new()));
    let listed = Arc::clone(&items);
    Object::new(
        Service::new("cart")
            .method("add", &["item"], move |_, item: String| {
                let mut items = items.lock().expect("nobody panics");
                items.push(item);
                let count = items.len();
                async move { Ok(count) }
            })
            .method("items", &[], move |_, ()| {
                let items = listed.lock().expect("nobody panics").clone();
                async move { Ok(items) }
            })
            .stream("count", &["end"], |_, end: i64| Counts(0..end)),
    )
}

fn work(kept: &Kept) -> Service {
    let (keeps, keeper, last, kept) = (Arc::clone(kept), Arc::clone(kept), Arc::clone(kept), Arc::clone(kept));
    Service::new("work")
        .method("run", &["steps", "progress"], |call: Call, (steps, progress): (u32, RemoteFunction)| async move {
            let progress = progress.within(&call);
            for step in 1..=steps {
                progress.call::<()>(&(f64::from(step) / f64::from(steps))).await?;
            }
            Ok(format!("{} of {}", progress.title(), progress.owner()))
        })
        .method("keep", &["function"], move |_, function: RemoteFunction| {
            keeps.lock().expect("nobody panics").push(function);
            async { Ok(()) }
        })
        .method("use_kept", &["argument"], move |_, argument: i64| {
            let function = keeper.lock().expect("nobody panics").last().cloned();
            async move { Ok(function.ok_or_else(|| Failure::new("test:None", "nothing"))?.call::<i64>(&argument).await?) }
        })
        .method("kept", &[], move |_, ()| {
            let function = last.lock().expect("nobody panics").last().cloned();
            async move { function.ok_or_else(|| Failure::new("test:None", "nothing")) }
        })
        .method("let_go", &[], move |_, ()| {
            kept.lock().expect("nobody panics").clear();
            async { Ok(()) }
        })
        .method("same", &["function"], |_, function: RemoteFunction| async move { Ok(function) })
        .method("collect", &["source"], |_, source: RemoteFunction| async move {
            let (mut items, mut got) = (source.stream::<i64>(&5), Vec::new());
            while let Some(item) = items.next().await {
                got.push(item?);
            }
            Ok(got)
        })
        .method("fill", &["cart"], |_, cart: RemoteObject| async move { Ok(cart.call::<usize>("add", &"apple").await?) })
        .method("give_to", &["function", "numbers"], |_, (function, numbers): (RemoteFunction, Items<i64>)| async move {
            let _numbers = numbers;
            Ok(function.call::<i64>(&Feed::of([1, 2, 3])).await?)
        })
        .method("open", &[], |_, ()| async { Ok(cart()) })
}

fn three(kept: &Kept) -> (Node, Node, Node) {
    let hub = hub();
    let (server, caller) = (join(&hub, "server"), join(&hub, "caller"));
    server.serve(work(kept)).wait().expect("it serves");
    (hub, server, caller)
}

fn doubles() -> Function {
    Function::new("doubles", &["number"], |_, number: i64| async move { Ok(2 * number) })
}

/// Waits until a node has so many exports and imports. Other nodes update both asynchronously.
fn counts(node: &Node, given: usize, held: usize) {
    in_time(node.until_remote(move |counts| (counts.given, counts.held) == (given, held)));
}

// Promises: P13.64.
#[test]
fn a_service_calls_the_functions_of_its_caller() {
    let (_hub, _server, caller) = three(&Kept::default());
    let told = Told::new();
    let say = told.0.clone();
    let progress = Function::new("progress", &["done"], move |call: Call, done: f64| {
        assert_eq!((call.node(), call.service(), call.method()), ("server", "progress", "call"));
        let _ = say.send(done);
        async { Ok(()) }
    });
    let work = caller.client("work");
    let done: String = work.call("run", &(4, &progress)).wait().expect("it is done");
    assert_eq!(
        (done.as_str(), [0.25, 0.5, 0.75, 1.0].map(|_| told.next())),
        ("progress of caller", [0.25, 0.5, 0.75, 1.0])
    );
    let fails = Function::new("fails", &["done"], |_, _: f64| async { Err::<(), _>(Failure::new("test:No", "no")) });
    let error = work.call::<String>("run", &(4, &fails)).wait().expect_err("it fails");
    assert_eq!(error.remote().map(|remote| remote.type_name.as_str()), Some("test:No"), "{error}");
    let source = Function::stream("source", &["end"], |_, end: i64| Counts(0..end));
    assert_eq!(work.call::<Vec<i64>>("collect", &source).wait().ok(), Some(vec![0, 1, 2, 3, 4]));
    let sums = Function::new("sums", &["numbers"], |_, mut numbers: Items<i64>| async move {
        let mut sum = 0;
        while let Some(number) = numbers.next().await {
            sum += number?;
        }
        Ok(sum)
    });
    assert_eq!(work.call::<i64>("give_to", &(&sums, Feed::of([9]))).wait().ok(), Some(6));
    counts(&caller, 0, 0);
}

// Promises: P13.64.
#[test]
fn an_object_lives_until_its_holder_lets_it_go() {
    let (_hub, server, caller) = three(&Kept::default());
    let cart: RemoteObject = caller.client("work").call("open", &()).wait().expect("a cart");
    let other: RemoteObject = caller.client("work").call("open", &()).wait().expect("a cart");
    assert_eq!(
        (cart.call::<usize>("add", &"apple").wait().ok(), cart.call::<usize>("add", &"pear").wait().ok()),
        (Some(1), Some(2))
    );
    assert_eq!(cart.call::<Vec<String>>("items", &()).wait().ok(), Some(vec!["apple".to_owned(), "pear".to_owned()]));
    let mut numbers = cart.stream::<i64>("count", &3);
    assert_eq!([0, 1, 2].map(|_| numbers.next_blocking().and_then(Result::ok)), [Some(0), Some(1), Some(2)]);
    assert!(cart.methods().eq(["add", "items", "count"]) && cart != other && cart == cart.clone());
    let missing = cart.call::<()>("pay", &()).wait().expect_err("there is none");
    assert_eq!(
        (missing.code(), missing.to_string().as_str()),
        (ErrorCode::NoSuchTarget, "cart has no method \"pay\": there are add, items, count")
    );
    counts(&server, 2, 0);
    counts(&caller, 0, 2);
    drop((other, numbers));
    counts(&server, 1, 0);
    let clone = cart.clone();
    cart.dispose();
    counts(&server, 0, 0);
    counts(&caller, 0, 0);
    assert_eq!(clone.call::<usize>("add", &"x").wait().expect_err("it is gone").code(), ErrorCode::RemoteGone);
    assert!(clone.is_gone());
}

#[test]
fn a_function_that_is_kept_lives_after_its_call_until_its_owner_disposes_of_it() {
    let (_hub, server, caller) = three(&Kept::default());
    let (work, doubles) = (caller.client("work"), doubles());
    for _ in 0..3 {
        work.call::<()>("keep", &doubles).wait().expect("it is kept");
    }
    counts(&caller, 1, 0);
    counts(&server, 0, 1);
    assert_eq!(work.call::<i64>("use_kept", &21).wait().ok(), Some(42));
    doubles.dispose();
    counts(&caller, 0, 0);
    let gone = work.call::<i64>("use_kept", &21).wait().expect_err("it is gone");
    assert_eq!(gone.code(), ErrorCode::RemoteGone, "{gone}");
    work.call::<()>("let_go", &()).wait().expect("it lets go");
    counts(&server, 0, 0);
}

#[test]
fn a_lease_that_is_over_ends_what_nobody_calls() {
    let (_hub, _server, caller) = three(&Kept::default());
    let (work, short) = (caller.client("work"), doubles().lease(Duration::from_millis(50)));
    work.call::<()>("keep", &short).wait().expect("it is kept");
    counts(&caller, 0, 0);
    assert_eq!(work.call::<i64>("use_kept", &1).wait().expect_err("it is gone").code(), ErrorCode::RemoteGone);
    let never = doubles().lease(Duration::ZERO);
    let wrong = work.call::<()>("keep", &never).wait().expect_err("not allowed");
    assert!(wrong.to_string().contains("lease: 0 is not allowed"), "{wrong}");
}

#[test]
fn exports_of_calls_cancelled_before_they_are_read_are_released_soon() {
    let (_hub, server, caller) = three(&Kept::default());
    let told = Told::new();
    let say = told.0.clone();
    // Busy with one call, and the others wait behind it.
    let desk = Service::new("desk").concurrency(1).method("hold", &["mine"], move |_, mine: Option<RemoteFunction>| {
        let _ = say.send(mine.is_some());
        async {
            std::future::pending::<()>().await;
            Ok(())
        }
    });
    server.serve(desk).wait().expect("it serves");
    let client = caller.client("desk");
    let first = client.call::<()>("hold", &None::<i64>);
    assert!(!told.next());
    let gives = || client.call::<()>("hold", &Function::new("mine", &[], |_, ()| async { Ok(1) }));
    let calls: Vec<_> = (0..20).map(|_| gives()).collect();
    counts(&caller, 20, 0);
    drop(calls);
    // Long before the ten minutes of a lease.
    counts(&caller, 0, 0);
    drop(first);
    let last = client.call::<()>("hold", &None::<i64>);
    assert!(!told.next(), "none of those that were cancelled has begun");
    drop(last);
    counts(&server, 0, 0);
}

#[test]
fn given_back_it_is_itself_and_to_a_third_node_it_is_refused() {
    let (hub, server, caller) = three(&Kept::default());
    let (doubles, work) = (doubles(), caller.client("work"));
    assert_eq!(work.call::<Function>("same", &doubles).wait().ok(), Some(doubles));
    let cart: RemoteObject = work.call("open", &()).wait().expect("a cart");
    let third = join(&hub, "third");
    third
        .serve(
            Service::new("third").method(
                "take",
                &["cart"],
                |_, cart: RemoteObject| async move { Ok(cart.title().len()) },
            ),
        )
        .wait()
        .expect("it");
    let refused = caller.client("third").call::<usize>("take", &cart).wait().expect_err("it is not for others");
    assert!(refused.to_string().contains("belongs to another node and can't be given to \"third\""), "{refused}");
    let own = Function::new("own", &["cart"], |_, _: RemoteObject| async { Ok(1) });
    drop((own, server));
}

#[test]
fn the_end_of_a_link_ends_what_was_given_over_it() {
    let kept = Kept::default();
    let (_hub, server, caller) = three(&kept);
    let doubles = doubles();
    caller.client("work").call::<()>("keep", &doubles).wait().expect("it is kept");
    let cart: RemoteObject = caller.client("work").call("open", &()).wait().expect("a cart");
    counts(&caller, 1, 1);
    server.stop(PATIENCE).wait().expect("it stops");
    counts(&caller, 0, 1);
    assert_eq!(cart.call::<usize>("add", &"x").wait().expect_err("its owner has left").code(), ErrorCode::RemoteGone);
    let function = kept.lock().expect("nobody panics").remove(0);
    assert_eq!(function.call::<i64>(&1).wait().expect_err("its node has stopped").code(), ErrorCode::RemoteGone);
}

#[test]
fn a_released_export_is_gone_wherever_it_is_given_or_read() {
    let (_hub, server, caller) = three(&Kept::default());
    let shared = cart();
    let given = shared.clone();
    let shop = Service::new("shop")
        .method("open", &[], move |_, ()| {
            let cart = given.clone();
            async move { Ok(cart) }
        })
        .method("fill", &["cart"], |_, _: Object| async { Ok(()) });
    server.serve(shop).wait().expect("it serves");
    let (shop, work) = (caller.client("shop"), caller.client("work"));
    let cart: RemoteObject = shop.call("open", &()).wait().expect("a cart");
    shop.call::<()>("fill", &cart).wait().expect("its owner has it");
    shared.dispose();
    let gone = shop.call::<()>("fill", &cart).wait().expect_err("its owner has let it go");
    assert_eq!(
        (gone.code(), gone.to_string().contains("cart: it came back to its owner")),
        (ErrorCode::RemoteGone, true),
        "{gone}"
    );
    cart.dispose();
    let gone = work.call::<()>("fill", &cart).wait().expect_err("it was let go here");
    assert_eq!(gone.code(), ErrorCode::RemoteGone, "{gone}");
    let doubles = doubles();
    work.call::<()>("keep", &doubles).wait().expect("it is kept");
    doubles.dispose();
    let gone = work.call::<Function>("kept", &()).wait().expect_err("it was let go by its owner");
    assert_eq!(gone.code(), ErrorCode::RemoteGone, "{gone}");
}

/// A service that takes a function, and returns the function's result, or never replies.
fn jobs(instance: &'static str, told: &Told<&'static str>) -> Service {
    let say = told.0.clone();
    Service::new("jobs").instance(instance).method("run", &["progress"], move |_, progress: RemoteFunction| {
        let _ = say.send(instance);
        async move {
            if instance == "stuck" {
                std::future::pending::<()>().await;
            }
            Ok(progress.call::<i64>(&21).await?)
        }
    })
}

// Promises: P13.67, P13.71.
#[test]
fn an_idempotent_call_gives_what_it_gives_to_another_instance_when_its_callee_dies() {
    let (hub, told) = (hub(), Told::new());
    let (stuck, other, caller) = (join(&hub, "one"), join(&hub, "other"), join(&hub, "caller"));
    stuck.serve(jobs("stuck", &told)).wait().expect("it serves");
    other.serve(jobs("other", &told)).wait().expect("it serves");
    let client = caller.client("jobs").choice(Choice::First).idempotent();
    let call = client.call::<i64>("run", &doubles());
    assert_eq!(told.next(), "stuck");
    drop(stuck);
    assert_eq!((call.wait().ok(), told.next()), (Some(42), "other"));
    counts(&caller, 0, 0);
}

// Promises: P13.71.
#[test]
fn a_call_is_not_made_again_when_the_link_that_names_what_it_gives_is_lost() {
    let (url, told) = (unix_url(), Told::new());
    let hub = Node::listen(&url, NodeOptions::named("hub")).wait().expect("it listens");
    hub.serve(jobs("stuck", &told)).wait().expect("it serves");
    let caller = Node::join(&url, NodeOptions::named("caller")).wait().expect("it joins");
    let call = caller.client("jobs").idempotent().call::<i64>("run", &doubles());
    assert_eq!(told.next(), "stuck");
    drop(hub);
    assert_eq!(call.wait().expect_err("its link is lost").code(), ErrorCode::LinkLost);
}

#[test]
fn a_value_that_cannot_be_given_or_taken_is_named() {
    let (_hub, _server, caller) = three(&Kept::default());
    let (work, doubles) = (caller.client("work"), doubles());
    let refused = |wrong: tidewire_node::Error| (wrong.code(), wrong.to_string());
    let (code, text) = refused(work.call::<()>("fill", &doubles).wait().expect_err("no object"));
    assert!(code == ErrorCode::InvalidArgument && text.contains("cart: a function or a stream was given"), "{text}");
    let (code, text) = refused(work.call::<i64>("open", &()).wait().expect_err("no number"));
    assert!(code == ErrorCode::InvalidArgument && text.contains("is read as `Items`"), "{text}");
    let (code, text) = refused(caller.publish("x", &doubles).expect_err("no data"));
    assert!(code == ErrorCode::InvalidArgument && text.contains("arguments and results of calls only"), "{text}");
    let hidden =
        Object::new(Service::new("hidden").visibility(Visibility::Node).method("x", &[], |_, ()| async { Ok(()) }));
    let (code, text) = refused(work.call::<()>("fill", &hidden).wait().expect_err("nothing to call"));
    assert!(code == ErrorCode::InvalidArgument && text.contains("none of its methods"), "{text}");
}

#[test]
fn rust_and_python_give_each_other_functions_and_objects() {
    let hub = hub();
    let Some(python) = Python::start("giving.py", "serve", &hub) else { return };
    python.expect("ready");
    let (caller, told) = (join(&hub, "rust"), Told::new());
    let say: SyncSender<i64> = told.0.clone();
    let progress = Function::new("progress", &["step"], move |_, step: i64| {
        let _ = say.send(step);
        async move { Ok(10 * step) }
    });
    let taker = caller.client("taker");
    assert_eq!(taker.call::<Vec<i64>>("run", &(3, &progress)).wait().ok(), Some(vec![0, 10, 20]));
    assert_eq!([0, 1, 2].map(|_| told.next()), [0, 1, 2]);
    assert_eq!(taker.call::<usize>("fill", &cart()).wait().ok(), Some(2));
    assert_eq!(taker.call::<Function>("same", &progress).wait().ok(), Some(progress));
    let adder: RemoteFunction = taker.call("adder", &5).wait().expect("a function");
    assert_eq!((adder.call::<i64>(&7).wait().ok(), adder.owner()), (Some(12), "python"));
    let counter: RemoteObject = taker.call("counter", &()).wait().expect("an object");
    assert_eq!([1, 2].map(|by| counter.call::<i64>("add", &by).wait().ok()), [Some(1), Some(3)]);
    let mut numbers = counter.stream::<i64>("count", &2);
    assert_eq!([0, 1].map(|_| numbers.next_blocking().and_then(Result::ok)), [Some(0), Some(1)]);
    assert_eq!(taker.call::<i64>("given", &()).wait().ok(), Some(2));
    drop((adder, numbers));
    counter.dispose();
    // Python is notified that all was released.
    taker.call::<()>("until_none_is_given", &()).wait().expect("it runs");
    counts(&caller, 0, 0);
}

#[test]
fn python_takes_and_gives_functions_and_objects_of_rust() {
    let kept = Kept::default();
    let (hub, server, _caller) = three(&kept);
    let Some(python) = Python::start("giving.py", "objects", &hub) else { return };
    python.expect("done");
    counts(&server, 0, 0);
}
