//! Result cases: every value comes back, and a wrong result stores nothing.

use tidewire_backend::{
    CampaignId, Claim, Column, ColumnType, ErrorKind, Lease, Plan, RangeResults, Rows, Schema, State,
};
use tidewire_core::campaign::digest::digest;
use tidewire_core::campaign::rows::Value;

use crate::{
    Connection, EmptyStore, all_rows, failure, join, lease, no_parameters, outcome, plan, refused, results_of, start,
    store_all, work_off,
};

fn one_run(store: &mut Connection, id: CampaignId) -> Lease {
    let worker = join(store, id);
    lease(store.claim(id, worker, &[]).unwrap())
}

fn results_with(lease: &Lease, rows: Rows) -> RangeResults {
    RangeResults { first: lease.first, count: 1, digest: digest(&rows), rows, run_us: 1, ..RangeResults::default() }
}

pub fn every_value_comes_back(place: &EmptyStore) {
    let mut store = place.connect();
    let columns: Vec<Column> = ColumnType::ALL.map(|kind| Column::new(kind.name(), kind)).to_vec();
    let schema = Schema { columns: columns.clone(), many: true };
    let id = start(&mut store, &Plan { schema: Some(schema), ..plan("values", 1) });
    let mut rows = Rows::new(&columns);
    let float = Value::Float;
    let long = "x".repeat(3_000_000);
    let all = [
        [
            Value::Integer(i64::MIN),
            float(f64::NAN),
            Value::Text(""),
            Value::Boolean(true),
            Value::Time(0),
            Value::Json("null"),
        ],
        [
            Value::Integer(i64::MAX),
            float(f64::INFINITY),
            Value::Text("12"),
            Value::Boolean(false),
            Value::Time(-1),
            Value::Json("5"),
        ],
        [Value::Null; 6],
        [
            Value::Integer(0),
            float(f64::NEG_INFINITY),
            Value::Text("NaN"),
            Value::Null,
            Value::Time(253_402_300_799_999_999),
            Value::Json("{\"a\" : [1.0,\"\\u0000\"]}"),
        ],
        [
            Value::Integer(1 << 53),
            float(f64::MIN_POSITIVE / 2.0),
            Value::Text(&long),
            Value::Null,
            Value::Time(-62_135_596_800_000_000),
            Value::Json("\"é\""),
        ],
        [
            Value::Integer(-1),
            float(0.1),
            Value::Text("é\n\t\\N'\"\u{1f980}"),
            Value::Null,
            Value::Time(1_700_000_000_123_456),
            Value::Json(" [] "),
        ],
        [Value::Null, float(1e300), Value::Text(" 0012 "), Value::Null, Value::Null, Value::Json("1e400")],
    ];
    for (row, values) in all.iter().enumerate() {
        rows.push(0, row as u32, values).unwrap();
    }
    let mut lease = one_run(&mut store, id);
    let results = results_with(&lease, rows.clone());
    store.commit(id, &mut lease, &results).unwrap();
    let stored = place.connect().read_rows(id, 0, 100).unwrap();
    assert_eq!((stored.len(), &stored.runs, &stored.rows), (all.len(), &rows.runs, &rows.rows));
    for (at, column) in columns.iter().enumerate() {
        for row in 0..rows.len() {
            let (stored, given) = (stored.columns[at].at(row), rows.columns[at].at(row));
            let both_nan = matches!((stored, given), (Value::Float(a), Value::Float(b)) if a.is_nan() && b.is_nan());
            assert!(both_nan || stored == given, "row {row}, {}: {stored:?}, and it was {given:.60?}", column.name);
        }
    }
    assert_eq!(digest(&stored), store.status(id).unwrap().digest);
}

