//! Stories that run over each transport.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use tidewire_link::{Address, OutgoingPayload, Tls};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{Flags, PublishHead};
use tidewire_sync::Mutex;

use crate::support::certificates::{Authority, Folder};
use crate::support::{Answer, Answers, Count, Echo, Keep, Listen, Node, Place, next};

/// A hub, and the address that nodes join it at.
struct Transport {
    _place: Place,
    address: Address,
    _files: (Option<Folder>, Option<Authority>),
}

fn plain(url: &str) -> Transport {
    let place = Place::open(&url.parse().expect("it is an address"));
    Transport { address: place.address.clone(), _place: place, _files: (None, None) }
}

fn unix() -> Transport {
    let folder = Folder::new();
    let transport = plain(&format!("tide+unix://{}/hub.sock", folder.0.display()));
    Transport { _files: (Some(folder), None), ..transport }
}

fn secured(url: &str) -> Transport {
    let authority = Authority::new();
    let address: Address = url.parse().expect("it is an address");
    let place = Place::open(&address.with_tls(authority.signed_for("localhost")).expect("it has TLS"));
    Transport { address: place.seen_with(&authority.trusted()), _place: place, _files: (None, Some(authority)) }
}

/// Both sides show a certificate.
fn mutual() -> Transport {
    let authority = Authority::new();
    let address: Address = "tide+tls://localhost:0".parse().expect("it is an address");
    let listens = Tls { ca: authority.trusted().ca, ..authority.signed_for("localhost") };
    let joins = Tls { ca: authority.trusted().ca, ..authority.signed_for("node") };
    let place = Place::open(&address.with_tls(listens).expect("it has TLS"));
    Transport { address: place.seen_with(&joins), _place: place, _files: (None, Some(authority)) }
}

fn calls_are_answered(transport: &Transport) {
    let (server, caller) = (Node::join(&transport.address, "server"), Node::join(&transport.address, "caller"));
    let _kept = server.subscribe("svc.echo", Echo);
    for length in [0, 1, 1_000, 65_000, 70_000] {
        let payload = vec![length as u8; length];
        assert_eq!(caller.ask("svc.echo", &payload), Answer::Reply(payload));
    }
    assert_eq!(caller.ask("svc.nobody", b""), Answer::Failed(ErrorCode::NoResponders.number()));
}

fn items_come_in_order(transport: &Transport) {
    let (server, caller) = (Node::join(&transport.address, "server"), Node::join(&transport.address, "caller"));
    let _kept = server.subscribe("svc.count", Count);
    let (answers, answered) = Answers::new();
    caller.call("svc.count", b"", 2_000, &answers);
    for number in 0..2_000_u32 {
        assert_eq!(next(&answered), Answer::Item(number.to_le_bytes().to_vec()));
    }
    assert_eq!(next(&answered), Answer::Over);
}

fn published_messages_come_in_order(transport: &Transport) {
    let (from, to) = (Node::join(&transport.address, "from"), Node::join(&transport.address, "to"));
    let (send, heard) = sync_channel(10_000);
    let _kept = to.subscribe("news.*", Listen(send));
    let head = PublishHead { subject: "news.today", ..PublishHead::default() };
    for number in 0..2_000_u32 {
        from.link.publish(&head, Flags::NORMAL, OutgoingPayload::Short(&number.to_le_bytes())).expect("there is room");
        from.link.flush();
    }
    for number in 0..2_000_u32 {
        assert_eq!(next(&heard), number.to_le_bytes());
    }
}

/// More than the sockets hold, both ways at once: whoever writes is told to wait, and what waits is
/// written later.
fn long_payloads_arrive_whole(transport: &Transport) {
    let (server, caller) = (Node::join(&transport.address, "server"), Node::join(&transport.address, "caller"));
    let _kept = server.subscribe("svc.echo", Echo);
    let payload: Vec<u8> = (0..2 * 1024 * 1024_u32).map(|at| (at / 7) as u8).collect();
    let (answers, answered) = Answers::new();
    for _ in 0..8 {
        caller.call("svc.echo", &payload, 0, &answers);
    }
    for _ in 0..8 {
        // Not assert_eq, which would print all of it.
        assert!(next(&answered) == Answer::Reply(payload.clone()), "the answer is what was sent");
    }
}

