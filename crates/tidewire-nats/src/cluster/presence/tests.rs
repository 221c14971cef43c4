//! Tests of presence messages.

use super::*;

#[test]
fn announcements_of_a_node_are_read_by_others() {
    let node = Presence { name: "a \"b\"".to_owned(), ..Presence::new(7, "x") };
    let read = Presence::read(&node.written(PresenceKind::Hello));
    assert_eq!(read, Some(Presence { says: PresenceKind::Hello, ..node }));
}

#[test]
fn announcements_beyond_the_limits_are_not() {
    let node = Presence::new(7, "x");
    let written = |node: &Presence| node.written(PresenceKind::Here);
    assert!(Presence::read(&written(&node)).is_some());
    for wrong in [
        Presence { number: 0, ..node.clone() },
        Presence { tidewire: 2, ..node.clone() },
        Presence { name: String::new(), ..node.clone() },
        Presence { name: "x".repeat(5_000), ..node.clone() },
        Presence { heartbeat_ms: 0, ..node.clone() },
        Presence { in_flight: u64::MAX, ..node.clone() },
        Presence { frame_bytes: 1, ..node.clone() },
    ] {
        assert_eq!(Presence::read(&written(&wrong)), None, "{wrong:?}");
    }
    assert_eq!(Presence::read(b"[]"), None);
}
