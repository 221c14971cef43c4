//! The roles of `tidewire bench http` that are written in Rust. Each prints one line once it is
//! ready, or its figures, and ends with its input.

mod hop;
mod load;

use std::env::args;
use std::future::pending;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use serde_json::Value;
use tidewire_node::{Node, NodeOptions, Service, Visibility, values};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> io::Result<()> {
    let given: Vec<String> = args().skip(1).collect();
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    match *given {
        ["hop"] => hop::serve().await,
        ["axum"] => serve(Router::new().route("/echo", post(echo))).await,
        ["axum", hop] => {
            let hop = Arc::new(hop::Hop::connect(hop).await?);
            serve(Router::new().route("/echo", post(echo_behind)).with_state(hop)).await
        }
        ["service", url] => service(url).await,
        ["load", place, path, connections, seconds] => {
            let connections = connections.parse().map_err(io::Error::other)?;
            load::run(place, path, connections, seconds.parse().map_err(io::Error::other)?).await
        }
        _ => Err(io::Error::other("roles: hop, axum [HOP], service URL, load PLACE PATH CONNECTIONS SECONDS")),
    }
}

async fn serve(routes: Router) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    axum::serve(listener, routes).await
}

type Json = ([(axum::http::HeaderName, &'static str); 1], Vec<u8>);

fn json(bytes: Vec<u8>) -> Json {
    ([(CONTENT_TYPE, "application/json")], bytes)
}

async fn echo(body: Bytes) -> Json {
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    json(value.to_string().into_bytes())
}

/// The same, but the value goes to another process and back in between.
async fn echo_behind(State(hop): State<Arc<hop::Hop>>, body: Bytes) -> Json {
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    let back = hop.echo(value.to_string().into_bytes()).await;
    let value: Value = serde_json::from_slice(&back).unwrap_or_default();
    json(value.to_string().into_bytes())
}

/// A node that echoes.
async fn service(url: &str) -> io::Result<()> {
    let node = Node::join(url, NodeOptions::named("service")).await.map_err(io::Error::other)?;
    let echo = Service::new("bench").visibility(Visibility::Public).method(
        "echo",
        &["value"],
        |_, value: values::Value| async move { Ok(value) },
    );
    let _served = node.serve(echo).await.map_err(io::Error::other)?;
    println!("ready");
    pending().await
}
