//! The context of a call: its caller, its deadline and its headers, for the handler that works at
//! it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tidewire_engine::raw::clock;
use tidewire_link::Named;
use tidewire_proto::generated::errors::ErrorCode;

use crate::calls::priority::Priority;
use crate::discovery::Visibility;
use crate::error::Error;
use crate::names::random_hex;
use crate::services::inbound_call::{Ended, InboundCallState};

/// The header with the id that a call shares with the one it was made in.
pub(crate) const TRACE: &str = "tw-trace";
/// The headers of W3C Trace Context and Baggage. Calls [within](crate::Client::within) a call, and
/// events that its handler stores, inherit them.
pub const TRACE_CONTEXT: [&str; 3] = ["traceparent", "tracestate", "baggage"];
/// The header with the user of a call; only the gateway of a hub sets it.
pub(crate) const USER: &str = "tw-user";
/// The header with the origin of a call; only the gateway of a hub sets it.
pub(crate) const ORIGIN: &str = "tw-origin";
/// The value of [`ORIGIN`] for callers over HTTP.
pub(crate) const PUBLIC: &str = "public";

/// The call that a handler works at: who called, and how long that one waits.
#[derive(Clone, derive_more::Debug)]
#[debug("Context({}.{} for {:?})", self.service(), self.method(), self.node())]
pub struct Context(Arc<Inner>, Active);

/// The fence of a lease, while it is held.
pub(crate) type Fence = dyn Fn() -> Result<u64, Error> + Send + Sync;

/// Lease or fence under which a single active service is active.
#[derive(Clone)]
enum Active {
    /// Of its service any number is.
    Any,
    Under(Arc<Fence>),
    /// Under nothing, for a test.
    With(u64),
}

pub(crate) struct Inner {
    pub service: Arc<str>,
    pub method: Arc<str>,
    pub from: Arc<Named>,
    pub deadline: Option<Instant>,
    pub headers: BTreeMap<String, String>,
    pub lane: usize,
    pub exchange: Arc<InboundCallState>,
    pub trace: OnceLock<String>,
    pub origin: Visibility,
    /// The user, if a gateway names one.
    pub user: Option<String>,
}

impl Context {
    pub(crate) fn new(mut inner: Inner) -> Self {
        let of_parent = |parent: &String| parent.split('-').nth(1).filter(|id| id.len() == 32).map(str::to_owned);
        let trace = inner.headers.remove(TRACE);
        if let Some(trace) = trace.or_else(|| inner.headers.get(TRACE_CONTEXT[0]).and_then(of_parent)) {
            inner.trace = trace.into();
        }
        inner.user = inner.headers.remove(USER);
        if inner.headers.remove(ORIGIN).is_some_and(|origin| origin == PUBLIC) {
            inner.origin = Visibility::Public;
        }
        Self(Arc::new(inner), Active::Any)
    }

    /// The same call, of a service that is active while a lease is held.
    pub(crate) fn under(self, fence: &Arc<Fence>) -> Self {
        Self(self.0, Active::Under(Arc::clone(fence)))
    }

    /// The context of a call that no node has made, for tests of handlers; unset fields have their
    /// defaults.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tidewire_node::{Context, Failure};
    ///
    /// struct Pricing;
    ///
    /// impl Pricing {
    ///     async fn who(&self, call: Context) -> Result<String, Failure> {
    ///         let user = call.user().ok_or_else(|| Failure::new("shop:NoUser", "sign in"))?;
    ///         Ok(format!("{user} at {}", call.node()))
    ///     }
    /// }
    ///
    /// # struct Noop;
    /// # impl std::task::Wake for Noop { fn wake(self: std::sync::Arc<Self>) {} }
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let (waker, mut future) = (std::sync::Arc::new(Noop).into(), std::pin::pin!(future));
    /// #     let mut context = std::task::Context::from_waker(&waker);
    /// #     loop { if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) { return value } }
    /// # }
    /// let call = Context::detached("pricing", "who").node("shop-1").user("ada").timeout(Duration::from_secs(2)).build();
    /// assert_eq!(block_on(Pricing.who(call))?, "ada at shop-1");
    /// assert!(block_on(Pricing.who(Context::detached("pricing", "who").build())).is_err());
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn detached(service: &str, method: &str) -> Detached {
        Detached {
            active: Active::Any,
            named: Named { name: "caller".to_owned(), ..Named::default() },
            inner: Inner {
                service: Arc::from(service),
                method: Arc::from(method),
                from: Arc::default(),
                deadline: None,
                headers: BTreeMap::new(),
                lane: Priority::Normal as usize,
                exchange: Arc::default(),
                trace: OnceLock::new(),
                origin: Visibility::Private,
                user: None,
            },
        }
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

    /// The user on whose behalf the call is made: the user of the token that the caller sent to the
    /// gateway of the hub, or with which the calling node joined. None without a login.
    pub fn user(&self) -> Option<&str> {
        let user = self.0.user.as_deref().unwrap_or(&self.0.from.user);
        Some(user).filter(|user| !user.is_empty())
    }

    /// From where the call comes: `Public` if over HTTP, `Private` from a node.
    pub fn origin(&self) -> Visibility {
        self.0.origin
    }

    /// The id that this call shares with the one it was made in, and with those that are made
    /// [within](crate::Client::within) it.
    pub fn trace(&self) -> &str {
        self.0.trace.get_or_init(|| random_hex(16))
    }

    /// The headers of the trace context, for messages and events that the handler publishes.
    pub fn trace_context(&self) -> impl Iterator<Item = (&str, &str)> {
        TRACE_CONTEXT.into_iter().filter_map(|name| Some((name, self.headers().get(name)?.as_str())))
    }

    /// Until when the caller waits.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// Remaining time of the caller; None without a deadline.
    pub fn remaining(&self) -> Option<Duration> {
        self.0.deadline.map(|at| at.saturating_duration_since(clock::now()))
    }

    /// Headers that the caller added to the call.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.0.headers
    }

