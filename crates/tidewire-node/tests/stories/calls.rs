//! Services and calls between nodes of Rust, over sockets.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidewire_node::values::{Bytes, Value};
use tidewire_node::{Choice, ErrorCode, Method, Node, NodeOptions, Priority, Service, Token, Visibility};

use crate::support::{PATIENCE, hub, join, unix_url};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quote {
    pub symbol: String,
    pub price: f64,
    pub tags: Vec<String>,
    pub note: Option<String>,
}

fn pricing() -> Service {
    Service::new("pricing")
        .description("Prices of things.")
        .method("quote", &["symbol", "qty"], |_, (symbol, qty): (String, Option<u32>)| async move {
            let price = 2.5 * f64::from(qty.unwrap_or(1));
            Ok(Quote { symbol, price, tags: vec!["new".to_owned()], note: None })
        })
        .method("echo", &["value"], |_, value: Value| async move { Ok(value) })
        .method("parse", &["text"], |_, text: String| async move { Ok(text.parse::<u8>()?) })
        .method("panics", &[], |_, ()| async move {
            assert_eq!(1, 2, "as it should");
            Ok(())
        })
        .method("bytes", &["count"], |_, count: usize| async move { Ok(Bytes(vec![7; count])) })
}

#[test]
fn a_service_is_called_over_tcp_and_over_a_unix_socket() {
    for url in ["tide://127.0.0.1:0", &unix_url(), "ws://127.0.0.1:0"] {
        let hub = Node::listen(url, NodeOptions::named("hub")).wait().expect("a hub listens");
        let (server, caller) = (join(&hub, "server"), join(&hub, "caller"));
        server.serve(pricing()).wait().expect("it serves");
        let client = caller.client("pricing");
        let quote: Quote = client.call("quote", &("X", 3)).wait().expect("a quote");
        assert_eq!(quote, Quote { symbol: "X".to_owned(), price: 7.5, tags: vec!["new".to_owned()], note: None });
        let by_name: Quote = client.call("quote", &BTreeMap::from([("symbol", "Y")])).wait().expect("a quote");
        assert_eq!((by_name.symbol.as_str(), by_name.price), ("Y", 2.5));
        let long: Bytes = client.call("bytes", &3_000_000).wait().expect("long bytes");
        assert_eq!(*long, vec![7; 3_000_000]);
    }
}

#[test]
fn many_calls_are_under_way_at_once_and_each_gets_its_own_answer() {
    let hub = hub();
    let (server, caller) = (join(&hub, "server"), join(&hub, "caller"));
    server.serve(pricing()).wait().expect("it serves");
    let client = caller.client("pricing");
    let calls: Vec<_> = (0..2_000).map(|number| client.call::<i64>("echo", &number)).collect();
    for (number, call) in (0..).zip(calls) {
        assert_eq!(call.wait().expect("an answer"), number);
    }
}

#[test]
fn an_error_of_a_handler_reaches_its_caller_with_its_type() {
    let hub = hub();
    hub.serve(pricing()).wait().expect("it serves");
    let failed = hub.client("pricing").call::<u8>("parse", &"300").wait().expect_err("300 is no u8");
    let remote = failed.remote().expect("a handler failed");
    assert_eq!(remote.type_name, "core.num.error:ParseIntError");
    assert_eq!(remote.message, "number too large to fit in target type");
    assert_eq!((failed.code(), failed.is_retryable()), (ErrorCode::RemoteError, false));
}

// Promises: P13.74.
#[test]
fn a_handler_that_panics_costs_its_call_and_nothing_else() {
    let hub = hub();
    let served = hub.serve(pricing()).wait().expect("it serves");
    let client = hub.client("pricing");
    let failed = client.call::<()>("panics", &()).wait().expect_err("it panics");
    let remote = failed.remote().expect("a handler failed");
    assert_eq!(remote.type_name, "std:Panic");
    assert!(remote.message.contains("as it should"), "{}", remote.message);
    assert_eq!(client.call::<u8>("parse", &"7").wait().ok(), Some(7));
    let statistics = served.statistics();
    assert_eq!((statistics.calls, statistics.errors), (2, 1));
}

