//! Errors of PostgreSQL, as errors of a store.

use std::error::Error as _;
use std::io;

use postgres::error::SqlState;
use tidewire_backend::{ErrorKind, StoreError};

/// The error of a store, with the message of PostgreSQL and the fix.
pub(crate) fn store_error(shown: &str, error: &postgres::Error) -> StoreError {
    let Some(answer) = error.as_db_error() else {
        let why = error.source().map_or_else(String::new, |source| format!(": {source}"));
        let (kind, fix) = of_connection(error);
        return StoreError::new(kind, format!("{shown}: {fix} ({error}{why})"));
    };
    let (kind, fix) = of_state(answer.code());
    let detail = answer.detail().map_or_else(String::new, |detail| format!("; {detail}"));
    StoreError::new(kind, format!("{shown}: {fix} ({}{detail})", answer.message()))
}

/// The driver has no kinds of such errors that a program could ask for, only their names.
fn of_connection(error: &postgres::Error) -> (ErrorKind, &'static str) {
    // An error of rustls is wrapped in an I/O error.
    let broken = |source: &io::Error| source.get_ref().is_none_or(|inner| !inner.is::<rustls::Error>());
    let broken = error.source().and_then(|source| source.downcast_ref()).is_some_and(broken);
    match error.to_string().as_str() {
        "error performing TLS handshake" if !broken => (
            ErrorKind::Denied,
            "TLS can't be agreed on: check sslmode, and sslrootcert if its certificate is not trusted",
        ),
        "authentication error" | "invalid configuration" => {
            (ErrorKind::Denied, "can't be asked: give user and password in the URL, in PGPASSWORD or in ~/.pgpass")
        }
        _ => (ErrorKind::Unreachable, "can't be reached: look whether it runs, and whether the URL is right"),
    }
}

fn of_state(state: &SqlState) -> (ErrorKind, &'static str) {
    match state.code() {
        "57P03" => return (ErrorKind::Unreachable, "starts or stops: try again"),
        "57P01" | "57P02" | "57P05" | "25P03" => {
            return (ErrorKind::Unreachable, "has ended the connection: try again");
        }
        "53300" => {
            return (ErrorKind::Unreachable, "has no more connections: raise max_connections, or use fewer workers");
        }
        "53100" => return (ErrorKind::Full, "its disk is full: make room; nothing of this call was stored"),
        "55P03" | "40P01" | "40001" | "57014" => {
            return (ErrorKind::Locked, "another transaction has held it for too long: end it, or try again");
        }
        "25006" => return (ErrorKind::ReadOnly, "takes no writes: name the primary server"),
        "42501" => return (ErrorKind::Denied, "this user lacks a privilege: grant it"),
        "3D000" => return (ErrorKind::Url, "there is no such database: create it, or name another"),
        "42P07" => return (ErrorKind::Foreign, "there is a table of another application in the way"),
        "42P01" | "42703" => return (ErrorKind::Foreign, "its tables are not those of Tidewire"),
        _ => (),
    }
    match &state.code()[..2] {
        "08" => (ErrorKind::Unreachable, "can't be reached: try again"),
        "28" => (ErrorKind::Denied, "refuses the user or the password"),
        "22" | "54" => (ErrorKind::Invalid, "does not keep this value"),
        "23" => (ErrorKind::Corrupt, "its tables contradict each other"),
        "XX" => (ErrorKind::Corrupt, "reports damage"),
        _ => (ErrorKind::Database, "refused"),
    }
}
