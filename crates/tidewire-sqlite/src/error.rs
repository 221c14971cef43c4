//! Errors of SQLite, as errors of a store.

use std::path::Path;

use rusqlite::ffi::{ErrorCode, SQLITE_IOERR_SHMSIZE, SQLITE_READONLY_DBMOVED};
use tidewire_backend::{ErrorKind, StoreError};

/// The error of a store, with the message of SQLite and the fix.
pub(crate) fn store_error(path: &Path, error: &rusqlite::Error) -> StoreError {
    let file = path.display();
    let code = error.sqlite_error().map(|found| (found.code, found.extended_code));
    let (kind, fix) = match code {
        Some((_, SQLITE_IOERR_SHMSIZE)) | Some((ErrorCode::DiskFull, _)) => {
            (ErrorKind::Full, "the disk is full: make room; nothing of this call was stored")
        }
        Some((ErrorCode::ReadOnly, SQLITE_READONLY_DBMOVED)) => {
            (ErrorKind::Unreachable, "the file was moved or deleted while it was open")
        }
        Some((ErrorCode::ReadOnly, _)) => {
            (ErrorKind::ReadOnly, "the file or its folder can't be written: give this user the right to")
        }
        Some((ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed, _)) => {
            (ErrorKind::Locked, "another process has kept it locked for 5 s: end what holds it, or try again")
        }
        Some((ErrorCode::PermissionDenied, _)) => (ErrorKind::Denied, "this user may not open it"),
        Some((ErrorCode::CannotOpen, _)) => {
            (ErrorKind::Unreachable, "it can't be opened: look at its folder, and whether this user may write there")
        }
        Some((ErrorCode::NotADatabase, _)) => (ErrorKind::Foreign, "it is no SQLite database: name another file"),
        Some((ErrorCode::DatabaseCorrupt, _)) => (ErrorKind::Corrupt, "the file is damaged: restore it from a copy"),
        Some((ErrorCode::ConstraintViolation, _)) => (ErrorKind::Corrupt, "its tables contradict each other"),
        Some((ErrorCode::TooBig, _)) => (ErrorKind::Invalid, "a value is too long for SQLite"),
        _ => (ErrorKind::Database, "SQLite refused"),
    };
    StoreError::new(kind, format!("{file}: {fix} ({error})"))
}
