//! Conformance suite of storage backends: the common behaviour of streams, buckets and leases on
//! every folder or server.
//!
//! A storage backend calls [`home_conformance!`](crate::home_conformance) in its integration tests,
//! with a function that makes an empty one:
//!
//! ```ignore
//! tidewire_testkit::home_conformance!(crate::home);
//! ```
//!
//! Cases wait for events, never for time to pass. If the storage backend lacks the capability of a
//! case, the case checks the refusal instead.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidewire_backend::home::{
    Ack, Answer, Capability, ConsumerSettings, Delivery, Event, Fetch, Home, HomeErrorKind, HomeResult, NewMessage,
    Read, Settle, Settlement, Start, StreamSettings,
};
use tidewire_proto::subject::{Pattern, Subject};

pub mod consumers;
pub mod keyvalue;
pub mod leases;
pub mod schedules;
pub mod streams;

/// How long a case waits for what must come.
const SOON: Duration = Duration::from_secs(20);
const SECOND_US: u64 = 1_000_000;

/// An empty storage backend, for one test.
pub struct HomePlace {
    /// The storage backend.
    pub home: Arc<dyn Home>,
    /// Removes the storage of the backend when it is dropped.
    pub keep: Box<dyn Any>,
}

/// Tests of a storage backend: each case is a `#[test]` of its own. Takes the path of a function
/// that makes a [`HomePlace`]. The function returns None where this is not possible, and prints the
/// reason.
#[macro_export]
macro_rules! home_conformance {
    ($place:path) => {
        $crate::home_cases! { $place;
            streams: [
                published_events_are_read_in_order,
                a_stream_is_made_once_and_with_one_kind_of_settings,
                each_message_of_a_batch_has_its_own_result,
                an_id_is_stored_once,
                a_full_stream_refuses,
                a_full_stream_drops_its_oldest,
                purging_removes_and_never_reuses_sequences,
                a_deleted_value_is_not_found,
                reading_filters_and_stops_and_begins_at_a_time,
                a_reader_waits_for_what_is_published_next,
                batches_are_stored_whole_or_not_at_all,
                a_batch_stores_each_id_once,
                calls_after_a_batch_are_stored_after_it,
                delayed_messages_come_later,
                messages_expire,
                headers_keys_and_bytes_arrive_as_they_were,
                the_newest_of_each_subject_stays,
                the_newest_of_each_key_stays,
                a_compacted_key_is_delivered_once_by_its_newest,
                limits_of_a_compacted_stream_are_kept_or_refused,
            ],
            schedules: [
                a_schedule_beats_until_it_is_cancelled,
                a_schedule_is_made_kept_or_replaced,
                schedules_outlive_a_purge_and_go_with_their_stream,
                schedules_that_can_not_be_are_refused,
            ],
            consumers: [
                those_who_compete_share_the_events,
                patterns_select_what_they_match_and_nothing_else,
                a_fetch_waits_for_what_is_published_next,
                a_failed_event_comes_again_and_ends_as_a_dead_letter,
                a_terminated_event_is_dead_at_once,
                an_ack_wait_that_is_over_gives_the_event_to_another,
                a_delivery_is_settled_once,
                a_delivery_of_before_a_move_is_stale,
                a_delivery_of_before_a_requeue_is_stale,
                events_that_no_handler_began_are_given_back,
                a_key_that_fails_holds_back_itself_alone,
                credit_bounds_what_is_out,
                a_consumer_begins_where_it_was_told,
                a_consumer_is_paused_and_resumed,
                a_consumer_is_moved,
                a_consumer_is_made_once,
            ],
            keyvalue: [
                values_have_revisions_and_history,
                writes_happen_only_if_the_key_is_as_expected,
                a_deletion_that_finds_no_value_writes_nothing,
                deletions_at_once_delete_each_value_once,
                watchers_see_what_changes,
                entries_expire,
                keys_are_listed_by_pattern,
            ],
            leases: [
                one_holds_it_and_the_next_gets_it,
                a_lease_that_is_not_renewed_is_lost,
                fences_only_grow,
            ],
        }
    };
}

/// The cases of [`home_conformance!`], one test each.
#[doc(hidden)]
#[macro_export]
macro_rules! home_cases {
    ($place:path; $($module:ident: [$($case:ident),+ $(,)?]),+ $(,)?) => {
        $(
            mod $module {
                $(
                    #[test]
                    fn $case() {
                        let place: Option<$crate::homes::HomePlace> = $place();
                        if let Some(place) = place {
                            $crate::homes::$module::$case(&*place.home);
                            place.home.close().wait().expect("the home closes");
                        }
                    }
                )+
            }
        )+
    };
}

