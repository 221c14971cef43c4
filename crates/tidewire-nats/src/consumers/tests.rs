//! Tests of consumer settings.

use super::widest;
use tidewire_proto::subject::Pattern;

#[test]
fn patterns_that_others_cover_are_left_out() {
    let widest_of = |texts: &[&str]| {
        let patterns: Vec<_> = texts.iter().map(|text| Pattern::new(text).unwrap()).collect();
        widest(&patterns).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(widest_of(&["a.b", "a.*", "a.b.c", "a.>"]), ["a.>"]);
    assert_eq!(widest_of(&["a.*", "a.b", "b.*"]), ["a.*", "b.*"]);
    assert_eq!(widest_of(&["a.*", "a.*.c"]), ["a.*", "a.*.c"]);
    assert_eq!(widest_of(&["a.>", "a"]), ["a.>", "a"]);
}
