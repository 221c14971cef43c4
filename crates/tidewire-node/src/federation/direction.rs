//! Direction of a federation: source link, target link and shared names.

use std::sync::Arc;

use tidewire_core::federation::{HubPath, PathProblem, ShareList};

use crate::federation::statistics::DirectionCounts;
use crate::node::core::Core;
use crate::pending::Signal;

/// One direction between two hubs. Services go from the hub that has them to the one that sees
/// them, and their calls go back.
pub(super) struct Direction {
    /// The side that has the services, and on which subjects are published.
    pub source: Arc<Core>,
    /// The side that sees them.
    pub target: Arc<Core>,
    /// The hub of the source, and that of the target.
    pub hubs: (String, String),
    pub shared: ShareList,
    /// The id of the announced instances.
    pub instance: String,
    /// The first look at the source is over.
    pub refreshed: Signal,
    /// The first attempts to open the mirrors of its streams are over.
    pub opened: Vec<Arc<Signal>>,
    pub closing: Arc<Signal>,
    pub counts: DirectionCounts,
}

impl Direction {
    /// The path of a call, which goes from the hub that sees a service to the hub that has it.
    pub fn path_of_call(&self, path: Option<&str>) -> Result<HubPath, PathProblem> {
        HubPath::parse(path.unwrap_or_default()).step(&self.hubs.1, &self.hubs.0)
    }

    /// The path of a message, which goes the other way.
    pub fn path_of_message(&self, path: Option<&str>) -> Result<HubPath, PathProblem> {
        HubPath::parse(path.unwrap_or_default()).step(&self.hubs.0, &self.hubs.1)
    }

    pub fn log(&self, text: &str) {
        (self.source.log)(&format!("{} to {}: {text}", self.hubs.0, self.hubs.1));
    }
}