/// Waits for an answer that must come.
fn done<T>(answer: Answer<T>) -> HomeResult<T> {
    answer.wait_for(SOON).unwrap_or_else(|_| panic!("no answer came within {SOON:?}"))
}

/// Waits for an answer that must be good.
fn good<T>(answer: Answer<T>) -> T {
    done(answer).unwrap_or_else(|error| panic!("{}: {error}", error.kind().name()))
}

/// Waits for an answer that must be an error of a kind, with a message that says what to do.
fn refused<T: std::fmt::Debug>(answer: Answer<T>, kind: HomeErrorKind) -> String {
    let error = done(answer).expect_err("it must be refused");
    assert_eq!(error.kind(), kind, "{error}");
    error.message().to_owned()
}

fn pattern(text: &str) -> Pattern {
    Pattern::new(text).expect("a pattern")
}

fn subject(text: &str) -> Subject {
    Subject::new(text).expect("a subject")
}

fn message(name: &str, payload: &str) -> NewMessage {
    NewMessage::new(subject(name), Bytes::copy_from_slice(payload.as_bytes()))
}

/// A stream `orders` that takes `orders.>`.
fn orders(home: &dyn Home) -> StreamSettings {
    let settings = StreamSettings::new("orders", vec![pattern("orders.>")]);
    good(home.create_stream(settings.clone()));
    settings
}

fn publish(home: &dyn Home, messages: Vec<NewMessage>) -> Vec<Ack> {
    let acks = good(home.publish("orders", messages, false));
    acks.into_iter().map(|ack| ack.expect("the stream takes it")).collect()
}

/// Publishes to `orders.x`.
fn publish_all(home: &dyn Home, payloads: &[&str]) -> Vec<u64> {
    let messages = payloads.iter().map(|payload| message("orders.x", payload)).collect();
    publish(home, messages).iter().map(|ack| ack.sequence).collect()
}

fn everything() -> Read {
    let (filter, max_messages, max_bytes) = (Vec::new(), 1_000, 1 << 20);
    Read { start: Start::All, stop: None, filter, max_messages, max_bytes, wait_us: 0 }
}

/// All that a stream has, page by page.
fn read_all(home: &dyn Home, read: Read) -> Vec<Event> {
    let (mut events, mut read) = (Vec::new(), read);
    loop {
        let page = good(home.read("orders", read.clone()));
        events.extend(page.events);
        if page.next > page.last || read.stop.is_some_and(|stop| page.next > stop) {
            return events;
        }
        read.start = Start::Sequence(page.next);
    }
}

fn payloads(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| String::from_utf8_lossy(&event.payload).into_owned()).collect()
}

/// A consumer of everything, whose failed events come again at once.
fn consumer(home: &dyn Home, change: impl FnOnce(&mut ConsumerSettings)) {
    let mut settings = ConsumerSettings { start: Start::All, backoff_us: Vec::new(), ..ConsumerSettings::new("c") };
    change(&mut settings);
    good(home.create_consumer("orders", settings));
}

fn fetch(home: &dyn Home, max_messages: u32, wait_us: u64) -> Vec<Delivery> {
    good(home.fetch("orders", "c", Fetch { max_messages, max_bytes: 1 << 20, wait_us }))
}

/// Fetches until there are so many deliveries.
fn fetch_exactly(home: &dyn Home, count: usize) -> Vec<Delivery> {
    let mut all = Vec::new();
    while all.len() < count {
        let some = fetch(home, (count - all.len()) as u32, 10 * SECOND_US);
        assert!(!some.is_empty(), "{} of {count} came", all.len());
        all.extend(some);
    }
    all
}

fn settle(home: &dyn Home, delivery: &Delivery, how: Settlement) -> HomeResult<()> {
    let settle = Settle { sequence: delivery.event.sequence, ticket: delivery.ticket, how };
    good(home.settle("orders", "c", vec![settle])).remove(0)
}

fn ack(home: &dyn Home, delivery: &Delivery) {
    settle(home, delivery, Settlement::Ack).expect("it is out");
}

/// True if a case can run. Otherwise checks that the refusal gives the reason.
fn can<T: std::fmt::Debug>(home: &dyn Home, capability: Capability, ask: impl FnOnce() -> Answer<T>) -> bool {
    if home.capabilities().has(capability) {
        return true;
    }
    let why = home.capabilities().why_not(capability).unwrap_or_default().to_owned();
    println!("skipped: {} can't do {}: {why}", home.place(), capability.name());
    assert!(!why.is_empty(), "the reason is missing");
    refused(ask(), HomeErrorKind::Unsupported);
    false
}
