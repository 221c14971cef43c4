//! Hubs that join hubs: services and subjects that cross, and those that do not.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tidewire_node::values::Bytes;
use tidewire_node::{
    Choice, Context, ErrorCode, Failure, Federation, FederationOptions, Node, NodeOptions, Priority, Service,
    Subscription, Token,
};

use crate::support::count::{AtEnd, Count};
use crate::support::{Latch, OnDrop, PATIENCE, Told, in_time, join};

fn hub(name: &str) -> Node {
    Node::listen("tide://127.0.0.1:0", NodeOptions::named(name)).wait().expect("a hub listens")
}

fn federate(hub: &Node, other: &Node, options: FederationOptions) -> Federation {
    let federation = hub.federate(&other.urls()[0], options).expect("it may");
    in_time(federation.ready());
    federation
}

/// Waits until a service is there, or no longer.
fn until_served(node: &Node, service: &str, is_there: bool) {
    let mut changes = node.watch_services(None);
    // The watch has begun with its first change: it misses none from now on.
    let first = node.serve(Service::new("first-change").method("x", &[], |_, ()| async { Ok(()) }));
    let first = first.wait().expect("it serves");
    let mut next = || changes.next_blocking().expect("the node runs").expect("it is watched");
    next();
    first.stop(PATIENCE).wait().expect("it stops");
    while node.services().wait().expect("it is listed").iter().any(|info| info.name == service) != is_there {
        next();
    }
}

