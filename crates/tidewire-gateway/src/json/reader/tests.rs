//! Stories of JSON that is read and written again.

use super::super::to_json;
use super::{arguments, value};
use tidewire_node::values::Value;

fn again(text: &str) -> String {
    let read = value(text.as_bytes()).unwrap_or_else(|wrong| panic!("{text}: {wrong}"));
    String::from_utf8(to_json(&read)).expect("JSON is text")
}

#[test]
fn plain_json_comes_back_unchanged() {
    for text in [
        "null",
        "true",
        "-9223372036854775808",
        "18446744073709551615",
        "1.5",
        "1.0",
        r#""a \" \\ ü""#,
        r#"[1,[2,{"a":[]}],{}]"#,
        r#"{"$type":"bytes","base64":"AAEC/w=="}"#,
        r#"{"$type":"bytearray","base64":""}"#,
        r#"{"$type":"float","value":"nan"}"#,
        r#"{"$type":"float","value":"-inf"}"#,
        r#"{"$type":"complex","real":1.0,"imag":-0.5}"#,
        r#"{"$type":"map","entries":[[1,"one"],["$type","two"]]}"#,
        r#"{"$type":"array","dtype":"<f8","shape":[1],"order":"C","base64":"AAAAAAAA+D8="}"#,
    ] {
        assert_eq!(again(text), text);
    }
}

#[test]
fn forms_of_text_are_written_as_text() {
    for (form, text) in [
        (r#"{"$type":"datetime","value":"2026-11-21T08:00:00-05:00"}"#, r#""2026-11-21T08:00:00-05:00""#),
        (r#"{"$type":"datetime","value":"1969-12-31T23:59:59.999999Z"}"#, r#""1969-12-31T23:59:59.999999Z""#),
        (r#"{"$type":"datetime","value":"2026-11-21 08:00"}"#, r#""2026-11-21T08:00:00""#),
        (r#"{"$type":"date","value":"0001-01-01"}"#, r#""0001-01-01""#),
        (r#"{"$type":"time","value":"23:59:01.5"}"#, r#""23:59:01.500000""#),
        (r#"{"$type":"duration","value":"-P1DT2H0.5S"}"#, r#""-PT93600.500000S""#),
        (r#"{"$type":"decimal","value":"1.10"}"#, r#""1.10""#),
        (
            r#"{"$type":"uuid","value":"00112233-4455-6677-8899-aabbccddeeff"}"#,
            r#""00112233-4455-6677-8899-aabbccddeeff""#,
        ),
        (r#"{"$type":"set","items":[1]}"#, "[1]"),
        (r#"{"$type":"tuple","items":[1,2]}"#, "[1,2]"),
    ] {
        assert_eq!(again(form), text);
    }
    assert_eq!(value(br#"{"$type":"tuple","items":[1]}"#), Ok(Value::Tuple(vec![Value::Int(1)])));
    assert_eq!(value(br#"{"$type":"date","value":"1970-01-02"}"#), Ok(Value::Date(1)));
}

#[test]
fn a_value_that_json_would_change_is_refused() {
    for (text, word) in [
        ("18446744073709551616", "integer"),
        ("[-9223372036854775809]", "integer"),
        (r#"{"a":1,"a":2}"#, "\"a\" is given twice"),
        (r#"{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"i":2}"#, "\"i\" is given twice"),
        (r#"{"$type":"bytes","base64":"?"}"#, "base64"),
        (r#"{"$type":"bytes"}"#, "base64"),
        (r#"{"$type":"bytes","base64":"","more":1}"#, "more"),
        (r#"{"$type":"nothing"}"#, "\"nothing\" is not a form"),
        (r#"{"$type":3}"#, "$type"),
        (r#"{"$type":"date","value":"2026-02-30"}"#, "date"),
        (r#"{"$type":"array","dtype":"<f8","shape":[2],"order":"C","base64":"AAAAAAAA+D8="}"#, "bytes"),
        (r#"{"$type":"array","dtype":"O","shape":[0],"order":"C","base64":""}"#, "dtype"),
        ("[1,]", "trailing comma"),
        ("[1] 2", "trailing"),
        ("[", "EOF"),
    ] {
        let wrong = value(text.as_bytes()).expect_err(text);
        assert!(wrong.contains(word), "{text}: {wrong}");
    }
    assert!(value("[".repeat(100_000).as_bytes()).is_err());
    assert_eq!(value(b"1e20"), Ok(Value::Float(1e20)));
    assert_eq!(value(br#"["18446744073709551616",1e19]"#).map(drop), Ok(()));
}

#[test]
fn arguments_are_an_array_or_an_object() {
    assert_eq!(arguments(b" \n"), Ok(Value::Nil));
    assert_eq!(arguments(b"[]"), Ok(Value::List(Vec::new())));
    let named = Value::Map(vec![("$type".into(), "bytes".into())]);
    assert_eq!(arguments(br#"{"$type":"bytes"}"#), Ok(named), "it is the name of an argument");
    assert!(arguments(b"3").expect_err("it is neither").contains("neither an array nor an object"));
}
