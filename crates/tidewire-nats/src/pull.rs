//! Pulls: requests for the next messages of a consumer, over reused subscriptions.
//!
//! A server sends the messages to the subscription of the requester, under their own subjects, and
//! a status when there are no more. One subscription has one request in flight, so that each
//! request recognizes its messages.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::{Message, StatusCode, Subscriber, UnsubscribeError};
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::json;
use tidewire_backend::home::{Delivery, HomeError, HomeErrorKind, HomeResult};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::connection::{Connection, ReplyInbox};

/// Time that a reply may take beyond the wait of the server.
const MARGIN: Duration = Duration::from_secs(2);
/// How long a server may take to confirm the end of a subscription.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Idle subscriptions of one consumer that are stored for reuse.
const KEPT: usize = 16;

/// Size and wait of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pull {
    pub messages: u32,
    /// 0: any number.
    pub bytes: u32,
    pub wait: Wait,
}

/// How long a server waits for the first message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// Not at all.
    No,
    /// Not at all, except for the time that the server may need to find that it may deliver
    /// nothing. A consumer at its limit of outstanding deliveries gets no immediate status. A busy
    /// server may need longer to deliver the ready events.
    Brief(Duration),
    For(Duration),
}

/// Why a pull ended.
#[derive(Debug)]
pub(crate) enum End {
    /// All requested messages have arrived.
    Whole,
    /// There is no more for the moment.
    Empty,
    /// The next message alone is larger than the requested bytes.
    TooLarge,
    /// There is no such consumer, or not any more.
    Gone,
    /// The connection was lost, or the consumer has no leader for the moment.
    Away(HomeError),
}

/// A subscription for one pull at a time.
#[derive(Debug)]
pub(crate) struct Puller(ReplyInbox);

/// Pullers of consumers that are not in use.
#[derive(Debug, Default)]
pub(crate) struct Pullers {
    idle: Mutex<HashMap<(String, String), Vec<Puller>>>,
    /// Deliveries whose callers are gone, for the next fetch of their consumer.
    stored: Mutex<HashMap<(String, String), Vec<Delivery>>>,
}

