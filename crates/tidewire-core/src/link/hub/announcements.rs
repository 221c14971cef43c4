//! Checks of announcements: a node announces itself with its subscription, on a subject that its
//! token allows.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;
use tidewire_proto::subject::grammar::{Target, target};
use tidewire_proto::wire::{Fields, SubscribeHead};

use super::super::announcement;
use super::super::outbox::PayloadParts;
use super::announce_rate_limit::AnnounceRateLimit;
use super::calls::{OF_NODE, put_service};
use super::directory_updates::{ADDED, REMOVED, VALUE_HEAD};
use super::routes::Subscriber;
use super::{Hub, Link, LinkId};
use crate::tree::{SubjectTree, SubscriptionId};

/// Why a subscription is refused.
type Refusal = (ErrorCode, String);

/// Announcements of one node.
#[derive(Default)]
pub(super) struct Announcements {
    subscriptions: BTreeSet<SubscriptionId>,
    bytes: usize,
    /// The encoded entry in the list of services; None once it has changed.
    listed: Option<Arc<[u8]>>,
    pub(super) pace: AnnounceRateLimit,
}

/// The role of a subscription, derived from its pattern and queue group.
enum Role<'a> {
    /// One instance of a service.
    Instance(&'a str),
    /// All instances of a service, of which each call goes to one.
    Group(&'a str),
    /// An agent.
    Agent,
    /// Anything else.
    Plain,
}

impl<'a> Role<'a> {
    fn of(head: &SubscribeHead<'a>) -> Self {
        let is_name = |token: &str| token != "*" && token != ">";
        match target(head.pattern) {
            Some(Target::Instance { service, instance, method: "*" })
                if head.queue.is_empty() && is_name(service) && is_name(instance) =>
            {
                Self::Instance(service)
            }
            Some(Target::Service { service, method: "*" }) if !head.queue.is_empty() && is_name(service) => {
                Self::Group(service)
            }
            Some(Target::Agent(token)) if head.queue.is_empty() && is_name(token) => Self::Agent,
            _ => Self::Plain,
        }
    }

    /// The field of the announcement for this role.
    fn field(&self) -> Option<&'static str> {
        match self {
            Self::Instance(_) => Some(announcement::SERVICE),
            Self::Agent => Some(announcement::AGENT),
            Self::Group(_) | Self::Plain => None,
        }
    }
}

impl Hub {
    /// Checks a new subscription. Returns true if it only listens, or the reason for a refusal.
    pub(super) fn admit_subscriber(
        &self,
        at: LinkId,
        head: &SubscribeHead<'_>,
        announcement: &[u8],
        listens: bool,
    ) -> Result<bool, Refusal> {
        let Some(link) = self.links.get(at).and_then(Option::as_ref) else { return Ok(listens) };
        let role = Role::of(head);
        let listens = self.check_rights(link, head, &role, announcement, listens)?;
        if link.subscriptions >= link.bounds.subscriptions.max {
            let text = format!("{} is exceeded: end another one first", link.bounds.subscriptions);
            return Err((ErrorCode::LimitExceeded, text));
        }
        if !announcement.is_empty() {
            self.check_announcement(at, head, &role, announcement, listens)?;
        }
        Ok(listens)
    }

    fn check_rights(
        &self,
        link: &Link,
        head: &SubscribeHead<'_>,
        role: &Role<'_>,
        announcement: &[u8],
        listens: bool,
    ) -> Result<bool, Refusal> {
        let (access, pattern) = (&self.options.access, head.pattern);
        if pattern.starts_with(OF_NODE) {
            let own = format!("{OF_NODE}{}.>", link.number);
            if pattern == own && head.queue.is_empty() {
                return Ok(listens);
            }
            let text = format!("pattern: {pattern:?} is not allowed: a node subscribes to {own:?} there");
            return Err((ErrorCode::Unauthorized, text));
        }
        let may_answer = match role {
            Role::Instance(service) | Role::Group(service) => access.may_serve(link.grant, service),
            Role::Agent | Role::Plain => access.may_answer(link.grant, pattern),
        };
        if may_answer && !listens {
            return Ok(false);
        }
        let needs_right = !announcement.is_empty() || matches!(role, Role::Group(_));
        if needs_right && !listens {
            let right = match role {
                Role::Instance(service) | Role::Group(service) => format!("serve {service:?}"),
                Role::Agent | Role::Plain => "answer calls there".to_owned(),
            };
            let text = format!("pattern: {pattern:?}: this token may not {right}");
            return Err((ErrorCode::Unauthorized, text));
        }
        if !access.may_subscribe(link.grant, pattern) {
            let text = format!("pattern: {pattern:?} is not allowed with this token");
            return Err((ErrorCode::Unauthorized, text));
        }
        Ok(true)
    }

