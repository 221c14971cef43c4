//! Source of a mirror: the stream of one hub, which another hub reads from a position on.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tidewire_backend::home::pending_answer::PendingAnswer;
use tidewire_backend::home::{Page, Read, Start, StreamInfo};
use tidewire_proto::subject::grammar::{SOURCE, STREAMS, scoped_method};

use super::super::conventions::{LONG_WAIT, micros};
use super::super::home_request::{HomeCall, refused, written};
use super::super::wire::Wire;
use crate::calls::call_options::DEFAULT_TIMEOUT;
use crate::calls::client::Client;
use crate::error::Error;
use crate::node::core::Core;

/// Events of one page, and their bytes. Two pages are on their way at most.
const PAGE_EVENTS: u32 = 500;
const PAGE_BYTES: u32 = 1 << 20;

type ReadIn = (u64, u32, u32, u64);
type SourceState = (<Page as Wire>::In, <StreamInfo as Wire>::In);

/// A running read: a page of events, and the state of the stream after it.
pub(crate) type PendingRead = Pin<Box<dyn Future<Output = Result<(Page, StreamInfo), Error>> + Send>>;

/// A stream of the hub that a node has joined.
pub(crate) struct SourceStream {
    client: Client,
    method: String,
}

impl SourceStream {
    /// `reader` is the hub that reads it.
    pub fn new(core: &Arc<Core>, stream: &str, reader: &str) -> Self {
        let client = Client::new(Arc::clone(core), STREAMS).idempotent().of_hub(reader);
        Self { client, method: scoped_method(SOURCE, stream) }
    }

    /// Its state, with a page of no events.
    pub fn look(&self) -> PendingRead {
        self.call(0, Duration::ZERO)
    }

    /// Its next events from a sequence on, which is at least 1. It waits for them.
    pub fn read(&self, start: u64) -> PendingRead {
        self.call(start, LONG_WAIT)
    }

    fn call(&self, start: u64, wait: Duration) -> PendingRead {
        let client = self.client.clone().timeout(wait + DEFAULT_TIMEOUT);
        let call = client.call::<SourceState>(&self.method, &(start, PAGE_EVENTS, PAGE_BYTES, micros(wait)));
        Box::pin(async move {
            let (page, info) = call.await?;
            Ok((Page::read(page)?, StreamInfo::read(info)?))
        })
    }
}

/// Reads a page of a stream, and its state. Without a start it reads the state alone.
pub(super) fn read(stream: String, (start, max_messages, max_bytes, wait_us): ReadIn) -> HomeCall {
    Box::new(move |home, leaving| {
        let (start, wait_us) = (Some(start).filter(|start| *start > 0), wait_us.min(micros(LONG_WAIT)));
        let page = start.map(|start| {
            let (start, stop, filter) = (Start::Sequence(start), None, Vec::new());
            home.read(&stream, Read { start, stop, filter, max_messages, max_bytes, wait_us })
        });
        let (home, leaving) = (Arc::clone(home), Arc::clone(leaving));
        Ok(Box::pin(async move {
            let page = match page {
                Some(answer) => leaving.until(PendingAnswer::from(answer)).await.map_err(refused)?,
                None => Page { events: Vec::new(), next: 0, last: 0 },
            };
            let info = home.stream_info(&stream).await.map_err(refused)?;
            written(&(page.out(), info.out()))
        }))
    })
}
