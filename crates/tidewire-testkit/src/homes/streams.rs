//! Conformance cases of streams.

use tidewire_backend::home::{
    Capability, Compact, Durability, Full, Home, HomeErrorKind, NewMessage, Purge, Read, Settlement, Start,
    StreamSettings,
};

use super::{
    SECOND_US, ack, can, consumer, done, everything, fetch, fetch_exactly, good, message, orders, pattern, payloads,
    publish, publish_all, read_all, refused, settle,
};

pub fn published_events_are_read_in_order(home: &dyn Home) {
    orders(home);
    let answers: Vec<_> = (0..50_u32)
        .map(|batch| {
            let messages = (0..20).map(|number| message("orders.x", &(batch * 20 + number).to_string())).collect();
            home.publish("orders", messages, false)
        })
        .collect();
    let acks: Vec<_> = answers.into_iter().flat_map(good).map(|ack| ack.expect("it takes it")).collect();
    let sequences: Vec<u64> = acks.iter().map(|ack| ack.sequence).collect();
    assert_eq!(sequences, (1..=1_000).collect::<Vec<u64>>(), "calls of one thread are stored in their order");
    assert!(acks.iter().all(|ack| ack.durability >= Durability::Disk && !ack.duplicate));
    let events = read_all(home, Read { max_messages: 300, ..everything() });
    assert_eq!(payloads(&events), (0..1_000).map(|number| number.to_string()).collect::<Vec<_>>());
    assert!(events.is_sorted_by_key(|event| event.time_us));
    let info = good(home.stream_info("orders"));
    assert_eq!((info.messages, info.first, info.last), (1_000, 1, 1_000));
}

pub fn a_stream_is_made_once_and_with_one_kind_of_settings(home: &dyn Home) {
    let settings = orders(home);
    good(home.create_stream(settings.clone()));
    let other = StreamSettings { max_messages: Some(7), dedupe_us: 30_000_000, ..settings.clone() };
    let text = refused(home.create_stream(other), HomeErrorKind::Differs);
    for named in ["max_messages is", "not 7;", "dedupe is", "not 30 s;"] {
        assert!(text.contains(named), "{text}");
    }
    for name in ["", "a b", "a.b", "a/b", &"x".repeat(65)] {
        let wrong = StreamSettings { name: name.to_owned(), ..settings.clone() };
        refused(home.create_stream(wrong), HomeErrorKind::Invalid);
    }
    let names: Vec<String> = good(home.list_streams()).into_iter().map(|info| info.settings.name).collect();
    assert_eq!(names, ["orders"]);
}

pub fn each_message_of_a_batch_has_its_own_result(home: &dyn Home) {
    orders(home);
    let messages = vec![message("orders.a", "1"), message("other.a", "2"), message("orders.b", "3")];
    let results = good(home.publish("orders", messages, false));
    let kinds: Vec<_> =
        results.iter().map(|result| result.as_ref().map_err(|error| error.kind()).map(|ack| ack.sequence)).collect();
    assert_eq!(kinds, [Ok(1), Err(HomeErrorKind::Invalid), Ok(2)]);
    refused(home.publish("nothing", vec![message("orders.a", "1")], false), HomeErrorKind::NotFound);
}

// Promises: P17.6.
pub fn an_id_is_stored_once(home: &dyn Home) {
    orders(home);
    let mut with_id = message("orders.a", "1");
    with_id.id = Some("order-42".to_owned());
    let acks = publish(home, vec![with_id.clone(), with_id.clone()]);
    assert_eq!(acks.iter().map(|ack| (ack.sequence, ack.duplicate)).collect::<Vec<_>>(), [(1, false), (1, true)]);
    let again = publish(home, vec![with_id]);
    assert_eq!((again[0].sequence, again[0].duplicate), (1, true));
    assert_eq!(read_all(home, everything()).len(), 1);
}

