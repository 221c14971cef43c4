//! Service instances for clients of NATS: their subscriptions and their statistics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Message, Subscriber};
use bytes::Bytes;
use futures_util::stream::SelectAll;
use futures_util::{FutureExt as _, StreamExt as _};
use tidewire_node::{MethodInfo, ServiceInfo};
use tidewire_proto::subject::grammar::service_subject;
use tidewire_sync::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::description::{self, Counted, QUEUE, VERBS};
use super::{Shared, request};

/// How long the server may take to confirm the end of the subscriptions.
const DRAIN: Duration = Duration::from_secs(2);

/// An offered instance. Dropping it stops new requests; requests on their way are still answered.
pub(super) struct Instance {
    serving: Arc<Serving>,
    _ends: oneshot::Sender<()>,
}

/// Request loop of one instance, with its statistics.
pub(super) struct Serving {
    pub shared: Arc<Shared>,
    pub info: ServiceInfo,
    pub id: String,
    started: String,
    /// The lock is held for one addition, or for a copy.
    counts: Mutex<BTreeMap<String, Counted>>,
}

impl Instance {
    /// Subscribes to the requests of an instance.
    pub fn open(shared: &Arc<Shared>, info: ServiceInfo) -> Self {
        let id = info.instances.first().cloned().unwrap_or_default();
        let started = tidewire_nats::now();
        let serving = Arc::new(Serving { shared: Arc::clone(shared), info, id, started, counts: Mutex::default() });
        let (ends, ended) = oneshot::channel();
        tokio::spawn(Arc::clone(&serving).read(ended));
        Self { serving, _ends: ends }
    }

    pub fn info(&self) -> &ServiceInfo {
        &self.serving.info
    }
}

impl Serving {
    async fn read(self: Arc<Self>, mut ended: oneshot::Receiver<()>) {
        let mut subscribed = match self.subscribed().await {
            Ok(subscribed) => subscribed,
            Err(error) => {
                let (place, name) = (&self.shared.place, &self.info.name);
                return (self.shared.log)(&format!("{place}: {name:?} is not offered: {error}"));
            }
        };
        loop {
            tokio::select! {
                biased;
                _ = &mut ended => break,
                message = subscribed.next() => match message {
                    Some(message) => self.take(message).await,
                    None => return,
                },
            }
        }
        for one in subscribed.iter_mut() {
            drop(tidewire_nats::unsubscribe(one).await);
        }
        let passed = self.shared.client.request(self.shared.client.new_inbox(), Bytes::new());
        drop(timeout(DRAIN, passed).await);
        while let Some(Some(message)) = subscribed.next().now_or_never() {
            self.take(message).await;
        }
    }

    async fn subscribed(&self) -> Result<SelectAll<Subscriber>, async_nats::SubscribeError> {
        let (client, name, id) = (&self.shared.client, &self.info.name, &self.id);
        let mut all = SelectAll::new();
        for method in &self.info.methods {
            let subject = service_subject(name, &method.name);
            all.push(client.queue_subscribe(subject, QUEUE.to_owned()).await?);
        }
        for verb in VERBS {
            for subject in [format!("$SRV.{verb}"), format!("$SRV.{verb}.{name}"), format!("$SRV.{verb}.{name}.{id}")] {
                all.push(client.subscribe(subject).await?);
            }
        }
        Ok(all)
    }

    async fn take(self: &Arc<Self>, message: Message) {
        if let Some(query) = message.subject.strip_prefix("$SRV.") {
            let verb = query.split('.').next().unwrap_or_default();
            let counts = || self.counts.lock().clone();
            let answer = description::answer(verb, &self.info, &self.id, &self.started, counts);
            if let (Some(answer), Some(reply)) = (answer, message.reply) {
                drop(self.shared.client.publish(reply, answer.to_string().into()).await);
            }
            return;
        }
        request::take(self, message);
    }

    /// The method that a message calls.
    pub fn method(&self, subject: &str) -> Option<&MethodInfo> {
        let (_, name) = subject.rsplit_once('.')?;
        self.info.methods.iter().find(|method| method.name == name)
    }

    /// Notes how a request ended.
    pub fn count(&self, method: &str, time: Duration, error: Option<&str>) {
        let mut counts = self.counts.lock();
        if !counts.contains_key(method) {
            counts.insert(method.to_owned(), Counted::default());
        }
        let Some(counted) = counts.get_mut(method) else { return };
        counted.requests += 1;
        counted.time += time;
        if let Some(error) = error {
            counted.errors += 1;
            counted.last_error = error.to_owned();
        }
    }
}
