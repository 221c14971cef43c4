//! Queue of messages on their way into one stream. The publisher of each message gets its ack.

use std::sync::Arc;

use tidewire_backend::home::{Ack, Answer, Home, NewMessage, Teller, answer};

use super::batcher::{Batcher, Flush, Results, each};
use super::message::size;

/// Messages without an ack, at most, unless the caller has a limit of its own.
pub(super) const WAITING_MAX: usize = 10_000;

/// Messages on their way into one stream, in their order: messages that arrive while a batch is
/// stored form the next batch.
#[derive(Clone)]
pub struct PublishQueue(Arc<Batcher<NewMessage, Teller<Ack>, Ack>>);

impl PublishQueue {
    /// A queue for a stream of a storage backend. Without a flush policy, a first message is sent
    /// at once.
    pub fn new(home: Arc<dyn Home>, stream: &str, flush: Option<Flush>) -> Self {
        let name: Box<str> = stream.into();
        Self(Batcher::new(WAITING_MAX, move |messages| home.publish(&name, messages, false), acknowledge, flush))
    }

    /// Stores a message, unless 10,000 wait already.
    pub(super) fn offer(&self, message: NewMessage) -> Option<Answer<Ack>> {
        let ((teller, ack), bytes) = (answer(), size(&message));
        self.0.offer(message, bytes, teller).ok().map(|()| ack)
    }

    /// Stores a message, however many wait: the caller has a limit of its own.
    pub fn push(&self, message: NewMessage) -> Answer<Ack> {
        let ((teller, ack), bytes) = (answer(), size(&message));
        self.0.push(message, bytes, teller);
        ack
    }
}

/// Gives each publisher its ack.
fn acknowledge(tellers: Vec<Teller<Ack>>, results: Results<Ack>) {
    each(tellers, results).for_each(|(teller, result)| drop(teller.tell(result)));
}
