//! Answers whose content must not be lost: content that arrives after the answer was dropped is
//! given back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Answer, Delivery, Fetch, Grant, Home, HomeResult, Settle, Settlement};

/// A pending answer. If it is dropped early, it gives back what has arrived so far; the storage
/// backend gives back what arrives later.
#[derive(derive_more::Debug)]
#[must_use = "what it brings goes back when it is dropped"]
#[debug("Asked")]
pub struct PendingAnswer<T> {
    answer: Answer<T>,
    back: Option<Box<dyn FnOnce(T) + Send>>,
}

/// Fetches from a consumer.
pub fn fetch(home: &Arc<dyn Home>, stream: &str, consumer: &str, fetch: Fetch) -> PendingAnswer<Vec<Delivery>> {
    let answer = home.fetch(stream, consumer, fetch);
    let (home, stream, consumer) = (Arc::clone(home), stream.to_owned(), consumer.to_owned());
    let back = move |deliveries: Vec<Delivery>| release(&*home, &stream, &consumer, deliveries, || {});
    PendingAnswer { answer, back: Some(Box::new(back)) }
}

/// Asks for a lease.
pub fn acquire(home: &Arc<dyn Home>, name: &str, holder: &str, ttl_us: u64, wait_us: u64) -> PendingAnswer<Grant> {
    let answer = home.acquire(name, holder, ttl_us, wait_us);
    let (home, name) = (Arc::clone(home), name.to_owned());
    PendingAnswer { answer, back: Some(Box::new(move |grant| home.release(&name, grant.fence).then(drop))) }
}

/// Releases deliveries that nobody has begun with, and then calls `done`. A delivery whose release
/// fails is redelivered after its ack wait.
pub fn release(
    home: &dyn Home,
    stream: &str,
    consumer: &str,
    deliveries: Vec<Delivery>,
    done: impl FnOnce() + Send + 'static,
) {
    let released =
        |Delivery { event, ticket, .. }| Settle { sequence: event.sequence, ticket, how: Settlement::Release };
    if !deliveries.is_empty() {
        home.settle(stream, consumer, deliveries.into_iter().map(released).collect()).then(|_| done());
    }
}

impl<T> From<Answer<T>> for PendingAnswer<T> {
    /// An answer whose content need not be given back.
    fn from(answer: Answer<T>) -> Self {
        Self { answer, back: None }
    }
}

impl<T> Future for PendingAnswer<T> {
    type Output = HomeResult<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.answer).poll(context);
        if polled.is_ready() {
            self.back = None;
        }
        polled
    }
}

// A result is moved out whole, never pinned.
impl<T> Unpin for PendingAnswer<T> {}

impl<T> Drop for PendingAnswer<T> {
    fn drop(&mut self) {
        let Some(back) = self.back.take() else { return };
        if let Some(Ok(come)) = self.answer.give_up() {
            back(come);
        }
    }
}