pub fn a_full_stream_refuses(home: &dyn Home) {
    let settings = StreamSettings { max_messages: Some(2), ..StreamSettings::new("orders", vec![pattern("orders.>")]) };
    good(home.create_stream(settings));
    publish_all(home, &["1", "2"]);
    let refused = good(home.publish("orders", vec![message("orders.x", "3")], false)).remove(0);
    assert_eq!(refused.map_err(|error| error.kind()), Err(HomeErrorKind::Full));
    good(home.purge("orders", Purge { keep: Some(1), ..Purge::default() }));
    publish_all(home, &["4"]);
    assert_eq!(payloads(&read_all(home, everything())), ["2", "4"]);
}

pub fn a_full_stream_drops_its_oldest(home: &dyn Home) {
    let full = Full::DropOld;
    let settings =
        StreamSettings { max_messages: Some(3), full, ..StreamSettings::new("orders", vec![pattern("orders.>")]) };
    good(home.create_stream(settings));
    publish_all(home, &["1", "2", "3", "4", "5"]);
    assert_eq!(payloads(&read_all(home, everything())), ["3", "4", "5"]);
    assert_eq!(good(home.stream_info("orders")).first, 3);
}

// Promises: P17.5.
pub fn purging_removes_and_never_reuses_sequences(home: &dyn Home) {
    orders(home);
    publish_all(home, &["1", "2", "3", "4"]);
    assert_eq!(good(home.purge("orders", Purge { before: Some(3), ..Purge::default() })), 2);
    assert_eq!(payloads(&read_all(home, everything())), ["3", "4"]);
    assert_eq!(good(home.purge("orders", Purge::default())), 2);
    assert_eq!(good(home.stream_info("orders")).messages, 0);
    assert_eq!(publish_all(home, &["5"]), [5]);
}

pub fn a_deleted_value_is_not_found(home: &dyn Home) {
    orders(home);
    publish_all(home, &["1"]);
    good(home.delete_stream("orders"));
    refused(home.stream_info("orders"), HomeErrorKind::NotFound);
    refused(home.read("orders", everything()), HomeErrorKind::NotFound);
    refused(home.delete_stream("orders"), HomeErrorKind::NotFound);
    orders(home);
    assert_eq!(good(home.stream_info("orders")).messages, 0, "a new stream of the same name is empty");
}

pub fn reading_filters_and_stops_and_begins_at_a_time(home: &dyn Home) {
    orders(home);
    for name in ["orders.a", "orders.b.c", "orders.a.b", "orders.b"] {
        publish(home, vec![message(name, name)]);
    }
    let filter = vec![pattern("orders.*")];
    let one_token = read_all(home, Read { filter, ..everything() });
    assert_eq!(payloads(&one_token), ["orders.a", "orders.b"]);
    let middle = read_all(home, Read { start: Start::Sequence(2), stop: Some(3), ..everything() });
    assert_eq!(payloads(&middle), ["orders.b.c", "orders.a.b"]);
    let time_us = middle[0].time_us;
    let later = read_all(home, Read { start: Start::Time(time_us), ..everything() });
    assert!(later.iter().all(|event| event.time_us >= time_us) && later.len() >= 3, "{later:?}");
    let future = read_all(home, Read { start: Start::Time(time_us + 3_600 * SECOND_US), ..everything() });
    assert_eq!(future, []);
}

pub fn a_reader_waits_for_what_is_published_next(home: &dyn Home) {
    orders(home);
    publish_all(home, &["old"]);
    let next = home.read("orders", Read { start: Start::New, wait_us: 20 * SECOND_US, ..everything() });
    // The start counts from the call on, which the storage backend may not have handled yet: so
    // several messages are published.
    for number in 0..50 {
        publish_all(home, &[&number.to_string()]);
    }
    let page = good(next);
    assert!(!page.events.is_empty() && payloads(&page.events)[0] != "old", "{page:?}");
    let nothing = good(home.read("orders", Read { start: Start::Sequence(1_000), wait_us: 1_000, ..everything() }));
    assert!(nothing.events.is_empty());
}

