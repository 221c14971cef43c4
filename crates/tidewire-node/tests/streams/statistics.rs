//! Statistics that nodes of Rust serve at their hub, for other nodes, `tidewire top` and metrics.

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use serde_json::{Value, json};
use tidewire_node::streams::{ConsumerOptions, DurableHandler, Message, StreamOptions};
use tidewire_node::{ErrorCode, Failure, Node, NodeOptions, Service, Token};

use crate::hubs::Folder;
use crate::support::python::Python;
use crate::support::{PATIENCE, Told, in_time, join};

/// A shop that handles orders of a stream, and reports them.
fn shop(told: &Told<u32>) -> Service {
    let say = told.0.clone();
    let billing = DurableHandler::new("billing", "orders.*", move |_, number: u32| {
        let said = say.send(number);
        async move { Ok(said?) }
    });
    Service::new("shop")
        .instance("shop-1")
        .method("sell", &["count"], |_, count: u32| async move {
            if count == 0 { Err(Failure::new("shop:Empty", "nothing is left")) } else { Ok(count) }
        })
        .with_durable(billing.options(ConsumerOptions::all()))
}

/// The spans of a trace that nodes have stored, once so many have ended: the name, the kind and
/// node, those of the parent, and the error.
fn spans_of(looks: &Node, nodes: &[&str], trace: &str, count: usize) -> Vec<[String; 4]> {
    let ask = |node: &&str| {
        let inspection = looks.client("$sys").instance(key_of(looks, node));
        let answer: Value = inspection.call("trace", &(trace,)).wait().expect("spans");
        assert!(answer["host"].as_str().is_some_and(|host| !host.is_empty()), "{answer}");
        answer["spans"].as_array().expect("rows").clone()
    };
    let has_ended = |spans: &Vec<Value>| spans.len() == count && spans.iter().all(|span| span["duration_us"].is_u64());
    let looked = std::iter::repeat_with(|| nodes.iter().flat_map(ask).collect::<Vec<_>>()).find(has_ended);
    let spans = looked.expect("there is always another look");
    let text = |span: &Value, field: &str| span[field].as_str().unwrap_or_default().to_owned();
    let place = |span: &Value| format!("{} of {}", text(span, "kind"), text(span, "node"));
    let parent = |span: &Value| spans.iter().find(|other| other["id"] == span["parent"]).map(place).unwrap_or_default();
    let shown = |span| [text(span, "name"), place(span), parent(span), text(span, "error")];
    let mut shown: Vec<_> = spans.iter().map(shown).collect();
    shown.sort();
    shown
}

/// The instance of `$sys` of a node.
fn key_of(looks: &Node, node: &str) -> String {
    let services = in_time(looks.services());
    let found = services.iter().filter(|one| one.name == "$sys").flat_map(|one| &one.details);
    found.into_iter().find(|one| one.node == node).expect("it can be looked at").id.clone()
}

fn look(looks: &Node, node: &str, method: &str) -> Value {
    let inspection = looks.client("$sys").instance(key_of(looks, node)).timeout(PATIENCE);
    inspection.call(method, &()).wait().expect("its statistics")
}

fn durations(seen: &Value, kind: &str) -> Vec<(String, String, u64)> {
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let rows = seen["durations"].as_array().expect("rows").iter().filter(|row| row["kind"] == kind);
    let mut found: Vec<_> = rows
        .map(|row| {
            let buckets: u64 = row["buckets"].as_array().expect("buckets").iter().filter_map(Value::as_u64).sum();
            (text(row, "name"), text(row, "error"), buckets)
        })
        .collect();
    found.sort();
    found
}

