//! Sequential stopping: a campaign ends at the same run, independent of its workers.

use tidewire_backend::{
    Claim, Column, ColumnType, ErrorKind, Plan, Precision, RangeResults, Rows, Schema, Settings, State,
};
use tidewire_core::campaign::digest::digest;
use tidewire_core::campaign::rows::Value;

use crate::{EmptyStore, join, lease, no_parameters, plan, refused, results_of, start, work_off};

fn until(half_width: f64) -> Settings {
    let until = Some(Precision { column: "area".to_owned(), half_width, confidence: 0.95 });
    Settings { until, ..Settings::default() }
}

/// Works on a campaign with several workers that claim in turns; ends with the runs that it took.
fn work_in_turns(place: &EmptyStore, name: &str, workers: usize, schema: bool) -> (u64, u128, f64) {
    let mut store = place.connect();
    let columns = vec![Column::new("area", ColumnType::Float), Column::new("note", ColumnType::Text)];
    let known = Schema { columns: columns.clone(), many: true };
    let plan = Plan { settings: until(0.02), schema: schema.then(|| known.clone()), ..plan(name, 1 << 40) };
    let sets = vec!["{}".to_owned(), "{\"a\": 1}".to_owned()];
    let id = store.create(&plan, &sets).unwrap();
    store.transition(id, State::Running, "").unwrap();
    let mut team: Vec<_> = (0..workers).map(|_| (join(&mut store, id), place.connect())).collect();
    for turn in 0.. {
        assert!(turn < 100_000, "it never ends");
        let (worker, connection) = &mut team[turn % workers];
        let mut lease = match connection.claim(id, *worker, &[]).unwrap() {
            Claim::Lease(lease) => lease,
            Claim::Wait { .. } => continue,
            Claim::Ended(state) => {
                assert_eq!(state, State::Done);
                break;
            }
        };
        let mut rows = Rows::new(&columns);
        for run in lease.first..lease.end() {
            // Some give no row, some one without a value, the others several whose mean counts.
            let value = (run % 7) as f64 / 7.0;
            match run % 5 {
                0 => (),
                1 => rows.push(run, 0, &[Value::Null, Value::Null]).unwrap(),
                _ => (0..2).for_each(|row| {
                    let value = value + f64::from(row) - 0.5;
                    rows.push(run, row, &[Value::Float(value), Value::Text("é")]).unwrap();
                }),
            }
        }
        let (count, sum) = (lease.count, digest(&rows));
        let schema = lease.pilot.then(|| known.clone());
        let results = RangeResults {
            first: lease.first,
            count,
            schema,
            digest: sum,
            rows,
            run_us: 50,
            ..RangeResults::default()
        };
        connection.commit(id, &mut lease, &results).unwrap();
    }
    let status = store.status(id).unwrap();
    let look = status.look.unwrap();
    assert!(look.reached && look.half_width <= 0.02 && look.runs == status.summary.done, "{look:?}");
    assert!(status.reason.starts_with("precise enough after"), "{}", status.reason);
    (status.summary.done, status.digest, look.mean)
}

// Promises: P15.52, P15.56, P15.58.
pub fn a_mean_that_is_known_well_enough_ends_at_the_same_run(place: &EmptyStore) {
    let (runs, digest, mean) = work_in_turns(place, "one", 1, true);
    assert!(runs > 1_000 && runs < 100_000, "{runs}");
    assert!((mean - 3.0 / 7.0).abs() < 0.02, "{mean}");
    assert_eq!(work_in_turns(place, "three", 3, true), (runs, digest, mean));
    assert_eq!(work_in_turns(place, "pilot", 2, false), (runs, digest, mean));
}

// Promises: P15.58.
pub fn a_figure_that_is_not_finite_is_never_known(place: &EmptyStore) {
    let mut store = place.connect();
    let id = start(&mut store, &Plan { settings: until(1e9), ..plan("nan", 300) });
    let worker = join(&mut store, id);
    while let Claim::Lease(mut lease) = store.claim(id, worker, &[]).unwrap() {
        let mut results = results_of(&lease, lease.count, &[]);
        results.rows = Rows::new(&plan("", 0).schema.unwrap().columns);
        for run in lease.first..lease.end() {
            let area = if run == 5 { f64::NAN } else { 1.0 };
            results.rows.push(run, 0, &[Value::Integer(1), Value::Float(area)]).unwrap();
        }
        store.commit(id, &mut lease, &results).unwrap();
    }
    let status = store.status(id).unwrap();
    let look = status.look.unwrap();
    assert_eq!((status.summary.state, status.summary.done, look.reached), (State::Done, 300, false));
    assert_eq!((look.runs, look.half_width), (300, f64::INFINITY));
}

pub fn one_that_goes_on_looks_again(place: &EmptyStore) {
    let mut store = place.connect();
    let id = start(&mut store, &Plan { settings: until(1e6), ..plan("on", 10_000) });
    work_off(&mut store, id);
    assert_eq!(store.status(id).unwrap().summary.done, 100);
    store.extend(id, 50).unwrap();
    work_off(&mut store, id);
    let status = store.status(id).unwrap();
    assert_eq!((status.summary.state, status.summary.done, status.look.unwrap().runs), (State::Done, 150, 150));
}

pub fn a_pilot_without_the_column_is_refused(place: &EmptyStore) {
    let mut store = place.connect();
    let id = store.create(&Plan { schema: None, settings: until(0.1), ..plan("pilot", 9) }, &no_parameters()).unwrap();
    store.transition(id, State::Running, "").unwrap();
    let worker = join(&mut store, id);
    let mut pilot = lease(store.claim(id, worker, &[]).unwrap());
    let mut results = results_of(&pilot, 1, &[]);
    let mut schema = plan("", 0).schema.unwrap();
    schema.columns[1].name = "size".to_owned();
    results.schema = Some(schema);
    let says = "until: there is no column \"area\"; there are hits, size";
    refused(store.commit(id, &mut pilot, &results), ErrorKind::Invalid, says);
    results.schema = plan("", 0).schema;
    store.commit(id, &mut pilot, &results).unwrap();
}
