//! Cursors: consumers without state on the server's disk, for reading and watching. A cursor is
//! stored for a few seconds after use, so that the next read from its position needs no new one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::Message;
use serde_json::json;
use tidewire_backend::home::HomeResult;
use tokio::time::Instant;

use crate::clock;
use crate::connection::Connection;
use crate::message::AckSubject;
use crate::pull::{End, Pull, Puller, Wait};

/// Time after which a server deletes an idle cursor.
const INACTIVE: Duration = Duration::from_secs(30);
/// Time for which this client stores a cursor: less, so that the cursor still exists on the server.
const KEPT_FOR: Duration = Duration::from_secs(10);
const KEPT: usize = 64;

/// Where a cursor begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum From {
    Sequence(u64),
    Time(u64),
    /// The newest message of each subject.
    Newest,
}

/// Events that a cursor reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Selection {
    pub stream: String,
    /// Empty: all.
    pub filter: Vec<String>,
}

/// A place in a stream, on the server.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub selection: Selection,
    name: String,
    puller: Puller,
    clean: bool,
}

/// Idle cursors, each in front of a sequence.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    idle: Mutex<HashMap<(Selection, u64), (Instant, Cursor)>>,
}

impl Cursors {
    /// The idle cursor in front of a sequence.
    pub fn take(&self, selection: &Selection, next: u64) -> Option<Cursor> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|_, (since, _)| since.elapsed() < KEPT_FOR);
        idle.remove(&(selection.clone(), next)).map(|(_, cursor)| cursor)
    }

    /// Stores a cursor in front of a sequence, or closes it if it can't be reused.
    pub async fn leave(&self, connection: &Connection, cursor: Cursor, next: u64) {
        if let Some(superfluous) = self.store(cursor, next) {
            superfluous.close(connection).await;
        }
    }

    fn store(&self, cursor: Cursor, next: u64) -> Option<Cursor> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if !cursor.clean || idle.len() >= KEPT {
            return Some(cursor);
        }
        match idle.entry((cursor.selection.clone(), next)) {
            Entry::Occupied(_) => Some(cursor),
            Entry::Vacant(place) => {
                place.insert((Instant::now(), cursor));
                None
            }
        }
    }

    pub fn forget(&self, stream: &str) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).retain(|(selection, _), _| selection.stream != stream);
    }
}

impl Cursor {
    pub async fn open(connection: &Connection, selection: &Selection, from: From) -> HomeResult<Self> {
        let puller = Puller::new(connection).await?;
        let name = connection.client.new_inbox().replace('.', "-");
        let mut config = json!({
            "name": name,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": INACTIVE.as_nanos() as u64,
            "mem_storage": true,
            "num_replicas": 1,
        });
        if !selection.filter.is_empty() {
            config["filter_subjects"] = json!(selection.filter);
        }
        config["deliver_policy"] = match from {
            From::Sequence(sequence) => {
                config["opt_start_seq"] = json!(sequence.max(1));
                json!("by_start_sequence")
            }
            From::Time(time_us) => {
                config["opt_start_time"] = json!(clock::written(time_us));
                json!("by_start_time")
            }
            From::Newest => json!("last_per_subject"),
        };
        let stream = &selection.stream;
        let body = json!({"stream_name": stream, "config": config, "action": "create"});
        let created = connection.api(&format!("CONSUMER.CREATE.{stream}.{name}"), &body).await;
        created.map_err(|failure| failure.of_stream(connection, stream))?;
        Ok(Self { selection: selection.clone(), name, puller, clean: true })
    }

    /// The next messages, with their places.
    pub async fn next(&mut self, connection: &Connection, pull: Pull) -> (Vec<(AckSubject, Message)>, End) {
        let mut messages = Vec::new();
        let end = self.puller.pull(connection, &self.selection.stream, &self.name, pull, &mut messages).await;
        self.clean = end.is_clean();
        let placed = |message: Message| Some((AckSubject::read(message.reply.as_deref()?)?, message));
        (messages.into_iter().filter_map(placed).collect(), end)
    }

    /// Deletes the cursor on the server; without this call the server forgets it after a while.
    pub async fn close(self, connection: &Connection) {
        let subject = connection.subject(&format!("CONSUMER.DELETE.{}.{}", self.selection.stream, self.name));
        drop(connection.client.publish_with_reply(subject, connection.client.new_inbox(), Default::default()).await);
    }
}

/// All events of a selection, from a position on, until the end or until `visit` stops.
pub(crate) async fn scan(
    connection: &Connection,
    selection: &Selection,
    from: From,
    mut visit: impl FnMut(AckSubject, Message) -> bool,
) -> HomeResult<()> {
    let mut cursor = Cursor::open(connection, selection, from).await?;
    loop {
        let (messages, end) = cursor.next(connection, Pull { messages: 1_000, bytes: 0, wait: Wait::No }).await;
        let more = messages.into_iter().all(|(place, message)| visit(place, message));
        match end {
            End::Whole if more => (),
            End::Away(error) => return Err(error),
            End::Gone => return Err(connection.away("a cursor was lost")),
            _ => {
                cursor.close(connection).await;
                return Ok(());
            }
        }
    }
}
