//! Exports of one call, released together when the call is over.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use super::argument_stream::StreamSlot;
use super::{Exportable, Objects, OutboundReference};

/// Objects that one call has exported to its callee; may be empty.
#[derive(Default)]
pub(crate) struct ExportScope {
    objects: Weak<Objects>,
    /// Each with whether it is a stream, which only this call can have.
    keys: Vec<(Arc<str>, bool)>,
    feeds: Vec<Arc<StreamSlot>>,
    /// References on their way back to their owner, who must not see their release before they
    /// arrive.
    backs: Vec<Arc<OutboundReference>>,
}

impl ExportScope {
    pub fn new(objects: &Arc<Objects>) -> Self {
        Self { objects: Arc::downgrade(objects), keys: Vec::new(), feeds: Vec::new(), backs: Vec::new() }
    }

    pub fn add(&mut self, key: Arc<str>, export: &Exportable) {
        self.keys.push((key, matches!(export, Exportable::Items(_))));
        if let Exportable::Items(slot) = export {
            self.feeds.push(Arc::clone(slot));
        }
    }

    pub fn add_back(&mut self, back: Arc<OutboundReference>) {
        self.backs.push(back);
    }

    /// True if an exported argument is bound to its node: the call cannot fail over to another one.
    pub fn is_bound(&self) -> bool {
        !self.feeds.is_empty() || !self.backs.is_empty()
    }

    /// Drops the streams: the call has ended for their readers.
    pub fn close_streams(&self) {
        self.feeds.iter().for_each(|slot| slot.close());
    }

    /// The call has ended, and its reply was read. If the callee never received the call, its
    /// exclusive exports are released; its streams are released in any case.
    pub fn release(&mut self, is_lost: bool) {
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
        self.release(false);
    }
}
