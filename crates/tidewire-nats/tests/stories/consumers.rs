//! Stories of consumers: who gets what, what becomes of failures, dead letters.

use std::time::Instant;

use tidewire_backend::home::{
    ConsumerSettings, Delivery, Fault, Fetch, Home, HomeErrorKind, Order, Settle, Settlement, Start,
};

use crate::servers::{home, message, pattern, publish_numbers, stream};

const SECOND_US: u64 = 1_000_000;

fn at_once(count: u32) -> Fetch {
    Fetch { max_messages: count, max_bytes: 1 << 20, wait_us: 0 }
}

fn waiting(count: u32) -> Fetch {
    Fetch { wait_us: 20 * SECOND_US, ..at_once(count) }
}

fn consumer(name: &str) -> ConsumerSettings {
    ConsumerSettings { start: Start::All, ..ConsumerSettings::new(name) }
}

fn settled(delivery: &Delivery, how: Settlement) -> Settle {
    Settle { sequence: delivery.event.sequence, ticket: delivery.ticket, how }
}

fn settle(home: &dyn Home, stream: &str, name: &str, delivery: &Delivery, how: Settlement) {
    home.settle(stream, name, vec![settled(delivery, how)]).wait().unwrap().remove(0).unwrap();
}

fn nak(delay_us: u64) -> Settlement {
    Settlement::Nak {
        delay_us: Some(delay_us),
        fault: Some(Fault { error: "Oops".to_owned(), traceback: "line 1".to_owned() }),
    }
}

fn sequences(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries.iter().map(|delivery| delivery.event.sequence).collect()
}

#[test]
fn an_event_goes_to_the_consumers_whose_filters_select_it() {
    let Some(home) = home() else { return };
    let name = stream(&*home, "filter");
    let filtered = |who: &str, filter: &[&str]| {
        let filter = filter.iter().map(|rest| pattern(&format!("{name}.{rest}"))).collect();
        home.create_consumer(&name, ConsumerSettings { filter, ..consumer(who) }).wait().unwrap();
    };
    filtered("one", &["a.*"]);
    filtered("two", &["a.*", "b.>"]);
    filtered("covered", &["a.x", "a.*"]);
    filtered("all", &[]);
    for rest in ["a.x", "a.y", "b.x.y", "c"] {
        home.publish(&name, vec![message(&name, rest, "x")], false).wait().unwrap();
    }
    for (who, expected) in [("one", &[1, 2][..]), ("two", &[1, 2, 3]), ("covered", &[1, 2]), ("all", &[1, 2, 3, 4])] {
        assert_eq!(sequences(&home.fetch(&name, who, at_once(100)).wait().unwrap()), expected, "{who}");
    }
    let filter = vec![pattern(&format!("{name}.*.x")), pattern(&format!("{name}.a.*"))];
    let error = home.create_consumer(&name, ConsumerSettings { filter, ..consumer("both") }).wait().unwrap_err();
    assert!(
        error.kind() == HomeErrorKind::Invalid && error.message().contains("select some of the same subjects"),
        "{error}"
    );
}

