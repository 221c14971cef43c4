//! Tokens of a hub: the user of a node and its permissions.

use tidewire_link::{Grant, TokenLimits};
use tidewire_proto::generated::limits::{self, Limit};
use tidewire_proto::subject::Pattern;

use crate::error::Error;

/// One token of a hub with its permissions: everything, unless restricted. Every node may list the
/// services of its hub, and is notified when services join or leave.
#[derive(Clone, derive_more::Debug)]
#[debug("Token(of {user:?})")]
pub struct Token {
    token: String,
    user: String,
    publish: Option<Vec<String>>,
    subscribe: Option<Vec<String>>,
    call: Option<Vec<String>>,
    answer: Option<Vec<String>>,
    serve: Option<Vec<String>>,
    limits: Vec<(&'static Limit, usize)>,
}

impl Token {
    /// A secret, and the user it stands for.
    pub fn new(token: impl Into<String>, user: impl Into<String>) -> Self {
        let (token, user) = (token.into(), user.into());
        let (publish, subscribe, call, answer, serve) = (None, None, None, None, None);
        Self { token, user, publish, subscribe, call, answer, serve, limits: Vec::new() }
    }

    /// Allows to publish on subjects of these patterns only.
    pub fn publish(mut self, patterns: &[&str]) -> Self {
        self.publish = Some(patterns.iter().copied().map(str::to_owned).collect());
        self
    }

    /// Allows to subscribe to these patterns, and to narrower ones, only.
    pub fn subscribe(mut self, patterns: &[&str]) -> Self {
        self.subscribe = Some(patterns.iter().copied().map(str::to_owned).collect());
        self
    }

    /// Allows to call subjects of these patterns only.
    pub fn call(mut self, patterns: &[&str]) -> Self {
        self.call = Some(patterns.iter().copied().map(str::to_owned).collect());
        self
    }

    /// Allows to answer requests on subjects of these patterns, which it may then subscribe to, and
    /// on no others. Without it a token answers everything if it may publish, subscribe to and call
    /// everything, else nothing.
    pub fn answer(mut self, patterns: &[&str]) -> Self {
        self.answer = Some(patterns.iter().copied().map(str::to_owned).collect());
        self
    }

    /// Allows to serve services of these names only; `*` allows all. Without it, as for
    /// [`answer`](Self::answer).
    pub fn serve(mut self, services: &[&str]) -> Self {
        self.serve = Some(services.iter().copied().map(str::to_owned).collect());
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
        let mut grant = Grant::all(&self.token, &self.user);
        narrow(&mut grant.publish, &self.publish)?;
        narrow(&mut grant.subscribe, &self.subscribe)?;
        narrow(&mut grant.call, &self.call)?;
        if self.publish.is_some() || self.subscribe.is_some() || self.call.is_some() {
            (grant.answer, grant.serve) = (Vec::new(), Vec::new());
        }
        narrow(&mut grant.answer, &self.answer)?;
        if let Some(serve) = &self.serve {
            grant.serve.clone_from(serve);
        }
        grant.limits = self.token_limits()?;
        // Every node may list the services, and is notified when services join or leave.
        grant.call.push(crate::names::pattern("$hub.services")?);
        grant.subscribe.push(crate::names::pattern("$hub.services.*")?);
        Ok(grant)
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

fn narrow(patterns: &mut Vec<Pattern>, to: &Option<Vec<String>>) -> Result<(), Error> {
    if let Some(to) = to {
        *patterns = to.iter().map(|pattern| crate::names::pattern(pattern)).collect::<Result<_, _>>()?;
    }
    Ok(())
}