// Promises: P13.110.
#[test]
fn others_see_the_calls_and_events_of_a_node_and_the_times_that_they_took() {
    let folder = Folder::new();
    let hub = NodeOptions::named("hub").data(&folder.0).inspect(true);
    let hub = Node::listen("tide://127.0.0.1:0", hub).wait().expect("it listens");
    let orders = in_time(hub.stream_with("orders", StreamOptions::new(["orders.>"])));
    let options = NodeOptions::named("seller").inspect(true);
    let seller = Node::join(&hub.urls()[0], options).wait().expect("it joins");
    let told = Told::new();
    in_time(seller.serve(shop(&told)));
    for count in [3, 2, 0] {
        assert_eq!(
            hub.client("shop").call::<u32>("sell", &(count,)).wait().ok(),
            Some(count).filter(|count| *count > 0)
        );
    }
    for number in 0..2 {
        in_time(orders.publish(Message::new("orders.x", &number)));
        assert_eq!(told.next(), number);
    }
    // A settled event was counted.
    while in_time(orders.consumers())[0].lag > 0 {}

    let caller = join(&hub, "caller");
    let about = look(&caller, "seller", "about");
    let url = hub.urls()[0].clone();
    assert_eq!([&about["node"], &about["language"], &about["url"]], ["seller", "rust", &url]);
    assert_eq!((&about["pid"], about["versions"]["tidewire"].is_string()), (&json!(std::process::id()), true));
    assert!(about["cpu_s"].as_f64() > Some(0.0) && about["memory_bytes"].as_u64() > Some(1_000_000), "{about}");

    let seen = look(&caller, "seller", "statistics");
    assert_eq!((&seen["services_count"], &seen["agents"]), (&json!(1), &json!([])));
    let row = &seen["services"][0];
    let counts = ["service", "instance", "calls", "handled", "errors", "in_flight", "waiting", "events"];
    assert_eq!(
        counts.map(|field| &row[field]),
        [&json!("shop"), &json!("shop-1"), &json!(3), &json!(3), &json!(1), &json!(0), &json!(0), &json!(2)]
    );
    assert!(row["p99_us"].as_u64() >= row["p50_us"].as_u64() && row["p99_us"].as_u64() < Some(30_000_000), "{row}");
    let sold = |error: &str, times| ("shop/sell".to_owned(), error.to_owned(), times);
    assert_eq!(durations(&seen, "server"), [sold("", 2), sold("Empty", 1)]);
    assert_eq!(durations(&seen, "process"), [("orders/billing".to_owned(), String::new(), 2)]);
    let dispatcher = &seen["dispatchers"][0];
    assert_eq!((&dispatcher["starved"], dispatcher["threads"].as_u64() > Some(0)), (&json!(false), true));
    assert!(seen["received_bytes"].as_u64() > Some(0) && seen["credit_bytes"].as_u64() > Some(0), "{seen}");

    let inspection = caller.client("$sys").instance(key_of(&caller, "seller"));
    let rows = |query: &Value| inspection.call::<Value>("rows", query).wait();
    let shops = rows(&json!({"kinds": ["agents", "services"], "search": "SHOP-1", "sort": "failed"})).expect("rows");
    assert_eq!(
        (&shops["found"], &shops["total"], &shops["rows"][0]["table"]),
        (&json!(1), &json!(1), &json!("services"))
    );
    assert_eq!(shops["rows"][0]["calls"], row["calls"]);
    let others = rows(&json!({"kinds": ["services"], "search": "shop other"})).expect("none");
    assert_eq!((&others["rows"], &others["found"], &others["total"]), (&json!([]), &json!(0), &json!(1)));
    let wrong = rows(&json!({"kinds": ["services"], "sort": "weight"})).expect_err("there is no such field");
    assert_eq!(wrong.code(), ErrorCode::InvalidArgument);
    assert!(wrong.to_string().contains("weight") && wrong.to_string().contains("handled"), "{wrong}");

    let seen = look(&caller, "hub", "statistics");
    assert_eq!(durations(&seen, "client"), [sold("", 2), sold("RemoteError", 1)]);
    assert_eq!(durations(&seen, "send"), [("orders".to_owned(), String::new(), 2)]);
    assert!(durations(&seen, "commit")[0].2 > 0, "{seen}");
    assert_eq!((&seen["of_hub"]["nodes"], &seen["round_trip_us"]), (&json!(3), &json!(0.0)));
    // The services of the project itself are not among those that programs serve.
    assert_eq!((&seen["services"], durations(&seen, "server")), (&json!([]), vec![]));
    in_time(hub.stop(PATIENCE));
}

