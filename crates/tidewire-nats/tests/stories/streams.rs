//! Stories of streams: acks, order, ids, limits, batches, what is delayed, reading.

use std::collections::{BTreeMap, BTreeSet};

use tidewire_backend::home::{Home, HomeErrorKind, NewMessage, Read, Start, StreamSettings};

use crate::servers::{home, message, pattern, publish_numbers, settings, stream};

fn everything() -> Read {
    Read { start: Start::All, stop: None, filter: Vec::new(), max_messages: 1_000, max_bytes: 1 << 20, wait_us: 0 }
}

#[test]
fn a_second_message_with_an_id_is_a_duplicate() {
    let Some(home) = home() else { return };
    let name = stream(&*home, "twice");
    let with_id = |name: &str| {
        let mut sent = message(name, "n", "x");
        sent.id = Some("one".to_owned());
        sent
    };
    let acks = home.publish(&name, vec![with_id(&name), with_id(&name)], false).wait().unwrap();
    let acks: Vec<_> = acks.into_iter().map(Result::unwrap).collect();
    assert_eq!((acks[0].duplicate, acks[1].duplicate, acks[1].sequence), (false, true, 1));
    let mut off = settings("never");
    off.dedupe_us = 0;
    let name = home.create_stream(off.clone()).wait().unwrap().settings.name;
    let acks = home.publish(&name, vec![with_id(&name), with_id(&name)], false).wait().unwrap();
    assert!(acks.into_iter().all(|ack| !ack.unwrap().duplicate));
    assert_eq!(home.create_stream(off.clone()).wait().unwrap().settings, off);
    let event = &home.read(&name, everything()).wait().unwrap().events[1];
    assert_eq!(event.id.as_deref(), Some("one"));
}

#[test]
fn other_settings_are_refused_with_both_values() {
    let Some(home) = home() else { return };
    let first = settings("differs");
    home.create_stream(first.clone()).wait().unwrap();
    let mut second = first.clone();
    (second.max_messages, second.max_age_us) = (Some(7), Some(5_000_000));
    let error = home.create_stream(second).wait().unwrap_err();
    assert_eq!(error.kind(), HomeErrorKind::Differs);
    assert!(error.message().contains("max_age is None, not 5 s; max_messages is None, not 7;"), "{error}");
    let mut overlapping = settings("overlaps");
    overlapping.subjects = first.subjects;
    let error = home.create_stream(overlapping).wait().unwrap_err();
    assert!(error.kind() == HomeErrorKind::Invalid && error.message().contains("another stream takes"), "{error}");
}

#[test]
fn an_invalid_stream_is_refused() {
    let Some(home) = home() else { return };
    let refused = |change: &dyn Fn(&mut StreamSettings)| {
        let mut wrong = settings("wrong");
        change(&mut wrong);
        let error = home.create_stream(wrong).wait().unwrap_err();
        (error.kind(), error.message().to_owned())
    };
    type Change = dyn Fn(&mut StreamSettings);
    let changes: [(&Change, &str); 7] = [
        (&|it| it.name = "a.b".to_owned(), "stream: "),
        (&|it| it.name = "KV_x".to_owned(), "stream: "),
        (&|it| it.subjects.clear(), "subjects: "),
        (&|it| it.subjects = vec![pattern(">")], "subjects: "),
        (&|it| it.subjects = vec![pattern("$JS.API.>")], "subjects: "),
        (&|it| it.replicas = 6, "replicas: "),
        (&|it| it.max_age_us = Some(1), "max_age: "),
    ];
    for (change, field) in changes {
        let (kind, words) = refused(change);
        assert!(kind == HomeErrorKind::Invalid && words.contains(field), "{field} {kind:?} {words}");
    }
    let (kind, words) = refused(&|it| it.replicas = 3);
    assert!(
        kind == HomeErrorKind::Unsupported && words.contains("replicas: there are not so many servers"),
        "{kind:?} {words}"
    );
}

