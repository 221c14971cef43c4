//! Files that are no store, or can't be used.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use tidewire_backend::{CampaignId, Campaigns, ErrorKind, Missing, State};
use tidewire_sqlite::open;
use tidewire_testkit::{
    Connection, all_rows, join, lease, no_parameters, plan, refused, results_of, start, store_all, work_off,
};

use crate::Folder;

// Promises: P15.47.
#[test]
fn a_file_that_is_none_of_ours_stays_as_it_is() {
    let folder = Folder::new();
    let text = folder.file().with_extension("txt");
    std::fs::write(&text, "Dear diary, this is no database, and a little longer than its header would be.".repeat(9))
        .unwrap();
    refused(open(&text, Missing::Create), ErrorKind::Foreign, "is no SQLite database");
    let foreign = folder.file();
    rusqlite::Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE songs (title TEXT)").unwrap();
    let before = std::fs::read(&foreign).unwrap();
    refused(open(&foreign, Missing::Create), ErrorKind::Foreign, "another application");
    assert_eq!(std::fs::read(&foreign).unwrap(), before);
    rusqlite::Connection::open(&foreign).unwrap().execute_batch("DROP TABLE songs; PRAGMA user_version = 3").unwrap();
    refused(open(&foreign, Missing::Create), ErrorKind::Foreign, "another application");
}

// Promises: P15.47.
#[test]
fn a_newer_file_is_left_alone() {
    let folder = Folder::new();
    drop(open(&folder.file(), Missing::Create).unwrap());
    rusqlite::Connection::open(folder.file()).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    refused(open(&folder.file(), Missing::Create), ErrorKind::Newer, "version 99");
}

#[test]
fn paths_that_lead_nowhere_are_named() {
    let folder = Folder::new();
    refused(open(&folder.file(), Missing::Fail), ErrorKind::Unreachable, "there is no such file");
    assert!(!folder.file().exists());
    refused(open(&folder.file().join("deep.db"), Missing::Create), ErrorKind::Unreachable, "there is no folder");
    refused(open(folder.file().parent().unwrap(), Missing::Create), ErrorKind::Url, "name a file in it");
    std::fs::write(folder.file(), "").unwrap();
    assert!(
        open(&folder.file(), Missing::Fail).unwrap().list(None).unwrap().is_empty(),
        "an empty file gets the tables"
    );
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
        assert_eq!(open(&path, Missing::Fail).unwrap().list(None).unwrap().len(), 6);
    }
}

#[test]
fn results_are_tables_that_people_can_query() {
    let folder = Folder::new();
    let mut store: Connection = Box::new(open(&folder.file(), Missing::Create).unwrap());
    let sets = ["{\"teams\": 2}", "{\"teams\": 3}"].map(str::to_owned);
    let id = store.create(&plan("Bingo, é: 2nd", 10), &sets).unwrap();
    store.transition(id, State::Running, "").unwrap();
    work_off(&mut store, id);
    assert_eq!(store.campaign(id).unwrap().table, "results_1_bingo_____2nd");
    let mean: f64 = rusqlite::Connection::open(folder.file())
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

// Promises: P15.45, P15.46.
#[test]
fn a_file_held_for_too_long_is_a_retryable_error() {
    let folder = Folder::new();
    let mut store: Connection = Box::new(open(&folder.file(), Missing::Create).unwrap());
    let id = start(&mut store, &plan("pi", 5));
    let other = rusqlite::Connection::open(folder.file()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.note(id, "hello").unwrap_err();
    assert_eq!((error.kind(), error.retryable()), (ErrorKind::Locked, true), "{error}");
    assert_eq!(store.status(id).unwrap().summary.done, 0, "reading waits for nobody");
    other.execute_batch("ROLLBACK").unwrap();
    work_off(&mut store, id);
}

/// A file system of one mebibyte, if this user may make one.
struct Small(Folder);

impl Small {
    fn new() -> Option<Self> {
        let folder = Folder::new();
        let path = folder.file().parent().unwrap().to_owned();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(path).output();
        mounted.is_ok_and(|mounted| mounted.status.success()).then_some(Self(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _rubbish_in_memory = Command::new("umount").arg(self.0.file().parent().unwrap()).output();
    }
}

// Promises: P15.37.
#[test]
fn a_full_disk_stores_nothing_by_halves_and_goes_on_when_there_is_room() {
    let Some(small) = Small::new() else {
        println!("skipped: only root can mount a small file system");
        return;
    };
    let ballast = small.0.file().with_extension("ballast");
    std::fs::write(&ballast, vec![1; 300_000]).unwrap();
    let mut store: Connection = Box::new(open(&small.0.file(), Missing::Create).unwrap());
    let id = start(&mut store, &plan("pi", 20_000));
    let worker = join(&mut store, id);
    let (lease, error) = loop {
        let mut held = lease(store.claim(id, worker, &[]).unwrap());
        let results = results_of(&held, held.count, &[]);
        if let Err(error) = store.commit(id, &mut held, &results) {
            break (held, error);
        }
    };
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(error.message().contains("make room"), "{error}");
    let status = store.status(id).unwrap();
    assert_eq!((status.summary.done, status.rows), (lease.first, lease.first));
    assert_eq!(
        all_rows(&mut store, id, 1_000).iter().map(tidewire_backend::Rows::len).sum::<usize>() as u64,
        lease.first
    );
    std::fs::remove_file(&ballast).unwrap();
    store_all(&mut store, id, lease);
    assert_eq!(store.status(id).unwrap().summary.done, lease.end());
}

const READ_ONLY: &str = "TIDEWIRE_READ_ONLY";

// Promises: P15.47.
#[test]
fn a_file_that_can_not_be_written_says_so() {
    let folder = Folder::new();
    let id = {
        let mut store: Connection = Box::new(open(&folder.file(), Missing::Create).unwrap());
        let id = start(&mut store, &plan("pi", 20));
        work_off(&mut store, id);
        id
    };
    std::fs::set_permissions(folder.file(), Permissions::from_mode(0o444)).unwrap();
    let exe = std::env::current_exe().unwrap();
    let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let mut command = Command::new(if root { "setpriv".as_ref() } else { exe.as_os_str() });
    if root {
        // Root may write everything.
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&exe);
    }
    let read = command
        .args(["files::reader", "--exact", "--ignored", "--nocapture"])
        .env(READ_ONLY, folder.file())
        .output()
        .unwrap();
    assert!(
        read.status.success(),
        "{}{}",
        String::from_utf8_lossy(&read.stdout),
        String::from_utf8_lossy(&read.stderr)
    );
    assert_eq!(id.0, 1);
}

#[test]
#[ignore = "is started by the test that takes its rights away"]
fn reader() {
    let path: std::path::PathBuf = std::env::var_os(READ_ONLY).expect("it is started by that test").into();
    match open(&path, Missing::Fail) {
        Ok(mut store) => {
            assert_eq!(store.status(CampaignId(1)).unwrap().summary.done, 20);
            refused(store.note(CampaignId(1), "hello"), ErrorKind::ReadOnly, "can't be written");
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}"),
    }
    let fresh = path.with_extension("new");
    refused(open(&fresh, Missing::Create), ErrorKind::Unreachable, "whether this user may write there");
}
