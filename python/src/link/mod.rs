//! Links of a node: conversions between Python values and the frames of links.

mod bridge;
mod call_future;

mod client_method;
mod directory;
mod federation;
mod flush_batch;
mod http;
mod hub;
mod hub_link;
mod inbound;
mod inbound_call;
mod inbound_call_run;
mod instance_endpoint;
mod logger;
mod loop_inbox;
mod mailbox_delivery;
mod native_stream;
mod reader;
mod reply_slot;
mod settings;
mod steps_future;
mod stream;
mod watchdog;

pub use bridge::Bridge;
pub use client_method::{NativeMethod, Route};
pub use directory::{Directory, agent_subject, release_problem, service_subject};
pub use federation::{Federation, federate};
pub use http::{Gateway, node_metrics, node_series};
pub use hub::{HomeServer, Hub, Listening, check_address};
pub use inbound::{RemoteCall, RemoteMessage};
pub use inbound_call_run::InboundCallRun;
pub use instance_endpoint::InstanceEndpoint;
pub use mailbox_delivery::Publication;
pub use native_stream::NativeStream;

pub use call_future::DeferredCall;
pub use hub_link::{Link, LinkSubscription};
pub use stream::RemoteStream;

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidewire_engine::raw::Mutex;
use tidewire_engine::raw::PerProcess;
use tidewire_node::raw::{OutgoingPayload, Payload, PayloadParts as _, Refused, Runtime};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;
use tidewire_proto::subject::grammar::{Target, target};
use tidewire_proto::wire::{FieldsWriter, WireError};

use crate::errors::error;
use crate::interpreter::once::Once;
use crate::interpreter::py_ref::PyRef;
use crate::values::Blob;

static RUNTIME: PerProcess<Mutex<Option<Runtime>>> = PerProcess::new();

/// The thread of links of this process.
fn runtime() -> PyResult<Runtime> {
    let mut place = RUNTIME.get().lock();
    if let Some(runtime) = &*place {
        return Ok(runtime.clone());
    }
    let runtime = Runtime::start("tidewire")?;
    *place = Some(runtime.clone());
    Ok(runtime)
}

/// Headers as fields of a frame.
fn fields(py: Python<'_>, headers: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<u8>> {
    let mut out = Vec::new();
    let Some(headers) = headers else { return Ok(out) };
    let mut writer = FieldsWriter::new(&mut out);
    for (name, value) in headers {
        let (name, value): (String, String) = (name.extract()?, value.extract()?);
        writer.add(&name, value.as_bytes()).map_err(|broken| wire(py, &format!("headers: {name:?}"), &broken))?;
    }
    Ok(out)
}

fn wire(py: Python<'_>, title: &str, broken: &WireError) -> PyErr {
    error(py, broken.code().name(), &format!("{title}: {broken}"), &[])
}

/// The error for a caller whose frame was not sent.
fn refused(py: Python<'_>, title: &str, refused: &Refused) -> PyErr {
    let class = match refused {
        Refused::InFlight { .. } | Refused::Full { .. } => "LimitExceeded",
        Refused::TooLong { .. } => "PayloadTooLarge",
        Refused::Unauthorized { .. } => "Unauthorized",
        Refused::Closing | Refused::Over => "LinkLost",
        Refused::Wire(WireError::Subject(problem)) => return error(py, "InvalidSubject", problem, &[]),
        Refused::Wire(broken) => broken.code().name(),
    };
    let raised = error(py, class, &format!("{}: {refused}", titled(title)), &[]);
    if !matches!(refused, Refused::Closing) {
        return raised;
    }
    let _ = raised.value(py).setattr("untaken", true);
    of_link(py, raised)
}

/// The error that a call has failed with: its number and its text; without one the link was lost.
fn failed(py: Python<'_>, title: &str, number: u16, text: Option<&Payload>) -> PyErr {
    let Some(text) = text else {
        let what = "the link to the hub was lost before an answer came: call again once it is back";
        let text = format!("{}: {what}", titled(title));
        return of_link(py, error(py, "LinkLost", &text, &[]));
    };
    reply_error(py, title, number, text.bytes())
}