pub fn batches_are_stored_whole_or_not_at_all(home: &dyn Home) {
    orders(home);
    let good_one = || home.publish("orders", vec![message("orders.a", "1"), message("orders.b", "2")], true);
    if !can(home, Capability::Batch, good_one) {
        return;
    }
    let results = good(home.publish("orders", vec![message("orders.a", "1"), message("other", "2")], true));
    assert!(results.iter().all(Result::is_err), "{results:?}");
    assert_eq!(read_all(home, everything()), []);
    assert!(good(good_one()).iter().all(Result::is_ok));
    assert_eq!(payloads(&read_all(home, everything())), ["1", "2"]);
}

fn with_id(id: &str, payload: &str) -> NewMessage {
    NewMessage { id: Some(id.to_owned()), ..message("orders.a", payload) }
}

/// Publishes a batch that is stored. Gives sequences, and true for duplicates.
fn publish_whole(home: &dyn Home, messages: Vec<NewMessage>) -> Vec<(u64, bool)> {
    let acks = good(home.publish("orders", messages, true)).into_iter();
    acks.map(|ack| ack.expect("the batch is stored")).map(|ack| (ack.sequence, ack.duplicate)).collect()
}

// Promises: P17.6, P17.122.
pub fn a_batch_stores_each_id_once(home: &dyn Home) {
    orders(home);
    let first = || vec![with_id("a", "1"), message("orders.b", "2"), with_id("a", "no"), with_id("b", "3")];
    if !can(home, Capability::Batch, || home.publish("orders", first(), true)) {
        return;
    }
    assert_eq!(publish_whole(home, first()), [(1, false), (2, false), (1, true), (3, false)]);
    assert_eq!(publish(home, vec![with_id("c", "4")])[0].sequence, 4);
    let known = |new: &str| vec![with_id(new, "5"), with_id("b", "no"), with_id("c", "no"), with_id(new, "no")];
    let with_wrong = [known("d"), vec![message("other", "no")]].concat();
    assert!(good(home.publish("orders", with_wrong, true)).iter().all(Result::is_err), "one is wrong");
    let and_last = [known("d"), vec![message("orders.b", "6")]].concat();
    assert_eq!(publish_whole(home, and_last), [(5, false), (3, true), (4, true), (5, true), (6, false)]);
    assert_eq!(publish_whole(home, vec![with_id("c", "no"), with_id("a", "no")]), [(4, true), (1, true)]);
    assert_eq!(publish_whole(home, vec![message("orders.b", "7"), with_id("a", "no")]), [(7, false), (1, true)]);
    assert_eq!(payloads(&read_all(home, everything())), ["1", "2", "3", "4", "5", "6", "7"]);
}

// Promises: P17.4, P17.122.
pub fn calls_after_a_batch_are_stored_after_it(home: &dyn Home) {
    orders(home);
    let batch = |number: u32| {
        let (new, payload) = (format!("new-{}", number / 2), format!("{number}.new"));
        vec![with_id("known", "no"), with_id(&new, &payload), message("orders.a", &format!("{number}.last"))]
    };
    if !can(home, Capability::Batch, || home.publish("orders", batch(0), true)) {
        return;
    }
    publish(home, vec![with_id("known", "known")]);
    let answers: Vec<_> = (0..10)
        .flat_map(|number| {
            let after = vec![message("orders.x", &format!("{number}.after"))];
            [home.publish("orders", batch(number), true), home.publish("orders", after, false)]
        })
        .collect();
    let acks = answers.into_iter().flat_map(good).map(|ack| ack.expect("it is stored"));
    let stored: Vec<u64> = acks.filter(|ack| !ack.duplicate).map(|ack| ack.sequence).collect();
    assert_eq!(stored, (2..=26).collect::<Vec<u64>>());
    let of = |number: u32| ["new", "last", "after"].map(|name| format!("{number}.{name}"));
    let all = (0..10).flat_map(of).filter(|name| !name.ends_with("new") || "02468".contains(&name[..1]));
    let expected: Vec<_> = std::iter::once("known".to_owned()).chain(all).collect();
    assert_eq!(payloads(&read_all(home, everything())), expected);
}