/// From four threads, which all write to one socket.
fn many_calls_at_once_are_answered(transport: &Transport) {
    let (server, caller) = (Node::join(&transport.address, "server"), Node::join(&transport.address, "caller"));
    let _kept = server.subscribe("svc.echo", Echo);
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let caller = &caller;
            scope.spawn(move || {
                let (answers, answered) = Answers::new();
                let payload = |number: u32| [thread, number].map(u32::to_le_bytes).concat();
                for number in 0..1_000 {
                    caller.call("svc.echo", &payload(number), 0, &answers);
                }
                for number in 0..1_000 {
                    assert_eq!(next(&answered), Answer::Reply(payload(number)));
                }
            });
        }
    });
}

fn a_callee_that_closes_fails_its_calls(transport: &Transport) {
    let (server, caller) = (Node::join(&transport.address, "server"), Node::join(&transport.address, "caller"));
    let ((called, calls), (cancelled, _cancels)) = (sync_channel(10), sync_channel(10));
    let kept = Arc::new(Mutex::new(Vec::new()));
    let _kept = server.subscribe("svc.keep", Keep { called, cancelled, calls: Arc::clone(&kept) });
    let (answers, answered) = Answers::new();
    caller.call("svc.keep", b"", 0, &answers);
    next(&calls);
    server.link.close();
    assert_eq!(next(&answered), Answer::Failed(ErrorCode::LinkLost.number()));
}

fn a_caller_that_closes_cancels_its_calls(transport: &Transport) {
    let (server, caller) = (Node::join(&transport.address, "server"), Node::join(&transport.address, "caller"));
    let ((called, calls), (cancelled, cancels)) = (sync_channel(10), sync_channel(10));
    let kept = Arc::new(Mutex::new(Vec::new()));
    let _kept = server.subscribe("svc.keep", Keep { called, cancelled, calls: Arc::clone(&kept) });
    let (answers, _answered) = Answers::new();
    caller.call("svc.keep", b"", 0, &answers);
    next(&calls);
    caller.link.close();
    next(&cancels);
}

/// Eight megabytes are on their way when the caller closes; the hub and its other links go on.
fn closing_in_the_middle_hurts_nobody_else(transport: &Transport) {
    let (server, other) = (Node::join(&transport.address, "server"), Node::join(&transport.address, "other"));
    let _kept = server.subscribe("svc.echo", Echo);
    for caller in ["first", "second", "third"] {
        let caller = Node::join(&transport.address, caller);
        let (answers, answered) = Answers::new();
        let payload = vec![1; 8 * 1024 * 1024];
        caller.call("svc.echo", &payload, 0, &answers);
        caller.link.close();
        // A thread that stands still between the two lines finds the whole answer.
        let answer = next(&answered);
        let is_lost = answer == Answer::Failed(ErrorCode::LinkLost.number());
        assert!(is_lost || answer == Answer::Reply(payload), "neither lost nor whole");
        assert_eq!(other.ask("svc.echo", b"still here"), Answer::Reply(b"still here".to_vec()));
    }
}

macro_rules! over_each_transport {
    ($($story:ident),* $(,)?) => {
        over_each_transport!(@ tcp, super::plain("tide://127.0.0.1:0"), $($story),*);
        over_each_transport!(@ unix, super::unix(), $($story),*);
        over_each_transport!(@ tls, super::secured("tide+tls://localhost:0"), $($story),*);
        over_each_transport!(@ mutual_tls, super::mutual(), $($story),*);
        over_each_transport!(@ ws, super::plain("ws://127.0.0.1:0/tide"), $($story),*);
        over_each_transport!(@ wss, super::secured("wss://localhost:0"), $($story),*);
    };
    (@ $transport:ident, $open:expr, $($story:ident),*) => {
        mod $transport {
            $(
                #[test]
                fn $story() {
                    super::$story(&$open);
                }
            )*
        }
    };
}

over_each_transport!(
    calls_are_answered,
    items_come_in_order,
    published_messages_come_in_order,
    long_payloads_arrive_whole,
    many_calls_at_once_are_answered,
    a_callee_that_closes_fails_its_calls,
    a_caller_that_closes_cancels_its_calls,
    closing_in_the_middle_hurts_nobody_else,
);
