//! Lookup of a message id: the server answers whether it knows the id, and stores nothing.

use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use tidewire_backend::home::{HomeErrorKind, HomeResult};
use tokio::time::{Instant, sleep};

use crate::connection::Connection;
use crate::message;
use crate::names;

use super::reply::AckReply;

const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Another message with the id is being stored.
pub(super) const DUPLICATE_CONFLICT: u64 = 10_158;
const ROLLUP_FAILED: u64 = 10_111;

/// The sequence of the stored message with an id, if the server still knows it. `subject` is one of
/// the stream.
pub(crate) async fn sequence_of(
    connection: &Connection,
    stream: &str,
    subject: &str,
    id: &str,
    until: Instant,
) -> HomeResult<Option<u64>> {
    let mut headers = HeaderMap::new();
    message::append(&mut headers, "id", names::MSG_ID, id)?;
    // No rollup has this name. Servers look for duplicates first, and store no such message.
    // Another condition would be checked before, or only after a cluster has noted the id.
    headers.insert("Nats-Rollup", "lookup");
    loop {
        let answer = connection.request(subject.to_owned(), Some(headers.clone()), Bytes::new(), until).await?;
        let ack = AckReply::read(connection, &answer.payload)?;
        match &ack.error {
            None if ack.duplicate => return ack.of_stream(connection, stream, subject).map(Some),
            None => {
                let words = "a lookup of an id was stored: look which service takes the stream's subjects";
                return Err(connection.error(HomeErrorKind::Foreign, words));
            }
            Some(refusal) if refusal.err_code == ROLLUP_FAILED => return Ok(None),
            Some(refusal) if refusal.err_code == DUPLICATE_CONFLICT && Instant::now() + RETRY_PAUSE < until => {
                sleep(RETRY_PAUSE).await;
            }
            Some(refusal) => return Err(refusal.error(connection, stream)),
        }
    }
}
