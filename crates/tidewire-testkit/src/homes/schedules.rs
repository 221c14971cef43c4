//! Conformance cases of schedules.

use tidewire_backend::home::{
    Capability, Change, Event, Full, Home, HomeErrorKind, Purge, Read, SCHEDULE_HEADER, ScheduleSettings, Start,
    StreamSettings,
};
use tidewire_core::stream::recurrence::Timing;

use super::{SECOND_US, can, everything, good, message, orders, pattern, payloads, publish_all, read_all, refused};

fn schedule(name: &str, when: &str, payload: &str) -> ScheduleSettings {
    let timing = Timing::new(when, "UTC").expect("it is one");
    ScheduleSettings { name: name.to_owned(), timing, message: message("orders.due", payload) }
}

/// The next events from a sequence on, until there are so many.
fn next_events(home: &dyn Home, mut at: u64, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        let read = Read { start: Start::Sequence(at), wait_us: 10 * SECOND_US, ..everything() };
        let page = good(home.read("orders", read));
        assert!(!page.events.is_empty(), "only {} of {count} events came", events.len());
        (at, _) = (page.next, events.extend(page.events));
    }
    events
}

fn names(home: &dyn Home) -> Vec<String> {
    good(home.list_schedules("orders")).into_iter().map(|info| info.settings.name).collect()
}

// Promises: P17.8.
pub fn a_schedule_beats_until_it_is_cancelled(home: &dyn Home) {
    orders(home);
    let mut pulse = schedule("pulse", "@every 1s", "due");
    pulse.message.key = Some("customer-7".to_owned());
    pulse.message.headers = vec![("content-type".to_owned(), "x/y".to_owned())];
    if !can(home, Capability::Schedule, || home.create_schedule("orders", pulse.clone())) {
        return;
    }
    let (made, change) = good(home.create_schedule("orders", pulse.clone()));
    assert_eq!((made.settings, change), (pulse.clone(), Change::Made));
    let beats = next_events(home, 1, 3);
    for beat in &beats[..3] {
        let of = beat.headers.iter().find(|(name, _)| name == SCHEDULE_HEADER).map(|(_, value)| value.as_str());
        assert_eq!((of, beat.key.as_deref(), beat.id.as_deref()), (Some("pulse"), Some("customer-7"), None));
        assert!(beat.headers.contains(&("content-type".to_owned(), "x/y".to_owned())), "{:?}", beat.headers);
        assert_eq!((beat.subject.as_str(), &*beat.payload), ("orders.due", b"due".as_slice()));
    }
    let spans: Vec<u64> = beats.windows(2).map(|two| two[1].time_us - two[0].time_us).collect();
    // A server looks four times a second.
    assert!(spans.iter().all(|span| (600_000..2_000_000).contains(span)), "{spans:?}");
    assert!(good(home.cancel_schedule("orders", "pulse")));
    assert!(!good(home.cancel_schedule("orders", "pulse")), "there is none any more");
    let last = good(home.stream_info("orders")).last;
    let after = Read { start: Start::Sequence(last + 1), wait_us: 2_500_000, ..everything() };
    assert_eq!(good(home.read("orders", after)).events, [], "it was cancelled");
    assert_eq!(good(home.stream_info("orders")).messages, read_all(home, everything()).len() as u64);
}