// Promises: P15.10, P15.33.
pub fn the_pilot_brings_the_columns(place: &EmptyStore) {
    let mut store = place.connect();
    let id = store.create(&Plan { schema: None, ..plan("pilot", 30) }, &no_parameters()).unwrap();
    store.transition(id, State::Running, "").unwrap();
    assert!(store.read_rows(id, 0, 10).unwrap().columns.is_empty());
    let (one, two) = (join(&mut store, id), join(&mut store, id));
    let mut pilot = lease(store.claim(id, one, &[]).unwrap());
    assert!(pilot.pilot);
    let waits = store.claim(id, two, &[]).unwrap();
    assert!(matches!(waits, Claim::Wait { state: State::Running, .. }), "{waits:?}");
    let bare = results_of(&pilot, 1, &[]);
    refused(store.commit(id, &mut pilot, &bare), ErrorKind::Invalid, "columns of the results are not known");
    let failed = results_of(&pilot, 1, &[0]);
    store.commit(id, &mut pilot, &failed).unwrap();
    let mut pilot = lease(store.claim(id, two, &[]).unwrap());
    assert!(pilot.pilot && pilot.first == 1, "a pilot that failed tells nothing: {pilot:?}");
    let mut results = results_of(&pilot, 1, &[]);
    results.schema = plan("", 0).schema;
    store.commit(id, &mut pilot, &results).unwrap();
    assert_eq!(place.connect().campaign(id).unwrap().plan.schema, results.schema);
    let mut next = lease(store.claim(id, two, &[]).unwrap());
    assert!(!next.pilot && next.count > 1);
    let mut other = results_of(&next, next.count, &[]);
    other.schema = Some(Schema { many: true, ..results.schema.clone().unwrap() });
    let before = store.status(id).unwrap();
    other.schema.as_mut().unwrap().columns[0].name = "HITS".to_owned();
    refused(store.commit(id, &mut next, &other), ErrorKind::Invalid, "where the campaign has");
    assert_eq!(store.status(id).unwrap().rows, before.rows);
    other.schema.clone_from(&results.schema);
    store.commit(id, &mut next, &other).unwrap();
    work_off(&mut store, id);
    let summary = store.status(id).unwrap().summary;
    assert_eq!((summary.state, summary.done, summary.failed), (State::Done, 29, 1));
}

// Promises: P15.40.
pub fn results_that_do_not_fit_are_refused_whole(place: &EmptyStore) {
    let mut store = place.connect();
    let columns = [Column::new("text", ColumnType::Text), Column::new("json", ColumnType::Json)];
    let schema = |many| Some(Schema { columns: columns.to_vec(), many });
    let cases = [
        (false, vec![(0, 0, "a\0b", "1")], "run 0: column \"text\" has text with NUL"),
        (false, vec![(0, 0, "a", "{")], "run 0: column \"json\" has \"{\", which is no JSON"),
        (false, vec![(0, 0, "a", "NaN")], "no JSON"),
        (false, vec![], "run 0 succeeded and has 0 rows"),
        (false, vec![(1, 0, "a", "1")], "run 0 succeeded and has 0 rows"),
        (false, vec![(0, 0, "a", "1"), (0, 1, "a", "1")], "run 0 succeeded and has 2 rows"),
        (true, vec![(0, 1, "a", "1")], "run 0 has row 1 where 0 comes next"),
        (true, vec![(0, 0, "a", "1"), (0, 0, "a", "1")], "run 0 has row 0 where 1 comes next"),
        (true, vec![(0, 0, "a", "1"), (7, 0, "a", "1")], "run 7 is out of order, or not of this range"),
    ];
    for (number, (many, rows, says)) in cases.into_iter().enumerate() {
        let id = start(&mut store, &Plan { schema: schema(many), ..plan(&format!("case {number}"), 1) });
        let mut lease = one_run(&mut store, id);
        let mut rejected = Rows::new(&columns);
        for (run, row, text, json) in rows {
            rejected.push(run, row, &[Value::Text(text), Value::Json(json)]).unwrap();
        }
        let results = results_with(&lease, rejected);
        refused(store.commit(id, &mut lease, &results), ErrorKind::Invalid, says);
        let other = results_of(&lease, 1, &[]);
        let wrong = "results: column \"text\" of text got 1 values of integer";
        refused(store.commit(id, &mut lease, &other), ErrorKind::Invalid, wrong);
        let status = store.status(id).unwrap();
        assert_eq!((status.summary.done, status.rows, status.leased), (0, 0, 1), "nothing is half done");
        let mut twice = results_of(&lease, 1, &[]);
        twice.rows = Rows::new(&columns);
        twice.rows.push(0, 0, &[Value::Null, Value::Null]).unwrap();
        twice.failures.push(failure(0));
        refused(store.commit(id, &mut lease, &twice), ErrorKind::Invalid, "run 0 has failed and has 1 rows");
        let mut far = results_of(&lease, 1, &[0]);
        far.failures[0].run = 5;
        refused(store.commit(id, &mut lease, &far), ErrorKind::Invalid, "");
        let mut kind = results_of(&lease, 1, &[0]);
        kind.failures[0].kind = "bad luck".to_owned();
        refused(store.commit(id, &mut lease, &kind), ErrorKind::Invalid, "kind: \"bad luck\"");
        let mut long = results_of(&lease, 1, &[0]);
        long.count = 2;
        refused(store.commit(id, &mut lease, &long), ErrorKind::Invalid, "");
        let good = results_of(&lease, 1, &[0]);
        store.commit(id, &mut lease, &good).unwrap();
    }
}

