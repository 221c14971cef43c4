//! Stories of streams: settings, refusals, a deleted stream, common ids of batches.

use std::collections::{BTreeMap, BTreeSet};

use tidewire_backend::home::{Home, HomeErrorKind, NewMessage, StreamSettings};

use crate::servers::{home, message, pattern, publish_numbers, settings, stream};

#[test]
fn subjects_of_another_stream_are_refused() {
    let Some(home) = home() else { return };
    let first = home.create_stream(settings("taken")).wait().unwrap().settings;
    let overlapping = StreamSettings { subjects: first.subjects, ..settings("overlaps") };
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
fn publishing_to_a_deleted_stream_is_not_found() {
    let Some(home) = home() else { return };
    let name = stream(&*home, "gone");
    publish_numbers(&*home, &name, 1);
    let other = tidewire_nats::open(&home.place().replace("NATS at ", "nats://")).unwrap();
    other.delete_stream(&name).wait().unwrap();
    let error = home.publish(&name, vec![message(&name, "n", "x")], false).wait().unwrap().remove(0).unwrap_err();
    assert_eq!(error.kind(), HomeErrorKind::NotFound, "{error}");
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
