//! Statistics of a federation: its link, and the calls and messages in each direction.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;
use serde_json::{Value, json};
use tidewire_engine::raw::Mutex;

/// Counters of one direction, and the names that the other side sees.
#[derive(Default)]
pub(super) struct DirectionCounts {
    pub calls: AtomicU64,
    pub messages: AtomicU64,
    pub refused: AtomicU64,
    pub names: Mutex<SharedNames>,
    /// Mirrors by name, each with the reason if it waits.
    pub mirrors: Mutex<BTreeMap<String, Option<String>>>,
}

/// Names of one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SharedNames {
    /// Names that are visible at the other side at present.
    pub visible: Vec<String>,
    /// Names that are not, each with the last refusal.
    pub refused: BTreeMap<String, String>,
}

/// Calls and messages of one direction of a federation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DirectionStatistics {
    /// Calls that were passed on to the side that has the services and agents.
    pub calls: u64,
    /// Messages that were passed on, and events of streams.
    pub messages: u64,
    /// Calls that did not cross, such as those in a circle.
    pub refused: u64,
    /// Names of services and agents, and of mirrors behind `stream:`.
    pub names: SharedNames,
}

/// A snapshot of a federation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FederationStatistics {
    /// Where the other hub is.
    pub url: String,
    /// The name of the other hub; empty before the first join.
    pub hub: String,
    /// True while there is a link to the other hub.
    pub is_joined: bool,
    /// How often that link was lost.
    pub lost: u64,
    /// Names of this hub at the other one, and the calls from there.
    pub exports: DirectionStatistics,
    /// Names of the other hub at this one, and the calls to there.
    pub imports: DirectionStatistics,
}

impl DirectionCounts {
    pub fn statistics(&self) -> DirectionStatistics {
        let mut names = self.names.lock().clone();
        for (mirror, problem) in &*self.mirrors.lock() {
            let name = format!("stream:{mirror}");
            match problem {
                Some(problem) => drop(names.refused.insert(name, problem.clone())),
                None => names.visible.push(name),
            }
        }
        DirectionStatistics {
            calls: self.calls.load(Relaxed),
            messages: self.messages.load(Relaxed),
            refused: self.refused.load(Relaxed),
            names,
        }
    }
}

impl FederationStatistics {
    /// The row of a federation in the statistics of its node.
    pub fn row(&self) -> Value {
        let (exports, imports) = (&self.exports, &self.imports);
        json!({
            "name": if self.hub.is_empty() { &self.url } else { &self.hub },
            "url": self.url,
            "state": if self.is_joined { "joined" } else { "lost" },
            "joined": self.is_joined,
            "lost": self.lost,
            "handled": exports.calls + exports.messages + imports.calls + imports.messages,
            "calls_in": exports.calls,
            "calls_out": imports.calls,
            "messages_in": imports.messages,
            "messages_out": exports.messages,
            "refused": exports.refused + imports.refused,
            "exported": exports.names.visible,
            "imported": imports.names.visible,
            "not_shared": [&exports.names.refused, &imports.names.refused],
        })
    }
}