    /// How urgent the call is.
    pub fn priority(&self) -> Priority {
        Priority::of_lane(self.0.lane)
    }

    /// The fencing token of a [single active](crate::Node::serve_single) service: greater than that
    /// of every instance that was active before. Give it to stores that can compare it.
    ///
    /// # Errors
    /// [`Error`] with `lease_lost` if this instance is not active any more, or its service is none
    /// of which one is active at a time.
    pub fn fence(&self) -> Result<u64, Error> {
        match &self.1 {
            Active::Under(fence) => fence(),
            Active::With(fence) => Ok(*fence),
            Active::Any => {
                let fix = "serve it with Node::serve_single";
                let text = format!("{}: of this service any number is active: {fix}", self.service());
                Err(Error::new(ErrorCode::LeaseLost, text))
            }
        }
    }

    /// True once no caller waits for the reply. An async handler is dropped then; a handler with
    /// long computations should poll this.
    pub fn is_cancelled(&self) -> bool {
        self.0.exchange.ended().is_some() || self.remaining() == Some(Duration::ZERO)
    }
}

/// Builder of a context for a call that no node has made; see [`Context::detached`].
#[derive(derive_more::Debug)]
#[must_use = "build() gives the context"]
#[debug("Detached({}.{} for {:?})", self.inner.service, self.inner.method, self.named.name)]
pub struct Detached {
    inner: Inner,
    named: Named,
    active: Active,
}

impl Detached {
    /// The name of the calling node; `caller` by default.
    pub fn node(mut self, name: &str) -> Self {
        name.clone_into(&mut self.named.name);
        self
    }

    /// The user on whose behalf the call is made.
    pub fn user(mut self, user: &str) -> Self {
        self.inner.user = Some(user.to_owned());
        self
    }

    /// Remaining time of the caller, from now on; unlimited by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.inner.deadline = clock::now().checked_add(timeout);
        self
    }

    /// Something that the caller added to the call.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.inner.headers.insert(name.to_owned(), value.to_owned());
        self
    }

    /// How urgent the call is.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.inner.lane = priority as usize;
        self
    }

    /// It comes over HTTP, by the gateway of a hub.
    pub fn over_http(mut self) -> Self {
        self.inner.origin = Visibility::Public;
        self
    }

    /// Its service is the active one, with this fencing token; see [`Context::fence`].
    pub fn fence(mut self, fence: u64) -> Self {
        self.active = Active::With(fence);
        self
    }

    /// Nobody waits for the answer any more.
    pub fn cancelled(self) -> Self {
        self.inner.exchange.end(Ended::Gone);
        self
    }

    /// The context.
    pub fn build(mut self) -> Context {
        self.inner.from = Arc::new(self.named);
        Context(Arc::new(self.inner), self.active)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Context, ErrorCode};
    use crate::calls::priority::Priority;
    use crate::discovery::Visibility;

    #[test]
    fn a_call_that_no_node_has_made_is_as_it_is_said_to_be() {
        let plain = Context::detached("pricing", "quote").build();
        assert_eq!((plain.service(), plain.method(), plain.node(), plain.user()), ("pricing", "quote", "caller", None));
        assert_eq!((plain.deadline(), plain.origin(), plain.priority()), (None, Visibility::Private, Priority::Normal));
        assert!(plain.headers().is_empty() && !plain.is_cancelled());
        assert_eq!(plain.trace(), plain.clone().trace());

        let call = Context::detached("pricing", "quote").node("shop-1").user("ada").header("tenant", "x");
        let call = call.timeout(Duration::from_secs(3_600)).priority(Priority::Urgent).over_http().build();
        assert_eq!((call.node(), call.user(), call.headers()["tenant"].as_str()), ("shop-1", Some("ada"), "x"));
        assert_eq!((call.origin(), call.priority()), (Visibility::Public, Priority::Urgent));
        assert_eq!(Context::detached("pricing", "quote").fence(7).build().fence().expect("it is active"), 7);
        assert_eq!(call.fence().expect_err("any number is active").code(), ErrorCode::LeaseLost);
        assert!(call.remaining().is_some_and(|left| left > Duration::from_secs(3_000)) && !call.is_cancelled());
    }

    #[test]
    fn a_handler_that_looks_sees_that_its_caller_has_gone() {
        assert!(Context::detached("pricing", "quote").cancelled().build().is_cancelled());
        assert!(Context::detached("pricing", "quote").timeout(Duration::ZERO).build().is_cancelled());
    }
}
