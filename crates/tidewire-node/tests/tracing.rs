//! Spans and events that a node emits to the subscriber of a program, with the feature `tracing`,
//! and their export with the feature `opentelemetry`.

use std::io;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::trace::{SpanKind, Status, TracerProvider as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tidewire_node::streams::{ConsumerOptions, DurableHandler, Message, StreamOptions};
use tidewire_node::{Context, Event, EventContext, Failure, Node, NodeOptions, Service, TRACE_CONTEXT, service};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt as _;

/// Lines of the subscriber.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Shop(Node);

#[service(name = "shop")]
impl Shop {
    async fn sell(&self, context: Context, count: u32) -> Result<u32, Failure> {
        tracing::info!(count, "sold");
        if count == 0 {
            return Err(Failure::new("shop:Empty", "nothing is left"));
        }
        // No header is given: the current span is the parent.
        let price: u32 = self.0.client("pricing").call("price", &(count,)).await?;
        self.0.publish("sold.tea", &price)?;
        assert!(context.headers().contains_key(TRACE_CONTEXT[0]), "{context:?}");
        Ok(price)
    }
}

struct Exported(Vec<SpanData>);

impl Exported {
    /// The span of this name and kind.
    fn find(&self, name: &str, kind: &SpanKind) -> &SpanData {
        let found = self.0.iter().find(|span| span.name == name && span.span_kind == *kind);
        found.unwrap_or_else(|| panic!("there is no {name} of kind {kind:?}: {:#?}", self.0))
    }
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    span.attributes.iter().find(|one| one.key.as_str() == name).map(|one| one.value.to_string())
}

// Promises: P13.97.
#[test]
fn calls_and_events_of_two_nodes_are_one_tree_of_spans_and_the_log_is_events() {
    let (lines, exporter) = (Lines::default(), InMemorySpanExporter::default());
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let writer = lines.clone();
    let text = tracing_subscriber::fmt::layer().with_ansi(false).without_time().with_span_events(FmtSpan::CLOSE);
    let subscriber = tracing_subscriber::registry()
        .with(text.with_writer(move || writer.clone()))
        .with(tracing_opentelemetry::layer().with_tracer(provider.tracer("story")));
    // For all threads, those of the node too.
    tracing::subscriber::set_global_default(subscriber).expect("it is the first");

    let folder = std::env::temp_dir().join(format!("tidewire-node-tracing-{}", std::process::id()));
    let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub").data(&folder)).wait().expect("it listens");
    hub.stream_with("stock", StreamOptions::new(["stock.>"])).wait().expect("a stream");
    let (say, heard) = sync_channel(16);
    let stock = hub.stream("stock").wait().expect("it is there");
    let on_sold = Event::new("on_sold", "sold.*", move |_: EventContext, price: u32| {
        let stored = stock.publish(Message::new("stock.tea", &price));
        async move { Ok(stored.await.map(drop)?) }
    });
    let refill = DurableHandler::new("refill", "stock.*", move |event, _: u32| {
        let said = say.send(event.headers().to_vec());
        async move { Ok(said?) }
    });
    let pricing =
        Service::new("pricing").method("price", &["count"], |_, (count,): (u32,)| async move { Ok(2 * count) });
    let pricing = pricing.with_event(on_sold).with_durable(refill.options(ConsumerOptions::all()));
    hub.serve(pricing).wait().expect("it is served");
    let seller = Node::join(&hub.urls()[0], NodeOptions::named("seller")).wait().expect("it joins");
    seller.serve(Shop(seller.clone()).into_service()).wait().expect("it is served");
    let buyer = Node::join(&hub.urls()[0], NodeOptions::named("buyer")).wait().expect("it joins");

    let order = tracing::info_span!("order");
    let sold = order.in_scope(|| buyer.client("shop").call::<u32>("sell", &(3,)));
    assert_eq!(sold.wait().expect("three are sold"), 6);
    drop(order);
    let headers = heard.recv_timeout(Duration::from_secs(30)).expect("the event is handled");
    buyer.client("shop").call::<u32>("sell", &(0,)).wait().expect_err("nothing is left");
    // A parent that headers name, where no span is current.
    let far =
        buyer.client("pricing").header(TRACE_CONTEXT[0], "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    far.call::<u32>("price", &(1,)).wait().expect("a price");
    for node in [buyer, seller, hub] {
        // Then all handlers are over, and their spans are closed.
        node.stop(Duration::from_secs(10)).wait().expect("it stops");
    }
    std::fs::remove_dir_all(&folder).ok();

    let spans = Exported(exporter.get_finished_spans().expect("spans"));
    let root = spans.find("order", &SpanKind::Internal).span_context.clone();
    let tree = [
        ("shop/sell", SpanKind::Client),
        ("shop/sell", SpanKind::Server),
        ("pricing/price", SpanKind::Client),
        ("pricing/price", SpanKind::Server),
    ];
    let mut parent = root.span_id();
    for (name, kind) in &tree {
        let span =
            spans.0.iter().find(|span| span.name == *name && span.span_kind == *kind && span.parent_span_id == parent);
        let span = span.unwrap_or_else(|| panic!("{name} of kind {kind:?} has another parent: {:#?}", spans.0));
        assert_eq!((span.span_context.trace_id(), &span.status), (root.trace_id(), &Status::Unset));
        assert_eq!(attribute(span, "rpc.method").as_deref(), Some(*name));
        parent = span.span_context.span_id();
    }
    let mut parent =
        spans.0.iter().find(|span| span.name == "shop/sell" && span.span_kind == SpanKind::Server).expect("one");
    for (name, kind) in [
        ("publish sold.tea", SpanKind::Producer),
        ("process sold.tea", SpanKind::Consumer),
        ("publish stock.tea", SpanKind::Producer),
        ("process stock.tea", SpanKind::Consumer),
    ] {
        let span = spans.find(name, &kind);
        assert_eq!(span.parent_span_id, parent.span_context.span_id(), "{name}");
        assert_eq!(span.span_context.trace_id(), root.trace_id());
        assert_eq!(attribute(span, "messaging.destination.name"), name.split(' ').nth(1).map(str::to_owned));
        let links: Vec<_> = span.links.iter().map(|link| link.span_context.span_id()).collect();
        let sender = (kind == SpanKind::Consumer).then(|| parent.span_context.span_id());
        assert_eq!(links, sender.into_iter().collect::<Vec<_>>());
        parent = span;
    }
    let carried = headers.iter().find(|(name, _)| name == TRACE_CONTEXT[0]).expect("the event has it");
    assert!(carried.1.contains(&root.trace_id().to_string()), "{carried:?}");
    let failed = spans.0.iter().filter(|span| matches!(span.status, Status::Error { .. }));
    let mut failed: Vec<_> =
        failed.map(|span| (format!("{:?}", span.span_kind), attribute(span, "error.type"))).collect();
    // The two sides close their spans in either order.
    failed.sort();
    let (client, server) = (("Client", "RemoteError"), ("Server", "Empty"));
    assert_eq!(failed, [client, server].map(|(kind, error)| (kind.to_owned(), Some(error.to_owned()))));
    let far =
        spans.0.iter().find(|span| span.parent_span_id.to_string() == "b7ad6b7169203331").expect("the given parent");
    assert_eq!((&*far.name, far.span_kind.clone()), ("pricing/price", SpanKind::Client));
    // Calls of the storage backend are none of the program's.
    assert!(spans.0.iter().all(|span| !span.name.contains("tidewire-") && !span.name.contains("$sys")));

    let text = lines.text();
    let span =
        "call{otel.name=\"shop/sell\" otel.kind=\"server\" rpc.system.name=\"tidewire\" rpc.method=\"shop/sell\"";
    assert!(text.lines().any(|line| line.contains(span) && line.ends_with("sold count=3")), "{text}");
    assert!(text.lines().any(|line| line.contains("error.type=\"Empty\"") && line.contains("close")), "{text}");
    assert!(text.lines().any(|line| line.contains("node \"buyer\" has joined")), "{text}");
}