pub fn delayed_messages_come_later(home: &dyn Home) {
    orders(home);
    let now_us = publish_and_time(home, "first");
    let mut delayed = message("orders.x", "later");
    delayed.deliver_at_us = Some(now_us + 300_000);
    if !can(home, Capability::Delay, || home.publish("orders", vec![delayed.clone()], false)) {
        return;
    }
    publish(home, vec![delayed]);
    publish_all(home, &["second"]);
    let mut seen = Vec::new();
    let mut at = 1;
    while seen.len() < 3 {
        let read = Read { start: Start::Sequence(at), wait_us: 10 * SECOND_US, ..everything() };
        let page = good(home.read("orders", read));
        assert!(!page.events.is_empty(), "only {seen:?} came");
        seen.extend(page.events.iter().map(|event| (payloads(std::slice::from_ref(event)).remove(0), event.time_us)));
        at = page.next;
    }
    let names: Vec<&str> = seen.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["first", "second", "later"]);
    assert!(seen[2].1 >= now_us + 300_000, "it came before its time");
}

fn publish_and_time(home: &dyn Home, payload: &str) -> u64 {
    publish_all(home, &[payload]);
    read_all(home, everything()).last().expect("it was published").time_us
}

pub fn messages_expire(home: &dyn Home) {
    orders(home);
    let mut short = message("orders.x", "short");
    // The least that every storage backend takes.
    short.ttl_us = Some(SECOND_US);
    if !can(home, Capability::MessageTtl, || home.publish("orders", vec![short.clone()], false)) {
        return;
    }
    publish(home, vec![short]);
    publish_all(home, &["long"]);
    let until = std::time::Instant::now() + super::SOON;
    while payloads(&read_all(home, everything())) != ["long"] {
        assert!(std::time::Instant::now() < until, "it is still there");
        // Waits, as nothing is published any more.
        good(home.read("orders", Read { start: Start::New, wait_us: 100_000, ..everything() }));
    }
}

pub fn headers_keys_and_bytes_arrive_as_they_were(home: &dyn Home) {
    orders(home);
    let mut sent = message("orders.a", "");
    sent.payload = bytes::Bytes::from((0..=255).cycle().take(100_000).collect::<Vec<u8>>());
    sent.key = Some("customer-7".to_owned());
    sent.id = Some("order-42".to_owned());
    sent.headers = vec![("content-type".to_owned(), "x/y".to_owned()), ("a".to_owned(), "b: c, d".to_owned())];
    publish(home, vec![sent.clone()]);
    let event = read_all(home, everything()).remove(0);
    assert_eq!(event.payload, sent.payload);
    assert_eq!((event.key, event.id, event.headers), (sent.key, sent.id, sent.headers));
    assert_eq!(event.subject, sent.subject);
    let mut long = message("orders.a", "");
    long.payload = vec![0; 64 << 20].into();
    let result = done(home.publish("orders", vec![long], false));
    let kind = result.and_then(|mut results| results.remove(0)).map_err(|error| error.kind());
    let too_much = [HomeErrorKind::TooLarge, HomeErrorKind::Invalid, HomeErrorKind::Busy];
    assert!(kind.is_err_and(|kind| too_much.contains(&kind)), "64 MiB are too much: {kind:?}");
}

fn compacted(compact: Compact) -> StreamSettings {
    StreamSettings { compact: Some(compact), ..StreamSettings::new("orders", vec![pattern("orders.>")]) }
}

