use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tidewire_link::Named;
use tidewire_proto::generated::errors::ErrorCode;

use crate::client::Priority;
use crate::discovery::Visibility;
use crate::error::Error;
use crate::exchanging::Exchanging;
use crate::names::random_hex;
use crate::streams::Lease;

/// The header with the id that a call shares with the one it was made in.
pub(crate) const TRACE: &str = "tw-trace";
/// The header that says on whose behalf a call is made; only the gateway of a hub gives it.
pub(crate) const USER: &str = "tw-user";
/// The header that says from where a call comes; only the gateway of a hub gives it.
pub(crate) const ORIGIN: &str = "tw-origin";
/// What it says of those who came over HTTP.
pub(crate) const PUBLIC: &str = "public";

/// The call that a handler works at: who called, and how long that one waits.
#[derive(Clone)]
pub struct Context(Arc<Inner>, Option<Arc<Lease>>);

pub(crate) struct Inner {
    pub service: Arc<str>,
    pub method: Arc<str>,
    pub from: Arc<Named>,
    pub deadline: Option<Instant>,
    pub headers: BTreeMap<String, String>,
    pub lane: usize,
    pub exchange: Arc<Exchanging>,
    pub trace: OnceLock<String>,
    pub origin: Visibility,
    /// On whose behalf, where a gateway says so.
    pub user: Option<String>,
}

impl Context {
    pub(crate) fn new(mut inner: Inner) -> Self {
        if let Some(trace) = inner.headers.remove(TRACE) {
            inner.trace = trace.into();
        }
        inner.user = inner.headers.remove(USER);
        if inner.headers.remove(ORIGIN).is_some_and(|origin| origin == PUBLIC) {
            inner.origin = Visibility::Public;
        }
        Self(Arc::new(inner), None)
    }

    /// The same call, of a service that is active while a lease is held.
    pub(crate) fn under(self, lease: &Arc<Lease>) -> Self {
        Self(self.0, Some(Arc::clone(lease)))
    }

    /// The name of the service.
    pub fn service(&self) -> &str {
        &self.0.service
    }

    /// The name of the method.
    pub fn method(&self) -> &str {
        &self.0.method
    }

    /// The name of the node that called.
    pub fn node(&self) -> &str {
        &self.0.from.name
    }

    /// The user on whose behalf the call is made: that of the token that its caller gave to the gateway of the hub, or that the node that called
    /// joined with. None if nobody has signed in.
    pub fn user(&self) -> Option<&str> {
        let user = self.0.user.as_deref().unwrap_or(&self.0.from.user);
        Some(user).filter(|user| !user.is_empty())
    }

    /// From where the call comes: `Public` if over HTTP, `Private` from a node.
    pub fn origin(&self) -> Visibility {
        self.0.origin
    }

    /// The id that this call shares with the one it was made in, and with those that are made [within](crate::Client::within) it.
    pub fn trace(&self) -> &str {
        self.0.trace.get_or_init(|| random_hex(16))
    }

    /// Until when the caller waits.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// How long the caller still waits; None for ever.
    pub fn remaining(&self) -> Option<Duration> {
        self.0.deadline.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// What the caller added to the call.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.0.headers
    }

    /// How urgent the call is.
    pub fn priority(&self) -> Priority {
        Priority::of_lane(self.0.lane)
    }

    /// The fencing token of a [single active](crate::Node::serve_single) service: greater than that of every instance that was active before. Give it to
    /// stores that can compare it.
    ///
    /// # Errors
    /// [`Error`] with `lease_lost` if this instance is not active any more, or its service is none of which one is active at a time.
    pub fn fence(&self) -> Result<u64, Error> {
        let none = || {
            let text =
                format!("{}: of this service any number is active: serve it with Node::serve_single", self.service());
            Error::new(ErrorCode::LeaseLost, text)
        };
        self.1.as_ref().ok_or_else(none)?.fence()
    }

    /// Whether nobody waits for the answer any more. A handler that awaits is dropped then; one that computes for long should look.
    pub fn is_cancelled(&self) -> bool {
        self.0.exchange.ended().is_some() || self.remaining() == Some(Duration::ZERO)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({}.{} for {:?})", self.service(), self.method(), self.node())
    }
}
