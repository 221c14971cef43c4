//! Subjects that the nodes of a hub share with plain NATS clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use async_nats::connection::State;
use async_nats::{Client, HeaderMap, HeaderName, HeaderValue, Message, SubscribeError};
use futures_util::stream::SelectAll;
use futures_util::{FutureExt as _, StreamExt as _};
use hyper::header::CONTENT_TYPE;
use tidewire_link::HubHandle;
use tidewire_nats::Settings;
use tidewire_node::Node;
use tidewire_node::values::{self, Value};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::request::headers_of;
use super::{LAST, Log, Stage};
use crate::headers::{media_type, passed};
use crate::json::{to_json, value};
use crate::problem::Problem;

/// Names the node that published a message. Other nodes have such a message already.
const NODE: &str = "Tidewire-Node";

/// The node of a hub that passes messages between its nodes and plain clients.
pub(super) struct SharedSubjects {
    pub node: Node,
    pub client: Client,
    pub hub: HubHandle,
    pub settings: Settings,
    pub log: Log,
}

/// A subscription at the servers: the queue group member that it stands for, or 0, and the pattern.
type Key = (u64, String);

/// A task that ends when it is dropped.
struct SubscriptionTask(JoinHandle<()>);

impl SharedSubjects {
    /// Passes messages in both directions, until the gateway is closed. `ready` hears of the first
    /// subscriptions.
    pub async fn run(
        self: Arc<Self>,
        mut changes: watch::Receiver<()>,
        mut stage: watch::Receiver<Stage>,
        ready: SyncSender<()>,
    ) {
        let (mut from_nodes, mut open) = (SelectAll::new(), BTreeMap::<Key, SubscriptionTask>::new());
        for pattern in self.settings.subjects() {
            match self.node.subscribe(pattern.as_str()).await {
                Ok(subscription) => from_nodes.push(subscription),
                Err(error) => (self.log)(&format!("plain clients get nothing on {:?}: {error}", pattern.as_str())),
            }
        }
        loop {
            changes.mark_unchanged();
            let required = self.required();
            open.retain(|key, _| required.contains_key(key));
            for (key, queue) in required.into_iter().filter(|(key, _)| !open.contains_key(key)).collect::<Vec<_>>() {
                match self.read(&key, queue).await {
                    Ok(task) => drop(open.insert(key, task)),
                    Err(error) => self.dropped(&key.1, &error),
                }
            }
            drop(timeout(LAST, self.client.flush()).await);
            let _ = ready.try_send(());
            loop {
                let closed = async { drop(stage.wait_for(|stage| *stage == Stage::Closed).await) };
                tokio::select! {
                    () = closed => {
                        while let Some(Some(message)) = from_nodes.next().now_or_never() {
                            self.send(&message).await;
                        }
                        return drop(timeout(LAST, self.client.flush()).await);
                    }
                    changed = changes.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => return,
                    },
                    Some(message) = from_nodes.next() => self.send(&message).await,
                }
            }
        }
    }

    /// Subscriptions at the servers that the hub needs now, with their queue groups.
    fn required(&self) -> BTreeMap<Key, String> {
        let all = self.settings.subjects().iter().map(|pattern| ((0, pattern.as_str().to_owned()), String::new()));
        let mut required: BTreeMap<Key, String> = all.collect();
        for one in self.hub.interests().into_iter().filter(|one| !one.queue.is_empty()) {
            let common = self.settings.subjects().iter().filter_map(|pattern| common(pattern.as_str(), &one.pattern));
            required.extend(common.map(|pattern| ((one.key.serial(), pattern), one.queue.clone())));
        }
        required
    }

    async fn read(
        self: &Arc<Self>,
        (serial, pattern): &Key,
        queue: String,
    ) -> Result<SubscriptionTask, SubscribeError> {
        let mut messages = match queue.is_empty() {
            true => self.client.subscribe(pattern.clone()).await?,
            false => self.client.queue_subscribe(pattern.clone(), queue).await?,
        };
        let (this, serial) = (Arc::clone(self), *serial);
        Ok(SubscriptionTask(tokio::spawn(async move {
            while let Some(message) = messages.next().await {
                if let Err(problem) = this.take(serial, &message) {
                    this.dropped(&message.subject, problem.detail());
                }
            }
        })))
    }

    /// Publishes a message of a plain client at the hub.
    fn take(&self, serial: u64, message: &Message) -> Result<(), Problem> {
        if message.headers.as_ref().is_some_and(|headers| headers.get(NODE).is_some()) {
            return Ok(());
        }
        let headers = headers_of(message)?;
        let media = headers.get(CONTENT_TYPE).and_then(|media| media.to_str().ok()).map(media_type);
        let payload = match media.as_deref() {
            Some("application/json") => value(&message.payload).map_err(Problem::invalid)?,
            Some("tidewire") => values::from_bytes(&message.payload)?,
            _ => Value::Bytes(message.payload.to_vec()),
        };
        let mut to = self.node.subject(&message.subject).to(serial);
        for (name, value) in passed(&headers)? {
            to = to.header(name, value);
        }
        Ok(to.publish(&payload)?)
    }

    /// Publishes a message of a node at the servers.
    async fn send(&self, message: &tidewire_node::Message) {
        // Its own messages are those of plain clients. Without a connection nothing is sent later.
        if message.node() == self.node.name() || self.client.connection_state() != State::Connected {
            return;
        }
        let payload = match message.read::<Value>() {
            Ok(payload) => payload,
            Err(error) => return self.dropped(message.subject(), &error),
        };
        let mut headers = HeaderMap::new();
        headers.insert(NODE, message.node().parse::<HeaderValue>().unwrap_or_else(|_| HeaderValue::from("node")));
        for (name, value) in message.headers() {
            // A header that NATS can't carry stays behind.
            let named = format!("Tidewire-Header-{name}").parse::<HeaderName>();
            if let (Ok(name), Ok(value)) = (named, value.parse::<HeaderValue>()) {
                headers.insert(name, value);
            }
        }
        let bytes = match payload {
            Value::Bytes(bytes) | Value::ByteArray(bytes) => bytes,
            other => {
                headers.insert("content-type", "application/json");
                to_json(&other)
            }
        };
        let sent = self.client.publish_with_headers(message.subject().to_owned(), headers, bytes.into()).await;
        if let Err(error) = sent {
            self.dropped(message.subject(), &error);
        }
    }

    fn dropped(&self, subject: &str, why: impl std::fmt::Display) {
        (self.log)(&format!("{}: a message on {subject:?} is dropped: {why}", self.settings.shown()));
    }
}

impl Drop for SubscriptionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The pattern of subjects that match both patterns; None if there are none.
fn common(left: &str, right: &str) -> Option<String> {
    let (mut left, mut right, mut both) = (left.split('.'), right.split('.'), Vec::new());
    loop {
        match (left.next(), right.next()) {
            (None, None) => return Some(both.join(".")),
            (Some(">"), Some(one)) => {
                return Some(both.into_iter().chain([one]).chain(right).collect::<Vec<_>>().join("."));
            }
            (Some(one), Some(">")) => {
                return Some(both.into_iter().chain([one]).chain(left).collect::<Vec<_>>().join("."));
            }
            (Some(one), Some(other)) if one == other || other == "*" => both.push(one),
            (Some("*"), Some(one)) => both.push(one),
            _ => return None,
        }
    }
}
