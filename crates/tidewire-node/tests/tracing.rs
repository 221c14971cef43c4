//! Spans and events that a node emits to the subscriber of a program, with the feature `tracing`.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidewire_node::{Failure, Node, NodeOptions, service};
use tracing_subscriber::fmt::format::FmtSpan;

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

struct Shop;

#[service(name = "shop")]
impl Shop {
    async fn sell(&self, count: u32) -> Result<u32, Failure> {
        tracing::info!(count, "sold");
        if count == 0 {
            return Err(Failure::new("shop:Empty", "nothing is left"));
        }
        Ok(count)
    }
}

#[test]
fn a_call_is_a_span_around_what_its_handler_says_and_the_log_is_events() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).without_time().with_span_events(FmtSpan::CLOSE);
    // For all threads, those of the node too.
    tracing::subscriber::set_global_default(subscriber.with_writer(move || writer.clone()).finish())
        .expect("it is the first");

    let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait().expect("it listens");
    hub.serve(Shop.into_service()).wait().expect("it is served");
    let buyer = Node::join(&hub.urls()[0], NodeOptions::named("buyer")).wait().expect("it joins");
    let shop = buyer.client("shop");
    assert_eq!(shop.call::<u32>("sell", &(3,)).wait().expect("three are sold"), 3);
    shop.call::<u32>("sell", &(0,)).wait().expect_err("nothing is left");
    buyer.stop(Duration::from_secs(10)).wait().expect("it stops");
    // Then all handlers are over, and their spans are closed.
    hub.stop(Duration::from_secs(10)).wait().expect("it stops");

    let text = lines.text();
    let span = "call{otel.name=shop/sell otel.kind=\"server\" rpc.system.name=\"tidewire\" rpc.method=shop/sell caller=\"buyer\" trace=";
    assert!(text.lines().any(|line| line.contains(span) && line.ends_with("sold count=3")), "{text}");
    assert!(
        text.lines().any(|line| line.contains("error=shop:Empty(\"nothing is left\")") && line.contains("close")),
        "{text}"
    );
    assert!(text.lines().any(|line| line.contains("node \"buyer\" has joined")), "{text}");
}
