//! Settlement of deliveries: sent to the server and confirmed by it.

use std::sync::PoisonError;

use async_nats::StatusCode;
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tidewire_backend::home::{ConsumerSettings, Fault, HomeErrorKind, HomeResult, Settle, Settlement};
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection::{Connection, ReplyInbox};
use crate::dead_letters;
use crate::outstanding_deliveries::OutstandingDelivery;
use crate::shared::Shared;

const RETRY_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// Settlements of deliveries, on the wire.
pub(crate) mod how {
    use bytes::Bytes;

    pub(crate) const ACK: Bytes = Bytes::from_static(b"+ACK");
    pub(crate) const WORKING: Bytes = Bytes::from_static(b"+WPI");

    pub(crate) fn nak(delay_us: u64) -> Bytes {
        if delay_us == 0 {
            return Bytes::from_static(b"-NAK");
        }
        format!("-NAK {{\"delay\": {}}}", crate::clock::nanos(delay_us)).into()
    }

    pub(crate) fn term(reason: &str) -> Bytes {
        format!("+TERM {}", reason.replace(['\r', '\n'], " ")).into()
    }
}

/// One delivery that is being settled.
struct Step {
    at: usize,
    sequence: u64,
    outstanding: OutstandingDelivery,
    payload: Bytes,
    /// True if the delivery is no longer outstanding afterwards.
    last: bool,
}

/// Settles deliveries. Each has a separate result.
pub(crate) async fn settle(
    shared: &Shared,
    stream: &str,
    consumer: &str,
    settled: Vec<Settle>,
) -> HomeResult<Vec<HomeResult<()>>> {
    let settings = shared.consumers.settings(shared, stream, consumer).await?;
    let mut results: Vec<HomeResult<()>> = settled.iter().map(|_| Ok(())).collect();
    let mut steps = Vec::with_capacity(settled.len());
    for (at, settle) in settled.into_iter().enumerate() {
        let Settle { sequence, ticket, how } = settle;
        match shared.out.take(stream, consumer, sequence, ticket) {
            None => results[at] = Err(stale(&shared.connection, sequence)),
            Some(outstanding) => match prepare(shared, stream, &settings, sequence, outstanding.delivery, how).await {
                Ok((payload, last)) => steps.push(Step { at, sequence, outstanding, payload, last }),
                Err(error) => {
                    shared.out.note(stream, consumer, vec![(sequence, outstanding)]);
                    results[at] = Err(error);
                }
            },
        }
    }
    let confirmed = send_all(shared, &steps).await;
    for (step, confirmed) in steps.into_iter().zip(confirmed) {
        let Step { at, sequence, outstanding, last, payload } = step;
        // A copy that failed or was given back is delivered again.
        let is_done = confirmed && last && !payload.starts_with(b"-NAK");
        if let (true, Some(copy)) = (is_done, outstanding.again) {
            forget_copy(shared, stream, copy).await;
        }
        if !confirmed {
            results[at] =
                Err(shared.connection.away(&format!("event {sequence}: nobody has confirmed what became of it")));
        }
        if !confirmed || !last {
            // It can be settled again, unless it was delivered again meanwhile.
            shared.out.put_back(stream, consumer, sequence, outstanding);
        }
    }
    Ok(results)
}