type Hanging = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// A handler without an end, which tells when it is dropped.
fn hang(told: &Told<&'static str>) -> impl Fn(Context, ()) -> Hanging + Send + Sync + 'static {
    let ended = told.0.clone();
    move |_, ()| {
        let told = OnDrop(ended.clone(), "cancelled");
        let _ = ended.send("begun");
        Box::pin(async move {
            let _told = told;
            std::future::pending().await
        })
    }
}

fn pricing(told: &Told<&'static str>) -> Service {
    let ends = told.0.clone();
    Service::new("pricing")
        .method("who", &[], |call, ()| async move {
            let lane = call.priority() == Priority::High;
            let deadline = call.remaining().is_some_and(|left| left <= Duration::from_secs(7));
            let headers = [call.headers()["tw-hubs"].clone(), call.headers()["tenant"].clone()];
            Ok((call.user().map(str::to_owned), headers, call.trace().to_owned(), lane, deadline))
        })
        .method("fail", &[], |_, ()| async { Err::<(), _>(Failure::new("shop:NoPrice", "there is none")) })
        .method("echo", &["bytes"], |_, bytes: Bytes| async move { Ok(bytes) })
        .method("hang", &[], hang(told))
        .stream("count", &["end"], move |_, end: i64| {
            let _ends = Some(OnDrop(ends.clone(), "stream ended"));
            Count { next: 0, end, at_end: AtEnd::Fail, written: Arc::default(), _ends }
        })
}

// Promises: P13.103.
#[test]
fn a_call_crosses_with_all_that_belongs_to_it() {
    let (paris, berlin, told) = (hub("paris"), hub("berlin"), Told::new());
    let worker = join(&berlin, "worker");
    worker.serve(pricing(&told)).wait().expect("it serves");
    until_served(&berlin, "pricing", true);
    let _joined = federate(&berlin, &paris, FederationOptions::named("berlin").export("pricing"));

    let caller = join(&paris, "caller").client("berlin:pricing");
    type Who = (Option<String>, [String; 2], String, bool, bool);
    let outer = Context::detached("x", "y").build();
    let said: Who = {
        let client = caller.clone().timeout(Duration::from_secs(7)).priority(Priority::High);
        client.header("tenant", "north").within(&outer).call("who", &()).wait().expect("it is answered")
    };
    // The user at the exporting hub is the hub that the call came from.
    let expected =
        (Some("paris".to_owned()), ["paris".to_owned(), "north".to_owned()], outer.trace().to_owned(), true, true);
    assert_eq!(said, expected);

    let failed = caller.call::<()>("fail", &()).wait().expect_err("it fails");
    assert_eq!(
        (failed.code(), &*failed.remote().expect("of the handler").type_name),
        (ErrorCode::RemoteError, "shop:NoPrice")
    );
    let long = Bytes((0..3_000_000u32).map(|number| number as u8).collect());
    assert_eq!(caller.call::<Bytes>("echo", &(&long,)).wait().expect("it is long"), long);

    let hanging = caller.call::<()>("hang", &());
    assert_eq!(told.next(), "begun");
    drop(hanging);
    assert_eq!(told.next(), "cancelled");
    let late = caller.clone().timeout(Duration::from_millis(50)).call::<()>("hang", &()).wait().expect_err("it hangs");
    assert_eq!(late.code(), ErrorCode::AskTimeout);
    assert_eq!((told.next(), told.next()), ("begun", "cancelled"));

    let mut items = caller.stream::<i64>("count", &300);
    let mut all: Vec<_> = std::iter::from_fn(|| items.next_blocking()).collect();
    let broken =
        all.pop().and_then(Result::err).and_then(|error| error.remote().map(|remote| remote.type_name.clone()));
    assert_eq!(broken.as_deref(), Some("test:Broken"));
    let all: Vec<i64> = all.into_iter().map(|item| item.expect("it comes")).collect();
    assert_eq!(all, (0..300).collect::<Vec<_>>());
    assert_eq!(told.next(), "stream ended");
    let mut items = caller.stream::<i64>("count", &i64::MAX);
    assert_eq!(items.next_blocking().and_then(Result::ok), Some(0));
    drop(items);
    assert_eq!(told.next(), "stream ended", "the reader has gone");
}

// Promises: P13.102.
#[test]
fn both_hubs_see_what_is_named_and_nothing_else() {
    let answers =
        |name: &str| Service::new(name).method("name", &[], |call, ()| async move { Ok(call.service().to_owned()) });
    let tokens = [
        Token::new("a long secret of paris", "paris"),
        Token::new("a long secret of berlin", "berlin")
            .partner()
            .serve(&["berlin:pricing", "prices"])
            .call(&["svc.billing.>"]),
    ];
    let paris =
        Node::listen("tide://127.0.0.1:0", NodeOptions::named("paris").tokens(tokens)).wait().expect("it listens");
    let berlin = hub("berlin");
    for name in ["pricing", "secret"] {
        berlin.serve(answers(name)).wait().expect("it serves");
    }
    for name in ["billing", "salaries"] {
        paris.serve(answers(name)).wait().expect("it serves");
    }
    let options = FederationOptions::named("berlin").token("a long secret of berlin");
    let options = options.export("pricing").export("pricing=prices").export("secret").import("paris:billing");
    let joined = federate(&berlin, &paris, options.import("paris:billing=bills").import("paris:salaries"));

    let names =
        |hub: &Node| hub.services().wait().expect("it lists").into_iter().map(|info| info.name).collect::<Vec<_>>();
    // The token at the other hub does not allow to serve "secret", nor to see "salaries".
    assert_eq!(names(&paris), ["berlin:pricing", "billing", "prices", "salaries"]);
    assert_eq!(names(&berlin), ["bills", "paris:billing", "pricing", "secret"]);
    for (hub, name, answer) in [
        (&paris, "berlin:pricing", "pricing"),
        (&paris, "prices", "pricing"),
        (&berlin, "paris:billing", "billing"),
        (&berlin, "bills", "billing"),
    ] {
        assert_eq!(hub.client(name).call::<String>("name", &()).wait().expect(name), answer);
    }
    for (hub, name) in [(&paris, "secret"), (&paris, "pricing"), (&paris, "berlin:secret"), (&berlin, "paris:salaries")]
    {
        assert_eq!(hub.client(name).call::<()>("name", &()).wait().expect_err(name).code(), ErrorCode::NoResponders);
    }
    let seen =
        berlin.services().wait().expect("it lists").into_iter().find(|info| info.name == "bills").expect("it is seen");
    assert_eq!(
        (&*seen.details[0].id, &*seen.details[0].node),
        ("~~paris", "paris"),
        "no node of the other hub is seen"
    );

    // The token is for that hub alone, under that name.
    for (name, fix) in [("berlin", "join from a hub"), ("hostile", "join as \"berlin\"")] {
        let hostile = Node::join(&paris.urls()[0], NodeOptions::named(name).token("a long secret of berlin"));
        let refused = hostile.wait().expect_err("it is for a hub");
        assert_eq!((refused.code(), refused.message().ends_with(fix)), (ErrorCode::Unauthorized, true), "{refused}");
    }

    drop(joined);
    until_served(&paris, "prices", false);
    until_served(&berlin, "bills", false);
    let names = [names(&paris), names(&berlin)].concat();
    assert_eq!(names, ["billing", "salaries", "pricing", "secret"]);
}

// Promises: P13.104.
#[test]
fn an_exported_service_comes_and_goes_with_its_instances_and_its_hub() {
    let (paris, told) = (hub("paris"), Told::new());
    let url = paris.urls()[0].clone();
    let berlin = hub("berlin");
    let joined =
        federate(&berlin, &paris, FederationOptions::named("berlin").export("pricing").import("paris:billing"));
    assert!(joined.is_joined());
    let first = berlin.serve(pricing(&told).instance("one")).wait().expect("it serves");
    until_served(&paris, "berlin:pricing", true);
    let second = berlin.serve(pricing(&told).instance("two")).wait().expect("it serves");
    first.stop(PATIENCE).wait().expect("it stops");
    let caller = paris.client("berlin:pricing").header("tenant", "north");
    let echo = || caller.call::<Bytes>("echo", &(Bytes(vec![1]),)).wait();
    assert_eq!(echo().expect("one is there"), Bytes(vec![1]));
    second.stop(PATIENCE).wait().expect("it stops");
    until_served(&paris, "berlin:pricing", false);
    assert_eq!(echo().expect_err("none is there").code(), ErrorCode::NoResponders);

    // The other hub goes: calls in flight are lost, new ones have no instance.
    paris.serve(Service::new("billing").method("hang", &[], hang(&told))).wait().expect("it serves");
    until_served(&berlin, "paris:billing", true);
    let billing = berlin.client("paris:billing");
    let hanging = billing.call::<()>("hang", &());
    assert_eq!(told.next(), "begun");
    drop((caller, paris));
    assert_eq!(hanging.wait().expect_err("it is lost").code(), ErrorCode::LinkLost);
    until_served(&berlin, "paris:billing", false);
    assert_eq!(billing.call::<()>("hang", &()).wait().expect_err("it is gone").code(), ErrorCode::NoResponders);
    assert!(!joined.is_joined());
    // It is back, and with it all that is shared.
    let paris = Node::listen(&url, NodeOptions::named("paris")).wait().expect("it listens again");
    paris.serve(Service::new("billing").method("who", &[], |_, ()| async { Ok(2) })).wait().expect("it serves");
    berlin.serve(pricing(&told)).wait().expect("it serves");
    until_served(&berlin, "paris:billing", true);
    until_served(&paris, "berlin:pricing", true);
    assert_eq!(billing.call::<i64>("who", &()).wait().expect("it is back"), 2);
}

/// A service whose calls tell their place, and wait for a gate.
fn desk(place: &'static str, calls: usize, told: &Told<&'static str>, gate: &Latch) -> Service {
    let (told, gate) = (told.0.clone(), gate.clone());
    let hold = move |_: Context, _: Bytes| {
        let (told, gate) = (told.clone(), gate.clone());
        async move {
            let _ = told.send(place);
            gate.await;
            Ok(place)
        }
    };
    Service::new("desk").method("hold", &["bytes"], hold).concurrency(calls).waiting(0)
}

// Promises: P13.111, P13.112, P13.113.
#[test]
fn a_call_goes_to_another_hub_while_all_instances_of_its_own_hub_are_full() {
    for (choice, bytes) in [(Choice::LeastOutstanding, 10), (Choice::First, 2_000_000), (Choice::LowestLatency, 10)] {
        let (paris, berlin, told, gate) = (hub("paris"), hub("berlin"), Told::new(), Latch::default());
        let (worker, caller) = (join(&berlin, "worker"), join(&berlin, "caller"));
        paris.serve(desk("paris", 1, &told, &gate)).wait().expect("it serves");
        berlin.serve(desk("berlin", 1, &told, &gate)).wait().expect("it serves");
        worker.serve(desk("worker", 2, &told, &gate)).wait().expect("it serves");
        let _joined = federate(&berlin, &paris, FederationOptions::named("berlin").import("paris:desk=desk"));
        until_served(&berlin, "desk", true);
        let desk = caller.client("desk").choice(choice);
        let call = || desk.call::<String>("hold", &(Bytes(vec![7; bytes]),));
        // A thread waits for it, and so it goes on to other instances.
        let begin = || {
            let call = call();
            std::thread::spawn(move || call.wait().expect("it is answered"))
        };

        let held: Vec<_> = (0..3).map(|_| (begin(), told.next())).collect();
        let mut places: Vec<_> = held.iter().map(|(_, place)| *place).collect();
        places.sort_unstable();
        assert_eq!(places, ["berlin", "worker", "worker"], "{choice:?}: one that is full sends calls to the other");
        let away = begin();
        assert_eq!(told.next(), "paris", "{choice:?}");
        let refused = call().wait().expect_err("both sites are full");
        assert_eq!(refused.code(), ErrorCode::Overloaded, "{refused}");
        let one = desk.clone().instance("~~paris").call::<String>("hold", &(Bytes(vec![7]),));
        assert_eq!(one.wait().expect_err("it is full").code(), ErrorCode::Overloaded);

        gate.open();
        assert_eq!(away.join().expect("no panic"), "paris");
        held.into_iter().for_each(|(call, place)| assert_eq!(call.join().expect("no panic"), place));
        for _ in 0..20 {
            assert_ne!(call().wait().expect("it is answered"), "paris", "{choice:?}: calls return");
        }
    }
}

/// Three hubs, of which each joins the next one and shares a service under one name.
fn ring(share: impl Fn(FederationOptions, &str) -> FederationOptions) -> ([Node; 3], [Federation; 3]) {
    let hubs = ["ada", "bea", "cleo"].map(hub);
    let federations = [0, 1, 2].map(|at| {
        let next = &hubs[(at + 1) % 3];
        federate(&hubs[at], next, share(FederationOptions::named(hubs[at].name()), next.name()))
    });
    (hubs, federations)
}

// Promises: P13.105.
#[test]
fn a_service_of_a_ring_ends_with_its_last_instance_and_no_call_goes_in_a_circle() {
    let ([ada, bea, cleo], _joined) =
        ring(|options, next| options.export("pricing=pricing").import(format!("{next}:pricing=pricing")));
    let told = Told::new();
    let served = ada.serve(pricing(&told)).wait().expect("it serves");
    for hub in [&bea, &cleo] {
        until_served(hub, "pricing", true);
    }
    for hub in [&ada, &bea, &cleo] {
        for _ in 0..50 {
            let echo = hub.client("pricing").call::<Bytes>("echo", &(Bytes(vec![1]),));
            assert_eq!(echo.wait().expect("it is answered"), Bytes(vec![1]));
        }
    }
    assert_eq!(served.statistics().calls, 150);
    // An instance of the own hub comes before those of others.
    let near = bea.serve(pricing(&told)).wait().expect("it serves");
    for _ in 0..50 {
        bea.client("pricing").call::<Bytes>("echo", &(Bytes(vec![1]),)).wait().expect("it is answered");
    }
    assert_eq!(near.statistics().calls, 50);
    near.stop(PATIENCE).wait().expect("it stops");
    served.stop(PATIENCE).wait().expect("it stops");
    for hub in [&ada, &bea, &cleo] {
        until_served(hub, "pricing", false);
    }
}

/// Everything that a hub hears of until a last message, in the order of arrival.
fn heard(subscription: &mut Subscription) -> Vec<i64> {
    let mut heard = Vec::new();
    loop {
        let message = subscription.next_blocking().expect("the node runs");
        if message.subject() == "news.end" {
            return heard;
        }
        heard.push(message.read().expect("it is a number"));
    }
}

// Promises: P13.105.
#[test]
fn a_message_reaches_each_hub_of_a_ring_once_and_also_over_two_links() {
    let ([ada, bea, cleo], [first, _second, _third]) =
        ring(|options, next| options.export("news.>").import(format!("{next}:news.>")));
    let mut all = [&ada, &bea, &cleo].map(|hub| hub.subscribe(">").wait().expect("it may"));
    let publisher = join(&ada, "publisher");
    let publish = |number: i64| publisher.publish("news.number", &number).expect("it is sent");
    (0..500).for_each(publish);
    publisher.publish("secret.number", &1).expect("it is sent");
    publisher.publish("news.long", &Bytes(vec![7; 2_000_000])).expect("it is long");
    for (hub, subscription) in all.iter_mut().enumerate() {
        let mut numbers = Vec::new();
        let (mut is_long, mut is_secret) = (false, false);
        while !is_long || (hub == 0 && !is_secret) {
            let message = subscription.next_blocking().expect("the node runs");
            match message.subject() {
                "news.number" => numbers.push(message.read::<i64>().expect("it is a number")),
                "news.long" => is_long = true,
                "secret.number" => is_secret = true,
                other => assert!(other.starts_with("$hub."), "{other}"),
            }
        }
        assert_eq!((numbers, is_secret), ((0..500).collect::<Vec<_>>(), hub == 0), "hub {hub}");
    }
    // Nothing arrives later: the last message of each way comes behind all others of that way.
    let mut bea_hears = bea.subscribe("news.*").wait().expect("it may");
    let mut cleo_hears = cleo.subscribe("news.*").wait().expect("it may");
    publish(500);
    publisher.publish("news.end", &0).expect("it is sent");
    assert_eq!((heard(&mut bea_hears), heard(&mut cleo_hears)), (vec![500], vec![500]));
    // Without the link between them, messages take the way over the third hub.
    drop(first);
    publish(501);
    let message = bea_hears.next_blocking().expect("the node runs");
    assert_eq!((&*message.headers()["tw-hubs"], message.read::<i64>().ok()), ("ada cleo", Some(501)));
}
