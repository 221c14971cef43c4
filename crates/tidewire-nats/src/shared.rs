//! State shared by all parts of a storage backend: connection, stream cache, outstanding
//! deliveries.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_nats::{HeaderMap, HeaderName, HeaderValue, Message};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use tidewire_backend::home::{HomeErrorKind, HomeResult};
use tokio::time::{Instant, sleep};

use crate::connection::{Connection, Failure};
use crate::consumers::Consumers;
use crate::cursor::Cursors;
use crate::leases::LeaseTable;
use crate::names;
use crate::outstanding_deliveries::OutstandingDeliveries;
use crate::publishing::sequence_of;
use crate::pull::Pullers;
use crate::stream_cache::{Streams, kind};

const RETRY_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// State shared by all parts of a storage backend.
pub(crate) struct Shared {
    pub connection: Arc<Connection>,
    pub streams: Arc<Streams>,
    pub consumers: Consumers,
    pub pullers: Pullers,
    pub cursors: Cursors,
    pub out: OutstandingDeliveries,
    pub leases: LeaseTable,
}

/// A message as it is stored.
#[derive(Debug)]
pub(crate) struct Stored {
    pub message: Message,
    pub sequence: u64,
    pub time_us: u64,
}

impl Shared {
    pub fn new(connection: Arc<Connection>, streams: Arc<Streams>) -> Self {
        Self {
            connection,
            streams,
            consumers: Consumers::default(),
            pullers: Pullers::default(),
            cursors: Cursors::default(),
            out: OutstandingDeliveries::default(),
            leases: LeaseTable::default(),
        }
    }

    /// Forgets all state of a deleted stream.
    pub fn forget_stream(&self, stream: &str) {
        self.streams.forget(stream);
        self.consumers.forget(stream, None);
        self.pullers.forget(stream, None);
        self.cursors.forget(stream);
        self.out.forget(stream, None);
    }

    /// How many messages of a stream have a subject.
    pub async fn count(&self, stream: &str, subject: &str) -> HomeResult<u64> {
        Ok(self.counts(stream, subject).await?.values().sum())
    }

    /// How many dead letters each consumer of a stream has.
    pub async fn dead_counts(&self, stream: &str) -> HomeResult<BTreeMap<String, u64>> {
        let mut found = BTreeMap::new();
        for (subject, count) in self.counts(&names::dead(stream), ">").await? {
            let consumer = subject.rsplit('.').next().unwrap_or_default().to_owned();
            *found.entry(consumer).or_default() += count;
        }
        Ok(found)
    }

    /// The subjects of a stream that a pattern selects, with the number of messages of each. None
    /// if there is no stream.
    pub async fn counts(&self, stream: &str, filter: &str) -> HomeResult<BTreeMap<String, u64>> {
        let mut found = BTreeMap::new();
        loop {
            let body = json!({"subjects_filter": filter, "offset": found.len()});
            let info = match self.connection.api(&format!("STREAM.INFO.{stream}"), &body).await {
                Ok(info) => info,
                Err(Failure::Refused { code: 10_059, .. }) => return Ok(found),
                Err(failure) => return Err(failure.of_stream(&self.connection, stream)),
            };
            let page = info["state"]["subjects"].as_object();
            let page = page.into_iter().flatten();
            let page: Vec<_> = page.map(|(subject, count)| (subject.clone(), count.as_u64().unwrap_or(0))).collect();
            let more = !page.is_empty() && found.len() + page.len() < info["total"].as_u64().unwrap_or(0) as usize;
            found.extend(page);
            if !more {
                return Ok(found);
            }
        }
    }

    /// The message of a sequence, or the newest of a subject, as the stream's leader has it.
    pub async fn stored(&self, stream: &str, which: &Value) -> HomeResult<Option<Stored>> {
        let found = self.connection.api(&format!("STREAM.MSG.GET.{stream}"), which).await;
        match found {
            Ok(answer) => Ok(stored(&answer["message"])),
            Err(Failure::Refused { code: 10_037, .. }) => Ok(None),
            Err(failure) => Err(failure.of_stream(&self.connection, stream)),
        }
    }

    /// Publishes one message, and waits for its ack. A retry may publish it twice: for idempotent
    /// messages only.
    ///
    /// Returns its sequence.
    pub async fn put(&self, stream: &str, subject: &str, headers: HeaderMap, payload: Bytes) -> Result<u64, Failure> {
        let until = Instant::now() + self.connection.settings.request_timeout;
        let mut is_retry = false;
        loop {
            let attempt = (Instant::now() + self.connection.settings.request_timeout / 3).min(until);
            let own = (!headers.is_empty()).then(|| headers.clone());
            let sent = self.connection.request(subject.to_owned(), own, payload.clone(), attempt).await;
            let failure = match sent {
                Err(error) => Failure::Away(error),
                Ok(answer) => {
                    let reply: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
                    match reply.get("error") {
                        None => return Ok(reply["seq"].as_u64().unwrap_or_default()),
                        Some(error) => Failure::Refused {
                            code: error["err_code"].as_u64().unwrap_or_default(),
                            words: error["description"].as_str().unwrap_or_default().to_owned(),
                        },
                    }
                }
            };
            // Some servers compare revisions before ids: the first attempt may have changed it.
            if is_retry
                && matches!(failure, Failure::Refused { code: 10_071 | 10_164, .. })
                && let Some(id) = headers.get(names::MSG_ID)
            {
                let until = Instant::now() + self.connection.settings.request_timeout;
                let stored = sequence_of(&self.connection, stream, subject, id.as_str(), until).await;
                return stored.map_err(Failure::Away)?.ok_or(failure);
            }
            is_retry = true;
            match &failure {
                Failure::Refused { code, .. } if kind(*code) != HomeErrorKind::Unreachable => return Err(failure),
                _ if Instant::now() + RETRY_PAUSE >= until => return Err(failure),
                // The message had no responders: the stream may be deleted.
                _ => match self.connection.api(&format!("STREAM.INFO.{stream}"), &Value::Null).await {
                    Err(failure @ Failure::Refused { code: 10_059, .. }) => return Err(failure),
                    _ => sleep(RETRY_PAUSE).await,
                },
            }
        }
    }
}

/// The headers of a block that begins with `NATS/1.0`.
fn headers(block: &[u8]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in String::from_utf8_lossy(block).lines().skip(1) {
        let Some((name, value)) = line.split_once(':') else { continue };
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.trim().parse::<HeaderValue>()) {
            map.append(name, value);
        }
    }
    map
}

/// A message as the JetStream API has it in JSON: headers and payload in base64.
fn stored(found: &Value) -> Option<Stored> {
    let bytes = |name: &str| STANDARD.decode(found[name].as_str().unwrap_or_default()).ok();
    let headers = bytes("hdrs").filter(|raw| !raw.is_empty()).map(|raw| headers(&raw));
    let message = Message {
        subject: found["subject"].as_str()?.to_owned().into(),
        reply: None,
        payload: bytes("data")?.into(),
        headers,
        status: None,
        description: None,
        length: 0,
    };
    let time_us = crate::clock::read(found["time"].as_str().unwrap_or_default()).unwrap_or_default();
    Some(Stored { message, sequence: found["seq"].as_u64()?, time_us })
}
