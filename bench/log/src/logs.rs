//! Peers of the log benchmark: logs of numbered messages that sync each group to disk before they
//! acknowledge it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use rusqlite::Connection;

use crate::SIZE;

const PAYLOAD: [u8; SIZE] = [7; SIZE];

/// Store of messages that syncs each append.
pub trait Log {
    /// Messages of [`SIZE`] bytes, which are on disk when this returns.
    fn append(&mut self, group: usize);
}

/// Writes into space that was reserved.
pub struct Bare {
    file: File,
    end: u64,
}

impl Bare {
    pub fn new(place: &Path, count: usize) -> Self {
        let file = OpenOptions::new().create_new(true).write(true).open(place.join("bare")).expect("a new file");
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, (SIZE * count) as u64).expect("space");
        Self { file, end: 0 }
    }
}

impl Log for Bare {
    fn append(&mut self, group: usize) {
        let bytes = PAYLOAD.repeat(group);
        self.file.write_all_at(&bytes, self.end).expect("space");
        self.file.sync_data().expect("a disk");
        self.end += bytes.len() as u64;
    }
}

/// A table of numbers and messages, as SQLite says it is safe against a loss of power.
pub struct Sqlite(Connection);

impl Sqlite {
    pub fn new(place: &Path) -> Self {
        let connection = Connection::open(place.join("log.db")).expect("a new file");
        let table = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE log (sequence INTEGER PRIMARY KEY, payload BLOB NOT NULL)";
        connection.execute_batch(table).expect("a new table");
        Self(connection)
    }
}

impl Log for Sqlite {
    fn append(&mut self, group: usize) {
        let transaction = self.0.transaction().expect("nobody else writes");
        let mut insert = transaction.prepare_cached("INSERT INTO log (payload) VALUES (?)").expect("a statement");
        for _ in 0..group {
            insert.execute([&PAYLOAD[..]]).expect("space");
        }
        drop(insert);
        transaction.commit().expect("a disk");
    }
}

/// A keyspace of numbers and messages.
pub struct Fjall {
    database: Database,
    log: Keyspace,
    next: u64,
}

impl Fjall {
    pub fn new(place: &Path) -> Self {
        let database = Database::builder(place.join("fjall")).open().expect("a new folder");
        let log = database.keyspace("log", KeyspaceCreateOptions::default).expect("a new keyspace");
        Self { database, log, next: 0 }
    }
}

impl Log for Fjall {
    fn append(&mut self, group: usize) {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for _ in 0..group {
            batch.insert(&self.log, self.next.to_be_bytes(), PAYLOAD);
            self.next += 1;
        }
        batch.commit().expect("a disk");
    }
}