    /// Checks an announcement: its size, and that it describes only the subject of its
    /// subscription.
    fn check_announcement(
        &self,
        at: LinkId,
        head: &SubscribeHead<'_>,
        role: &Role<'_>,
        announcement: &[u8],
        listens: bool,
    ) -> Result<(), Refusal> {
        let Some(link) = self.links.get(at).and_then(Option::as_ref) else { return Ok(()) };
        let (bytes, max) = (announcement.len(), limits::LINK_ANNOUNCEMENT_BYTES.default);
        if bytes as u64 > max {
            let text =
                format!("link_announcement_bytes={max}: the description has {bytes} bytes: declare fewer methods");
            return Err((ErrorCode::LimitExceeded, text));
        }
        let fields = Fields::parse("SUBSCRIBE", announcement).ok();
        let announced = role.field().filter(|_| !listens).and_then(|field| fields?.text(field));
        if announced.is_none() {
            let text = format!(
                "fields: {:?} is not that of an instance of a service or of an agent, which say what they are: leave them out",
                head.pattern
            );
            return Err((ErrorCode::InvalidArgument, text));
        }
        // A hub lists only announcements that every reader understands.
        if let Err(problem) = announcement::validate(head.pattern, head.queue, announcement) {
            let text = format!("fields: {problem}: see section 10 of spec/wire.md");
            return Err((ErrorCode::InvalidArgument, text));
        }
        let max = self.options.said_bytes;
        if link.announcements.bytes + bytes > max {
            let text = format!(
                "link_said_bytes={max}: what this node says of itself has more: serve less, or with less to say"
            );
            return Err((ErrorCode::LimitExceeded, text));
        }
        let holder = self.announced.get(head.pattern).and_then(|&key| self.tree.get(key));
        if holder.is_some_and(|holder| holder.link != at) {
            let text = format!("pattern: {:?} is announced by another node: choose another name", head.pattern);
            return Err((ErrorCode::NameTaken, text));
        }
        Ok(())
    }

    /// Records the announcement of a subscription that is in force, if it has one.
    pub(super) fn record_announcement(&mut self, key: SubscriptionId) {
        let Some(subscriber) = self.tree.get(key).filter(|one| !one.announcement.is_empty()).cloned() else {
            return;
        };
        self.announced.insert(subscriber.pattern.clone(), key);
        let (max, now_us) = (self.options.said_bytes, self.now_us);
        if let Some(link) = self.link(subscriber.link) {
            link.announcements.subscriptions.insert(key);
            link.announcements.bytes += subscriber.announcement.len();
            let paused_until_us = link.announcements.pace.announced(subscriber.announcement.len(), max, now_us);
            // A peer is not silent while the hub itself pauses reading from it.
            link.heart.note_received(paused_until_us);
            link.announcements.listed = None;
        }
        let node = self.name_of(subscriber.link).to_owned();
        self.announce(ADDED, &node, &subscriber);
    }

    /// Removes the announcement of an ended subscription.
    pub(super) fn forget_announcement(&mut self, key: SubscriptionId, subscriber: &Subscriber) {
        if subscriber.announcement.is_empty() {
            return;
        }
        if self.announced.get(&subscriber.pattern) == Some(&key) {
            self.announced.remove(&subscriber.pattern);
        }
        if let Some(link) = self.link(subscriber.link) {
            link.announcements.subscriptions.remove(&key);
            link.announcements.bytes -= subscriber.announcement.len();
            link.announcements.listed = None;
        }
        let node = self.name_of(subscriber.link).to_owned();
        self.announce(REMOVED, &node, subscriber);
    }

    /// All announcements of nodes. An unchanged announcement is not encoded again: all lists share
    /// one copy.
    pub(super) fn list_services(&mut self, grant: Option<usize>) -> Listed {
        let mut listed = Listed { parts: vec![(VALUE_HEAD, Arc::default())], bytes: VALUE_HEAD };
        let access = &self.options.access;
        let is_partner = access.is_partner(grant);
        for link in self.links.iter_mut().flatten().filter(|link| link.announcements.bytes > 0) {
            let part = if is_partner {
                link.announcements.listed_for(&self.tree, |pattern| access.may_see(grant, pattern))
            } else {
                link.announcements.listed(&link.name, &self.tree)
            };
            listed.bytes += part.len();
            listed.parts.push((listed.bytes, part));
        }
        listed.parts[0].1 = super::directory_updates::value_head(listed.bytes - VALUE_HEAD).into();
        listed
    }
}

impl Announcements {
    /// The entries of another hub, which sees no nodes.
    fn listed_for(&self, tree: &SubjectTree<Subscriber>, is_seen: impl Fn(&str) -> bool) -> Arc<[u8]> {
        let mut out = Vec::new();
        let subscribers = self.subscriptions.iter().filter_map(|&key| tree.get(key));
        subscribers.filter(|one| is_seen(&one.pattern)).for_each(|one| put_service(&mut out, "", one));
        Arc::from(out)
    }

    fn listed(&mut self, node: &str, tree: &SubjectTree<Subscriber>) -> Arc<[u8]> {
        let write = || {
            let mut out = Vec::with_capacity(self.bytes + self.bytes / 8);
            for subscriber in self.subscriptions.iter().filter_map(|&key| tree.get(key)) {
                put_service(&mut out, node, subscriber);
            }
            Arc::from(out)
        };
        Arc::clone(self.listed.get_or_insert_with(write))
    }
}

/// The list of services, one part for each node, each with where it ends.
pub(super) struct Listed {
    parts: Vec<(usize, Arc<[u8]>)>,
    bytes: usize,
}

impl PayloadParts for Listed {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn piece(&self, at: usize) -> &[u8] {
        let part = self.parts.partition_point(|(end, _)| *end <= at);
        let (end, bytes) = &self.parts[part];
        &bytes[bytes.len() - (end - at)..]
    }
}
