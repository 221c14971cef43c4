//! A node of Rust and one of Python: each calls the services of the other. Skipped with a message
//! without a Python that has the extension.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use tidewire_node::values::{Bytes, Value};
use tidewire_node::{ErrorCode, Failure, Items, Node, NodeOptions, Service};

use crate::calls::Quote;
use crate::support::python::Python;
use crate::support::{OnDrop, Told, hub, join};

/// A hub, a node that calls, and a process that serves.
fn serving() -> Option<(Node, Node, Python)> {
    let hub = hub();
    let python = Python::start("workshop.py", "serve", &hub)?;
    python.expect("ready");
    let caller = join(&hub, "rust");
    Some((hub, caller, python))
}

#[test]
fn rust_calls_python_with_typed_values() {
    let Some((_hub, caller, _python)) = serving() else { return };
    let workshop = caller.client("workshop");
    let quote: Quote = workshop.call("quote", &("X", 3)).wait().expect("a quote");
    assert_eq!(quote, Quote { symbol: "X".to_owned(), price: 7.5, tags: vec!["new".to_owned()], note: None });
    let by_name: Quote = workshop.call("quote", &BTreeMap::from([("symbol", "Y")])).wait().expect("a quote");
    assert_eq!(by_name.symbol, "Y");
    let taken: String = workshop.call("take", &(&quote,)).wait().expect("a struct becomes the data class");
    assert_eq!(taken, "X at 7.5");
    let sent = (Bytes(vec![7; 200_000]), vec![1.5, 2.5], Some("x"), None::<u8>, u64::MAX);
    let back: (Bytes, Vec<f64>, Option<String>, Option<u8>, u64) = workshop.call("echo", &(&sent,)).wait().expect("it");
    assert_eq!((back.0, back.4), (sent.0, sent.4));
    assert_eq!(caller.request::<i64>("double", &21).wait().ok(), Some(42));
    let listed = caller.services().wait().expect("a list");
    let quote = listed[0].methods.iter().find(|method| method.name == "quote").expect("it is listed");
    assert_eq!((listed[0].name.as_str(), quote.description.as_str()), ("workshop", "Quote a price."));
    assert_eq!(quote.parameters["properties"]["qty"]["type"], "integer");
}

#[test]
fn values_of_python_that_have_no_type_in_rust_are_read_as_values() {
    let Some((_hub, caller, _python)) = serving() else { return };
    let values: BTreeMap<String, Value> = caller.client("workshop").call("values", &()).wait().expect("values");
    let of = |name: &str| values[name].clone();
    assert_eq!((of("none"), of("big"), of("small")), (Value::Nil, Value::UInt(u64::MAX), Value::Int(i64::MIN)));
    assert_eq!((of("bytes"), of("long")), (Value::Bytes(vec![0, 255]), Value::Bytes(vec![b'x'; 100_000])));
    assert_eq!(of("tuple"), Value::Tuple(vec![1.into(), "a".into()]));
    assert_eq!((of("set"), of("utc")), (Value::Set(vec![7.into()]), Value::Timestamp(1_795_248_000_000_000)));
    assert_eq!((of("date"), of("decimal")), (Value::Date(20_778), Value::Decimal("-1.50".to_owned())));
    assert_eq!(of("duration"), Value::Duration { days: 1, seconds: 2, micros: 3 });
    assert!(matches!(of("uuid"), Value::Uuid([0x12, 0x34, ..])), "{:?}", of("uuid"));
    let Value::Record(name, _) = of("quote") else { panic!("{:?}", of("quote")) };
    assert_eq!((name.as_str(), of("quote").get("price").and_then(Value::as_f64)), ("__main__:Quote", Some(1.5)));
    let again: BTreeMap<String, Value> = caller.client("workshop").call("echo", &(&values,)).wait().expect("values");
    assert_eq!(again, values);
}

#[test]
fn errors_of_python_have_their_type_and_errors_of_the_project_their_code() {
    let Some((_hub, caller, _python)) = serving() else { return };
    let workshop = caller.client("workshop");
    let sold_out = workshop.call::<()>("sold_out", &()).wait().expect_err("nothing is left");
    let remote = sold_out.remote().expect("a handler failed");
    assert_eq!((remote.type_name.as_str(), remote.message.as_str()), ("__main__:OutOfStock", "nothing is left"));
    assert!(remote.traceback.contains("workshop.py"), "{}", remote.traceback);
    let wrong = workshop.call::<Quote>("quote", &("X", "many")).wait().expect_err("qty is no number");
    assert_eq!(wrong.code(), ErrorCode::InvalidArgument);
    assert!(wrong.to_string().contains("qty"), "{wrong}");
    let missing = workshop.call::<()>("missing", &()).wait().expect_err("there is none");
    assert_eq!(missing.code(), ErrorCode::NoSuchTarget, "{missing}");
}

#[test]
fn rust_reads_a_stream_of_python_to_its_error_or_closes_it_early() {
    let Some((_hub, caller, python)) = serving() else { return };
    let workshop = caller.client("workshop");
    let mut items: Items<u64> = workshop.stream("count", &(300,));
    for number in 0..300 {
        assert_eq!(items.next_blocking().and_then(Result::ok), Some(number));
    }
    let error = items.next_blocking().expect("an error").expect_err("it fails at its end");
    assert_eq!(error.remote().map(|remote| remote.type_name.as_str()), Some("__main__:OutOfStock"));
    python.expect("closed");
    let mut early: Items<u64> = workshop.stream("count", &(1_000_000_000_u64,));
    assert_eq!(early.next_blocking().and_then(Result::ok), Some(0));
    drop(early);
    python.expect("closed");
}