fn reply_error(py: Python<'_>, title: &str, number: u16, payload: &[u8]) -> PyErr {
    let code = ErrorCode::from_number(number);
    if code == Some(ErrorCode::RemoteError)
        && let Ok(raised) = crate::values::decode(py, payload, None)
    {
        return PyErr::from_value(raised);
    }
    let text = String::from_utf8_lossy(payload);
    let class = code.map_or("TidewireError", ErrorCode::name);
    let raised = error(py, class, &format!("{}: {text}", titled(title)), &[]);
    match code {
        Some(ErrorCode::NodeStopped) => {
            // It was not taken: another node may take it, or this one when it is back.
            let _ = raised.value(py).setattr("retryable", true);
        }
        Some(ErrorCode::Overloaded) => raised.value(py).setattr("untaken", true).unwrap_or_default(),
        Some(ErrorCode::LinkLost) => return of_link(py, raised),
        _ => {}
    }
    raised
}

/// The subject of a call for errors, in the terms of its caller.
fn titled(subject: &str) -> Cow<'_, str> {
    match target(subject) {
        Some(Target::Service { service, method }) => return format!("{service}.{method}").into(),
        Some(Target::Instance { service, instance, method }) => {
            return format!("{service}.{method} of the instance {instance:?}").into();
        }
        Some(Target::Agent(id)) if !id.starts_with('~') => return format!("agent {id:?}").into(),
        _ => {}
    }
    match *subject.split('.').collect::<Vec<_>>() {
        ["$node", _, key, method] => format!("{method} of the object {:?}", key.get(..8).unwrap_or(key)).into(),
        _ => subject.into(),
    }
}

/// Marks an error of the link itself, as opposed to one that a handler raised.
fn of_link(py: Python<'_>, raised: PyErr) -> PyErr {
    // An exception takes any attribute; without this one a call is not made again.
    let _ = raised.value(py).setattr("of_link", true);
    raised
}

/// The reader that makes objects of the references in values from a link.
#[derive(Clone)]
pub struct ReferenceReader(Arc<Once<PyRef<PyAny>>>);

impl ReferenceReader {
    pub fn new() -> Self {
        Self(Arc::new(Once::new()))
    }

    /// From now on, this function does.
    pub fn take_with(&self, py: Python<'_>, hook: Py<PyAny>) {
        self.0.set(py, hook.into());
    }

    /// Reads a value.
    pub fn decode<'py>(&self, py: Python<'py>, blob: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        crate::values::decode(py, blob, self.0.get(py).map(|hook| hook.bind(py)))
    }

    /// Reads the value of a message, which is used up by it.
    pub fn use_up<'py>(&self, py: Python<'py>, payload: (Vec<u8>, usize)) -> PyResult<Bound<'py, PyAny>> {
        crate::values::use_up(py, payload, self.0.get(py).map(|hook| hook.bind(py)))
    }
}

thread_local! {
    /// The number of the node that sent the call whose value is being read; 0 for other values.
    static SENDER: Cell<u32> = const { Cell::new(0) };
}

/// The number of the node that sent the call whose value this thread is reading; None for other
/// values.
#[pyfunction]
pub fn sender_of_value() -> Option<u32> {
    Some(SENDER.get()).filter(|number| *number != 0)
}

/// Reads something that a node has sent.
fn sent_by<T>(node: u32, read: impl FnOnce() -> T) -> T {
    let before = SENDER.replace(node);
    let found = read();
    SENDER.set(before);
    found
}

/// Sends without the interpreter what takes its time to be compressed.
fn detached<T: Send>(py: Python<'_>, long: bool, send: impl FnOnce() -> T + Send) -> T {
    if long { crate::interpreter::attach::detach(py, send) } else { send() }
}

/// A blob to send: a long one is stored until its last chunk has gone.
fn sending(blob: &mut Blob) -> OutgoingPayload<'_> {
    if blob.bytes() > limits::LINK_CHUNK_BYTES.default as usize {
        return OutgoingPayload::Long(Box::new(std::mem::replace(blob, Blob::Whole(Vec::new()))));
    }
    match blob {
        Blob::Whole(all) => OutgoingPayload::Short(all),
        stored @ Blob::Kept(..) => OutgoingPayload::Pieces(stored),
    }
}
