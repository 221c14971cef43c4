//! Tests of values against the golden and malformed vectors of the specification.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use tidewire_proto::generated::errors::ErrorCode;

use super::{Bytes, Value, from_bytes, read_arguments, to_bytes};

const VECTORS: &str = include_str!("../../../../spec/vectors/values.json");

#[derive(Deserialize)]
struct Vectors {
    values: Vec<Golden>,
    malformed: Vec<Malformed>,
}

#[derive(Deserialize)]
struct Golden {
    name: String,
    written: bool,
    hex: String,
}

#[derive(Deserialize)]
struct Malformed {
    description: String,
    hex: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Quote {
    symbol: String,
    qty: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Side {
    Buy,
    Limit(f64),
    Between(u8, u8),
    Named { text: String },
}

fn vectors() -> Vectors {
    serde_json::from_str(VECTORS).expect("the vectors are JSON")
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits")).collect()
}

#[test]
fn every_golden_value_is_read_and_written_as_it_was() {
    for golden in vectors().values {
        let blob = bytes(&golden.hex);
        let value: Value = from_bytes(&blob).unwrap_or_else(|error| panic!("{}: {error}", golden.name));
        let again = to_bytes(&value).unwrap_or_else(|error| panic!("{}: {error}", golden.name));
        // A shorter form of what no writer writes means the same.
        let is_buffers = golden.name == "buffers";
        assert!(
            is_buffers || again == blob,
            "{}: {again:02x?} is not {blob:02x?} (written: {})",
            golden.name,
            golden.written
        );
        assert_eq!(from_bytes::<Value>(&again).ok(), Some(value), "{}", golden.name);
    }
}

#[test]
fn every_malformed_value_is_refused() {
    for malformed in vectors().malformed {
        let read = from_bytes::<Value>(&bytes(&malformed.hex));
        assert!(read.is_err(), "{}: it was read as {read:?}", malformed.description);
    }
}

#[test]
fn golden_values_are_read_by_the_types_that_they_are_for() {
    let golden: BTreeMap<_, _> = vectors().values.into_iter().map(|one| (one.name, bytes(&one.hex))).collect();
    let blob = |name: &str| &golden[name][..];
    assert_eq!(from_bytes::<Quote>(blob("record")).ok(), Some(Quote { symbol: "X".to_owned(), qty: 3 }));
    assert_eq!(from_bytes::<String>(blob("enum")).ok().as_deref(), Some("red"));
    assert_eq!(from_bytes::<(i32, String)>(blob("tuple")).ok(), Some((1, "a".to_owned())));
    assert_eq!(from_bytes::<Vec<u8>>(blob("set")).ok(), Some(vec![7]));
    assert_eq!(from_bytes::<Vec<u8>>(blob("bytearray")).ok(), Some(vec![0, 255, 1]));
    assert_eq!(from_bytes::<String>(blob("decimal")).ok().as_deref(), Some("-1.50"));
    assert_eq!(from_bytes::<String>(blob("moment")).ok().as_deref(), Some("2026-11-21T08:00:00-05:00"));
    assert_eq!(from_bytes::<Bytes>(blob("UUID")).map(|uuid| uuid.len()).ok(), Some(16));
    let both: (Bytes, Bytes) = from_bytes(blob("buffers")).expect("two buffers");
    assert_eq!(both, (Bytes(b"first".to_vec()), Bytes(b"2nd".to_vec())));
}

#[test]
fn types_of_rust_travel_there_and_back() {
    let sides = vec![Side::Buy, Side::Limit(1.5), Side::Between(1, 2), Side::Named { text: "x".to_owned() }];
    assert_eq!(from_bytes::<Vec<Side>>(&to_bytes(&sides).expect("sides")).ok(), Some(sides));
    let mixed = (Some(1_u8), None::<u8>, (), 'x', f32::MIN, u64::MAX, i64::MIN);
    assert_eq!(from_bytes(&to_bytes(&mixed).expect("mixed")).ok(), Some(mixed));
    let long = (Bytes(vec![7; 5_000]), vec![Bytes(vec![8; 4_097])], Bytes(vec![9; 4_096]));
    assert_eq!(from_bytes(&to_bytes(&long).expect("long")).ok(), Some(long));
}

#[test]
fn a_value_that_does_not_fit_is_named_with_its_path() {
    let blob = to_bytes(&BTreeMap::from([("symbol", Value::from("X")), ("qty", Value::from(-1))])).expect("a map");
    let wrong = from_bytes::<Quote>(&blob).expect_err("qty is negative");
    assert_eq!(wrong.to_string(), "value.qty: invalid value: integer `-1`, expected u32");
    assert_eq!(wrong.code(), ErrorCode::InvalidArgument);
    let whole = to_bytes(&Quote { symbol: "X".to_owned(), qty: 1 }).expect("a quote");
    let cut = from_bytes::<Quote>(&whole[..whole.len() - 1]).expect_err("it is cut off");
    assert_eq!(cut.code(), ErrorCode::WireError);
}

#[test]
fn arguments_are_taken_by_position_and_by_name() {
    let names = ["symbol".to_owned(), "qty".to_owned()];
    let read = |blob: &[u8]| read_arguments::<(String, Option<u32>)>(blob, &names).map_err(|wrong| wrong.to_string());
    let x = || "X".to_owned();
    assert_eq!(read(&to_bytes(&("X", 3)).expect("a tuple")), Ok((x(), Some(3))));
    assert_eq!(read(&to_bytes(&("X",)).expect("one")), Ok((x(), None)));
    assert_eq!(read(&to_bytes(&Quote { symbol: x(), qty: 4 }).expect("a struct")), Ok((x(), Some(4))));
    let both = Value::List(vec![Value::Tuple(vec!["X".into()]), Value::Map(vec![("qty".into(), 5.into())])]);
    assert_eq!(read(&to_bytes(&both).expect("both")), Ok((x(), Some(5))));
    let twice = Value::List(vec![Value::Tuple(vec!["X".into()]), Value::Map(vec![("symbol".into(), "Y".into())])]);
    assert_eq!(
        read(&to_bytes(&twice).expect("twice")),
        Err("symbol: it is given twice, by position and by name".to_owned())
    );
    assert_eq!(read(&[0xc0]), Err("symbol: nothing was given: give a value".to_owned()));
    let many = read(&to_bytes(&("X", 3, 4)).expect("three"));
    assert_eq!(many, Err("3 arguments are more than the 2 that it takes".to_owned()));
    let wrong = read(&to_bytes(&("X", "many")).expect("a tuple"));
    assert_eq!(wrong, Err("qty: invalid type: string \"many\", expected u32".to_owned()));
    let unknown = read(&to_bytes(&BTreeMap::from([("price", 1)])).expect("a map"));
    assert_eq!(unknown, Err("\"price\" is not the name of a parameter: there are symbol, qty".to_owned()));
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::Float),
        ".{0,40}".prop_map(Value::Text),
        proptest::collection::vec(any::<u8>(), 0..5_000).prop_map(Value::Bytes),
        proptest::collection::vec(any::<u8>(), 0..5_000).prop_map(Value::ByteArray),
        (-62_135_596_800_000_000_i64..253_402_300_800_000_000).prop_map(Value::Timestamp),
        any::<[u8; 16]>().prop_map(Value::Uuid),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::List),
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::Tuple),
            proptest::collection::vec((".{0,8}".prop_map(Value::Text), inner.clone()), 0..8).prop_map(Value::Map),
            (".{1,8}", inner).prop_map(|(name, member)| Value::Enum(name, Box::new(member))),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_travels_there_and_back(value in any_value()) {
        let blob = to_bytes(&value).expect("it can be written");
        prop_assert_eq!(&from_bytes::<Value>(&blob).expect("it can be read"), &value);
    }

    #[test]
    fn arguments_are_read_in_any_order(a in any_value(), b in any_value(), c in any_value()) {
        let names = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let (a_, b_, c_) = (("a".into(), a.clone()), ("b".into(), b.clone()), ("c".into(), c.clone()));
        for given in [vec![a_.clone(), b_.clone(), c_.clone()], vec![c_.clone(), a_.clone(), b_.clone()], vec![b_, c_, a_]] {
            let blob = to_bytes(&Value::Map(given)).expect("it can be written");
            let read = read_arguments::<(Value, Value, Value)>(&blob, &names).expect("it can be read");
            prop_assert_eq!(&read, &(a.clone(), b.clone(), c.clone()));
        }
    }

    #[test]
    fn bytes_by_chance_are_refused_or_read_but_never_a_panic(blob in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = from_bytes::<Value>(&blob);
        let _ = from_bytes::<Quote>(&blob);
        let _ = from_bytes::<Side>(&blob);
        let names = ["a".to_owned(), "b".to_owned()];
        let _ = read_arguments::<(String, Option<u32>)>(&blob, &names);
    }

    #[test]
    fn a_value_with_a_wrong_byte_is_refused_or_read_but_never_a_panic(
        value in any_value(), at in any::<prop::sample::Index>(), byte in any::<u8>()
    ) {
        let mut blob = to_bytes(&value).expect("it can be written");
        let at = at.index(blob.len());
        blob[at] = byte;
        let _ = from_bytes::<Value>(&blob);
    }
}
