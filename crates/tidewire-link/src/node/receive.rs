//! Received batch of a link: passes its frames to the session. Compressed payloads are inflated
//! without the lock of the link, so that nobody waits for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidewire_core::link::session::{Event, Fault, Session};
use tidewire_proto::wire::{BegunChunk, Frame, WireError};
use tidewire_sync::MutexGuard;

use super::{ReplyWaiter, Shared, State};
use crate::clock::now_us;

/// Batch of one read. Only one thread may read this link at a time.
pub(super) struct ReceiveBatch<'a> {
    shared: &'a Shared,
    /// None while something is inflated.
    state: Option<MutexGuard<'a, State>>,
    epoch: u32,
    now_us: u64,
    events: Vec<Event<Arc<dyn ReplyWaiter>>>,
    fault: Result<(), Fault>,
    /// The link has got another session meanwhile, which this is not for.
    stale: bool,
    inflated_bytes: usize,
    received_bytes: u64,
}

/// Session events of a received batch.
pub(super) struct ReceivedEvents {
    pub events: Vec<Event<Arc<dyn ReplyWaiter>>>,
    /// Of which connection of the link.
    pub epoch: u32,
    /// When time asks for something next.
    pub due_us: u64,
    pub fault: Result<(), Fault>,
}

impl<'a> ReceiveBatch<'a> {
    pub fn of(shared: &'a Shared) -> Self {
        let state = shared.state.lock();
        Self {
            shared,
            epoch: state.epoch,
            state: Some(state),
            now_us: now_us(),
            events: Vec::new(),
            fault: Ok(()),
            stale: false,
            inflated_bytes: 0,
            received_bytes: 0,
        }
    }

    /// Time has passed.
    pub fn goes_on(&mut self) {
        self.now_us = now_us();
    }

    /// True if the link receives nothing more.
    pub fn is_over(&self) -> bool {
        self.stale || self.fault.is_err()
    }

    /// Bytes that were made of what is compressed.
    pub fn inflated_bytes(&self) -> usize {
        self.inflated_bytes
    }

    pub fn session(&mut self) -> &mut Session<Arc<dyn ReplyWaiter>> {
        let shared = self.shared;
        &mut self.state.get_or_insert_with(|| shared.state.lock()).session
    }

    /// Takes a frame. After a fault it is skipped.
    pub fn received(&mut self, frame: &Frame<'_>) {
        self.received_bytes += frame.bytes.len() as u64;
        self.hear(|session, now_us, events| session.received(frame, now_us, events));
    }

    /// So much of a chunk was written to where it belongs.
    pub fn filled(&mut self, chunk: &mut BegunChunk, count: usize) {
        self.received_bytes += count as u64;
        self.hear(|session, now_us, events| session.filled(chunk, count, now_us, events));
    }

    /// Records a read that is not a frame.
    pub fn garbled(&mut self, read: Result<(), WireError>) {
        if let (Err(error), Ok(())) = (read, &self.fault) {
            self.fault = Err(error.into());
        }
    }

    pub fn end(mut self) -> ReceivedEvents {
        let due_us = self.session().next_us();
        self.shared.received_bytes.fetch_add(self.received_bytes, Ordering::Relaxed);
        ReceivedEvents { events: self.events, epoch: self.epoch, due_us, fault: self.fault }
    }

    fn hear(
        &mut self,
        take: impl FnOnce(
            &mut Session<Arc<dyn ReplyWaiter>>,
            u64,
            &mut Vec<Event<Arc<dyn ReplyWaiter>>>,
        ) -> Result<(), Fault>,
    ) {
        if self.is_over() {
            return;
        }
        let (shared, now_us) = (self.shared, self.now_us);
        let state = self.state.get_or_insert_with(|| shared.state.lock());
        self.fault = take(&mut state.session, now_us, &mut self.events);
        if let Some(mut inflating) = state.session.to_inflate() {
            self.state = None;
            self.inflated_bytes += inflating.inflate();
            self.goes_on();
            let state = self.state.insert(shared.state.lock());
            self.stale = state.epoch != self.epoch;
            if !self.stale {
                state.session.inflated(inflating, self.now_us, &mut self.events);
            }
        }
    }
}
