//! Services that are made of impl blocks.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as TaskContext, Poll};

use futures_core::Stream;
use tidewire_node::{Context, ErrorCode, Failure, Node, NodeOptions, Visibility, service};

#[derive(Default)]
struct Shop {
    sold: AtomicU64,
}

/// Goods of the shop.
///
/// And more of it.
#[service(name = "shop", description = "Sells things.")]
impl Shop {
    /// Sell some.
    ///
    /// It is sold to whoever asks.
    #[method(idempotent, timeout = 2.5)]
    async fn sell(&self, r#type: String, mut count: Option<u64>) -> Result<String, std::num::ParseIntError> {
        let count = count.get_or_insert(1);
        self.sold.fetch_add(*count, Ordering::Relaxed);
        if r#type == "a number" {
            r#type.parse::<u8>()?;
        }
        Ok(format!("{count} {}", r#type))
    }

    #[method(name = "who", visibility = "private", prompt)]
    async fn who_asks(self: Arc<Self>, call: Context) -> Result<(String, String), Failure> {
        Ok((call.node().to_owned(), call.method().to_owned()))
    }

    #[method(stream)]
    fn numbers(self: Arc<Self>, first: u64) -> Numbers {
        Numbers { shop: self, next: first }
    }

    async fn sold(&self) -> Result<u64, Failure> {
        Ok(self.sold.load(Ordering::Relaxed))
    }
}

struct Numbers {
    shop: Arc<Shop>,
    next: u64,
}

impl Stream for Numbers {
    type Item = Result<u64, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        let next = self.next;
        self.next += 1;
        self.shop.sold.fetch_add(1, Ordering::Relaxed);
        Poll::Ready((next < 10).then_some(Ok(next)))
    }
}

fn shop() -> Node {
    let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait().expect("it listens");
    hub.serve(Shop::default().into_service()).wait().expect("it is served");
    hub
}

#[test]
fn arguments_come_by_position_and_by_name() {
    let hub = shop();
    let shop = hub.client("shop");
    let text: String = shop.call("sell", &("pears", 3)).wait().expect("three are sold");
    assert_eq!(text, "3 pears");
    let text: String = shop.call("sell", &BTreeMap::from([("type", "plums")])).wait().expect("one is sold");
    assert_eq!(text, "1 plums");
    assert_eq!(shop.call::<u64>("sold", &()).wait().expect("it counts"), 4);

    let (node, method): (String, String) = shop.call("who", &()).wait().expect("it knows");
    assert_eq!((node.as_str(), method.as_str()), ("hub", "who"));

    let mut numbers = shop.stream::<u64>("numbers", &(8,));
    let all: Vec<u64> =
        std::iter::from_fn(|| numbers.next_blocking()).map(|number| number.expect("a number")).collect();
    assert_eq!(all, [8, 9]);
}

#[test]
fn errors_are_those_of_the_functions_and_wrong_arguments_name_the_parameter() {
    let hub = shop();
    let shop = hub.client("shop");
    let error = shop.call::<String>("sell", &("a number",)).wait().expect_err("it is no number");
    assert_eq!(error.remote().expect("it is the function's").type_name, "core.num.error:ParseIntError");
    let error = shop.call::<String>("sell", &("pears", "many")).wait().expect_err("it is no number");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().starts_with("shop.sell: count: "), "{error}");
}

#[test]
fn docs_of_functions_are_told_to_others() {
    let hub = shop();
    let services = hub.services().wait().expect("it lists them");
    let found = services.iter().find(|service| service.name == "shop").expect("it is there");
    assert_eq!(found.description, "Sells things.");
    let methods: BTreeMap<_, _> = found.methods.iter().map(|method| (method.name.as_str(), method)).collect();
    assert_eq!(methods.keys().copied().collect::<Vec<_>>(), ["numbers", "sell", "sold", "who"]);
    let sell = methods["sell"];
    assert_eq!((sell.description.as_str(), sell.idempotent, sell.timeout), ("Sell some.", true, Some(2.5)));
    assert!(
        sell.parameters["properties"].get("type").is_some() && sell.parameters["properties"].get("count").is_some()
    );
    assert!(methods["numbers"].stream && !methods["who"].stream && !sell.prompt);
    assert_eq!((methods["who"].visibility, methods["who"].prompt), (Visibility::Private, true));
}

struct Wrong;

#[service(name = "wrong")]
impl Wrong {
    async fn sync(&self) -> Result<(), Failure> {
        Ok(())
    }
}

#[test]
fn a_name_that_every_client_has_itself_is_refused_with_the_service_and_the_names() {
    let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait().expect("it listens");
    let error = hub.serve(Wrong.into_service()).wait().expect_err("it is reserved");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(
        error.message().starts_with("wrong: method: \"sync\"") && error.message().contains("(sync, with_)"),
        "{error}"
    );
}
