//! Capabilities of a storage backend: its optional features, and the reason for each missing one.

use super::{Capability, HomeError, HomeErrorKind, HomeResult};

/// The capabilities of a storage backend, and the reasons for the missing ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    missing: Vec<(Capability, String)>,
}

impl Capabilities {
    /// A storage backend with all capabilities.
    pub const fn all() -> Self {
        Self { missing: Vec::new() }
    }

    /// A storage backend with all capabilities but these, each with the reason.
    pub fn lacking(missing: &[(Capability, &str)]) -> Self {
        Self { missing: missing.iter().map(|(capability, why)| (*capability, (*why).to_owned())).collect() }
    }

    /// The same without one, with the reason and the fix as a sentence: "the server is older than
    /// 2.11: ...".
    #[must_use]
    pub fn without(mut self, capability: Capability, why: impl Into<String>) -> Self {
        self.missing.push((capability, why.into()));
        self
    }

    /// True if the storage backend has this capability.
    pub fn has(&self, capability: Capability) -> bool {
        self.why_not(capability).is_none()
    }

    /// Why it can't.
    pub fn why_not(&self, capability: Capability) -> Option<&str> {
        self.missing.iter().find(|(missing, _)| *missing == capability).map(|(_, why)| why.as_str())
    }

    /// Refuses a missing capability. `field` is the setting that requires it.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](HomeErrorKind::Unsupported), with the reason.
    pub fn need(&self, capability: Capability, field: &str) -> HomeResult<()> {
        match self.why_not(capability) {
            None => Ok(()),
            Some(why) => Err(HomeError::new(HomeErrorKind::Unsupported, format!("{field}: {why}"))),
        }
    }
}
