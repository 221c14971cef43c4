//! Files that are no store, or can't be used.

use rusqlite::Connection;
use tidewire_backend::{Campaigns, ErrorKind, Result, State};
use tidewire_sqlite::{Missing, open};
use tidewire_testkit::{no_parameters, plan, start, work_off};

use crate::Folder;

fn kind<T>(result: Result<T>, kind: ErrorKind, says: &str) {
    let error = result.err().unwrap_or_else(|| panic!("it was not refused: {says}"));
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.message().contains(says), "{says:?} is not in: {error}");
}

#[test]
fn a_file_that_is_none_of_ours_stays_as_it_is() {
    let folder = Folder::new();
    let text = folder.file().with_extension("txt");
    std::fs::write(&text, "Dear diary, this is no database, and a little longer than its header would be.".repeat(9))
        .unwrap();
    kind(open(&text, Missing::Create), ErrorKind::Foreign, "is no SQLite database");
    let foreign = folder.file();
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE songs (title TEXT)").unwrap();
    let before = std::fs::read(&foreign).unwrap();
    kind(open(&foreign, Missing::Create), ErrorKind::Foreign, "another application");
    assert_eq!(std::fs::read(&foreign).unwrap(), before);
    Connection::open(&foreign).unwrap().execute_batch("DROP TABLE songs; PRAGMA user_version = 3").unwrap();
    kind(open(&foreign, Missing::Create), ErrorKind::Foreign, "another application");
}

#[test]
fn a_newer_file_is_left_alone() {
    let folder = Folder::new();
    drop(open(&folder.file(), Missing::Create).unwrap());
    Connection::open(folder.file()).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    kind(open(&folder.file(), Missing::Create), ErrorKind::Newer, "version 99");
}

#[test]
fn paths_that_lead_nowhere_are_named() {
    let folder = Folder::new();
    kind(open(&folder.file(), Missing::Fail), ErrorKind::Unreachable, "there is no such file");
    assert!(!folder.file().exists());
    kind(open(&folder.file().join("deep.db"), Missing::Create), ErrorKind::Unreachable, "there is no folder");
    kind(open(folder.file().parent().unwrap(), Missing::Create), ErrorKind::Url, "name a file in it");
    std::fs::write(folder.file(), "").unwrap();
    assert!(open(&folder.file(), Missing::Fail).unwrap().list().unwrap().is_empty(), "an empty file gets the tables");
}

#[test]
fn many_that_open_a_new_file_at_once_all_get_it() {
    for _ in 0..10 {
        let folder = Folder::new();
        let path = folder.file();
        let gate = std::sync::Barrier::new(6);
        std::thread::scope(|scope| {
            for number in 0..6 {
                let (path, gate) = (&path, &gate);
                scope.spawn(move || {
                    gate.wait();
                    let mut store = open(path, Missing::Create).unwrap();
                    store.create(&plan(&number.to_string(), 1), &no_parameters()).unwrap();
                });
            }
        });
        assert_eq!(open(&path, Missing::Fail).unwrap().list().unwrap().len(), 6);
    }
}

#[test]
fn results_are_tables_that_people_can_query() {
    let folder = Folder::new();
    let mut store: tidewire_testkit::Connection = Box::new(open(&folder.file(), Missing::Create).unwrap());
    let sets = ["{\"teams\": 2}", "{\"teams\": 3}"].map(str::to_owned);
    let id = store.create(&plan("Bingo, é: 2nd", 10), &sets).unwrap();
    store.transition(id, State::Running, "").unwrap();
    work_off(&mut store, id);
    assert_eq!(store.campaign(id).unwrap().table, "results_1_bingo_____2nd");
    let mean: f64 = Connection::open(folder.file())
        .unwrap()
        .query_row(
            "SELECT avg(area) FROM results_1_bingo_____2nd JOIN tidewire_parameters USING (param_set) \
             WHERE campaign = 1 AND parameters ->> 'teams' = 3",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert!((mean - 25.0 / 7.0 / 5.0).abs() < 1e-9, "{mean}");
}

#[test]
fn who_holds_the_file_for_too_long_is_an_error_that_is_worth_another_try() {
    let folder = Folder::new();
    let mut store: tidewire_testkit::Connection = Box::new(open(&folder.file(), Missing::Create).unwrap());
    let id = start(&mut store, &plan("pi", 5));
    let other = Connection::open(folder.file()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.note(id, "hello").unwrap_err();
    assert_eq!((error.kind(), error.retryable()), (ErrorKind::Locked, true), "{error}");
    assert_eq!(store.status(id).unwrap().summary.done, 0, "reading waits for nobody");
    other.execute_batch("ROLLBACK").unwrap();
    work_off(&mut store, id);
}