pub fn rows_are_read_by_whole_runs(place: &EmptyStore) {
    let mut store = place.connect();
    let columns = [Column::new("n", ColumnType::Integer)];
    let schema = Some(Schema { columns: columns.to_vec(), many: true });
    let id = start(&mut store, &Plan { schema, ..plan("many", 7) });
    let worker = join(&mut store, id);
    // Runs give 0, 1, 2, ... rows.
    for _ in 0..7 {
        let Claim::Lease(mut lease) = store.claim(id, worker, &[]).unwrap() else { break };
        let mut rows = Rows::new(&columns);
        for run in lease.first..lease.end() {
            (0..run as u32).for_each(|row| rows.push(run, row, &[Value::Integer(i64::from(row))]).unwrap());
        }
        let results = RangeResults { count: lease.count, ..results_with(&lease, rows) };
        store.commit(id, &mut lease, &results).unwrap();
    }
    let status = store.status(id).unwrap();
    assert_eq!((status.summary.state, status.rows), (State::Done, 21));
    let runs = |part: &Rows| part.runs.clone();
    let parts = all_rows(&mut store, id, 6);
    assert_eq!(
        parts.iter().map(runs).collect::<Vec<_>>(),
        [vec![1, 2, 2, 3, 3, 3], vec![4; 4], vec![5; 5], vec![6; 6]]
    );
    assert_eq!(all_rows(&mut store, id, 1).len(), 6, "at least one run, however long");
    assert_eq!(all_rows(&mut store, id, 0).len(), 6);
    assert_eq!(all_rows(&mut store, id, u32::MAX).len(), 1);
    assert!(store.read_rows(id, 7, 10).unwrap().is_empty());
    assert!(store.read_rows(id, u64::MAX, 10).unwrap().is_empty());
    let sum = all_rows(&mut store, id, 4).iter().fold(0, |sum: u128, part| sum.wrapping_add(digest(part)));
    assert_eq!(sum, status.digest, "stored rows give the digest");
}

pub fn failures_are_kept_within_bounds(place: &EmptyStore) {
    let mut store = place.connect();
    let id = start(&mut store, &plan("bad", 3));
    let worker = join(&mut store, id);
    let mut first = lease(store.claim(id, worker, &[]).unwrap());
    let mut results = results_of(&first, 1, &[0]);
    results.failures[0].message = format!("é\0{}", "m".repeat(5_000));
    results.failures[0].traceback = format!("{}the end é", "t".repeat(50_000));
    store.commit(id, &mut first, &results).unwrap();
    let second = lease(store.claim(id, worker, &[]).unwrap());
    store_all(&mut store, id, second);
    work_off(&mut store, id);
    let errors = store.errors(id, 0, 10).unwrap();
    let stored = &errors[0].failure;
    assert_eq!((errors.len(), errors[0].worker, stored.run, stored.attempts), (1, worker, 0, 3));
    assert_eq!((stored.kind.as_str(), stored.error.as_str()), ("error", "ValueError"));
    assert!(stored.message.starts_with("é\u{fffd}mm") && stored.message.chars().count() == 2_000);
    assert!(stored.traceback.ends_with("the end é") && stored.traceback.chars().count() == 8_000);
    assert!(store.errors(id, 1, 10).unwrap().is_empty());
    assert!(store.errors(id, 0, 0).unwrap().is_empty());
}

pub fn parameter_sets_are_columns(place: &EmptyStore) {
    let mut store = place.connect();
    let sets = ["{\"teams\": 2}", "{\"teams\": 3}", "{\"teams\": 4}"].map(str::to_owned);
    let id = store.create(&plan("sweep", 10), &sets).unwrap();
    store.transition(id, State::Running, "").unwrap();
    work_off(&mut store, id);
    let rows = store.read_rows(id, 0, 100).unwrap();
    assert_eq!((rows.len(), rows.columns.len()), (10, 2), "the column of the store is not one of the function");
}

// Promises: P15.45.
pub fn reads_beside_writers_are_whole(place: &EmptyStore) {
    let mut store = place.connect();
    let id = start(&mut store, &plan("export", 4_000));
    std::thread::scope(|scope| {
        scope.spawn(|| work_off(&mut place.connect(), id));
        let mut ended = false;
        while !ended {
            ended = store.status(id).unwrap().summary.state.ended();
            let (mut from, mut read) = (0, 0);
            loop {
                let rows = store.read_rows(id, from, 300).unwrap();
                let Some(last) = rows.runs.last() else { break };
                // A single worker stores runs in order: each page has every run up to its last one,
                // without holes.
                assert_eq!(rows.runs, (from..=*last).collect::<Vec<_>>());
                for (at, run) in rows.runs.iter().enumerate() {
                    assert_eq!([rows.columns[0].at(at), rows.columns[1].at(at)], outcome(*run));
                }
                from = last + 1;
                read += rows.len() as u64;
            }
            assert!(read <= store.status(id).unwrap().rows);
            assert!(!ended || read == 4_000, "{read}");
        }
    });
}
