//! The link of a gateway: what is published waits for a thread of its own, and senders take turns there.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, ThreadId};

use tidewire_link::{Call, Exchange, Greeting, Handler, Link, Published, Sending};
use tidewire_proto::subject::Pattern;
use tidewire_proto::wire::{Flags, PublishHead};
use tokio::runtime::Builder;

use crate::support::{Answer, Answers, Node, Place, next};

/// Tells who published something, and on which thread that was heard.
struct Told(SyncSender<(String, ThreadId)>);

impl Handler for Told {
    fn called(&self, _: Call) -> Option<Arc<dyn Exchange>> {
        None
    }

    fn published(&self, published: Published) {
        self.0.try_send((published.from.name.clone(), thread::current().id())).expect("the test listens");
    }
}

fn publish(node: &Node, count: usize) {
    let head = PublishHead { subject: "news.today", ..PublishHead::default() };
    for _ in 0..count {
        node.link.publish(&head, Flags::NORMAL, Sending::Short(&[7; 100])).expect("there is room");
        node.link.flush();
    }
}

#[test]
fn a_gateway_hands_messages_on_by_itself_and_a_flood_delays_nobody() {
    let place = Place::open(&"tide://127.0.0.1:0".parse().expect("it is an address"));
    let gateway = Link::join_gateway(&place.hub, Greeting::new("http")).expect("it joins");
    let (send, heard) = sync_channel(1_000_000);
    let kept: Vec<_> = ["news.*", "news.>", "*.today"]
        .iter()
        .map(|pattern| {
            let (answers, answered) = Answers::new();
            let pattern = Pattern::new(pattern).expect("it is a pattern");
            let told = Arc::new(Told(send.clone()));
            let subscription = gateway.subscribe(&pattern, "", &[], told, answers).expect("there is room");
            assert_eq!(next(&answered), Answer::Over);
            subscription
        })
        .collect();
    let (loud, calm) = (Node::join(&place.address, "loud"), Node::join(&place.address, "calm"));
    publish(&loud, 10_000);
    // Its answer comes behind what it has published.
    assert!(matches!(loud.ask("svc.nobody", b""), Answer::Failed(_)));
    publish(&calm, 1);
    assert!(matches!(calm.ask("svc.nobody", b""), Answer::Failed(_)));
    assert!(heard.try_recv().is_err(), "the thread of the hub hands nothing on");

    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let spreading = gateway.spread();
    let here = thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = spreading => {}
                () = tokio::task::yield_now() => {}
            }
        });
        thread::current().id()
    });
    let here = here.join().expect("it ends");
    let came: Vec<_> = heard.try_iter().collect();
    assert!(came.iter().all(|(_, thread)| *thread == here));
    let calm_at = came.iter().position(|(name, _)| name == "calm").expect("its turn has come");
    assert!(calm_at <= 2 * kept.len(), "{calm_at} others come before it");

    // What waits stays when nobody hands it on, and goes on with the next one who does.
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let spreading = runtime.spawn(gateway.spread());
    let mut left = kept.len() * 10_001 - came.len();
    while left > 0 {
        runtime.block_on(tokio::task::yield_now());
        left -= heard.try_iter().count();
    }
    spreading.abort();
    assert_eq!(gateway.dropped(), 0);
}
