//! Limits of one node: the stricter of the hub's limit and the limit of its token, with the name
//! for error texts.

use super::super::access::TokenLimits;
use super::{Hub, HubOptions, LinkId};

/// A limit of one link: that of the hub, or the smaller one of the token that its node joined with.
#[derive(Clone, Copy, derive_more::Display)]
#[display("{name}={max}{}", if *of_token { " of the token" } else { "" })]
pub(super) struct Bound {
    name: &'static str,
    pub(super) max: usize,
    pub(super) of_token: bool,
}

impl Bound {
    pub(super) fn of_hub(name: &'static str, max: usize) -> Self {
        Self { name, max, of_token: false }
    }

    /// The same for a token that says a number of its own: it is never more than the hub allows.
    pub(super) fn narrowed(self, token: Option<usize>) -> Self {
        match token {
            Some(max) if max <= self.max => Self { max, of_token: true, ..self },
            _ => self,
        }
    }

    /// The text for another node that calls the node of this link.
    pub(super) fn of_callee(&self) -> String {
        let whose = if self.of_token { " of the node that answers" } else { "" };
        format!("{self}{whose}")
    }
}

/// Limits of the node of one link.
pub(super) struct Bounds {
    pub(super) subscriptions: Bound,
    pub(super) in_flight: Bound,
    pub(super) queue_bytes: Bound,
}

impl Bounds {
    pub(super) fn new(options: &HubOptions, token: TokenLimits) -> Self {
        Self {
            subscriptions: Bound::of_hub("link_subscriptions", options.subscriptions).narrowed(token.subscriptions),
            in_flight: Bound::of_hub("link_in_flight", options.in_flight).narrowed(token.in_flight),
            queue_bytes: Bound::of_hub("link_queue_bytes", options.queue_bytes).narrowed(token.queue_bytes),
        }
    }
}

impl Hub {
    /// The limit of a token with which nobody else may join. A node that resumes takes the place of
    /// its own link.
    pub(super) fn used_up(&mut self, at: LinkId, grant: Option<usize>, name: &str) -> Option<String> {
        let limit = Bound::of_hub("hub_links", self.options.links).narrowed(self.options.access.limits(grant).links);
        if self.is_here(at) {
            return None;
        }
        let joined = match grant.filter(|_| limit.of_token) {
            Some(grant) => self.granted.get(&grant).copied().unwrap_or(0),
            None => self.names.len(),
        };
        let before = self.names.get(name).copied().and_then(|other| self.link(other));
        let own = before.is_some_and(|link| (link.grant == grant || !limit.of_token) && !link.here);
        if joined < limit.max + usize::from(own) {
            return None;
        }
        let user = if limit.of_token { self.options.access.user(grant) } else { "" };
        Some(if user.is_empty() { limit.to_string() } else { format!("{limit} of {user:?}") })
    }

    /// A node has joined with a grant: it is counted, and has what that allows.
    pub(super) fn bind(&mut self, at: LinkId, grant: Option<usize>) {
        let here = self.is_here(at);
        let token = if here { TokenLimits::default() } else { self.options.access.limits(grant) };
        let bounds = Bounds::new(&self.options, token);
        if let Some(grant) = grant.filter(|_| !here) {
            *self.granted.entry(grant).or_default() += 1;
        }
        if let Some(link) = self.link(at) {
            link.grant = grant;
            link.theirs.limit(bounds.in_flight.max);
            link.out.limit(bounds.queue_bytes.max);
            link.bounds = bounds;
        }
    }

    /// A node that had joined is gone.
    pub(super) fn unbind(&mut self, at: LinkId) {
        let Some(grant) = self.link(at).filter(|link| !link.here).and_then(|link| link.grant) else { return };
        if let Some(joined) = self.granted.get_mut(&grant) {
            *joined -= 1;
        }
    }

    pub(super) fn is_here(&mut self, at: LinkId) -> bool {
        self.link(at).is_some_and(|link| link.here)
    }
}
