//! The bridge of a hub in this process to a cluster over NATS, and its gateway there.

use std::sync::Arc;

use pyo3::prelude::*;
use tidewire_gateway::NatsGateway;
use tidewire_nats::{BridgeError, BridgeOptions};
use tidewire_node::raw::HubHandle;
use tidewire_proto::generated::limits::{self, Limit};

use crate::errors::error;
use crate::interpreter::PerProcessOwned;
use crate::link::logger::Logger;
use crate::link::settings::Settings;

/// The other nodes of a cluster, and clients of NATS that are no nodes, at a hub of this process.
#[pyclass(frozen, module = "tidewire._tidewire", name = "ClusterBridge")]
pub struct Bridge {
    inner: PerProcessOwned<(NatsGateway, tidewire_nats::Bridge)>,
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
        let logger = Arc::new(Logger::new(log));
        let warnings = Arc::clone(&logger);
        let opening = crate::interpreter::attach::detach(py, || {
            let log = move |line: &str, is_wrong| logger.log(is_wrong, line.to_owned());
            let bridge = tidewire_nats::Bridge::open(hub, nats.clone(), options, log)?;
            Ok((NatsGateway::open(hub, nats, format!("{name}-nats"), move |line| warnings.warn(line)), bridge))
        });
        Ok(Self { inner: PerProcessOwned::new(opening.map_err(failed)?) })
    }
}

#[pymethods]
impl Bridge {
    /// True while the bridge has a connection to the servers.
    #[getter]
    fn is_connected(&self) -> bool {
        self.inner.mine().is_some_and(|(_, bridge)| bridge.is_connected())
    }

    /// Takes no more requests of clients that are no nodes.
    fn goodbye(&self) {
        if let Some((gateway, _)) = self.inner.mine() {
            gateway.goodbye();
        }
    }

    /// Leaves the cluster with a farewell to the other nodes. Operations in progress fail.
    fn close(&self, py: Python<'_>) {
        if let Some((gateway, bridge)) = self.inner.mine() {
            crate::interpreter::attach::detach(py, || {
                gateway.close();
                bridge.close();
            });
        }
    }
}