#[test]
fn each_message_has_its_own_result() {
    let Some(home) = home() else { return };
    let name = stream(&*home, "each");
    let too_long = message(&name, "n", vec![0; 2 << 20]);
    let mut reserved = message(&name, "n", "x");
    reserved.headers.push(("Nats-Rollup".to_owned(), "all".to_owned()));
    let messages =
        vec![message(&name, "n", "a"), message("elsewhere", "n", "b"), too_long, reserved, message(&name, "n", "c")];
    let results = home.publish(&name, messages, false).wait().unwrap();
    let words: Vec<_> =
        results.iter().map(|result| result.as_ref().map(|ack| ack.sequence).map_err(|error| error.message())).collect();
    assert_eq!((&words[0], &words[4]), (&Ok(1), &Ok(2)));
    for (at, field) in [
        (1, "subject: \"elsewhere.n\" is none of stream"),
        (2, "payload: 2097152 bytes are too long"),
        (3, "headers: "),
    ] {
        assert!(words[at].is_err_and(|words| words.contains(field)), "{:?}", words[at]);
    }
    let error = home.publish("nowhere", vec![message("nowhere", "n", "x")], false).wait().unwrap_err();
    assert!(error.kind() == HomeErrorKind::NotFound && error.message().contains("there is no \"nowhere\""), "{error}");
}

#[test]
fn publishing_to_a_deleted_stream_is_not_found() {
    let Some(home) = home() else { return };
    let name = stream(&*home, "gone");
    publish_numbers(&*home, &name, 1);
    let other = tidewire_nats::open(&home.place().replace("NATS at ", "nats://")).unwrap();
    other.delete_stream(&name).wait().unwrap();
    let error = home.publish(&name, vec![message(&name, "n", "x")], false).wait().unwrap().remove(0).unwrap_err();
    assert_eq!(error.kind(), HomeErrorKind::NotFound, "{error}");
}

#[test]
fn a_batch_is_stored_whole_or_not_at_all() {
    let Some(home) = home() else { return };
    let mut limited = settings("batch");
    limited.max_messages = Some(10);
    let name = home.create_stream(limited).wait().unwrap().settings.name;
    let batch = |count: u32| (0..count).map(|number| message(&name, "n", number.to_string())).collect::<Vec<_>>();
    let acks = home.publish(&name, batch(7), true).wait().unwrap();
    let sequences: Vec<_> = acks.into_iter().map(|ack| ack.unwrap().sequence).collect();
    assert_eq!(sequences, (1..=7).collect::<Vec<_>>());
    let mut wrong = batch(2);
    wrong.push(message("elsewhere", "n", "x"));
    let refused = home.publish(&name, wrong, true).wait().unwrap();
    assert!(refused.len() == 3 && refused.iter().all(Result::is_err), "{refused:?}");
    assert_eq!(home.stream_info(&name).wait().unwrap().messages, 7);
    let error = home.publish(&name, batch(1_001), true).wait().unwrap_err();
    assert!(error.message().contains("messages: 1001 are too many for one batch"), "{error}");
}

// Promises: P17.122.
#[test]
fn batches_of_two_processes_store_a_common_id_once() {
    let Some(first) = home() else { return };
    let Some(second) = home() else { return };
    let name = stream(&*first, "common");
    store_common_ids(&[&*first, &*second], &name);
}