// Promises: P13.110.
#[test]
fn the_console_finds_the_spans_of_a_trace_at_the_nodes_that_store_them() {
    let folder = Folder::new();
    let options = NodeOptions::named("hub").data(&folder.0).inspect(true).spans(1_000);
    let hub = Node::listen("tide://127.0.0.1:0", options).wait().expect("it listens");
    in_time(hub.stream_with("orders", StreamOptions::new(["orders.>"])));
    let told = Told::new();
    in_time(hub.serve(shop(&told)));
    let options = NodeOptions::named("desk").inspect(true).spans(3);
    let desk = Node::join(&hub.urls()[0], options).wait().expect("it joins");
    let (seller, orders) = (desk.clone(), in_time(desk.stream("orders")));
    let order = Service::new("desk").method("order", &["count"], move |call, (count,): (u32,)| {
        let stored = orders.publish(Message::new("orders.x", &count));
        let sold = seller.client("shop").within(&call).call::<u32>("sell", &(count,));
        async move {
            stored.await?;
            Ok(sold.await?)
        }
    });
    in_time(desk.serve(order));
    let looks = join(&hub, "looks");
    let traces = ["0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c"];
    let order = |trace: &str, count: u32| {
        let client = hub.client("desk").header("traceparent", format!("00-{trace}-b7ad6b7169203331-01"));
        client.call::<u32>("order", &(count,)).wait()
    };
    order(traces[0], 0).expect_err("nothing is left");
    let row = |name: &str, kind: &str, parent: &str, error: &str| [name, kind, parent, error].map(str::to_owned);
    let expected = [
        row("desk/order", "client of hub", "", "RemoteError: desk.order: shop:Empty: nothing is left"),
        row("desk/order", "server of desk", "client of hub", "Empty: nothing is left"),
        row("process orders.x", "consumer of hub", "producer of desk", ""),
        row("publish orders.x", "producer of desk", "server of desk", ""),
        row("shop/sell", "client of desk", "server of desk", "RemoteError: shop.sell: shop:Empty: nothing is left"),
        row("shop/sell", "server of hub", "client of desk", "Empty: nothing is left"),
    ];
    assert_eq!(spans_of(&looks, &["hub", "desk"], traces[0], 6), expected);
    // The newest spans replace the oldest.
    assert_eq!(order(traces[1], 1).ok(), Some(1));
    assert_eq!(spans_of(&looks, &["desk"], traces[1], 3).len(), 3);
    assert_eq!(spans_of(&looks, &["desk"], traces[0], 0), [[""; 4]; 0]);
    let wrong = hub.client("$sys").instance(key_of(&looks, "hub")).call::<Value>("trace", &("0AF",)).wait();
    assert_eq!(wrong.expect_err("it is no id").code(), ErrorCode::InvalidArgument);
    let refused = |options: NodeOptions| Node::listen("tide://127.0.0.1:0", options).wait().expect_err("not allowed");
    for options in [NodeOptions::named("x").spans(1), NodeOptions::named("x").inspect(true).spans(100_001)] {
        let refused = refused(options);
        assert!(
            refused.code() == ErrorCode::InvalidArgument && refused.to_string().starts_with("spans: "),
            "{refused}"
        );
    }
}

// Promises: P13.110.
#[test]
fn a_node_whose_handlers_hold_all_threads_is_seen_and_what_it_waits_for() {
    let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait().expect("it listens");
    let options = NodeOptions::named("busy").inspect(true).threads(1);
    let busy = Node::join(&hub.urls()[0], options).wait().expect("it joins");
    let (begun, entered) = sync_channel(1);
    let (release, held) = sync_channel::<()>(1);
    let held = std::sync::Mutex::new(held);
    let stuck = Service::new("stuck").concurrency(1).method("hold", &[], move |_, ()| {
        begun.send(()).expect("it is heard");
        held.lock().expect("one handler").recv().ok();
        async { Ok(()) }
    });
    in_time(busy.serve(stuck));
    let client = hub.client("stuck");
    let (first, second) = (client.call::<()>("hold", &()), client.call::<()>("hold", &()));
    entered.recv_timeout(PATIENCE).expect("it runs");
    let row = |seen: &Value| ["in_flight", "waiting", "handled"].map(|field| seen["services"][0][field].as_u64());
    // The second call may still be on its way.
    let seen = std::iter::repeat_with(|| look(&hub, "busy", "statistics"))
        .find(|seen| row(seen) == [Some(1), Some(1), Some(0)] && seen["lag_us"].as_u64() > Some(50_000))
        .expect("there is always another look");
    assert!(seen["round_trip_us"].as_f64() > Some(0.0), "the hub answers: {seen}");
    drop(release);
    first.wait().expect("it ends");
    second.wait().expect("it ends");
}

