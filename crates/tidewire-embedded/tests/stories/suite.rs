//! The suite that every storage backend passes, and the error for a folder that is open elsewhere.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use tidewire_backend::home::{Home as _, HomeErrorKind};
use tidewire_embedded::{Options, open};
use tidewire_testkit::homes::HomePlace;

tidewire_testkit::home_conformance!(crate::suite::home);

/// A folder that is removed when it is dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("tidewire-home-{}-{number}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

pub fn home() -> Option<HomePlace> {
    let folder = Folder::new();
    let home = open(&folder.0, Options::default()).expect("a new folder");
    Some(HomePlace { home, keep: Box::new(folder) })
}

#[test]
fn one_process_has_a_folder_open_until_it_closes_it() {
    let folder = Folder::new();
    let home = open(&folder.0, Options::default()).expect("a new folder");
    let refused = open(&folder.0, Options::default()).expect_err("it is open");
    assert_eq!(refused.kind(), HomeErrorKind::Locked);
    home.close().wait().expect("it closes");
    assert_eq!(home.list_streams_after_close(), HomeErrorKind::Closed);
    let again = open(&folder.0, Options::default()).expect("it was closed");
    drop(again);
    open(&folder.0, Options::default()).expect("a home that was dropped is closed");
}

trait AfterClose {
    fn list_streams_after_close(&self) -> HomeErrorKind;
}

impl AfterClose for tidewire_embedded::Embedded {
    fn list_streams_after_close(&self) -> HomeErrorKind {
        use tidewire_backend::home::Streams as _;
        self.list_streams().wait().expect_err("it was closed").kind()
    }
}