pub fn the_newest_of_each_subject_stays(home: &dyn Home) {
    good(home.create_stream(compacted(Compact::Subject)));
    let of = |name: &str, payload: &str| publish(home, vec![message(name, payload)])[0].sequence;
    of("orders.a", "1");
    of("orders.b", "2");
    of("orders.a", "3");
    assert_eq!(payloads(&read_all(home, everything())), ["2", "3"]);
    assert_eq!(good(home.stream_info("orders")).messages, 2);
    assert_eq!(good(home.stream_info("orders")).settings, compacted(Compact::Subject));
    // Its sequences go on.
    assert_eq!(of("orders.b", "4"), 4);
    assert_eq!(payloads(&read_all(home, everything())), ["3", "4"]);
    let text = refused(
        home.create_stream(StreamSettings { compact: None, ..compacted(Compact::Subject) }),
        HomeErrorKind::Differs,
    );
    assert!(text.contains("compact") && text.contains("subject"), "{text}");
    assert_eq!(good(home.purge("orders", Purge::default())), 2);
    assert_eq!(good(home.stream_info("orders")).messages, 0);
}

pub fn the_newest_of_each_key_stays(home: &dyn Home) {
    let settings = compacted(Compact::Key);
    if !can(home, Capability::CompactKey, || home.create_stream(settings.clone())) {
        return;
    }
    good(home.create_stream(settings));
    let with = |key: Option<&str>, payload: &str| {
        let mut sent = message("orders.x", payload);
        sent.key = key.map(str::to_owned);
        sent
    };
    publish(home, vec![with(Some("a"), "1"), with(Some("b"), "2"), with(Some("a"), "3"), with(Some("c"), "4")]);
    publish(home, vec![with(Some("c"), "5")]);
    assert_eq!(payloads(&read_all(home, everything())), ["2", "3", "5"]);
    let error = good(home.publish("orders", vec![with(None, "6")], false)).remove(0).expect_err("it has no key");
    assert_eq!(error.kind(), HomeErrorKind::Invalid);
    assert!(error.message().starts_with("key:"), "{error}");
}

pub fn a_compacted_key_is_delivered_once_by_its_newest(home: &dyn Home) {
    good(home.create_stream(compacted(Compact::Subject)));
    let of = |name: &str, payload: &str| publish(home, vec![message(name, payload)]);
    of("orders.a", "1");
    of("orders.b", "2");
    consumer(home, |settings| settings.max_deliver = 1);
    for delivery in fetch_exactly(home, 2) {
        settle(home, &delivery, Settlement::Term { reason: "no".to_owned(), fault: None }).expect("it is out");
    }
    // Both come anew, each once: one does not take the place of the other.
    assert_eq!(good(home.requeue("orders", "c", vec![1, 2])), 2);
    let mut again = fetch_exactly(home, 2);
    again.iter().for_each(|delivery| ack(home, delivery));
    again.sort_by_key(|delivery| delivery.event.sequence);
    assert_eq!(payloads(&again.into_iter().map(|delivery| delivery.event).collect::<Vec<_>>()), ["1", "2"]);
    for number in 0..50 {
        of("orders.a", &format!("a{number}"));
    }
    let events: Vec<_> = fetch(home, 100, SECOND_US).into_iter().map(|delivery| delivery.event).collect();
    assert_eq!(payloads(&events), ["a49"]);
}

pub fn limits_of_a_compacted_stream_are_kept_or_refused(home: &dyn Home) {
    let settings = StreamSettings { max_messages: Some(2), full: Full::DropOld, ..compacted(Compact::Subject) };
    if !can(home, Capability::CompactLimits, || home.create_stream(settings.clone())) {
        return;
    }
    good(home.create_stream(settings));
    for name in ["orders.a", "orders.b", "orders.c", "orders.c"] {
        publish(home, vec![message(name, name)]);
    }
    assert_eq!(payloads(&read_all(home, everything())), ["orders.b", "orders.c"]);
}