// Promises: P13.110.
#[test]
fn the_hub_says_who_may_look_and_a_node_without_the_right_to_serve_goes_on() {
    let tokens = [
        Token::new("secret of the hub", "hub"),
        Token::new("secret of a watcher", "ada").inspect(),
        Token::new("secret of a caller", "bob").call(&["svc.shop.>"]),
    ];
    let options = NodeOptions::named("hub").tokens(tokens).inspect(true);
    let hub = Node::listen("tide://127.0.0.1:0", options).wait().expect("it listens");
    let told = Told::new();
    let joined = |name: &str, token: &str| {
        let say = told.0.clone();
        let log = move |line: &str| drop(say.send(line.to_owned()));
        let options = NodeOptions::named(name).token(token).inspect(true).log(log);
        Node::join(&hub.urls()[0], options).wait().expect("it joins all the same")
    };
    let watcher = joined("watcher", "secret of a watcher");
    let line = told.next();
    assert!(
        line.starts_with("$sys: the statistics of this node cannot be looked at") && line.contains("may not serve"),
        "{line}"
    );
    assert_eq!(look(&watcher, "hub", "statistics")["node"], "hub");
    let act = |node: &Node, key: &str| {
        let call = node.client("$sys").instance(key).call::<()>("act", &("drain_pool", ["x"]));
        call.wait().expect_err("a node of Rust has no pools").code()
    };
    let key = key_of(&watcher, "hub");
    assert_eq!((act(&watcher, &key), act(&hub, &key)), (ErrorCode::Unauthorized, ErrorCode::NoSuchTarget));
    let caller = joined("caller", "secret of a caller");
    let refused = caller.client("$sys").instance(&key).call::<Value>("statistics", &()).wait().expect_err("it may not");
    assert_eq!(refused.code(), ErrorCode::Unauthorized);
}

#[test]
fn tidewire_top_and_the_metrics_of_a_hub_show_a_node_of_rust() {
    let Some(mut python) = Python::start_with("top.py", &[]) else { return };
    let url = python.line();
    let options = NodeOptions::named("seller").inspect(true);
    let seller = Node::join(&url, options).wait().expect("it joins");
    in_time(seller.serve(shop_without_events()));
    let calls: Vec<u32> =
        [3, 2].map(|count| seller.client("shop").call("sell", &(count,)).wait().expect("sold")).into();
    assert_eq!(calls, [3, 2]);
    python.go_on();
    let said: Vec<String> = std::iter::repeat_with(|| python.line()).take_while(|line| line != "end").collect();
    let text = said.join("\n");
    let shown = ["seller   process", &format!("tidewire {}, Rust", env!("CARGO_PKG_VERSION")), "1 service", "shop-1"];
    assert!(shown.iter().all(|part| text.contains(part)), "{text}");
    let series = "rpc_server_call_duration_seconds_count{node=\"seller\",rpc_system_name=\"tidewire\",rpc_method=\"shop/sell\"} 2";
    assert!(text.contains(series), "{text}");
    assert!(
        text.contains("tidewire_nodes_silent 0") && text.contains("process_cpu_seconds_total{node=\"seller\"}"),
        "{text}"
    );
    in_time(seller.stop(Duration::from_secs(5)));
}

fn shop_without_events() -> Service {
    Service::new("shop").instance("shop-1").method("sell", &["count"], |_, count: u32| async move { Ok(count) })
}
