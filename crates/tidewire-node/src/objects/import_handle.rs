//! Import handles: functions, objects and streams of other nodes; their table is
//! `tidewire_core::rpc::imports`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Deserialize;
use tidewire_proto::generated::errors::ErrorCode;

use super::Objects;
use super::exportable::Kind;
use crate::error::Error;

/// Reference in a value, as it is decoded.
#[derive(Deserialize)]
pub(crate) struct WireReference {
    pub kind: String,
    pub key: String,
    #[serde(default)]
    pub node: u32,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    methods: Vec<(String, bool, Option<f64>)>,
}

/// Handle of an object of another node. Its owner is notified when the last handle here is
/// released.
#[derive(derive_more::Debug)]
#[debug("{title} of {owner:?}")]
pub(crate) struct ImportHandle {
    objects: Weak<Objects>,
    pub key: String,
    /// The number of the owner's link.
    pub node: u32,
    pub owner: String,
    pub kind: Kind,
    pub title: String,
    pub methods: Vec<RemoteMethod>,
    /// The number of the own link that it came over.
    own: u32,
    is_disposed: AtomicBool,
}

/// A method of an object of another node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RemoteMethod {
    pub name: String,
    pub is_stream: bool,
    pub timeout: Option<Duration>,
}

impl WireReference {
    /// The import handle of a decoded reference. `own` is the number of this node's link.
    pub fn into_handle(self, objects: Weak<Objects>, own: u32) -> Result<ImportHandle, Error> {
        let is_key = self.key.len() == 32 && self.key.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        let kind = Kind::of(&self.kind).filter(|_| is_key).ok_or_else(malformed)?;
        let offers = |(name, is_stream, seconds): (String, bool, Option<f64>)| {
            let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            RemoteMethod { name, is_stream, timeout: timeout.filter(|timeout| !timeout.is_zero()) }
        };
        let methods: Vec<_> = self.methods.into_iter().map(offers).collect();
        let is_called = matches!(&*methods, [only] if only.name == super::CALL);
        if kind == Kind::Function && !is_called {
            return Err(malformed());
        }
        Ok(ImportHandle {
            objects,
            key: self.key,
            node: self.node,
            owner: self.name,
            kind,
            title: self.title,
            methods,
            own,
            is_disposed: AtomicBool::new(false),
        })
    }
}

fn malformed() -> Error {
    let text =
        "a reference to a function or an object is not of the form that this version knows: run versions that fit";
    Error::new(ErrorCode::WireError, text)
}

impl ImportHandle {
    /// Identity among the handles of one key.
    pub fn identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Where a method of it is called.
    pub fn subject(&self, method: &str) -> String {
        format!("$node.{}.{}.{method}", self.node, self.key)
    }

    pub fn method(&self, name: &str) -> Result<&RemoteMethod, Error> {
        self.methods.iter().find(|method| method.name == name).ok_or_else(|| {
            let known: Vec<_> = self.methods.iter().map(|method| method.name.as_str()).collect();
            let text = format!("{} has no method {name:?}: there are {}", self.title, known.join(", "));
            Error::new(ErrorCode::NoSuchTarget, text)
        })
    }

    /// The node that it came to, as long as it can be called.
    pub fn check(&self) -> Result<Arc<Objects>, Error> {
        if self.is_disposed.load(Ordering::Acquire) {
            return Err(self.gone_error("it was disposed of here"));
        }
        let objects =
            self.objects.upgrade().filter(|objects| objects.number() == Some(self.own) && objects.holds(self));
        objects.ok_or_else(|| self.gone_error("its owner has left, or the link that it came over was lost"))
    }

    pub fn gone_error(&self, why: &str) -> Error {
        let text = format!("{} of {:?}: {why}: ask its owner for it again", self.title, self.owner);
        Error::new(ErrorCode::RemoteGone, text)
    }

    /// Its owner has released it, or is not there any more.
    pub fn lost(&self) {
        if let Some(objects) = self.objects.upgrade() {
            objects.lost(self);
        }
    }

    /// Releases it, and notifies the owner; a second time does nothing.
    pub fn release(&self) {
        if self.is_disposed.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(objects) = self.objects.upgrade() {
            if objects.number() != Some(self.own) {
                objects.lost(self);
            }
            objects.release(self);
        }
    }
}

impl Drop for ImportHandle {
    fn drop(&mut self) {
        self.release();
    }
}