#[test]
fn wrong_arguments_are_named() {
    let hub = hub();
    hub.serve(pricing()).wait().expect("it serves");
    let client = hub.client("pricing");
    let told =
        |arguments: Value| client.call::<Value>("quote", &arguments).wait().expect_err("they are wrong").to_string();
    let tuple = |items: Vec<Value>| told(Value::Tuple(items));
    assert_eq!(tuple(vec![]), "pricing.quote: symbol: nothing was given: give a value");
    assert_eq!(
        tuple(vec!["X".into(), "many".into()]),
        "pricing.quote: qty: invalid type: string \"many\", expected u32"
    );
    assert_eq!(tuple(vec![1.into(); 3]), "pricing.quote: 3 arguments are more than the 2 that it takes");
    let unknown = told(Value::Map(vec![("price".into(), 1.into())]));
    assert_eq!(unknown, "pricing.quote: \"price\" is not the name of a parameter: there are symbol, qty");
    let missing = client.call::<()>("quotes", &()).wait().expect_err("there is none");
    assert_eq!(missing.code(), ErrorCode::NoSuchTarget);
    assert!(missing.to_string().contains("pricing has no method \"quotes\""), "{missing}");
    let unfit = client.call::<String>("quote", &"X").wait().expect_err("a quote is no string");
    assert_eq!(unfit.code(), ErrorCode::InvalidArgument);
}

#[test]
fn an_argument_that_cannot_be_sent_fails_at_the_caller_and_names_the_path() {
    let hub = hub();
    let wrong = hub.client("pricing").call::<()>("echo", &(vec![1_u128, u128::MAX],)).wait().expect_err("too large");
    assert!(wrong.to_string().starts_with("pricing.echo[0][1]: 340282"), "{wrong}");
    let late = hub.client("pricing").timeout(Duration::ZERO).call::<()>("echo", &1).wait().expect_err("no time");
    assert!(late.to_string().starts_with("timeout: 0ns is not allowed"), "{late}");
    let dots = hub.client("a.b").call::<()>("echo", &1).wait().expect_err("no token");
    assert!(dots.to_string().starts_with("service: \"a.b\" is not allowed"), "{dots}");
}

#[test]
fn a_call_within_another_has_what_is_left_of_it_and_its_trace() {
    let hub = hub();
    let (server, caller) = (join(&hub, "server"), join(&hub, "caller"));
    let inner = Service::new("inner").method("left", &[], |call, ()| async move {
        let parent = call.trace_context().map(|(name, value)| format!("{name}={value}")).collect::<String>();
        Ok((call.remaining().map(|left| left.as_secs_f64()), call.trace().to_owned(), parent))
    });
    server.serve(inner).wait().expect("it serves");
    let node = server.clone();
    let outer = Service::new("outer").method("left", &[], move |call, ()| {
        let node = node.clone();
        async move {
            let asked: (Option<f64>, String, String) = node.client("inner").within(&call).call("left", &()).await?;
            Ok((asked.0, asked.1, asked.2))
        }
    });
    server.serve(outer).wait().expect("it serves");
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let given = format!("00-{trace}-00f067aa0ba902b7-01");
    let client = caller.client("outer").timeout(Duration::from_secs(20)).header("traceparent", &given);
    let answer: (Option<f64>, String, String) = client.call("left", &()).wait().expect("an answer");
    assert!(answer.0.is_some_and(|left| left > 10.0 && left <= 20.0), "{answer:?}: not what was left of 20 s");
    assert_eq!((answer.1.as_str(), answer.2), (trace, format!("traceparent={given}")));
    server.stop(PATIENCE).wait().expect("it stops");
}

