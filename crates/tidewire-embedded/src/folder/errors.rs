//! The errors of a folder.

use std::io;

use tidewire_backend::home::{HomeError, HomeErrorKind};
use tidewire_core::stream::record::VERSION;

/// An I/O error of the disk.
pub fn disk_error(what: &str, name: &str, error: &io::Error) -> HomeError {
    let text = format!("{name}: can't {what} it: {error}; give the disk room or rights, then try again");
    HomeError::new(HomeErrorKind::Disk, text)
}

/// A failed sync: the disk may have lost writes, and reports that only once.
pub fn sync_error(name: &str, error: &io::Error) -> HomeError {
    let text =
        format!("{name}: can't sync it: {error}; nothing more is taken: repair the disk, then open the folder again");
    HomeError::new(HomeErrorKind::Closed, text)
}

/// A file that has changed since it was synced.
pub fn corrupt(name: &str, why: &str) -> HomeError {
    let fix = "nothing was changed; look with `tidewire log check`, rescue the intact part with `tidewire log salvage`";
    HomeError::new(HomeErrorKind::Corrupt, format!("{name}: damaged: {why}; {fix}"))
}

/// A file that another version of Tidewire wrote.
pub fn foreign(name: &str, version: u32) -> HomeError {
    let fix = if version < VERSION {
        "read its streams with the Tidewire that wrote it, and publish them into a new folder"
    } else {
        "install a newer Tidewire"
    };
    let text = format!("{name}: its format is version {version}, and this Tidewire reads {VERSION}; {fix}");
    HomeError::new(HomeErrorKind::Foreign, text)
}

/// A stream, consumer, bucket or other object that does not exist.
pub fn not_found(what: &str, name: &str) -> HomeError {
    HomeError::new(HomeErrorKind::NotFound, format!("{what} {name:?}: there is none; make it first"))
}

/// A value out of range.
pub fn invalid(text: impl Into<String>) -> HomeError {
    HomeError::new(HomeErrorKind::Invalid, text)
}
