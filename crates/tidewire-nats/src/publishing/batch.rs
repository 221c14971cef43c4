//! Batches with ids, which servers refuse as a whole if they have stored one of the ids already.
//!
//! Messages with repeated ids are left out. After a refusal the server is asked which of the ids it
//! knows. Each attempt stores all remaining messages or none.

use std::collections::HashMap;

use async_nats::HeaderMap;
use futures_util::future::try_join_all;
use tidewire_backend::home::{Ack, HomeError, HomeErrorKind, HomeResult, NewMessage};
use tokio::time::Instant;

use crate::connection::Connection;
use crate::message;
use crate::names;
use crate::stream_cache::CachedStream;

use super::lookup::{DUPLICATE_CONFLICT, sequence_of};
use super::reply::AckReply;

/// Attempts while other publishers store ids of the same batch.
const ATTEMPTS: usize = 16;
/// Ids that are looked up at once.
const LOOKUPS: usize = 64;
const CONTAINS_DUPLICATE: u64 = 10_201;
/// Servers without a leader or with too much work, and a batch without its first messages.
const TRY_AGAIN: [u64; 4] = [10_008, 10_009, 10_167, 10_176];

pub(super) struct Batch<'a> {
    pub connection: &'a Connection,
    pub stream: &'a str,
    pub known: &'a CachedStream,
    pub messages: &'a [NewMessage],
}

impl Batch<'_> {
    /// Stores all messages with new ids, or none of the batch. Gives the ack of each message.
    pub async fn publish(&self) -> HomeResult<Vec<Ack>> {
        let mut firsts = HashMap::new();
        let first_of = |(index, message): (usize, &NewMessage)| match message.id.clone() {
            Some(id) => *firsts.entry(id).or_insert(index),
            None => index,
        };
        let first_of: Vec<usize> = self.messages.iter().enumerate().map(first_of).collect();
        let mut new: Vec<usize> = (0..first_of.len()).filter(|index| first_of[*index] == *index).collect();
        let mut acks = HashMap::new();
        for _ in 0..ATTEMPTS {
            match self.store(&new).await? {
                Some(last) => {
                    let sequences = (0..=last).rev();
                    acks.extend(new.iter().rev().copied().zip(sequences.map(|sequence| self.ack(sequence, false))));
                    let of = |(index, first): (usize, &usize)| Ack {
                        duplicate: index != *first || acks[first].duplicate,
                        ..acks[first]
                    };
                    return Ok(first_of.iter().enumerate().map(of).collect());
                }
                None => {
                    for (index, sequence) in self.find(&new).await? {
                        acks.insert(index, self.ack(sequence, true));
                    }
                    new.retain(|index| !acks.contains_key(index));
                }
            }
        }
        let words =
            "ids: other publishers store messages with ids of this batch, which was not stored: publish it again";
        Err(self.connection.error(HomeErrorKind::Busy, words))
    }

    fn ack(&self, sequence: u64, duplicate: bool) -> Ack {
        Ack { sequence, durability: self.known.durability, duplicate }
    }

    /// Stores these messages. Gives the last sequence, or None if the server knows an id.
    async fn store(&self, new: &[usize]) -> HomeResult<Option<u64>> {
        let Some((last, before)) = new.split_last() else { return Ok(Some(0)) };
        let name = self.connection.client.new_inbox().replace('.', "-");
        let mut lost = self.connection.losses();
        lost.mark_unchanged();
        for (index, number) in before.iter().zip(1..) {
            let message = &self.messages[*index];
            let (headers, payload) = (self.headers(message, &name, number)?, message.payload.clone());
            let sent = self.connection.client.publish_with_headers(message.subject.to_string(), headers, payload);
            sent.await.map_err(|error| {
                let words = format!("the batch can't be sent ({error}): make its messages smaller, or try again");
                self.connection.error(HomeErrorKind::Invalid, &words)
            })?;
        }
        let message = &self.messages[*last];
        let mut headers = self.headers(message, &name, new.len())?;
        headers.insert("Nats-Batch-Commit", "1");
        let until = Instant::now() + self.connection.settings.request_timeout;
        let answer = tokio::select! {
            answer = self.connection.request(message.subject.to_string(), Some(headers), message.payload.clone(), until) => answer,
            Ok(()) = lost.changed() => Err(self.connection.away("the connection was lost")),
        };
        let answer = answer.map_err(|error| self.unsure(&error))?;
        let ack = AckReply::read(self.connection, &answer.payload)?;
        match &ack.error {
            None => ack.of_stream(self.connection, self.stream, message.subject.as_str()).map(Some),
            Some(refusal) if [CONTAINS_DUPLICATE, DUPLICATE_CONFLICT].contains(&refusal.err_code) => Ok(None),
            Some(refusal) if TRY_AGAIN.contains(&refusal.err_code) => {
                let words = format!("the batch was not stored ({}): publish it again", refusal.description);
                Err(self.connection.error(HomeErrorKind::Unreachable, &words))
            }
            Some(refusal) => Err(refusal.error(self.connection, self.stream)),
        }
    }

    fn headers(&self, message: &NewMessage, batch: &str, number: usize) -> HomeResult<HeaderMap> {
        let mut headers = message::headers(message, self.known.dedupe)?.unwrap_or_default();
        headers.insert("Nats-Batch-Id", batch);
        headers.insert("Nats-Batch-Sequence", number.to_string().as_str());
        Ok(headers)
    }

    fn unsure(&self, error: &HomeError) -> HomeError {
        let words =
            format!("{}; the batch may be stored: publish it again, with an id for each message", error.message());
        HomeError::new(error.kind(), words)
    }

    /// The messages whose ids the server knows, each with the sequence of the first one.
    async fn find(&self, new: &[usize]) -> HomeResult<Vec<(usize, u64)>> {
        let until = Instant::now() + self.connection.settings.request_timeout;
        let mut found = Vec::new();
        for some in new.chunks(LOOKUPS) {
            let sequences = some.iter().map(|index| self.sequence(&self.messages[*index], until));
            let sequences = try_join_all(sequences).await?;
            found.extend(some.iter().zip(sequences).filter_map(|(index, sequence)| Some((*index, sequence?))));
        }
        Ok(found)
    }

    /// The sequence of the stored message with the id of this one.
    async fn sequence(&self, message: &NewMessage, until: Instant) -> HomeResult<Option<u64>> {
        let Some(id) = &message.id else { return Ok(None) };
        // Subscribers of the message's subject see no lookup.
        let subject = match (self.known.again, self.known.compact) {
            (true, false) => names::again(self.stream, "ids"),
            (true, true) => names::again_each(self.stream, "ids", 0),
            (false, _) => message.subject.to_string(),
        };
        sequence_of(self.connection, self.stream, &subject, id, until).await
    }
}
