//! Stories of headers.

use hyper::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};

use super::{StreamForm, stream_form, timeout, trace};

fn with(name: impl Into<HeaderName>, value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(name.into(), HeaderValue::from_static(value))])
}

#[test]
fn the_form_of_a_stream_is_what_the_client_prefers() {
    let form = |accept| stream_form(&with(ACCEPT, accept)).ok();
    assert_eq!(stream_form(&HeaderMap::new()).ok(), Some(StreamForm::Lines));
    assert_eq!(form("text/event-stream"), Some(StreamForm::Events));
    assert_eq!(form("application/x-ndjson;q=0.5, text/event-stream"), Some(StreamForm::Events));
    assert_eq!(form("Application/JSONL, text/event-stream;q=0.9"), Some(StreamForm::Lines));
    assert_eq!(form("*/*"), Some(StreamForm::Lines));
    assert_eq!(form("application/json"), None);
    assert_eq!(form("text/event-stream;q=0"), None);
}

#[test]
fn times_and_traces_are_read() {
    let time = |value| timeout(&with(HeaderName::from_static("tidewire-timeout"), value)).ok().flatten();
    assert_eq!(time("1.5"), Some(std::time::Duration::from_millis(1_500)));
    for wrong in ["0", "-1", "nan", "inf", "1e300", "soon"] {
        assert_eq!(time(wrong), None, "{wrong}");
    }
    let of = |value: &'static str| trace(&with(HeaderName::from_static("traceparent"), value)).map(str::to_owned);
    let id = "4bf92f3577b34da6a3ce929d0e0e4736";
    assert_eq!(of("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").as_deref(), Some(id));
    assert_eq!(of("00-00000000000000000000000000000000-00f067aa0ba902b7-01"), None);
}