#[test]
fn dead_letters_are_delivered_anew_or_dropped() {
    let Some(home) = home() else { return };
    let name = stream(&*home, "requeue");
    home.create_consumer(&name, consumer("billing")).wait().unwrap();
    home.create_consumer(&name, consumer("other")).wait().unwrap();
    publish_numbers(&*home, &name, 3);
    for one in home.fetch(&name, "billing", at_once(10)).wait().unwrap() {
        settle(&*home, &name, "billing", &one, Settlement::Term { reason: "no\nuse".to_owned(), fault: None });
    }
    let dead = || home.dead_letters(&name, "billing", 0, 10).wait().unwrap();
    assert_eq!(dead().iter().map(|letter| letter.sequence).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(home.dead_letters(&name, "billing", 2, 1).wait().unwrap()[0].sequence, 2);
    assert_eq!(home.drop_dead(&name, "billing", vec![1, 77]).wait().unwrap(), 1);
    assert_eq!(home.requeue(&name, "billing", vec![3]).wait().unwrap(), 1);
    assert_eq!(dead().iter().map(|letter| letter.sequence).collect::<Vec<_>>(), [2]);
    assert_eq!(home.stream_info(&name).wait().unwrap().messages, 3, "a copy is nobody's event");
    let [one] = &home.fetch(&name, "billing", waiting(10)).wait().unwrap()[..] else { panic!("one was requeued") };
    assert_eq!((one.event.sequence, one.delivery, &one.event.payload[..]), (3, 1, &b"2"[..]));
    assert_eq!(one.event.subject.as_str(), format!("{name}.n"));
    settle(&*home, &name, "billing", one, Settlement::Ack);
    assert_eq!(sequences(&home.fetch(&name, "other", at_once(10)).wait().unwrap()), [1, 2, 3]);
    let info = home.stream_info(&name).wait().unwrap();
    assert_eq!((info.messages, info.dead), (3, 1));
}

#[test]
fn an_event_whose_process_died_in_its_last_delivery_is_dead_too() {
    let Some(home) = home() else { return };
    let name = stream(&*home, "died");
    let settings = ConsumerSettings { max_deliver: 1, ack_wait_us: 100_000, backoff_us: vec![], ..consumer("billing") };
    home.create_consumer(&name, settings).wait().unwrap();
    publish_numbers(&*home, &name, 1);
    assert_eq!(home.fetch(&name, "billing", waiting(1)).wait().unwrap().len(), 1);
    // The delivery is never settled. The server gives the event up at the next fetch.
    let until = Instant::now() + std::time::Duration::from_secs(20);
    let letter = loop {
        assert!(home.fetch(&name, "billing", Fetch { wait_us: 100_000, ..at_once(1) }).wait().unwrap().is_empty());
        if let Some(letter) = home.dead_letters(&name, "billing", 0, 1).wait().unwrap().pop() {
            break letter;
        }
        assert!(Instant::now() < until, "it never died");
    };
    assert_eq!((letter.sequence, letter.deliveries, letter.reason.as_str()), (1, 1, "max_deliver"));
    assert_eq!(letter.fault.error, "no ack within 0.1 s");
}

#[test]
fn a_consumer_in_progress_keeps_its_event() {
    let Some(home) = home() else { return };
    let name = stream(&*home, "works");
    let settings = ConsumerSettings { ack_wait_us: 400_000, backoff_us: vec![], ..consumer("billing") };
    home.create_consumer(&name, settings).wait().unwrap();
    publish_numbers(&*home, &name, 1);
    let one = home.fetch(&name, "billing", waiting(1)).wait().unwrap().remove(0);
    for _ in 0..8 {
        // An empty fetch is the pause: it gives whatever is delivered again.
        let again = home.fetch(&name, "billing", Fetch { wait_us: 150_000, ..at_once(1) }).wait().unwrap();
        assert!(again.is_empty(), "{again:?}");
        settle(&*home, &name, "billing", &one, Settlement::Working);
    }
    settle(&*home, &name, "billing", &one, Settlement::Ack);
}

#[test]
fn a_delay_holds_back_one_event_only() {
    let Some(home) = home() else { return };
    let name = stream(&*home, "delay");
    home.create_consumer(&name, consumer("billing")).wait().unwrap();
    publish_numbers(&*home, &name, 2);
    let first = home.fetch(&name, "billing", at_once(1)).wait().unwrap().remove(0);
    let begun = Instant::now();
    settle(&*home, &name, "billing", &first, nak(300_000));
    let second = home.fetch(&name, "billing", waiting(1)).wait().unwrap().remove(0);
    assert_eq!(second.event.sequence, 2);
    let again = home.fetch(&name, "billing", waiting(1)).wait().unwrap().remove(0);
    assert_eq!((again.event.sequence, again.delivery), (1, 2));
    assert!(begun.elapsed().as_millis() >= 300, "{:?}", begun.elapsed());
}

#[test]
fn a_fetch_of_a_deleted_consumer_ends_with_an_error() {
    let Some(home) = home() else { return };
    let name = stream(&*home, "deleted");
    home.create_consumer(&name, consumer("billing")).wait().unwrap();
    assert!(home.fetch(&name, "billing", at_once(1)).wait().unwrap().is_empty());
    let waiting = home.fetch(&name, "billing", waiting(1));
    home.delete_consumer(&name, "billing").wait().unwrap();
    let error = waiting.wait().unwrap_err();
    assert_eq!(error.kind(), HomeErrorKind::NotFound, "{error}");
    let error = home.fetch(&name, "billing", at_once(1)).wait().unwrap_err();
    assert!(error.message().contains("consumer: there is no \"billing\" of stream"), "{error}");
    assert!(home.list_consumers(&name).wait().unwrap().is_empty());
}

#[test]
fn settings_that_nats_does_not_have_are_refused() {
    let Some(home) = home() else { return };
    let name = stream(&*home, "refused");
    let keyed = ConsumerSettings { order: Order::Key, ..consumer("keyed") };
    let error = home.create_consumer(&name, keyed).wait().unwrap_err();
    assert!(
        error.kind() == HomeErrorKind::Unsupported && error.message().starts_with("order: JetStream delivers without"),
        "{error}"
    );
    let error =
        home.create_consumer(&name, ConsumerSettings { max_in_flight: 0, ..consumer("none") }).wait().unwrap_err();
    assert!(error.message().contains("max_in_flight: 0"), "{error}");
}
