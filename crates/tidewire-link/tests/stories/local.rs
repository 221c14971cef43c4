//! Links that end at unusual moments: that of a node inside of its hub's process, and one that ends
//! while a call comes in.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use tidewire_link::{
    Call, Exchange, Greeting, Handler, HubHandle, HubOptions, Link, OutgoingPayload, Published, Runtime,
};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::Pattern;
use tidewire_proto::wire::{CallHead, Flags};

use crate::support::{Answer, Answers, CancelSignal, Deaf, Echo, Node, Place, next};

#[test]
fn a_node_in_the_process_of_its_hub_joins_again_after_it_did_not_read() {
    let runtime = Runtime::start("hub").expect("a thread can be started");
    let hub = HubHandle::new(&runtime, HubOptions { queue_bytes: 64 << 10, ..HubOptions::new("hub") }, |_| {});
    let link = Link::join_local(&hub, Greeting::new("here")).unwrap_or_else(|error| panic!("{error}"));
    let (send, again) = sync_channel(1);
    link.on_joined_again(move || {
        let _ = send.try_send(());
    });
    let (answers, answered) = Answers::new();
    let pattern = Pattern::new("svc.echo").expect("it is a pattern");
    let _kept = link.subscribe(&pattern, "", &[], Arc::new(Echo), answers).expect("there is room");
    assert_eq!(next(&answered), Answer::Over);

    link.flusher().pause();
    let head = CallHead { subject: "nobody", ..CallHead::default() };
    for _ in 0..5_000 {
        // Refused once the link is lost.
        if link.call(&head, Flags::NORMAL, OutgoingPayload::Short(b""), Arc::new(Deaf)).is_err() {
            break;
        }
        link.flush();
    }
    link.flusher().listen_again();
    next(&again);
    let (answers, answered) = Answers::new();
    let head = CallHead { subject: "svc.echo", ..CallHead::default() };
    link.call(&head, Flags::NORMAL, OutgoingPayload::Short(b"hi"), answers).expect("it is joined");
    link.flush();
    assert_eq!(next(&answered), Answer::Reply(b"hi".to_vec()), "it serves again, too");
    hub.close();
    assert!(link.joined().is_none(), "a hub that has stopped is not joined again");
}

/// Ends its own link while a call comes in, as another thread may.
struct Closes {
    link: Link,
    cancelled: SyncSender<()>,
}

impl Handler for Closes {
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        self.link.close();
        drop(call);
        Some(Arc::new(CancelSignal(self.cancelled.clone())))
    }

    fn published(&self, _: Published) {}
}

#[test]
fn a_handler_whose_link_ends_while_it_is_called_is_cancelled() {
    let place = Place::open(&"tide://127.0.0.1:0".parse().expect("it is an address"));
    let (server, caller) = (Node::join(&place.address, "server"), Node::join(&place.address, "caller"));
    let (cancelled, cancels) = sync_channel(10);
    let _kept = server.subscribe("svc.close", Closes { link: server.link.clone(), cancelled });
    let Answer::Failed(number) = caller.ask("svc.close", b"") else { panic!("it fails") };
    assert_eq!(number, ErrorCode::LinkLost.number());
    next(&cancels);
}
