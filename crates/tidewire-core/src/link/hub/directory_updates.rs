//! Directory updates: changes of services are published on the subjects of the hub, and a node that
//! missed some is notified.

use tidewire_proto::subject::grammar::OF_SERVICES;
use tidewire_proto::wire::{Flags, Kind, PublishHead};

use super::calls::put_service;
use super::routes::Subscriber;
use super::{Change, Hub, LinkId};

/// Subjects of the updates that a service has come or gone.
pub(super) const ADDED: &str = "$hub.services.added";
pub(super) const REMOVED: &str = "$hub.services.removed";
/// Subject of the notification that a node has missed directory updates.
const MISSED: &str = "$hub.services.missed";

impl Hub {
    /// Publishes an update to its subscribers: a subscription with an announcement has come or
    /// gone.
    pub(super) fn announce(&mut self, subject: &str, node: &str, subscriber: &Subscriber) {
        let (mut entry, mut nameless, mut head) = (Vec::new(), Vec::new(), Vec::new());
        put_service(&mut entry, node, subscriber);
        put_service(&mut nameless, "", subscriber);
        if (PublishHead { subject, ..PublishHead::default() }).put(&mut head).is_err() {
            return;
        }
        if subscriber.queue.is_empty() && subscriber.pattern.starts_with(OF_SERVICES) {
            let serves = subject != REMOVED;
            self.note(node, |node| Change::Serves { node, pattern: subscriber.pattern.to_string(), serves });
        }
        let (payload, nameless) = (as_value(&entry), as_value(&nameless));
        for (to, subscription) in self.receivers(subject, None) {
            // A queue group has no part in this: each node keeps a list of its own. Other hubs tell
            // their nodes themselves.
            if subscription != 0 || self.is_remote(to) {
                continue;
            }
            let grant = self.links[to].as_ref().and_then(|link| link.grant);
            match self.options.access.is_partner(grant) {
                false => self.tell_changes(to, &head, &payload),
                true if self.options.access.may_see(grant, &subscriber.pattern) => {
                    self.tell_changes(to, &head, &nameless);
                }
                true => {}
            }
        }
    }

    /// Notifies a node that its list is out of date, now that there is capacity: it missed updates
    /// meanwhile.
    pub(super) fn tell_missed(&mut self, at: LinkId) {
        let Some(link) = self.link(at).filter(|link| link.missed && link.out.bytes() <= link.out.bytes_max() / 2)
        else {
            return;
        };
        link.missed = false;
        let mut head = Vec::new();
        if (PublishHead { subject: MISSED, ..PublishHead::default() }).put(&mut head).is_ok() {
            self.tell_changes(at, &head, &as_value(&[]));
        }
    }

    fn tell_changes(&mut self, at: LinkId, head: &[u8], payload: &[u8]) {
        let Some(link) = self.link_with_capacity(at) else { return };
        let put = |out: &mut Vec<u8>| {
            out.extend_from_slice(head);
            Ok(())
        };
        if link.out.send(Kind::Publish, Flags::NORMAL, 0, put, payload).is_err() {
            link.missed = true;
            self.counts.dropped += 1;
        }
        self.touch(at);
    }
}

/// Bytes before others that make them a value.
pub(super) const VALUE_HEAD: usize = 5;

/// The header that turns so many bytes into a MessagePack `bin 32` value, which nodes can decode.
pub(super) fn value_head(bytes: usize) -> [u8; VALUE_HEAD] {
    let [a, b, c, d] = (bytes as u32).to_be_bytes();
    [0xc6, a, b, c, d]
}

/// Bytes as such a value.
pub(super) fn as_value(bytes: &[u8]) -> Vec<u8> {
    [&value_head(bytes.len()), bytes].concat()
}
