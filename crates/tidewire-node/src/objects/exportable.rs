//! Exportable values: functions, objects and streams that a node may give to another.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tidewire_engine::raw::Mutex;
use tidewire_proto::generated::limits;

use super::Objects;
use super::argument_stream::StreamSlot;
use super::import_handle::ImportHandle;
use crate::error::Error;
use crate::services::method::Method;

/// Default lease of an unused export.
pub(crate) const LEASE: Duration = Duration::from_millis(limits::REMOTE_LEASE_MS.default);

/// Objects, functions and streams of this node that others may call.
#[derive(Clone)]
pub(crate) enum Exportable {
    /// A stream, which the reader of the arguments reads once.
    Items(Arc<StreamSlot>),
    Object(Arc<Shared>),
}

/// A function, or an object with methods.
pub(crate) struct Shared {
    pub kind: Kind,
    pub title: String,
    pub methods: Vec<Arc<Method>>,
    pub lease: Duration,
    /// Error of an object that cannot be exported, for the call to return.
    pub problem: Option<Error>,
    /// The nodes that have exported it.
    pub exporters: Mutex<Vec<Weak<Objects>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Function,
    Object,
    Items,
}

pub(crate) enum OutboundReference {
    Own(Exportable),
    /// A reference that goes back to the receiver, its owner.
    Back(Arc<ImportHandle>),
}

impl OutboundReference {
    /// True if the reference is for one node alone: a stream is read once, and a returned reference
    /// is for its owner.
    pub fn is_bound(&self) -> bool {
        matches!(self, Self::Back(_) | Self::Own(Exportable::Items(_)))
    }
}

/// The same, with the key that was written for it.
#[derive(Clone)]
pub(crate) struct KeyedReference {
    pub key: String,
    pub what: Arc<OutboundReference>,
}

/// Inbound reference of a value, resolved.
pub(crate) enum Target {
    /// Another node owns it.
    Import(Arc<ImportHandle>),
    /// It comes back.
    Own(Exportable),
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Object => "object",
            Self::Items => "items",
        }
    }

    pub fn of(text: &str) -> Option<Self> {
        [Self::Function, Self::Object, Self::Items].into_iter().find(|kind| kind.as_str() == text)
    }
}

impl Shared {
    /// Registers a node that exports this object: the node is notified when the object is disposed
    /// of.
    pub fn add_exporter(&self, objects: &Arc<Objects>) {
        let mut nodes = self.exporters.lock();
        if !nodes.iter().any(|known| known.as_ptr() == Arc::as_ptr(objects)) {
            nodes.push(Arc::downgrade(objects));
        }
    }
}

impl Exportable {
    /// The same for the same object, as long as that is there.
    pub fn address(&self) -> usize {
        match self {
            Self::Items(slot) => Arc::as_ptr(slot) as usize,
            Self::Object(shared) => Arc::as_ptr(shared) as usize,
        }
    }

    pub fn lease(&self) -> Duration {
        match self {
            Self::Items(_) => LEASE,
            Self::Object(shared) => shared.lease,
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Items(_) => Kind::Items,
            Self::Object(shared) => shared.kind,
        }
    }

    /// The name in error messages.
    pub fn title(&self) -> &str {
        match self {
            Self::Items(_) => "an argument",
            Self::Object(shared) => &shared.title,
        }
    }

    /// The method that a call of this name runs.
    pub fn method(&self, name: &str) -> Option<Arc<Method>> {
        match self {
            Self::Items(slot) => (name == super::TAKE).then(|| slot.method()),
            Self::Object(shared) => shared.methods.iter().find(|method| *method.name == *name).cloned(),
        }
    }
}
