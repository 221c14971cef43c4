//! A stream that counts, with an end of each kind.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use tidewire_node::Failure;

use super::OnDrop;

/// Counts up to an end, and then fails or waits.
pub struct Count {
    pub next: i64,
    pub end: i64,
    pub at_end: AtEnd,
    pub written: Arc<AtomicUsize>,
    /// Tells of the end of the stream.
    pub _ends: Option<OnDrop>,
}

#[derive(Clone, Copy, PartialEq)]
pub enum AtEnd {
    Stop,
    Fail,
    Panic,
    Wait,
}

impl Stream for Count {
    type Item = Result<i64, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.next < self.end {
            self.next += 1;
            self.written.fetch_add(1, Ordering::SeqCst);
            return Poll::Ready(Some(Ok(self.next - 1)));
        }
        match self.at_end {
            AtEnd::Stop => Poll::Ready(None),
            AtEnd::Fail => Poll::Ready(Some(Err(Failure::new("test:Broken", "it broke")))),
            AtEnd::Panic => panic!("it panicked"),
            AtEnd::Wait => Poll::Pending,
        }
    }
}
