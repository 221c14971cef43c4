//! Notifications about new events of the streams that a client has subscribed to.

use std::collections::HashMap;

use serde_json::{Value as Json, json};
use tidewire_node::Error;
use tidewire_node::streams::{ReadOptions, Start, Stream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::events::notification;
use super::sessions::SUBSCRIPTIONS;
use super::{Fault, NO_REQUEST, Request, WRONG_PARAMETERS};
use crate::request::decoded;

/// Subscribes a session to a stream, or ends that.
pub(super) async fn subscribe(request: &Request, params: &Json, begins: bool) -> Result<Json, Fault> {
    let uri = params["uri"].as_str().unwrap_or_default();
    let wrong = |error| Fault(WRONG_PARAMETERS, format!("uri: {error}"));
    let last = if begins { Some(last(request, uri).await.map_err(wrong)?) } else { None };
    if request.shared.sessions.subscribe(&request.caller.user, &request.headers, uri, last) {
        return Ok(json!({}));
    }
    Err(Fault(NO_REQUEST, "Mcp-Session-Id: only a session subscribes: give its name".to_owned()))
}

/// The streams that a client names, with their last sequences.
pub(super) async fn named(request: &Request, uris: &Json) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for uri in uris.as_array().into_iter().flatten().filter_map(Json::as_str).take(SUBSCRIPTIONS) {
        found.extend(last(request, uri).await.ok().map(|last| (uri.to_owned(), last)));
    }
    found
}

async fn last(request: &Request, uri: &str) -> Result<u64, Error> {
    Ok(stream(request, uri).await?.info().await?.last)
}

async fn stream(request: &Request, uri: &str) -> Result<Stream, Error> {
    if !request.may_read_storage() {
        return Err(Error::invalid("only a token that may call tidewire-streams subscribes to streams"));
    }
    let name = uri.strip_prefix("tidewire://streams/").and_then(decoded).filter(|name| !name.contains('/'));
    let wrong = || Error::invalid(format!("{uri:?} has no notifications: name a stream, tidewire://streams/NAME"));
    request.shared.node.stream(&name.ok_or_else(wrong)?).await
}

/// The streams that a client is notified of.
#[derive(Default)]
pub(super) struct Updates(HashMap<String, Task>);

/// Ends when it is dropped.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Updates {
    /// Notifies of these streams from now on, and of no others.
    pub fn follow(&mut self, request: &Request, streams: Vec<(String, u64)>, out: &mpsc::Sender<Json>, meta: &Json) {
        self.0.retain(|uri, _| streams.iter().any(|(wanted, _)| wanted == uri));
        for (uri, last) in streams {
            let (request, out) = (request.clone(), out.clone());
            let update = notification("resources/updated", json!({ "uri": uri, "_meta": meta }));
            self.0.entry(uri.clone()).or_insert_with(|| {
                Task(tokio::spawn(async move {
                    let _ = notify(&request, &uri, last, &out, &update).await;
                    // The stream has failed: a read says why.
                    let _ = out.send(update).await;
                }))
            });
        }
    }
}

/// Notifies after the events behind a sequence, once for all that there are at the time.
async fn notify(
    request: &Request,
    uri: &str,
    mut last: u64,
    out: &mpsc::Sender<Json>,
    update: &Json,
) -> Result<(), Error> {
    let stream = stream(request, uri).await?;
    while stream
        .read(ReadOptions::default().start(Start::Sequence(last + 1)).follow())
        .next()
        .await
        .transpose()?
        .is_some()
    {
        last = stream.info().await?.last;
        let _ = out.send(update.clone()).await;
    }
    Ok(())
}
