//! The vectors of `spec/vectors/campaigns.json`, which a second implementation in Python must
//! match, too.

use serde_json::Value as Json;
use tidewire_core::campaign::digest::{digest, read, written};
use tidewire_core::campaign::random::{Scope, Stream, Use, counter};
use tidewire_core::campaign::rows::{Column, ColumnType, Rows, Value};
use tidewire_core::campaign::seed::{self, Seed};

fn vectors() -> Json {
    serde_json::from_str(include_str!("../../../../../spec/vectors/campaigns.json")).expect("JSON")
}

fn list(json: &Json) -> &[Json] {
    json.as_array().expect("a list")
}

fn text(json: &Json) -> &str {
    json.as_str().expect("a text")
}

fn hex(json: &Json) -> u64 {
    u64::from_str_radix(text(json), 16).expect("hexadecimal digits")
}

// Promises: P15.2.
#[test]
fn keys_seeds_and_streams() {
    for vector in list(&vectors()["seeds"]) {
        let written = text(&vector["seed"]);
        let seed: Seed = written.parse().unwrap();
        assert_eq!(seed.to_string(), written);
        let key = seed.key();
        assert_eq!(key.to_vec(), list(&vector["key"]).iter().map(hex).collect::<Vec<_>>(), "{written}");
        for run in list(&vector["runs"]) {
            let index = text(&run["run"]).parse().unwrap();
            assert_eq!(seed::of_run(key, index, Scope::Run), hex(&run["seed"]), "{written}, run {index}");
            let mut stream = Stream::new(key, counter(index, Use::Random, Scope::Run));
            for word in list(&run["random"]) {
                assert_eq!(stream.word(), hex(word), "{written}, run {index}");
            }
            assert_eq!(Stream::new(key, counter(index, Use::Numpy, Scope::Run)).word(), hex(&run["numpy"]));
        }
    }
}

fn value<'a>(kind: ColumnType, json: &'a Json) -> Value<'a> {
    let Some(text) = json.as_str() else { return Value::Null };
    match kind {
        ColumnType::Integer => Value::Integer(text.parse().unwrap()),
        ColumnType::Float => Value::Float(text.parse().unwrap()),
        ColumnType::Text => Value::Text(text),
        ColumnType::Boolean => Value::Boolean(text == "1"),
        ColumnType::Time => Value::Time(text.parse().unwrap()),
        ColumnType::Json => Value::Json(text),
    }
}

#[test]
fn digests() {
    for vector in list(&vectors()["digests"]) {
        let columns: Vec<_> = list(&vector["columns"])
            .iter()
            .map(|column| Column::new(text(&column["name"]), text(&column["type"]).parse().unwrap()))
            .collect();
        let mut rows = Rows::new(&columns);
        for row in list(&vector["rows"]) {
            let values: Vec<_> =
                columns.iter().zip(&list(row)[2..]).map(|(column, json)| value(column.kind, json)).collect();
            rows.push(text(&row[0]).parse().unwrap(), text(&row[1]).parse().unwrap(), &values).unwrap();
        }
        assert_eq!(written(digest(&rows)), text(&vector["digest"]), "{}", vector["name"]);
        assert_eq!(read(text(&vector["digest"])), Some(digest(&rows)));
    }
}

#[test]
fn a_position_of_a_stream_can_be_returned_to() {
    let mut stream = Stream::new([3, 4], counter(9, Use::Random, Scope::Run));
    for _ in 0..11 {
        let position = stream.position();
        let expected: Vec<_> = (0..7).map(|_| stream.word()).collect();
        stream.set_position(position);
        assert_eq!((0..7).map(|_| stream.word()).collect::<Vec<_>>(), expected);
        stream.set_position(position);
        stream.word();
    }
}

#[test]
fn seeds_that_can_not_be_are_refused() {
    for (written, told) in [
        ("7", "begins neither with int: nor with text:"),
        ("int:", "is no integer"),
        ("int:--7", "is no integer"),
        ("int:7.0", "is no integer"),
        ("text:a\0b", "NUL"),
    ] {
        let refused = written.parse::<Seed>().unwrap_err().to_string();
        assert!(refused.contains(told), "{written:?}: {refused}");
    }
    assert!(Seed::integer(&"9".repeat(1_235)).is_err());
    assert!(Seed::text(&"9".repeat(4_097)).is_err());
    assert_eq!(Seed::integer("-007").unwrap(), Seed::from(-7));
    assert_eq!(Seed::integer("-0").unwrap(), Seed::from(0));
}
