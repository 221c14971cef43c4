//! The bridge of a hub in this process to a cluster over NATS.

use pyo3::prelude::*;
use tidewire_link::HubHandle;
use tidewire_nats::{BridgeError, BridgeOptions};
use tidewire_proto::generated::limits::{self, Limit};

use crate::errors::error;
use crate::fork::Own;
use crate::link::hub::Logger;
use crate::link::settings::Settings;

/// The other nodes of a cluster, at a hub of this process.
#[pyclass(frozen, module = "tidewire._tidewire", name = "ClusterBridge")]
pub struct Bridge {
    inner: Own<tidewire_nats::Bridge>,
}

impl Bridge {
    /// Connects a hub, whose own node has this number, to the servers of a URL.
    pub fn open(
        py: Python<'_>,
        hub: &HubHandle,
        url: &str,
        (name, number): (&str, u32),
        settings: &Settings,
        log: Py<PyAny>,
    ) -> PyResult<Self> {
        let failed = |failure: BridgeError| error(py, failure.code().name(), &failure.to_string(), &[]);
        let of = |limit: &Limit| settings.get(limit.name).copied().unwrap_or(limit.default);
        let options = BridgeOptions {
            in_flight: of(&limits::LINK_IN_FLIGHT),
            frame_bytes: of(&limits::LINK_FRAME_BYTES),
            payload_bytes: of(&limits::PAYLOAD_BYTES),
            chunk_bytes: of(&limits::LINK_CHUNK_BYTES),
            heartbeat_ms: of(&limits::LINK_HEARTBEAT_MS),
            ..BridgeOptions::new(name, number)
        };
        let nats = tidewire_nats::Settings::read(url).map_err(|failure| failed(failure.into()))?;
        let said = Logger::new(log);
        let opening = crate::attach::detach(py, || {
            tidewire_nats::Bridge::open(hub, nats, options, move |line, is_wrong| said.say(is_wrong, line.to_owned()))
        });
        Ok(Self { inner: Own::new(opening.map_err(failed)?) })
    }
}

#[pymethods]
impl Bridge {
    /// Whether there is a connection to the servers at present.
    #[getter]
    fn is_connected(&self) -> bool {
        self.inner.mine().is_some_and(tidewire_nats::Bridge::is_connected)
    }

    /// Says goodbye to the other nodes. What is under way fails.
    fn close(&self, py: Python<'_>) {
        if let Some(mine) = self.inner.mine() {
            crate::attach::detach(py, || mine.close());
        }
    }
}
