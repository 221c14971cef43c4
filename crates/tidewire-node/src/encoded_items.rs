//! Item streams with their items encoded for the wire.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use serde::Serialize;

use crate::failure::Failure;
use crate::service::result;
use crate::values::Blob;

/// The items of a stream, written as they travel.
pub(crate) struct EncodedItems<S>(Pin<Box<S>>);

impl<S> EncodedItems<S> {
    pub fn new(items: S) -> Self {
        Self(Box::pin(items))
    }
}

impl<O: Serialize, S: Stream<Item = Result<O, Failure>>> Stream for EncodedItems<S> {
    type Item = Result<Blob, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.0.as_mut().poll_next(context);
        next.map(|item| item.map(|item| item.and_then(|item| result("an item", &item))))
    }
}
