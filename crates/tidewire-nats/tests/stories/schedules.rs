//! Stories of schedules: the age of their stream, a server that is killed, one that is too old.

use tidewire_backend::home::{Change, Event, Home, HomeErrorKind, Read, ScheduleSettings, Start, StreamSettings};
use tidewire_core::stream::recurrence::Timing;

use crate::servers::{Server, home, message, settings, stream};

fn pulse(stream: &str) -> ScheduleSettings {
    let timing = Timing::new("@every 1s", "UTC").unwrap();
    ScheduleSettings { name: "pulse".to_owned(), timing, message: message(stream, "pulse", "alive") }
}

/// The events that come next.
fn next(home: &dyn Home, stream: &str) -> Vec<Event> {
    let after = home.stream_info(stream).wait().unwrap().last;
    let (start, wait_us) = (Start::Sequence(after + 1), 20_000_000);
    let read = Read { start, stop: None, filter: Vec::new(), max_messages: 9, max_bytes: 1 << 20, wait_us };
    home.read(stream, read).wait().unwrap().events
}

#[test]
fn a_schedule_is_older_than_the_events_of_its_stream() {
    let Some(home) = home() else { return };
    let aging = StreamSettings { max_age_us: Some(1_000_000), ..settings("aging") };
    let name = home.create_stream(aging).wait().unwrap().settings.name;
    home.create_schedule(&name, pulse(&name)).wait().unwrap();
    for _ in 0..4 {
        assert_eq!(&next(&*home, &name)[0].payload[..], b"alive");
    }
    assert!(home.stream_info(&name).wait().unwrap().messages <= 3, "the beats are forgotten by their age");
    assert_eq!(home.create_schedule(&name, pulse(&name)).wait().unwrap().1, Change::Kept);
    home.delete_stream(&name).wait().unwrap();
}

#[test]
fn a_schedule_outlives_a_server_that_is_killed() {
    let Some(mut server) = Server::durable("") else { return };
    let home = server.home();
    let name = stream(&*home, "kept");
    let (made, _) = home.create_schedule(&name, pulse(&name)).wait().unwrap();
    next(&*home, &name);
    server.order("kill");
    server.order("start");
    let listed = home.list_schedules(&name).wait().unwrap();
    assert_eq!(listed[0].settings, made.settings);
    assert_eq!(&next(&*home, &name)[0].payload[..], b"alive");
    drop(home);
    server.end();
}

#[test]
fn a_server_before_schedules_refuses_them_with_the_reason() {
    let Some(old) = Server::old("2.11.9") else { return };
    let home = old.home();
    let name = stream(&*home, "old");
    let error = home.create_schedule(&name, pulse(&name)).wait().unwrap_err();
    assert_eq!(error.kind(), HomeErrorKind::Unsupported);
    let why = "schedule: nats-server 2.11.9 can't do it: install 2.14.0 or newer";
    assert_eq!(error.message(), why);
    assert_eq!(home.list_schedules(&name).wait().unwrap(), []);
    assert!(!home.cancel_schedule(&name, "pulse").wait().unwrap());
    drop(home);
    old.end();
}
