//! Endpoint of exported objects: inbound calls of the functions and objects of this node.

use std::sync::{Arc, Weak};

use tidewire_core::rpc::exports::Gone;
use tidewire_link::{Call, Exchange, Handler, OutgoingPayload};
use tidewire_proto::generated::errors::ErrorCode;

use super::{Exportable, Objects};
use crate::error::Error;
use crate::services::inbound_call::{STOPPED, refuse};
use crate::services::instance::{ServiceInstance, admit};
use crate::values::{self, Value};

/// Nothing, as a value.
const NIL: &[u8] = &[0xc0];

/// The own subjects of a node, as its link knows them.
pub(crate) struct ExportSubscription {
    pub objects: Weak<Objects>,
    /// Runs the calls.
    pub instance: Arc<ServiceInstance>,
}

/// A running call of an object: it suspends the object's lease.
pub(crate) struct ExportPin {
    objects: Weak<Objects>,
    key: Arc<str>,
}

impl Handler for ExportSubscription {
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        let Some(objects) = self.objects.upgrade() else {
            refuse(call, ErrorCode::NodeStopped, STOPPED);
            return None;
        };
        let subject = call.head().subject.to_owned();
        let what = subject.splitn(3, '.').nth(2).unwrap_or_default();
        let done = match what {
            "claim" => objects.handle_claim(&call),
            "release" => objects.handle_release(&call),
            _ => return objects.admit(&self.instance, call, what),
        };
        match done {
            Ok(()) => reply_nil(call),
            Err(error) => refuse(call, error.code(), error.message()),
        }
        None
    }
}

fn gone_error(why: Gone) -> Error {
    Error::new(ErrorCode::RemoteGone, why.to_string())
}

fn reply_nil(call: Call) {
    let flusher = call.flusher();
    // The caller may have left meanwhile.
    let _ = call.reply(OutgoingPayload::Short(NIL));
    flusher.flush();
}

impl Objects {
    fn handle_claim(self: &Arc<Self>, call: &Call) -> Result<(), Error> {
        let keys: Vec<String> = values::read("claim", call.message.payload())?;
        let (now_us, origin) = (self.now_us(), call.head().origin);
        let exports = &mut self.state.lock().exports;
        keys.iter().try_for_each(|key| exports.claim(key, &call.from.name, origin, now_us)).map_err(gone_error)
    }

    fn handle_release(self: &Arc<Self>, call: &Call) -> Result<(), Error> {
        let pairs: Vec<Value> = values::read("release", call.message.payload())?;
        for pair in pairs.chunks_exact(2) {
            let (Some(key), Some(count)) = (pair[0].as_str(), pair[1].as_u64()) else { continue };
            self.change(|state| state.exports.release(key, &call.from.name, call.head().origin, count));
        }
        Ok(())
    }

    fn admit(self: &Arc<Self>, instance: &Arc<ServiceInstance>, call: Call, what: &str) -> Option<Arc<dyn Exchange>> {
        let (key, name) = what.split_once('.').unwrap_or((what, ""));
        let (export, busy) = match self.find_export(&call, key) {
            Ok(found) => found,
            Err(error) => {
                refuse(call, error.code(), error.message());
                return None;
            }
        };
        let Some(method) = export.method(name) else {
            let text = format!("{} has no method {name:?}", export.title());
            refuse(call, ErrorCode::NoSuchTarget, &text);
            return None;
        };
        admit(instance, call, method, Some(busy))
    }

    fn find_export(self: &Arc<Self>, call: &Call, key: &str) -> Result<(Exportable, ExportPin), Error> {
        let exports = &mut self.state.lock().exports;
        let export = exports.used(key, &call.from.name, call.head().origin, self.now_us()).map_err(gone_error)?.clone();
        exports.begins(key);
        Ok((export, ExportPin { objects: Arc::downgrade(self), key: key.into() }))
    }
}

impl Drop for ExportPin {
    fn drop(&mut self) {
        if let Some(objects) = self.objects.upgrade() {
            objects.idle(&self.key);
        }
    }
}
