//! Schedules.

use std::time::SystemTime;

use tidewire_node::ErrorCode;
use tidewire_node::streams::{Change, ConsumerOptions, Full, Message, StreamOptions};

use crate::hubs::Place;
use crate::support::in_time;

#[test]
fn a_schedule_beats_is_kept_and_replaced_and_ends() {
    let place = Place::new();
    let reports = in_time(place.node.stream_with("reports", StreamOptions::new(["reports.>"])));
    let mut consumer = in_time(reports.consumer("all", ConsumerOptions::all()));
    let pulse = || Message::new("reports.pulse", &7).key("k").header("x", "y");
    let made = in_time(reports.schedule("pulse", "@every 1s", pulse()));
    assert_eq!((made.change(), made.when(), made.time_zone()), (Change::Made, "@every 1s", "UTC"));
    assert!(made.next().is_some_and(|next| next > SystemTime::UNIX_EPOCH), "{made:?}");
    assert_eq!(in_time(reports.schedule("pulse", "@every 1s", pulse())).change(), Change::Kept);
    for _ in 0..2 {
        let beat = consumer.next_blocking().expect("it beats");
        let of = beat.headers().iter().find(|(name, _)| name == "Tidewire-Schedule").map(|(_, value)| value.as_str());
        assert_eq!((beat.subject(), beat.key(), of), ("reports.pulse", Some("k"), Some("pulse")));
        assert_eq!(beat.read::<i64>().ok(), Some(7));
        in_time(beat.ack());
    }
    let nightly = reports.schedule_in("nightly", "0 22 * * mon-fri", "Europe/Berlin", Message::new("reports.due", &()));
    assert_eq!(in_time(nightly).change(), Change::Made);
    let other = reports.schedule("nightly", "@daily", Message::new("reports.due", &()));
    assert_eq!(in_time(other).change(), Change::Replaced);
    let listed = in_time(reports.schedules());
    let told: Vec<_> = listed.iter().map(|one| (one.name(), one.when(), one.subject(), one.change())).collect();
    let kept = Change::Kept;
    assert_eq!(told, [("nightly", "@daily", "reports.due", kept), ("pulse", "@every 1s", "reports.pulse", kept)]);
    assert!(in_time(reports.cancel_schedule("pulse")));
    assert!(!in_time(reports.cancel_schedule("pulse")));
}

#[test]
fn a_schedule_that_can_not_be_is_refused_with_what_is_wrong() {
    let place = Place::new();
    let reports = in_time(place.node.stream_with("reports", StreamOptions::new(["reports.>"])));
    let refused = |when: &str, zone: &str, subject: &str| {
        let error = reports.schedule_in("one", when, zone, Message::new(subject, &())).wait().expect_err("it is wrong");
        (error.code(), error.to_string())
    };
    for (when, zone, subject, says) in [
        ("0 25 * * *", "UTC", "reports.due", "25"),
        ("@every 0s", "UTC", "reports.due", "0s"),
        ("0 0 30 2 *", "UTC", "reports.due", "never comes"),
        ("@daily", "Berlin", "reports.due", "time_zone"),
        ("@daily", "UTC", "other.due", "other.due"),
    ] {
        let (code, text) = refused(when, zone, subject);
        assert_eq!(code, ErrorCode::InvalidArgument, "{text}");
        assert!(text.contains(says), "{text}");
    }
    let options = StreamOptions::new(["few.>"]).max_messages(9).full(Full::Refuse);
    let few = in_time(place.node.stream_with("few", options));
    let full = few.schedule("one", "@daily", Message::new("few.due", &())).wait().expect_err("it might have no room");
    assert_eq!(full.code(), ErrorCode::Unsupported);
}
