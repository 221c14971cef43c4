//! Campaigns on SQLite: the conformance suite, and what only files do.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use tidewire_backend::{Missing, Result};
use tidewire_sqlite::open;
use tidewire_testkit::{Connection, EmptyStore};

mod files;

/// A folder that goes when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tidewire-sqlite-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("farm.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _only_rubbish_stays = std::fs::remove_dir_all(&self.0);
    }
}

/// An empty store in a file of its own.
fn place() -> Option<EmptyStore> {
    let folder = Folder::new();
    let address = folder.file().to_str().unwrap().to_owned();
    Some(EmptyStore { address, open: connect, fresh: place, keep: Box::new(folder) })
}

fn connect(path: &str) -> Result<Connection> {
    Ok(Box::new(open(path.as_ref(), Missing::Create)?))
}

tidewire_testkit::conformance!(crate::place, crate::connect);