impl Pullers {
    pub async fn take(&self, connection: &Connection, stream: &str, consumer: &str) -> HomeResult<Puller> {
        let key = (stream.to_owned(), consumer.to_owned());
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&key).and_then(Vec::pop);
        match idle {
            Some(puller) => Ok(puller),
            None => Puller::new(connection).await,
        }
    }

    /// Stores a puller whose last pull has ended by itself, for reuse.
    pub fn keep(&self, stream: &str, consumer: &str, puller: Puller) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let pullers = idle.entry((stream.to_owned(), consumer.to_owned())).or_default();
        if pullers.len() < KEPT {
            pullers.push(puller);
        }
    }

    /// Stores deliveries for the next fetch.
    pub fn store(&self, stream: &str, consumer: &str, deliveries: Vec<Delivery>) {
        self.stored().entry((stream.to_owned(), consumer.to_owned())).or_default().extend(deliveries);
    }

    /// Takes stored deliveries, at most so many, the oldest first.
    pub fn take_stored(&self, stream: &str, consumer: &str, most: usize) -> Vec<Delivery> {
        let (key, mut stored) = ((stream.to_owned(), consumer.to_owned()), self.stored());
        let Some(of_consumer) = stored.get_mut(&key) else { return Vec::new() };
        let deliveries = of_consumer.drain(..most.min(of_consumer.len())).collect();
        if of_consumer.is_empty() {
            stored.remove(&key);
        }
        deliveries
    }

    /// Takes the stored deliveries with one of these tickets.
    pub fn take_expired(&self, stream: &str, consumer: &str, tickets: &HashSet<u64>) -> Vec<Delivery> {
        let (key, mut stored) = ((stream.to_owned(), consumer.to_owned()), self.stored());
        let all = stored.remove(&key).unwrap_or_default();
        let (expired, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| tickets.contains(&one.ticket));
        if !rest.is_empty() {
            stored.insert(key, rest);
        }
        expired
    }

    /// Forgets a deleted consumer.
    pub fn forget(&self, stream: &str, consumer: Option<&str>) {
        let stays = |(of, name): &(String, String)| of != stream || consumer.is_some_and(|consumer| consumer != name);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).retain(|key, _| stays(key));
        self.stored().retain(|key, _| stays(key));
    }

    fn stored(&self) -> MutexGuard<'_, HashMap<(String, String), Vec<Delivery>>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Puller {
    pub async fn new(connection: &Connection) -> HomeResult<Self> {
        ReplyInbox::new(connection).await.map(Self)
    }

    /// Requests messages, and receives them until the server reports the end.
    pub async fn pull(
        &mut self,
        connection: &Connection,
        stream: &str,
        consumer: &str,
        pull: Pull,
        messages: &mut Vec<Message>,
    ) -> End {
        self.0.lost.mark_unchanged();
        // The driver would send the request once it is connected again: the server would deliver to
        // a subscription that nobody reads any more.
        if !connection.is_up() {
            return End::Away(connection.away("there is no connection"));
        }
        self.0.number += 1;
        let inbox = format!("{}.{}", self.0.inbox, self.0.number);
        let mut body = json!({"batch": pull.messages});
        if pull.bytes > 0 {
            body["max_bytes"] = json!(pull.bytes);
        }
        let wait = match pull.wait {
            Wait::No => Duration::ZERO,
            Wait::Brief(wait) | Wait::For(wait) => wait,
        };
        if !matches!(pull.wait, Wait::For(_)) {
            body["no_wait"] = json!(true);
        }
        if !wait.is_zero() {
            body["expires"] = json!(wait.as_nanos() as u64);
        }
        let subject = connection.subject(&format!("CONSUMER.MSG.NEXT.{stream}.{consumer}"));
        let sent = connection.client.publish_with_reply(subject, inbox.clone(), body.to_string().into()).await;
        if let Err(error) = sent {
            return End::Away(connection.away(&error.to_string()));
        }
        let until = Instant::now() + wait + MARGIN.min(connection.settings.request_timeout);
        let target = messages.len() + pull.messages as usize;
        while messages.len() < target {
            let message = tokio::select! {
                message = timeout_at(until, self.0.messages.next()) => message,
                Ok(()) = self.0.lost.changed() => return End::Away(connection.away("the connection was lost")),
            };
            match message {
                Err(_) => return End::Away(connection.away("a pull was not answered")),
                Ok(None) => return End::Away(connection.error(HomeErrorKind::Closed, "the connection was closed")),
                Ok(Some(message)) => match message.status {
                    None => messages.push(message),
                    // A status of an earlier pull, which came after all of its messages had.
                    Some(_) if *message.subject != *inbox => (),
                    Some(status) => return end(connection, status, &message),
                },
            }
        }
        End::Whole
    }

    /// Ends the request at the server, and takes the messages that were on their way.
    pub async fn close(mut self, connection: &Connection, messages: &mut Vec<Message>) {
        if unsubscribe(&mut self.0.messages).await.is_err() {
            return;
        }
        let passed = connection.client.request(connection.subject("INFO"), Bytes::new());
        drop(timeout(CLOSE_TIMEOUT, passed).await);
        while let Some(Some(message)) = self.0.messages.next().now_or_never() {
            if message.status.is_none() {
                messages.push(message);
            }
        }
    }

    /// Waits a moment after a server was away, or until it is time.
    pub async fn pause(until: Instant) {
        sleep_until((Instant::now() + Duration::from_millis(50)).min(until)).await;
    }
}

/// Ends a subscription at the server, and keeps it open here for messages on their way. The answer
/// of a later request comes after all of them.
///
/// `Subscriber::drain` forgets the subscription before the server has read the command. A limit of
/// more digits than the server reads ends the subscription there at once, and never here.
///
/// # Errors
/// If the connection was closed.
pub async fn unsubscribe(subscriber: &mut Subscriber) -> Result<(), UnsubscribeError> {
    subscriber.unsubscribe_after(u64::MAX).await
}

impl End {
    /// True if nothing more can come to the subscription.
    pub const fn is_clean(&self) -> bool {
        matches!(self, Self::Whole | Self::Empty | Self::TooLarge)
    }
}

fn end(connection: &Connection, status: StatusCode, message: &Message) -> End {
    let words = message.description.as_deref().unwrap_or_default();
    match status.as_u16() {
        404 | 408 => End::Empty,
        409 if words.contains("MaxBytes") => End::TooLarge,
        409 if words.contains("Consumer Deleted") => End::Gone,
        409 if words.contains("Leadership") || words.contains("Shutdown") => {
            End::Away(connection.away("the consumer changes its server"))
        }
        409 => End::Empty,
        503 => End::Away(connection.away("nobody answers for the consumer")),
        code => End::Away(connection.away(&format!("a pull was answered with {code} {words}"))),
    }
}