/// Wire form of a settlement, and true if it is the last one. A dead letter is stored first.
async fn prepare(
    shared: &Shared,
    stream: &str,
    settings: &ConsumerSettings,
    sequence: u64,
    delivery: u32,
    how: Settlement,
) -> HomeResult<(Bytes, bool)> {
    let keep = async |reason: &str, fault: Option<Fault>| {
        let fault = fault.unwrap_or_default();
        dead_letters::keep(shared, stream, &settings.name, sequence, delivery, reason, &fault).await
    };
    match how {
        Settlement::Ack => Ok((how::ACK, true)),
        Settlement::Working => Ok((how::WORKING, false)),
        // A server would give up an event whose last delivery goes back, although nobody began it.
        Settlement::Release if settings.max_deliver > 0 && delivery >= settings.max_deliver => {
            let known = shared.streams.find(&shared.connection, stream).await?;
            let is_copied = dead_letters::deliver_anew(shared, &known, stream, &settings.name, sequence).await;
            Ok((if is_copied.unwrap_or(false) { how::ACK } else { how::nak(0) }, true))
        }
        Settlement::Release => Ok((how::nak(0), true)),
        Settlement::Nak { fault, .. } if settings.max_deliver > 0 && delivery >= settings.max_deliver => {
            keep("max_deliver", fault).await?;
            Ok((how::term("max_deliver"), true))
        }
        Settlement::Nak { delay_us, .. } => {
            let backoff = settings.backoff_us.get(delivery as usize - 1).or(settings.backoff_us.last());
            Ok((how::nak(delay_us.or(backoff.copied()).unwrap_or(0)), true))
        }
        Settlement::Term { reason, fault } => {
            keep(&reason, fault).await?;
            Ok((how::term(&reason), true))
        }
    }
}

/// Sends all settlements, and waits for their confirmations. A repeated settlement is harmless.
async fn send_all(shared: &Shared, steps: &[Step]) -> Vec<bool> {
    let connection = &shared.connection;
    let mut confirmed = vec![false; steps.len()];
    let until = Instant::now() + connection.settings.request_timeout;
    while !steps.is_empty() {
        let idle = shared.out.boxes.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let answers = match idle {
            Some(answers) => Ok(answers),
            None => ReplyInbox::new(connection).await,
        };
        if let Ok(mut answers) = answers {
            answers.round(connection, steps, &mut confirmed, until).await;
            if confirmed.iter().all(|confirmed| *confirmed) {
                shared.out.boxes.lock().unwrap_or_else(PoisonError::into_inner).push(answers);
                return confirmed;
            }
        }
        if Instant::now() + RETRY_PAUSE >= until {
            return confirmed;
        }
        sleep(RETRY_PAUSE).await;
    }
    confirmed
}

impl ReplyInbox {
    /// Sends unconfirmed settlements, and takes the replies.
    async fn round(&mut self, connection: &Connection, steps: &[Step], confirmed: &mut [bool], until: Instant) {
        self.lost.mark_unchanged();
        let first = self.number;
        let mut waiting = 0;
        for (at, step) in steps.iter().enumerate().filter(|(at, _)| !confirmed[*at]).collect::<Vec<_>>() {
            let reply = format!("{}.{}", self.inbox, first + at as u64);
            let sent =
                connection.client.publish_with_reply(step.outstanding.reply.clone(), reply, step.payload.clone()).await;
            waiting += usize::from(sent.is_ok());
        }
        self.number += steps.len() as u64;
        // An answer that does not come was lost with a server; there is time for a second try.
        let attempt = (Instant::now() + connection.settings.request_timeout / 3).min(until);
        while waiting > 0 {
            let answer = tokio::select! {
                answer = timeout_at(attempt, self.messages.next()) => answer,
                Ok(()) = self.lost.changed() => return,
            };
            let Ok(Some(answer)) = answer else { return };
            let number = answer.subject.rsplit('.').next().and_then(|number| number.parse::<u64>().ok());
            let at = number.and_then(|number| number.checked_sub(first)).map(|at| at as usize);
            let Some(at) = at.filter(|at| *at < steps.len()) else { continue };
            waiting -= 1;
            confirmed[at] = answer.status != Some(StatusCode::NO_RESPONDERS);
        }
    }
}

/// Deletes the copy of a redelivered event after its settlement.
async fn forget_copy(shared: &Shared, stream: &str, copy: u64) {
    let body: Value = json!({"seq": copy, "no_erase": true});
    drop(shared.connection.api(&format!("STREAM.MSG.DELETE.{stream}"), &body).await);
}

fn stale(connection: &Connection, sequence: u64) -> tidewire_backend::home::HomeError {
    let words = format!(
        "event {sequence}: this delivery was settled before, or the event was delivered again since: settle each delivery once, within ack_wait"
    );
    connection.error(HomeErrorKind::Stale, &words)
}