// Promises: P17.19, P17.20.
pub fn a_schedule_is_made_kept_or_replaced(home: &dyn Home) {
    orders(home);
    let nightly = schedule("nightly", "0 22 * * mon-fri", "1");
    if !can(home, Capability::Schedule, || home.create_schedule("orders", nightly.clone())) {
        return;
    }
    let make = |settings: &ScheduleSettings| good(home.create_schedule("orders", settings.clone()));
    let (made, change) = make(&nightly);
    assert_eq!(change, Change::Made);
    assert!(made.next_us.is_some_and(|next_us| next_us % (86_400 * SECOND_US) == 22 * 3_600 * SECOND_US), "{made:?}");
    assert_eq!(make(&nightly), (made.clone(), Change::Kept));
    make(&schedule("hourly", "@hourly", "1"));
    assert_eq!(good(home.list_schedules("orders")).last(), Some(&made), "it is listed as it was made");
    assert_eq!(names(home), ["hourly", "nightly"]);
    let mut others = vec![schedule("nightly", "0 22 * * mon-fri", "2"), schedule("nightly", "0 23 * * 1-5", "2")];
    let timing = Timing::new("0 23 * * 1-5", "America/New_York").expect("it is one");
    others.push(ScheduleSettings { timing, ..others[1].clone() });
    others.push(others[2].clone());
    others[3].message.key = Some("k".to_owned());
    others.push(others[3].clone());
    others[4].message.headers = vec![("b".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())];
    others.push(others[4].clone());
    others[5].message.ttl_us = Some(5 * SECOND_US);
    for other in &others {
        assert_eq!(make(other).1, Change::Replaced, "{other:?}");
        assert_eq!(make(other).1, Change::Kept, "{other:?}");
        assert_eq!(good(home.list_schedules("orders"))[1].settings, *other);
    }
    assert_eq!(read_all(home, everything()), [], "none of them is due");
}

// Promises: P17.21, P17.22.
pub fn schedules_outlive_a_purge_and_go_with_their_stream(home: &dyn Home) {
    orders(home);
    let pulse = schedule("pulse", "@every 1s", "due");
    if !can(home, Capability::Schedule, || home.create_schedule("orders", pulse.clone())) {
        return;
    }
    publish_all(home, &["1", "2"]);
    good(home.create_schedule("orders", pulse.clone()));
    assert!(good(home.purge("orders", Purge::default())) >= 2);
    publish_all(home, &["3", "4"]);
    good(home.purge("orders", Purge { keep: Some(1), ..Purge::default() }));
    assert_eq!(names(home), ["pulse"]);
    let last = good(home.stream_info("orders")).last;
    let beat = next_events(home, last + 1, 1).remove(0);
    assert_eq!(payloads(std::slice::from_ref(&beat)), ["due"]);
    good(home.delete_stream("orders"));
    refused(home.list_schedules("orders"), HomeErrorKind::NotFound);
    orders(home);
    assert_eq!(names(home), [""; 0], "a new stream of the same name has none");
}

pub fn schedules_that_can_not_be_are_refused(home: &dyn Home) {
    orders(home);
    let fine = schedule("nightly", "@daily", "1");
    if !can(home, Capability::Schedule, || home.create_schedule("orders", fine.clone())) {
        return;
    }
    refused(home.create_schedule("nothing", fine.clone()), HomeErrorKind::NotFound);
    refused(home.list_schedules("nothing"), HomeErrorKind::NotFound);
    refused(home.cancel_schedule("nothing", "nightly"), HomeErrorKind::NotFound);
    let invalid = |settings: ScheduleSettings, says: &str| {
        let text = refused(home.create_schedule("orders", settings), HomeErrorKind::Invalid);
        assert!(text.contains(says), "{text}");
    };
    invalid(ScheduleSettings { name: "a.b".to_owned(), ..fine.clone() }, "a.b");
    invalid(ScheduleSettings { message: message("other.due", "1"), ..fine.clone() }, "other.due");
    invalid(ScheduleSettings { message: message("orders.due", &"x".repeat(65_537)), ..fine.clone() }, "schedule_bytes");
    let mut with_id = fine.clone();
    with_id.message.id = Some("order-42".to_owned());
    invalid(with_id, "id");
    assert_eq!(names(home), [""; 0]);
    let limited = |name: &str, full: Full| {
        let subjects = vec![pattern(&format!("{name}.>"))];
        let settings = StreamSettings { max_messages: Some(9), full, ..StreamSettings::new(name, subjects) };
        good(home.create_stream(settings));
        home.create_schedule(name, ScheduleSettings { message: message(&format!("{name}.due"), "1"), ..fine.clone() })
    };
    let text = refused(limited("refusing", Full::Refuse), HomeErrorKind::Unsupported);
    assert!(text.contains("drop_old"), "{text}");
    if can(home, Capability::ScheduleLimits, || limited("dropping", Full::DropOld)) {
        assert_eq!(good(limited("dropping", Full::DropOld)).1, Change::Made);
    }
}
