//! Tokens of a hub: the user of a node and its permissions.

use tidewire_link::{Grant, Rights, TokenLimits};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits::{self, Limit};

use crate::error::Error;

/// One token of a hub with its permissions: everything, unless restricted. Every node may list the
/// services of its hub, and is notified when services join or leave.
#[derive(Clone, derive_more::Debug)]
#[debug("Token(of {user:?})")]
pub struct Token {
    token: String,
    user: String,
    rights: Rights,
    limits: Vec<(&'static Limit, usize)>,
}

impl Token {
    /// A secret, and the user it stands for.
    pub fn new(token: impl Into<String>, user: impl Into<String>) -> Self {
        Self { token: token.into(), user: user.into(), rights: Rights::default(), limits: Vec::new() }
    }

    /// Allows to look at nodes, streams, buckets, leases and commands, without payloads. With this
    /// right, or one of the two below, a token has no other right that it does not name.
    pub fn inspect(self) -> Self {
        self.operator("inspect")
    }

    /// Allows to [`inspect`](Self::inspect), and to read events, values and results.
    pub fn inspect_payloads(self) -> Self {
        self.operator("inspect_payloads")
    }

    /// Allows to [`inspect`](Self::inspect), and to purge streams, requeue dead letters, pause
    /// consumers, change keys, release leases, cancel and retry commands, pause and cancel
    /// campaigns, and scale and drain pools.
    pub fn admin(self) -> Self {
        self.operator("admin")
    }

    /// Makes it the token of another hub: it has no right that it does not name, and lists only the
    /// services that it may call, without their nodes.
    pub fn partner(mut self) -> Self {
        self.rights.partner = true;
        self
    }

    fn operator(mut self, right: &str) -> Self {
        self.rights.operator.push(right.to_owned());
        self
    }

    /// So many nodes are joined with it at once. As many as the hub takes by default, as with the
    /// limits below, which the limits of the same names of the hub bound. The node that is the hub
    /// uses the first token, and none of these hold for it.
    pub fn hub_links(self, nodes: usize) -> Self {
        self.limit(&limits::HUB_LINKS, nodes)
    }

    /// Maximal number of subscriptions of one node. A node has up to two of its own, for services
    /// and for exports.
    pub fn link_subscriptions(self, subscriptions: usize) -> Self {
        self.limit(&limits::LINK_SUBSCRIPTIONS, subscriptions)
    }

    /// So many calls, streams, subscriptions and long messages that one node has open.
    pub fn link_in_flight(self, exchanges: usize) -> Self {
        self.limit(&limits::LINK_IN_FLIGHT, exchanges)
    }

    /// So many bytes that wait to be written to one node.
    pub fn link_queue_bytes(self, bytes: usize) -> Self {
        self.limit(&limits::LINK_QUEUE_BYTES, bytes)
    }

    fn limit(mut self, limit: &'static Limit, most: usize) -> Self {
        self.limits.retain(|(other, _)| other.name != limit.name);
        self.limits.push((limit, most));
        self
    }

    pub(crate) fn secret(&self) -> &str {
        &self.token
    }

    pub(crate) fn grant(&self) -> Result<Grant, Error> {
        if self.token.is_empty() {
            return Err(Error::invalid("tokens: an empty token is not allowed: give a long secret"));
        }
        let grant = Grant::of(&self.token, &self.user, &self.rights);
        let grant = grant.map_err(|wrong| Error::new(ErrorCode::InvalidSubject, wrong.to_string()))?;
        Ok(Grant { limits: self.token_limits()?, ..grant })
    }

    fn token_limits(&self) -> Result<TokenLimits, Error> {
        for (limit, most) in &self.limits {
            if *most as u64 > limit.default || !limit.allows(*most as u64) {
                let (name, user, unit) = (limit.name, &self.user, limit.unit);
                let text = format!(
                    "tokens: {name}={most} of {user:?} is not allowed: give {} to {} {unit}, which is what the hub allows",
                    limit.min, limit.default
                );
                return Err(Error::invalid(text));
            }
        }
        let of = |limit: &Limit| self.limits.iter().find(|(other, _)| other.name == limit.name).map(|(_, most)| *most);
        Ok(TokenLimits {
            links: of(&limits::HUB_LINKS),
            subscriptions: of(&limits::LINK_SUBSCRIPTIONS),
            in_flight: of(&limits::LINK_IN_FLIGHT),
            queue_bytes: of(&limits::LINK_QUEUE_BYTES),
        })
    }
}

setters! {
    Token:
    /// Allows to publish on subjects of these patterns only.
    publish(patterns: &[&str]) => rights.publish = Some(patterns.iter().copied().map(str::to_owned).collect());
    /// Allows to subscribe to these patterns, and to narrower ones, only.
    subscribe(patterns: &[&str]) => rights.subscribe = Some(patterns.iter().copied().map(str::to_owned).collect());
    /// Allows to call subjects of these patterns only.
    call(patterns: &[&str]) => rights.call = Some(patterns.iter().copied().map(str::to_owned).collect());
    /// Allows to answer requests on subjects of these patterns, which it may then subscribe to, and
    /// on no others. Without it a token answers everything if it may publish, subscribe to and call
    /// everything, else nothing.
    answer(patterns: &[&str]) => rights.answer = Some(patterns.iter().copied().map(str::to_owned).collect());
    /// Allows to serve services of these names only; `*` allows all. Without it, as for
    /// [`answer`](Self::answer).
    serve(services: &[&str]) => rights.serve = Some(services.iter().copied().map(str::to_owned).collect());
}