#[test]
fn services_for_the_own_node_are_not_seen_by_others() {
    let hub = hub();
    let (server, caller) = (join(&hub, "server"), join(&hub, "caller"));
    let secret = Method::new("secret", &[], |_, ()| async { Ok(1) }).visibility(Visibility::Node);
    let service = Service::new("shop").method("open", &[], |_, ()| async { Ok(2) }).with(secret);
    server.serve(service).wait().expect("it serves");
    assert_eq!(server.client("shop").call::<i32>("secret", &()).wait().ok(), Some(1));
    assert_eq!(caller.client("shop").call::<i32>("open", &()).wait().ok(), Some(2));
    let refused = caller.client("shop").call::<i32>("secret", &()).wait().expect_err("it is not for others");
    assert_eq!(refused.code(), ErrorCode::NoSuchTarget);
    let listed = caller.services().wait().expect("a list");
    let names: Vec<_> = listed[0].methods.iter().map(|method| method.name.as_str()).collect();
    assert_eq!((listed[0].name.as_str(), names), ("shop", vec!["open"]));
}

fn place(color: &'static str) -> Service {
    Service::new("places").instance(color).method("where", &[], move |_, ()| async move { Ok(color) })
}

#[test]
fn several_instances_share_calls_and_each_can_be_called() {
    let hub = hub();
    let (one, other) = (join(&hub, "one"), join(&hub, "other"));
    one.serve(place("blue")).wait().expect("it serves");
    other.serve(place("green")).wait().expect("it serves");
    let places = hub.client("places");
    let first = places.clone().choice(Choice::First);
    for _ in 0..10 {
        assert_eq!(first.call::<String>("where", &()).wait().ok().as_deref(), Some("blue"));
    }
    assert_eq!(places.clone().instance("green").call::<String>("where", &()).wait().ok().as_deref(), Some("green"));
    let gone = places.clone().instance("red").call::<String>("where", &()).wait().expect_err("there is none");
    assert_eq!(gone.code(), ErrorCode::NoResponders);
    let mut answers: Vec<_> = places.call_all::<String>("where", &()).wait().expect("they are listed");
    answers.sort_by(|one, other| one.instance.cmp(&other.instance));
    let answers: Vec<_> = answers.iter().map(|one| (one.instance.as_str(), one.result.as_ref().ok())).collect();
    assert_eq!(answers, [("blue", Some(&"blue".to_owned())), ("green", Some(&"green".to_owned()))]);
    let taken = one.serve(place("blue")).wait().expect_err("there is one");
    assert_eq!(taken.code(), ErrorCode::NameTaken);
}

#[test]
fn a_handler_knows_who_called() {
    let tokens = [Token::new("secret of the hub", "root"), Token::new("secret of ana", "ana").call(&["svc.who.>"])];
    let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub").tokens(tokens)).wait().expect("it listens");
    let who = Service::new("who").method("calls", &[], |call, ()| async move {
        assert_eq!((call.service(), call.method(), call.priority()), ("who", "calls", Priority::High));
        Ok((call.node().to_owned(), call.user().map(str::to_owned), call.headers().clone()))
    });
    hub.serve(who).wait().expect("it serves");
    let options = NodeOptions::named("caller").token("secret of ana");
    let caller = Node::join(&hub.urls()[0], options).wait().expect("it joins");
    let client = caller.client("who").priority(Priority::High).header("shop", "north");
    let told: (String, Option<String>, BTreeMap<String, String>) = client.call("calls", &()).wait().expect("an answer");
    let headers = BTreeMap::from([("shop".to_owned(), "north".to_owned())]);
    assert_eq!(told, ("caller".to_owned(), Some("ana".to_owned()), headers));
    let other = caller.client("other").call::<()>("x", &()).wait().expect_err("the token does not allow it");
    assert_eq!(other.code(), ErrorCode::Unauthorized);
    let stranger = Node::join(&hub.urls()[0], NodeOptions::named("stranger")).wait().expect_err("it has no token");
    assert_eq!(stranger.code(), ErrorCode::Unauthorized);
}

