//! Schedules.

use std::time::SystemTime;

use tidewire_node::ErrorCode;
use tidewire_node::streams::{Change, ConsumerOptions, Message, StreamOptions};

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
    let nowhere = reports.schedule_in("one", "@daily", "Berlin", Message::new("reports.due", &())).wait();
    let nowhere = nowhere.expect_err("there is no such zone");
    assert!(nowhere.code() == ErrorCode::InvalidArgument && nowhere.to_string().contains("time_zone"), "{nowhere}");
    let other = reports.schedule("nightly", "@daily", Message::new("reports.due", &()));
    assert_eq!(in_time(other).change(), Change::Replaced);
    let listed = in_time(reports.schedules());
    let told: Vec<_> = listed.iter().map(|one| (one.name(), one.when(), one.subject(), one.change())).collect();
    let kept = Change::Kept;
    assert_eq!(told, [("nightly", "@daily", "reports.due", kept), ("pulse", "@every 1s", "reports.pulse", kept)]);
    assert!(in_time(reports.cancel_schedule("pulse")));
    assert!(!in_time(reports.cancel_schedule("pulse")));
}
