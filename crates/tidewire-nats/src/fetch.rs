//! Fetches from a consumer: the ready events, or else the first one that becomes ready.

use std::collections::HashSet;
use std::time::Duration;

use async_nats::Message;
use tidewire_backend::home::{Delivery, Fetch, HomeErrorKind, HomeResult, Settle, Settlement};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock;
use crate::consumers;
use crate::message::{self, AckSubject};
use crate::names;
use crate::outstanding_deliveries::OutstandingDelivery;
use crate::pull::{End, Pull, Puller, Wait};
use crate::settle::{how, settle};
use crate::shared::Shared;

/// How long a delivery whose caller is gone waits for the next fetch.
const HOLD: Duration = Duration::from_secs(1);

/// The longest wait of one request to a server: the server may leave meanwhile.
const WAIT_AT_ONCE: Duration = Duration::from_secs(20);

/// Wait of a request for ready events: at first, and at most while the server reports some.
const BRIEF: Duration = Duration::from_millis(5);
const LONGEST_BRIEF: Duration = Duration::from_millis(1_280);

/// Deliveries that are ready; waits for the first.
///
/// Once `dropped` is notified, the caller has left: the request to the server ends, and received
/// deliveries are returned.
pub(crate) async fn fetch(
    shared: &Shared,
    stream: &str,
    consumer: &str,
    fetch: Fetch,
    dropped: &Notify,
) -> HomeResult<Vec<Delivery>> {
    if fetch.max_messages == 0 {
        return Err(shared
            .connection
            .error(HomeErrorKind::Invalid, "max_messages: 0 fetches nothing: write 1 or more"));
    }
    shared.consumers.settings(shared, stream, consumer).await?;
    let stored = shared.pullers.take_stored(stream, consumer, fetch.max_messages as usize);
    if !stored.is_empty() {
        return Ok(stored);
    }
    let until = Instant::now() + clock::wait(fetch.wait_us);
    let patience = Instant::now() + clock::wait(fetch.wait_us).max(shared.connection.settings.request_timeout);
    let mut puller = shared.pullers.take(&shared.connection, stream, consumer).await?;
    loop {
        let mut batch = Vec::new();
        let ended = tokio::select! {
            end = round(shared, &mut puller, stream, consumer, fetch, until, &mut batch) => Some(end),
            () = dropped.notified() => None,
        };
        let Some(end) = ended else {
            puller.close(&shared.connection, &mut batch).await;
            return Ok(record(shared, stream, consumer, batch).await);
        };
        let clean = end.is_clean();
        if !batch.is_empty() || (clean && Instant::now() >= until) {
            if clean {
                shared.pullers.keep(stream, consumer, puller);
            }
            return Ok(record(shared, stream, consumer, batch).await);
        }
        match end {
            // Another client may have recreated the consumer.
            End::Gone => consumers::info(shared, stream, consumer).await.map(|_| ())?,
            End::Away(error) if error.kind() == HomeErrorKind::Closed || Instant::now() >= patience => {
                return Err(error);
            }
            End::Away(_) => {
                // A deleted consumer has no responders, either.
                consumers::info(shared, stream, consumer).await?;
                Puller::pause(patience).await;
            }
            _ => (),
        }
        if !clean {
            puller = Puller::new(&shared.connection).await?;
        }
    }
}

/// Fetches the ready events; without any, waits for the first one and the events ready with it.
async fn round(
    shared: &Shared,
    puller: &mut Puller,
    stream: &str,
    consumer: &str,
    fetch: Fetch,
    until: Instant,
    batch: &mut Vec<Message>,
) -> End {
    let connection = &shared.connection;
    let one = Pull { messages: 1, bytes: 0, wait: Wait::Brief(LONGEST_BRIEF) };
    let mut brief = BRIEF;
    loop {
        let ready = Pull { messages: fetch.max_messages, bytes: fetch.max_bytes, wait: Wait::Brief(brief) };
        match puller.pull(connection, stream, consumer, ready, batch).await {
            End::TooLarge if batch.is_empty() => return puller.pull(connection, stream, consumer, one, batch).await,
            End::Empty if batch.is_empty() => (),
            end => return end,
        }
        // The consumer is empty, or its server was too busy to deliver in this time, which it
        // reports.
        brief *= 4;
        if brief > LONGEST_BRIEF || !consumers::is_ready(shared, stream, consumer).await.unwrap_or(false) {
            break;
        }
    }
    let wait = until.saturating_duration_since(Instant::now()).min(WAIT_AT_ONCE);
    if wait < Duration::from_millis(1) {
        return End::Empty;
    }
    let end = puller.pull(connection, stream, consumer, Pull { wait: Wait::For(wait), ..one }, batch).await;
    let size = batch.iter().map(|message| message.payload.len() as u32).sum::<u32>();
    if batch.is_empty() || fetch.max_messages == 1 || size >= fetch.max_bytes {
        return end;
    }
    let more = Pull { messages: fetch.max_messages - 1, bytes: fetch.max_bytes - size, wait: Wait::Brief(BRIEF) };
    puller.pull(connection, stream, consumer, more, batch).await
}

/// Deliveries of a batch, recorded as outstanding.
async fn record(shared: &Shared, stream: &str, consumer: &str, batch: Vec<Message>) -> Vec<Delivery> {
    let mut deliveries = Vec::with_capacity(batch.len());
    let mut outstanding = Vec::with_capacity(batch.len());
    for message in batch {
        let Some(reply) = message.reply.clone() else { continue };
        let Some(place) = AckSubject::read(&reply) else { continue };
        let again = names::is_ours(&message.subject).then_some(place.sequence);
        let Some(event) = message::event(message, place.sequence, place.time_us) else {
            // Its subject is invalid here, such as one of 300 tokens: no handler can ever process
            // the event.
            let term = how::term("the subject of this event can't be read");
            drop(shared.connection.client.publish(reply, term).await);
            continue;
        };
        let (delivery, ticket) = (place.delivery, shared.out.ticket());
        outstanding.push((event.sequence, OutstandingDelivery { ticket, delivery, reply, again }));
        deliveries.push(Delivery { event, delivery, ticket });
    }
    shared.out.note(stream, consumer, outstanding);
    deliveries
}

/// Holds deliveries whose caller is gone for the next fetch of this process, and releases them if
/// there is none soon, or once `ends` is over.
pub(crate) async fn hold(
    shared: &Shared,
    stream: &str,
    consumer: &str,
    deliveries: Vec<Delivery>,
    ends: impl Future<Output = ()>,
) {
    if deliveries.is_empty() {
        return;
    }
    let tickets: HashSet<u64> = deliveries.iter().map(|delivery| delivery.ticket).collect();
    shared.pullers.store(stream, consumer, deliveries);
    drop(tokio::time::timeout(HOLD, ends).await);
    let expired = shared.pullers.take_expired(stream, consumer, &tickets);
    release(shared, stream, consumer, expired).await;
}

/// Releases deliveries: the server delivers their events anew at once.
pub(crate) async fn release(shared: &Shared, stream: &str, consumer: &str, deliveries: Vec<Delivery>) {
    let released =
        |Delivery { event, ticket, .. }| Settle { sequence: event.sequence, ticket, how: Settlement::Release };
    if !deliveries.is_empty() {
        // An event whose release fails comes again after its ack wait.
        drop(settle(shared, stream, consumer, deliveries.into_iter().map(released).collect()).await);
    }
}
