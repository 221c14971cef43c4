//! Exports of one call, released together when the call is over.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use super::argument_stream::StreamSlot;
use super::{Exportable, Objects, OutboundReference};

/// What one call has given to its callee; or nothing.
#[derive(Default)]
pub(crate) struct ExportScope {
    objects: Weak<Objects>,
    /// Each with whether it is a stream, which only this call can have.
    keys: Vec<(Arc<str>, bool)>,
    feeds: Vec<Arc<StreamSlot>>,
    /// What goes back to its owner, who must not be told before that it was let go.
    backs: Vec<Arc<OutboundReference>>,
}

impl ExportScope {
    pub fn new(objects: &Arc<Objects>) -> Self {
        Self { objects: Arc::downgrade(objects), keys: Vec::new(), feeds: Vec::new(), backs: Vec::new() }
    }

    pub fn add(&mut self, key: Arc<str>, thing: &Exportable) {
        self.keys.push((key, matches!(thing, Exportable::Items(_))));
        if let Exportable::Items(slot) = thing {
            self.feeds.push(Arc::clone(slot));
        }
    }

    pub fn add_back(&mut self, back: Arc<OutboundReference>) {
        self.backs.push(back);
    }

    /// Whether what it has given can't be given to another node, too.
    pub fn is_bound(&self) -> bool {
        !self.feeds.is_empty() || !self.backs.is_empty()
    }

    /// Drops its streams: the call has ended for whoever reads them.
    pub fn close_streams(&self) {
        self.feeds.iter().for_each(|slot| slot.close());
    }

    /// The call has ended, and its answer was read. If its callee never had it, what only this call
    /// has given is let go; its streams are in any case.
    pub fn ended(&mut self, is_lost: bool) {
        self.close_streams();
        let Some(objects) = self.objects.upgrade() else { return };
        for (key, is_stream) in std::mem::take(&mut self.keys) {
            objects.idle(&key);
            if is_stream || is_lost {
                objects.remove(&key, is_stream);
            }
        }
    }

    /// Ready when all streams were dropped.
    pub fn poll_closed(&self, context: &Context<'_>) -> Poll<()> {
        let is_open = self.feeds.iter().any(|slot| slot.poll_closed(context).is_pending());
        if is_open { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for ExportScope {
    fn drop(&mut self) {
        self.ended(false);
    }
}
