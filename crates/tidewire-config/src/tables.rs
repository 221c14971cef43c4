//! Tables of numbers: agents and pools, links, services. Their keys are the limits that name the
//! table in `spec/limits.toml`.

use std::collections::BTreeMap;

use tidewire_proto::generated::limits::Limit;

use crate::Config;
use crate::generated::{BROKER, LINKS, SERVICES};

/// A table of numbers below the top level.
pub(crate) struct Sub {
    pub(crate) name: &'static str,
    pub(crate) keys: &'static [&'static Limit],
    pub(crate) of: fn(&Config) -> &Numbers,
    pub(crate) of_mut: fn(&mut Config) -> &mut Numbers,
}

pub(crate) static SUBS: [Sub; 3] = [
    Sub { name: "broker", keys: BROKER, of: |c| &c.broker, of_mut: |c| &mut c.broker },
    Sub { name: "links", keys: LINKS, of: |c| &c.links, of_mut: |c| &mut c.links },
    Sub { name: "services", keys: SERVICES, of: |c| &c.services, of_mut: |c| &mut c.services },
];

/// The numbers of one table, by the names of their limits in `spec/limits.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Numbers {
    values: BTreeMap<&'static str, u64>,
}

impl Numbers {
    pub(crate) fn defaults(keys: &[&'static Limit]) -> Self {
        Self { values: keys.iter().map(|limit| (limit.name, limit.default)).collect() }
    }

    /// The value of a key, if there is one of this name.
    pub fn get(&self, key: &str) -> Option<u64> {
        self.values.get(key).copied()
    }

    /// All keys with their values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.values.iter().map(|(key, value)| (*key, *value))
    }

    pub(crate) fn set(&mut self, limit: &'static Limit, value: u64) {
        self.values.insert(limit.name, value);
    }
}

impl Sub {
    /// All keys of the table.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|limit| limit.name).collect()
    }
}
