//! Links of remote nodes, as a bridge attaches them: frames from such a link go to nodes of this
//! hub alone.

use tidewire_core::link::hub::{Hub, HubOptions, LinkId};
use tidewire_proto::wire::{self, CallHead, FieldsWriter, Flags, Hello, Kind, PublishHead, SubscribeHead};

use crate::link::support::MIB;

const OWN: u32 = 0x8000_0001;

/// A hub with its own node, and two that a bridge reaches.
struct Cluster {
    hub: Hub,
    own: LinkId,
    near: LinkId,
    far: LinkId,
}

impl Cluster {
    fn new() -> Self {
        let mut hub = Hub::new(HubOptions { number: OWN, ..HubOptions::new("own") }, 7);
        let own = hub.connected_own("one".to_owned(), 0);
        let near = hub.connected_remote(OWN + 1, "two".to_owned(), 0);
        let far = hub.connected_remote(OWN + 2, "three".to_owned(), 0);
        let mut this = Self { hub, own, near, far };
        for (link, name) in [(own, "own"), (near, "near"), (far, "far")] {
            let mut said = Vec::new();
            FieldsWriter::new(&mut said).add("name", name.as_bytes()).unwrap();
            this.say(link, Kind::Hello, 0, |out| Hello::put(1, 1, out), &said);
            this.told(link);
        }
        this
    }

    fn say(
        &mut self,
        from: LinkId,
        kind: Kind,
        id: u64,
        head: impl FnOnce(&mut Vec<u8>) -> Result<(), wire::WireError>,
        payload: &[u8],
    ) {
        let mut bytes = Vec::new();
        wire::write(&mut bytes, kind, Flags::NORMAL, id, head, payload).unwrap();
        let frame = wire::read(&bytes, MIB).unwrap().unwrap();
        self.hub.received(from, &frame, 0);
    }

    fn subscribe(&mut self, from: LinkId, slot: u64, pattern: &str, queue: &str) {
        self.say(from, Kind::Subscribe, 1 << 32 | slot, |out| SubscribeHead { queue, pattern }.put(out), &[]);
        assert_eq!(self.told(from), ["OK"]);
    }

    fn call(&mut self, from: LinkId, subject: &str) {
        let head =
            CallHead { origin: 0, to: 0, deadline_ms: 0, choice: 0, credit: 0, subject, fields: Default::default() };
        self.say(from, Kind::Call, 1 << 32 | 1_000, |out| head.put(out), b"\xc0");
    }

    fn publish(&mut self, from: LinkId, subject: &str, to: u64) {
        let head = PublishHead { to, subject, ..PublishHead::default() };
        self.say(from, Kind::Publish, 0, |out| head.put(out), b"\xc0");
    }

    /// The kinds of frames that a link is given, but for those that name nodes.
    fn told(&mut self, link: LinkId) -> Vec<&'static str> {
        let (mut bytes, mut kinds) = (Vec::new(), Vec::new());
        while self.hub.outbox(link).is_some_and(|out| out.take(&mut bytes, MIB)) {}
        let mut rest = &bytes[..];
        while let Some(frame) = wire::read(rest, MIB).unwrap() {
            if frame.kind != Kind::Node {
                kinds.push(frame.kind.name());
            }
            rest = &rest[frame.bytes.len()..];
        }
        kinds
    }
}

#[test]
fn a_call_that_came_over_a_bridge_goes_over_none_again() {
    let mut cluster = Cluster::new();
    let (own, near, far) = (cluster.own, cluster.near, cluster.far);
    cluster.subscribe(far, 0, "svc.bank.*", "bank");
    cluster.call(near, "svc.bank.add");
    assert_eq!(cluster.told(near), ["FAIL"], "nobody here answers");
    assert!(cluster.told(far).is_empty());
    cluster.call(own, "svc.bank.add");
    assert_eq!(cluster.told(far), ["CALL"], "nodes of this hub reach it");
    cluster.subscribe(own, 0, "svc.bank.*", "bank");
    cluster.say(near, Kind::Cancel, 1 << 32 | 1_000, |_| Ok(()), &[]);
    cluster.call(near, "svc.bank.add");
    assert_eq!(cluster.told(own), ["CALL"]);
}

#[test]
fn a_message_that_came_over_a_bridge_goes_where_the_hub_of_its_publisher_has_said() {
    let mut cluster = Cluster::new();
    let (own, near, far) = (cluster.own, cluster.near, cluster.far);
    cluster.subscribe(own, 0, "ticks.>", "");
    cluster.subscribe(own, 1, "ticks.*", "group");
    cluster.subscribe(far, 0, "ticks.>", "");
    cluster.publish(near, "ticks.eu", 0);
    cluster.publish(near, "ticks.eu", 0);
    assert_eq!(cluster.told(own), ["PUBLISH", "PUBLISH"], "once for all outside of queue groups");
    let of_group = cluster.hub.interests().iter().find(|one| one.queue == "group").unwrap().key.serial();
    cluster.publish(near, "ticks.eu", of_group);
    assert_eq!(cluster.told(own), ["PUBLISH"]);
    cluster.publish(near, "ticks.eu", of_group + 1_000);
    assert!(cluster.told(own).is_empty(), "that subscription has ended");
    assert!(cluster.told(far).is_empty());
}

#[test]
fn only_what_nodes_of_the_hub_itself_are_subscribed_to_is_told_to_others() {
    let mut cluster = Cluster::new();
    let (own, near) = (cluster.own, cluster.near);
    assert!(!cluster.hub.interests_changed());
    cluster.subscribe(near, 0, "a", "");
    assert!(!cluster.hub.interests_changed());
    cluster.subscribe(own, 0, "b", "q");
    assert!(cluster.hub.interests_changed());
    let told: Vec<_> = cluster.hub.interests().into_iter().map(|one| (one.pattern, one.queue)).collect();
    assert_eq!(told, [("b".to_owned(), "q".to_owned())]);
    cluster.say(own, Kind::Unsubscribe, 1 << 32, |_| Ok(()), &[]);
    assert!(cluster.hub.interests_changed() && cluster.hub.interests().is_empty());
}

#[test]
fn the_node_of_a_process_that_stood_still_is_there() {
    let mut cluster = Cluster::new();
    cluster.hub.tick(3_600_000_000);
    assert!(cluster.hub.closing().is_empty());
    assert_eq!(cluster.hub.counts().nodes, 3);
}