/// Publishes batches that have ids in common; each batch is stored whole, and each id once.
pub fn store_common_ids(homes: &[&dyn Home], stream: &str) {
    let batch = |of: usize, number: usize| {
        let with_id = |id: String| NewMessage { id: Some(id.clone()), ..message(stream, "n", id) };
        let common = (0..4).map(|id| with_id(format!("common {}", number + id)));
        common.chain([with_id(format!("own {of} {number}")), message(stream, "n", "last")]).collect::<Vec<_>>()
    };
    let (batches, all) = (20, homes.len());
    let answers: Vec<_> = (0..batches)
        .flat_map(|number| homes.iter().enumerate().map(move |(of, home)| (of, number, *home)))
        .map(|(of, number, home)| home.publish(stream, batch(of, number), true))
        .collect();
    let (mut stored, mut common) = (BTreeSet::new(), BTreeMap::new());
    for (at, answer) in answers.into_iter().enumerate() {
        let acks: Vec<_> = answer.wait().unwrap().into_iter().map(Result::unwrap).collect();
        for (id, ack) in acks.iter().take(4).enumerate() {
            let sequence = *common.entry(at / all + id).or_insert(ack.sequence);
            assert_eq!(ack.sequence, sequence, "an id has one sequence");
        }
        assert!(!acks[4].duplicate && !acks[5].duplicate, "{acks:?}");
        for ack in acks.iter().filter(|ack| !ack.duplicate) {
            assert!(stored.insert(ack.sequence), "sequence {} is acked as new twice", ack.sequence);
        }
    }
    let count = (batches + 3 + 2 * batches * all) as u64;
    assert_eq!(stored, (1..=count).collect());
    assert_eq!(homes[0].stream_info(stream).wait().unwrap().messages, count);
}

#[test]
fn a_delayed_event_comes_when_it_is_due() {
    let Some(home) = home() else { return };
    let name = stream(&*home, "later");
    let now_us = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as u64;
    let mut later = message(&name, "n", "later");
    later.deliver_at_us = Some(now_us + 1_500_000);
    later.id = Some("the later one".to_owned());
    home.publish(&name, vec![later, message(&name, "n", "now")], false)
        .wait()
        .unwrap()
        .into_iter()
        .for_each(|ack| assert!(ack.is_ok(), "{ack:?}"));
    let info = home.stream_info(&name).wait().unwrap();
    assert_eq!((info.messages, info.delayed), (1, 1));
    let page = home.read(&name, everything()).wait().unwrap();
    assert_eq!(page.events.iter().map(|event| &event.payload[..]).collect::<Vec<_>>(), [b"now"]);
    let page = home
        .read(&name, Read { start: Start::Sequence(page.next), wait_us: 20_000_000, ..everything() })
        .wait()
        .unwrap();
    let [event] = &page.events[..] else { panic!("{page:?}") };
    assert_eq!((&event.payload[..], event.id.as_deref()), (&b"later"[..], Some("the later one")));
    assert!(event.time_us >= now_us + 1_400_000, "it came {} us after it was sent", event.time_us - now_us);
    assert!(event.headers.is_empty(), "{event:?}");
    let info = home.stream_info(&name).wait().unwrap();
    assert_eq!((info.messages, info.delayed), (2, 0));
}

#[test]
fn reading_selects_waits_and_stops() {
    let Some(home) = home() else { return };
    let name = stream(&*home, "read");
    let messages = (0..30).map(|number| message(&name, ["a", "b.x", "c"][number % 3], number.to_string())).collect();
    home.publish(&name, messages, false).wait().unwrap();
    let filter = vec![pattern(&format!("{name}.a")), pattern(&format!("{name}.b.*"))];
    let page = home.read(&name, Read { filter: filter.clone(), ..everything() }).wait().unwrap();
    assert_eq!(page.events.len(), 20);
    assert!(page.next > page.last, "{} {}", page.next, page.last);
    let page = home.read(&name, Read { start: Start::Sequence(5), stop: Some(8), ..everything() }).wait().unwrap();
    assert_eq!(page.events.iter().map(|event| event.sequence).collect::<Vec<_>>(), [5, 6, 7, 8]);
    let page = home.read(&name, Read { start: Start::New, ..everything() }).wait().unwrap();
    assert_eq!((page.events.len(), page.next), (0, 31));
    let waiting = home.read(&name, Read { start: Start::Sequence(31), filter, wait_us: 20_000_000, ..everything() });
    home.publish(&name, vec![message(&name, "c", "unseen"), message(&name, "a", "seen")], false).wait().unwrap();
    assert_eq!(waiting.wait().unwrap().events.iter().map(|event| event.sequence).collect::<Vec<_>>(), [32]);
    let long = home.read(&name, Read { max_bytes: 1, ..everything() }).wait().unwrap();
    assert_eq!((long.events.len(), long.next), (1, 2), "at least one");
}
