//! Tests of messages as events.

use super::{AckSubject, headers};
use tidewire_backend::home::NewMessage;
use tidewire_proto::subject::Subject;

#[test]
fn reply_subjects_say_where_a_message_stands() {
    let place = AckSubject { sequence: 9, delivery: 2, time_us: 5_000, pending: 3 };
    for reply in [
        "$JS.ACK.orders.billing.2.9.7.5000000.3",
        "$JS.ACK.hub.ACCOUNT.orders.billing.2.9.7.5000000.3",
        "$JS.ACK._.ACCOUNT.orders.billing.2.9.7.5000000.3.random",
    ] {
        assert_eq!(AckSubject::read(reply), Some(place), "{reply}");
    }
    for reply in ["", "_INBOX.1", "$JS.ACK.orders.billing.2.9.7.5000000", "$JS.ACK.orders.billing.x.9.7.5000000.3"] {
        assert_eq!(AckSubject::read(reply), None, "{reply}");
    }
}

#[test]
fn headers_that_nats_can_not_carry_are_refused() {
    let message = |name: &str, value: &str| {
        let mut message = NewMessage::new(Subject::new("a").unwrap(), "");
        message.headers.push((name.to_owned(), value.to_owned()));
        headers(&message, true).map(|map| map.unwrap()).map_err(|error| error.message().to_owned())
    };
    assert!(message("content-type", "a b").is_ok());
    for (name, value) in [("nats-TTL", "1s"), ("a b", ""), ("a:", ""), ("", ""), ("a", "b\r\nc"), ("a", " b")] {
        let error = message(name, value).expect_err(name);
        assert!(error.starts_with("headers: ") && error.contains(": "), "{error}");
    }
}
