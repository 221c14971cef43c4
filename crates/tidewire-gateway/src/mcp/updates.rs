//! Notifications about changes of the streams and buckets that a client has subscribed to.

use std::collections::HashMap;

use serde_json::{Value as Json, json};
use tidewire_node::Error;
use tidewire_node::streams::{Bucket, ReadOptions, Start, Stream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::resources::path;
use super::sessions::SUBSCRIPTIONS;
use super::{Fault, NO_REQUEST, Request, WRONG_PARAMETERS, notification};

/// Subscribes a session to a resource, or ends that.
pub(super) async fn subscribe(request: &Request, params: &Json, begins: bool) -> Result<Json, Fault> {
    let uri = params["uri"].as_str().unwrap_or_default();
    let wrong = |error| Fault(WRONG_PARAMETERS, format!("uri: {error}"));
    let last = if begins { Some(last(request, uri).await.map_err(wrong)?) } else { None };
    if request.shared.sessions.subscribe(&request.caller.user, &request.headers, uri, last) {
        return Ok(json!({}));
    }
    Err(Fault(NO_REQUEST, "Mcp-Session-Id: only a session subscribes: give its name".to_owned()))
}

/// The resources that a client names, with their last sequences or revisions.
pub(super) async fn named(request: &Request, uris: &Json) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for uri in uris.as_array().into_iter().flatten().filter_map(Json::as_str).take(SUBSCRIPTIONS) {
        found.extend(last(request, uri).await.ok().map(|last| (uri.to_owned(), last)));
    }
    found
}

async fn last(request: &Request, uri: &str) -> Result<u64, Error> {
    Source::of(request, uri).await?.last().await
}

/// A resource with notifications.
enum Source {
    Stream(Stream),
    /// The keys of a pattern.
    Bucket(Bucket, String),
}

impl Source {
    async fn of(request: &Request, uri: &str) -> Result<Self, Error> {
        if !request.may_read_storage() {
            return Err(Error::invalid("only a token with inspect_payloads subscribes to resources"));
        }
        let node = &request.shared.node;
        match path(uri).iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["streams", name] => node.stream(name).await.map(Self::Stream),
            ["kv", name] => Ok(Self::Bucket(node.bucket(name).await?, ">".to_owned())),
            ["kv", name, key] => {
                let bucket = node.bucket(name).await?;
                // A pattern is no key.
                bucket.get(key).await?;
                Ok(Self::Bucket(bucket, key.to_owned()))
            }
            _ => {
                let text = "name a stream, a bucket or a key: tidewire://streams/NAME, tidewire://kv/BUCKET/KEY";
                Err(Error::invalid(format!("{uri:?} has no notifications: {text}")))
            }
        }
    }

    /// The newest sequence or revision.
    async fn last(&self) -> Result<u64, Error> {
        match self {
            Self::Stream(stream) => Ok(stream.info().await?.last),
            Self::Bucket(bucket, _) => Ok(bucket.info().await?.revision),
        }
    }

    /// Waits for a change after a sequence or a revision.
    async fn changed(&self, last: u64) -> Result<(), Error> {
        match self {
            Self::Stream(stream) => {
                let options = ReadOptions::default().start(Start::Sequence(last + 1)).follow();
                stream.read(options).next().await.transpose().map(drop)
            }
            Self::Bucket(bucket, pattern) => bucket.watch_after(pattern, last).next().await.map(drop),
        }
    }
}

/// The resources that a client is notified of.
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
    /// Notifies of these resources from now on, and of no others.
    pub fn follow(&mut self, request: &Request, resources: Vec<(String, u64)>, out: &mpsc::Sender<Json>, meta: &Json) {
        self.0.retain(|uri, _| resources.iter().any(|(other, _)| other == uri));
        for (uri, last) in resources {
            let (request, out) = (request.clone(), out.clone());
            let update = notification("resources/updated", json!({ "uri": uri, "_meta": meta }));
            self.0.entry(uri.clone()).or_insert_with(|| {
                Task(tokio::spawn(async move {
                    let _ = notify(&request, &uri, last, &out, &update).await;
                    // The resource has failed: a read says why.
                    let _ = out.send(update).await;
                }))
            });
        }
    }
}

/// Notifies after the changes behind a sequence or a revision, once for all that there are at the
/// time.
async fn notify(
    request: &Request,
    uri: &str,
    mut last: u64,
    out: &mpsc::Sender<Json>,
    update: &Json,
) -> Result<(), Error> {
    let source = Source::of(request, uri).await?;
    loop {
        source.changed(last).await?;
        last = source.last().await?;
        let _ = out.send(update.clone()).await;
    }
}
