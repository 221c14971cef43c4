//! The link of a gateway: what is published waits for a thread of its own, and senders take turns
//! there.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, ThreadId};

use tidewire_link::{Call, Exchange, Greeting, Handler, Link, OutgoingPayload, Published};
use tidewire_proto::subject::Pattern;
use tidewire_proto::wire::{CallHead, Flags, PublishHead};
use tokio::runtime::Builder;

use crate::support::{Answer, Answers, Echo, Node, Place, next};

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
        node.link.publish(&head, Flags::NORMAL, OutgoingPayload::Short(&[7; 100])).expect("there is room");
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

    // Queued messages stay while no task delivers them, and the next delivering task goes on with
    // them.
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

fn ask(gateway: &Link, payload: &[u8]) -> Receiver<Answer> {
    let (answers, answered) = Answers::new();
    let head = CallHead { deadline_ms: 30_000, subject: "svc.echo", ..CallHead::default() };
    gateway.call(&head, Flags::NORMAL, OutgoingPayload::from(payload), answers).expect("there is room");
    gateway.flush();
    answered
}

#[test]
fn calls_of_all_that_is_ready_on_the_thread_of_a_gateway_go_together() {
    let place = Place::open(&"tide://127.0.0.1:0".parse().expect("it is an address"));
    let gateway = Link::join_gateway(&place.hub, Greeting::new("http")).expect("it joins");
    let echo = Link::join_local(&place.hub, Greeting::new("here")).expect("it joins");
    let (answers, answered) = Answers::new();
    let pattern = Pattern::new("svc.echo").expect("it is a pattern");
    let _kept = echo.subscribe(&pattern, "", &[], Arc::new(Echo), answers).expect("there is room");
    assert_eq!(next(&answered), Answer::Over);
    let waits = |answered: &Receiver<Answer>| assert_eq!(answered.try_recv(), Err(TryRecvError::Empty));

    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let spreading = runtime.spawn(gateway.spread());
    runtime.block_on(tokio::task::yield_now());
    runtime.block_on(async {
        let early = [ask(&gateway, b"1"), ask(&gateway, b"2"), ask(&gateway, b"3")];
        early.iter().for_each(waits);
        tokio::task::yield_now().await;
        for (answered, sent) in early.iter().zip([b"1", b"2", b"3"]) {
            assert_eq!(next(answered), Answer::Reply(sent.to_vec()));
        }
        let short = ask(&gateway, b"4");
        let long = ask(&gateway, &[7; 100_000]);
        assert_eq!(next(&long), Answer::Reply(vec![7; 100_000]), "much is not kept waiting");
        assert_eq!(next(&short), Answer::Reply(b"4".to_vec()));
        let late = ask(&gateway, b"5");
        waits(&late);
        spreading.abort();
        tokio::task::yield_now().await;
        assert_eq!(next(&late), Answer::Reply(b"5".to_vec()), "whoever ends leaves nothing behind");
    });
    assert_eq!(next(&ask(&gateway, b"6")), Answer::Reply(b"6".to_vec()), "nobody is left to write it later");
}
