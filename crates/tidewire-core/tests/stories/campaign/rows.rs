//! Rows by columns: nulls, wrong types, and removal of rows.

use proptest::prelude::*;
use tidewire_core::campaign::digest::digest;
use tidewire_core::campaign::rows::{Column, ColumnType, Rows, Value};

fn columns() -> Vec<Column> {
    ColumnType::ALL.into_iter().map(|kind| Column::new(kind.name(), kind)).collect()
}

/// A row of six values made from a number; every fifth value is a null.
fn values(number: u64, texts: &[String; 2]) -> [Value<'_>; 6] {
    let mut values = [
        Value::Integer(number as i64),
        Value::Float(number as f64 / 3.0),
        Value::Text(&texts[0]),
        Value::Boolean(number.is_multiple_of(2)),
        Value::Time(-(number as i64)),
        Value::Json(&texts[1]),
    ];
    if number.is_multiple_of(5) {
        values[(number / 5 % 6) as usize] = Value::Null;
    }
    values
}

fn texts(number: u64) -> [String; 2] {
    ["x".repeat((number % 40) as usize), format!("[{number}]")]
}

proptest! {
    #[test]
    fn pushed_rows_are_there_and_the_digest_is_that_of_the_parts(count in 0u64..80, cut in 0u64..80) {
        let columns = columns();
        let (mut all, mut front, mut back) = (Rows::new(&columns), Rows::new(&columns), Rows::new(&columns));
        for run in 0..count {
            let texts = texts(run);
            all.push(run, 0, &values(run, &texts)).unwrap();
            let part = if run < cut { &mut front } else { &mut back };
            part.push(run, 0, &values(run, &texts)).unwrap();
        }
        for run in 0..count {
            let texts = texts(run);
            for (column, expected) in all.columns.iter().zip(values(run, &texts)) {
                prop_assert_eq!(column.at(run as usize), expected);
            }
        }
        prop_assert_eq!(digest(&all), digest(&front).wrapping_add(digest(&back)));
        all.truncate(cut as usize);
        prop_assert_eq!(digest(&all), digest(&front));
    }
}

#[test]
fn a_row_that_does_not_fit_leaves_nothing_behind() {
    let mut rows = Rows::new(&columns());
    let texts = texts(3);
    rows.push(3, 0, &values(3, &texts)).unwrap();
    let before = rows.clone();
    let mut wrong = values(4, &texts);
    wrong[5] = Value::Text("no JSON");
    let refused = rows.push(4, 0, &wrong).unwrap_err();
    assert_eq!(refused, "column 5: a value of type text, where the column has json");
    assert_eq!(rows.push(4, 0, &wrong[..5]).unwrap_err(), "5 values for 6 columns");
    assert_eq!(rows, before);
}

#[test]
fn every_change_of_a_row_changes_the_digest() {
    let columns = [Column::new("a", ColumnType::Text), Column::new("b", ColumnType::Integer)];
    let of = |run, row, values: &[Value<'_>]| {
        let mut rows = Rows::new(&columns);
        rows.push(run, row, values).unwrap();
        digest(&rows)
    };
    let all = [
        of(1, 0, &[Value::Text("x"), Value::Integer(1)]),
        of(2, 0, &[Value::Text("x"), Value::Integer(1)]),
        of(1, 1, &[Value::Text("x"), Value::Integer(1)]),
        of(1, 0, &[Value::Text("x\u{1}"), Value::Integer(1)]),
        of(1, 0, &[Value::Text(""), Value::Integer(1)]),
        of(1, 0, &[Value::Null, Value::Integer(1)]),
        of(1, 0, &[Value::Text("x"), Value::Integer(0)]),
        of(1, 0, &[Value::Text("x"), Value::Null]),
    ];
    for (index, one) in all.iter().enumerate() {
        assert!(!all[..index].contains(one), "digest {index} is one of those before it");
    }
}
