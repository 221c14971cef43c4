//! Notifications of a node that comes or goes, of a link that is lost or back, and of a hub that
//! has delivered everything.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tidewire_link::{Call, Exchange, Handler, HubHandle, OutgoingPayload, Published, Refused};
use tidewire_proto::subject::Pattern;

use crate::support::{Answer, Answers, Echo, Node, Place, SOON, next};

/// Hands its calls over, and answers none.
struct Hold(SyncSender<Call>);

impl Handler for Hold {
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        self.0.send(call).expect("the test listens");
        None
    }

    fn published(&self, _: Published) {}
}

fn rung() -> (impl Fn() + Send + Sync + 'static, Receiver<()>) {
    let (send, rings) = sync_channel(100);
    let ring = move || {
        let _ = send.try_send(());
    };
    (ring, rings)
}

fn place() -> Place {
    Place::open(&"tide://127.0.0.1:0".parse().expect("it is an address"))
}

fn idle(hub: &HubHandle, most: Option<Duration>) -> bool {
    let idle = hub.idle(most);
    hub.runtime().block_on(idle).expect("the thread of the links runs")
}

#[test]
fn a_hub_tells_that_nodes_have_come_and_gone() {
    let place = place();
    let (ring, rings) = rung();
    assert!(place.hub.on_nodes(ring));
    assert!(!place.hub.on_nodes(|| {}), "the first one stays");
    let node = Node::join(&place.address, "node");
    next(&rings);
    assert_eq!(place.hub.counts().nodes, 1);
    drop(node);
    next(&rings);
    assert_eq!(place.hub.counts().nodes, 0);
}

#[test]
fn a_link_tells_that_it_is_lost_and_its_next_connection_is_another_one() {
    let place = place();
    let node = Node::join(&place.address, "node");
    let ((ring, lost), (ring_again, back)) = (rung(), rung());
    node.link.on_lost(ring);
    node.link.on_joined_again(ring_again);
    let first = node.link.epoch();
    place.hub.close();
    next(&lost);
    next(&back);
    assert_ne!(node.link.epoch(), first);
    assert!(lost.try_recv().is_err(), "it is told once");
}

#[test]
fn a_node_that_leaves_does_not_join_again_when_its_link_is_lost() {
    let place = place();
    let (leaves, stays) = (Node::join(&place.address, "leaves"), Node::join(&place.address, "stays"));
    let ((ring, lost), (ring_again, back)) = (rung(), rung());
    leaves.link.on_lost(ring);
    stays.link.on_joined_again(ring_again);
    leaves.link.goodbye();
    place.hub.close();
    next(&lost);
    next(&back);
    let pattern = Pattern::new("news").expect("it is a pattern");
    let subscribe = |node: &Node| node.link.subscribe(&pattern, "", &[], Arc::new(Echo), Answers::new().0).map(drop);
    assert!(subscribe(&stays).is_ok());
    // One that is to come back would keep it until then.
    assert!(matches!(subscribe(&leaves), Err(Refused::Closing)));
    assert!(leaves.link.joined().is_none());
}

#[test]
fn a_hub_is_idle_when_the_last_call_has_its_answer() {
    let place = place();
    let (server, caller) = (Node::join(&place.address, "server"), Node::join(&place.address, "caller"));
    let (send, calls) = sync_channel(10);
    let _kept = server.subscribe("svc.hold", Hold(send));
    assert!(idle(&place.hub, None), "nothing is called");
    let (answers, answered) = Answers::new();
    caller.call("svc.hold", b"", 0, &answers);
    let call = next(&calls);
    assert!(!idle(&place.hub, Some(Duration::from_millis(10))), "the call is under way");
    let hub = place.hub.clone();
    let waits = std::thread::spawn(move || idle(&hub, Some(SOON)));
    call.reply(OutgoingPayload::from(b"answer".as_slice())).expect("it can be sent");
    assert_eq!(next(&answered), Answer::Reply(b"answer".to_vec()));
    assert!(waits.join().expect("it has not panicked"));
}