struct Numbers {
    next: u64,
    end: u64,
    _ends: Option<OnDrop>,
}

impl Stream for Numbers {
    type Item = Result<u64, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.next += 1;
        Poll::Ready((self.next <= self.end).then(|| Ok(self.next - 1)))
    }
}

fn shop(node: &Node, color: &'static str, told: &Told<&'static str>) -> Service {
    let (ends, forever, node) = (told.0.clone(), told.0.clone(), node.clone());
    Service::new("shop")
        .description("What Python calls.")
        .instance(color)
        .method("quote", &["symbol", "qty"], |_, (symbol, qty): (String, Option<u32>)| async move {
            Ok(Quote { symbol, price: 2.5 * f64::from(qty.unwrap_or(1)), tags: vec!["new".to_owned()], note: None })
        })
        .method("take", &["quote"], |_, quote: Quote| async move { Ok(format!("{} at {}", quote.symbol, quote.price)) })
        .method("echo", &["value"], |_, value: Value| async move { Ok(value) })
        .method("where", &[], move |_, ()| async move { Ok(color) })
        .method("sold_out", &[], |_, ()| async { Err::<(), _>(Failure::new("shop:OutOfStock", "nothing is left")) })
        .method("hold", &[], move |_, ()| {
            let (ends, node) = (OnDrop(ends.clone(), "hold ended"), node.clone());
            async move {
                let _ends = ends;
                node.publish("begun", "held")?;
                std::future::pending::<Result<(), Failure>>().await
            }
        })
        .stream("count", &["end"], |_, end: u64| Numbers { next: 0, end, _ends: None })
        .stream("forever", &[], move |_, ()| Numbers {
            next: 0,
            end: u64::MAX,
            _ends: Some(OnDrop(forever.clone(), "stream closed")),
        })
}

#[test]
fn python_calls_rust() {
    let hub = hub();
    let told = Told::new();
    let (blue, green) = (join(&hub, "blue"), join(&hub, "green"));
    blue.serve(shop(&blue, "blue", &told)).wait().expect("it serves");
    green.serve(shop(&green, "green", &told)).wait().expect("it serves");
    let mut orders = hub.subscribe("orders.*").wait().expect("it subscribes");
    let mut trebles = blue.subscribe("treble").wait().expect("it subscribes");
    let Some(python) = Python::start("workshop.py", "call", &hub) else { return };
    let answered = std::thread::spawn(move || {
        let message = trebles.next_blocking().expect("a request");
        let number: i64 = message.read().expect("a number");
        assert_eq!(message.node(), "python");
        message.reply(&(number * 3)).expect("it is sent");
    });
    python.expect("done");
    answered.join().expect("it was answered");
    let order = orders.next_blocking().expect("a message");
    assert_eq!(order.read::<BTreeMap<String, i64>>().ok(), Some(BTreeMap::from([("id".to_owned(), 7)])));
    // One came to its deadline, one was cancelled, and one stream was closed early.
    assert_eq!(told.some(), ["hold ended", "hold ended", "stream closed"]);
}

// Promises: P13.97.
#[test]
fn a_request_over_http_is_one_tree_through_python_rust_a_folder_nats_and_a_browser() {
    let js = concat!(env!("CARGO_MANIFEST_DIR"), "/../../js");
    let has = |path: &str| std::path::Path::new(js).join(path).exists();
    let has_browser = has("packages/client/dist/index.js")
        && has("node_modules/playwright-core")
        && ["chromium", "chromium-browser", "google-chrome"].iter().any(|name| has(&format!("/usr/bin/{name}")));
    let options = ["--json", "--till", "--nats", "--browser"];
    let options = &options[..if has_browser { 4 } else { 3 }];
    let Some(mut python) = Python::start_with("../../../../examples/traces/main.py", options) else { return };
    let url = python.line();
    if url.starts_with("nats-server") {
        return println!("skipped: {url}");
    }
    let till = Node::join(&url, NodeOptions::named("till")).wait().expect("it joins");
    let node = till.clone();
    let service = Service::new("till").method("charge", &["item"], move |call, item: String| {
        let stock = node.client("stock").within(&call);
        async move { Ok(stock.call::<u32>("take", &(item,)).await?) }
    });
    till.serve(service).wait().expect("it serves");
    python.go_on();
    let report: serde_json::Value = serde_json::from_str(&python.line()).expect("a report");
    assert_eq!(report["traces"], serde_json::json!(["4bf92f3577b34da6a3ce929d0e0e4736"]));
    let tree: Vec<(String, String)> = serde_json::from_value(report["tree"].clone()).expect("pairs of spans");
    // The parent of the request is the only one that is no span of the program.
    assert!(tree.iter().all(|(parent, _)| parent.contains(' ') || parent == "f067aa0ba902b7"), "{tree:#?}");
    let mut path = vec!["f067aa0ba902b7", "server orders/order", "producer publish orders.new"];
    path.extend(["consumer process orders.new", "client function/call", "page server function"]);
    path.extend(["page client stock/take", "server stock/take"]);
    if !has_browser {
        println!("skipped: the callback needs Chromium, and the client that is built in {js}");
        path.truncate(4);
    }
    let edges = path.windows(2).map(|pair| (pair[0], pair[1])).chain([
        ("server orders/order", "client till/charge"),
        ("client till/charge", "server stock/take"),
        ("consumer process orders.new", "producer publish archive.new"),
        ("producer publish archive.new", "consumer process archive.new"),
    ]);
    for (parent, span) in edges {
        assert!(tree.iter().any(|(of, child)| of == parent && child == span), "{parent} > {span}: {tree:#?}");
    }
}