#[test]
fn errors_of_a_declaration_are_raised_when_it_is_served() {
    let hub = hub();
    let refused = |service: Service| hub.serve(service).wait().expect_err("it is wrong").to_string();
    let one = || Service::new("one").method("a", &[], |_, ()| async { Ok(()) });
    assert!(refused(Service::new("a b")).starts_with("service: \"a b\" is not allowed"));
    assert_eq!(refused(Service::new("none")), "none: 0 methods, events and commands are not allowed: give 1 to 1000");
    assert!(refused(one().method("a", &[], |_, ()| async { Ok(()) })).contains("declared twice"));
    let private = refused(one().method("_b", &[], |_, ()| async { Ok(()) }));
    assert!(private.starts_with("one: method: \"_b\" is not allowed"), "{private}");
    let same = refused(one().method("b", &["x", "x"], |_, (_, _): (u8, u8)| async { Ok(()) }));
    assert!(same.starts_with("one: b: parameter \"x\" is not allowed"), "{same}");
    let version = refused(one().version("1.4"));
    assert!(version.starts_with("one: version: \"1.4\" is not allowed"), "{version}");
    let metadata = refused(one().metadata("note", "n".repeat(4_093)));
    assert!(metadata.starts_with("one: metadata: service_metadata_bytes=4096: it has 4097 bytes"), "{metadata}");
    let many = refused(one().concurrency(0));
    assert_eq!(many, "concurrency: 0 is not allowed: give 1 to 10000 calls");
}

#[test]
fn each_instance_is_listed_with_its_version_and_its_metadata() {
    let hub = hub();
    let server = join(&hub, "server");
    server
        .serve(place("blue").version("1.4.2").metadata("zone", "eu").metadata("zone", "us"))
        .wait()
        .expect("it serves");
    hub.serve(place("green")).wait().expect("it serves");
    let listed = join(&hub, "other").services().wait().expect("a list");
    let mut told: Vec<_> = listed[0].details.iter().collect();
    told.sort_by(|one, other| one.id.cmp(&other.id));
    let [blue, green] = told[..] else { panic!("{told:?}") };
    assert_eq!((&*blue.id, &*blue.node, &*blue.version), ("blue", "server", "1.4.2"));
    assert_eq!(blue.metadata.iter().collect::<Vec<_>>(), [(&"zone".to_owned(), &"us".to_owned())]);
    assert_eq!((&*green.id, &*green.node, &*green.version, green.metadata.len()), ("green", "hub", "", 0));
}

#[test]
fn a_description_and_schemas_are_listed() {
    let hub = hub();
    let add = Method::new("add", &["a", "b"], |_, (a, b): (i64, i64)| async move { Ok(a + b) })
        .description("Add two numbers.")
        .parameter_schema("a", serde_json::json!({"type": "integer"}))
        .idempotent();
    let served = hub.serve(Service::new("math").description("Sums.").with(add)).wait().expect("it serves");
    let listed = join(&hub, "other").services().wait().expect("a list");
    let [math] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((math.description.as_str(), &math.instances[..]), ("Sums.", &[served.instance().to_owned()][..]));
    let add = &math.methods[0];
    assert_eq!(add.parameters["properties"], serde_json::json!({"a": {"type": "integer"}, "b": {}}));
    assert!(add.idempotent && !add.stream && add.description == "Add two numbers.");
    served.stop(PATIENCE).wait().expect("it stops");
    let nobody = hub.client("math").call::<i64>("add", &(1, 2)).wait().expect_err("it has stopped");
    assert_eq!(nobody.code(), ErrorCode::NoResponders);
}

#[test]
fn a_runtime_of_the_program_runs_handlers_and_awaits_calls() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    let handle = runtime.handle().clone();
    let options = NodeOptions::named("hub").spawn(move |task| drop(handle.spawn(task)));
    runtime.block_on(async {
        let hub = Node::listen("tide://127.0.0.1:0", options).await.expect("it listens");
        let naps = Service::new("naps").method("nap", &["ms"], |_, ms: u64| async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok(ms)
        });
        hub.serve(naps).await.expect("it serves");
        let caller = Node::join(&hub.urls()[0], NodeOptions::named("caller")).await.expect("it joins");
        let client = caller.client("naps");
        let (one, other) = tokio::join!(client.call::<u64>("nap", &5), client.call::<u64>("nap", &1));
        assert_eq!((one.ok(), other.ok()), (Some(5), Some(1)));
        assert!(caller.stop(PATIENCE).await.expect("it stops").is_drained);
    });
}
