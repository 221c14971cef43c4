//! Mirror of a stream at the hub that a node has joined, as the federation writes it.

use std::pin::Pin;
use std::sync::Arc;

use tidewire_backend::home::{Page, StreamInfo};
use tidewire_proto::subject::grammar::{MIRROR, STREAMS, scoped_method};

use super::super::wire::Wire;
use crate::calls::client::Client;
use crate::error::Error;
use crate::node::core::Core;

/// Arguments of a call that writes a mirror: the hubs of source and mirror, the name of the source,
/// the position that the page follows, and the page, or the state of the source to open the mirror.
pub(super) type AppendIn =
    ((String, String), String, u64, Option<<Page as Wire>::In>, Option<<StreamInfo as Wire>::In>);

/// A running append. It gives the position of the mirror in its source.
pub(crate) type PendingAppend = Pin<Box<dyn Future<Output = Result<u64, Error>> + Send>>;

/// A mirror at the hub that a node has joined. Its calls may be made twice: the hub drops what it
/// has.
pub(crate) struct MirrorStream {
    client: Client,
    method: String,
    hubs: (String, String),
    source: String,
}

impl MirrorStream {
    /// `hubs` are those of the source and of the mirror.
    pub fn new(core: &Arc<Core>, mirror: &str, hubs: &(String, String), source: &str) -> Self {
        let client = Client::new(Arc::clone(core), STREAMS).idempotent().of_hub(&hubs.0);
        Self { client, method: scoped_method(MIRROR, mirror), hubs: hubs.clone(), source: source.to_owned() }
    }

    /// Makes the mirror if there is none, with the limits of its source, and looks for its
    /// position.
    pub fn open(&self, info: &StreamInfo) -> PendingAppend {
        self.call(0, None, Some(info))
    }

    /// Stores a page that follows a position.
    pub fn append(&self, after: u64, page: &Page) -> PendingAppend {
        self.call(after, Some(page), None)
    }

    fn call(&self, after: u64, page: Option<&Page>, info: Option<&StreamInfo>) -> PendingAppend {
        let arguments = (&self.hubs, &self.source, after, page.map(Wire::out), info.map(Wire::out));
        let call = self.client.call::<u64>(&self.method, &arguments);
        Box::pin(call)
    }
}
