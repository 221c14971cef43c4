//! A web service with axum in front of a service of another node: `GET /quotes/TIDE?qty=3`.
//!
//! The node that serves prices and the node that answers HTTP join one hub. Here all three are in
//! one program; each could be a separate process, in Rust or Python. A browser that leaves ends the
//! call: axum drops the handler's future, and with it the call.
//!
//! Run it with `cargo run -p tidewire-examples --bin web -- 127.0.0.1:8080` and stop it with
//! Ctrl-C. Without an address, the program sends requests to itself, and ends.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidewire_node::{Client, ErrorCode, Failure, Node, NodeOptions, service};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Quote {
    symbol: String,
    price: f64,
}

struct Pricing {
    prices: BTreeMap<&'static str, f64>,
}

/// Prices of what is traded.
#[service(name = "pricing", schemas)]
impl Pricing {
    /// The price of so many.
    #[method(idempotent, timeout = 2)]
    async fn quote(&self, symbol: String, qty: Option<u32>) -> Result<Quote, Failure> {
        let price = self.prices.get(symbol.as_str());
        let price = price.ok_or_else(|| Failure::new("shop:NoSymbol", format!("{symbol:?} is not traded")))?;
        Ok(Quote { symbol, price: price * f64::from(qty.unwrap_or(1)) })
    }
}

#[derive(Deserialize)]
struct Asked {
    qty: Option<u32>,
}

async fn quote(
    State(pricing): State<Client>,
    Path(symbol): Path<String>,
    Query(asked): Query<Asked>,
) -> Result<Json<Quote>, Problem> {
    Ok(Json(pricing.call("quote", &(symbol, asked.qty)).await?))
}

/// An error of a call, as a browser hears of it.
struct Problem(tidewire_node::Error);

impl From<tidewire_node::Error> for Problem {
    fn from(error: tidewire_node::Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let error = self.0;
        let status = match error.code() {
            ErrorCode::RemoteError if error.remote().is_some_and(|remote| remote.type_name == "shop:NoSymbol") => {
                StatusCode::NOT_FOUND
            }
            ErrorCode::InvalidArgument => StatusCode::BAD_REQUEST,
            ErrorCode::AskTimeout => StatusCode::GATEWAY_TIMEOUT,
            _ if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, error.message().to_owned()).into_response()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).await?;
    let shop = Node::join(&hub.urls()[0], NodeOptions::named("shop")).await?;
    let prices = BTreeMap::from([("TIDE", 2.5), ("WIRE", 40.0)]);
    let _served = shop.serve(Pricing { prices }.into_service()).await?;
    let web = Node::join(&hub.urls()[0], NodeOptions::named("web")).await?;

    let app = Router::new().route("/quotes/{symbol}", get(quote)).with_state(web.client("pricing"));
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?;
    let at = listener.local_addr()?;
    println!("http://{at}/quotes/TIDE?qty=3");
    let serving = axum::serve(listener, app);
    if address.is_some() {
        serving.with_graceful_shutdown(async { drop(tokio::signal::ctrl_c().await) }).await?;
    } else {
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn(serving.with_graceful_shutdown(async { drop(ended.await) }).into_future());
        try_it(at).await?;
        drop(end);
        serving.await??;
    }
    for node in [web, shop, hub] {
        node.stop(Duration::from_secs(5)).await?;
    }
    Ok(())
}

/// Sends requests as a browser does, and checks the responses.
async fn try_it(at: SocketAddr) -> Result<(), Box<dyn Error>> {
    let wanted = [
        ("/quotes/TIDE?qty=3", "200", "{\"symbol\":\"TIDE\",\"price\":7.5}"),
        ("/quotes/WIRE", "200", "{\"symbol\":\"WIRE\",\"price\":40.0}"),
        ("/quotes/GOLD", "404", "\"GOLD\" is not traded"),
        ("/quotes/TIDE?qty=many", "400", "Failed to deserialize"),
    ];
    for (path, status, body) in wanted {
        let mut socket = TcpStream::connect(at).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await?;
        let (head, said) = answer.split_once("\r\n\r\n").ok_or("the answer has no end of its head")?;
        println!("{path:<22} {} {said}", head.lines().next().unwrap_or_default());
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")) && said.contains(body), "{path}: {answer}");
    }
    Ok(())
}
