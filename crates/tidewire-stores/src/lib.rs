//! Stores by URL, and the session of a worker at one.
//!
//! - `sqlite:///farm.db` is a file of the working folder, `sqlite:////var/farm.db` one by its whole
//!   path.
//! - `postgres://user@host:5432/database` is a server; missing parts come from the sources of
//!   `psql`.

#![forbid(unsafe_code)]

mod session;

use tidewire_backend::{Campaigns, ErrorKind, Result, StoreError};

pub use session::{Next, Session, SessionTimeouts};
pub use tidewire_backend::Missing;

/// A connection to the store of a URL. Each thread and each process opens its own.
///
/// # Errors
///
/// [`Url`](ErrorKind::Url) if the URL is not one of a store; see the crates of the stores for the
/// others. No error shows a password.
pub fn open(url: &str, missing: Missing) -> Result<Box<dyn Campaigns>> {
    match url.split_once("://") {
        Some(("sqlite", rest)) => open_sqlite(url, rest, missing),
        Some(("postgres" | "postgresql", _)) => open_postgres(url, missing),
        _ => {
            wrong(url, "is no store: write sqlite:///farm.db, sqlite:////var/farm.db or postgres://user@host/database")
        }
    }
}

#[cfg(feature = "sqlite")]
fn open_sqlite(url: &str, rest: &str, missing: Missing) -> Result<Box<dyn Campaigns>> {
    let Some(path) = rest.strip_prefix('/') else {
        return wrong(url, "has a host: write sqlite:///farm.db with three slashes, or four for a whole path");
    };
    if path.is_empty() || path.starts_with(":memory:") {
        return wrong(url, "names no file, and workers are processes of their own: write sqlite:///farm.db");
    }
    if path.contains(['?', '\0']) {
        return wrong(url, "has options or a NUL, and stores in files have none: leave them out");
    }
    Ok(Box::new(tidewire_sqlite::open(path.as_ref(), missing)?))
}

#[cfg(not(feature = "sqlite"))]
fn open_sqlite(url: &str, _rest: &str, _missing: Missing) -> Result<Box<dyn Campaigns>> {
    wrong(url, "is a store in a file, for which this build has no driver: build it with the feature sqlite")
}

#[cfg(feature = "postgres")]
fn open_postgres(url: &str, missing: Missing) -> Result<Box<dyn Campaigns>> {
    Ok(Box::new(tidewire_postgres::open(url, missing)?))
}

#[cfg(not(feature = "postgres"))]
fn open_postgres(url: &str, _missing: Missing) -> Result<Box<dyn Campaigns>> {
    wrong(url, "is a server, for which this build has no driver: build it with the feature postgres")
}

fn wrong<T>(url: &str, fix: &str) -> Result<T> {
    Err(StoreError::new(ErrorKind::Url, format!("store: {} {fix}", shown(url))))
}

/// A URL for people: without a possible password.
fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return if url.contains('@') { "the URL".to_owned() } else { format!("{url:?}") };
    };
    let (place, query) = rest.split_once('?').map_or((rest, ""), |(place, _)| (place, "?..."));
    let place = match place.rsplit_once('@') {
        Some((user, host)) => format!("{}:...@{host}", user.split(':').next().unwrap_or_default()),
        None => place.to_owned(),
    };
    format!("{:?}", format!("{scheme}://{place}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(url: &str) -> StoreError {
        open(url, Missing::Fail).err().unwrap_or_else(|| panic!("{url} was opened"))
    }

    #[test]
    fn wrong_urls_are_named_with_their_mend() {
        for (url, text) in [
            ("", "sqlite:///farm.db"),
            ("farm.db", "\"farm.db\""),
            ("sqlite:farm.db", "sqlite:///farm.db"),
            ("sqlite://farm.db", "three slashes"),
            ("sqlite:///", "names no file"),
            ("sqlite:///:memory:", "names no file"),
            ("sqlite:///farm.db?mode=ro", "options"),
            ("mysql://host/farm", "mysql://host/farm"),
            ("postgres://host:port/farm", "port"),
        ] {
            let error = error(url);
            assert_eq!(error.kind(), ErrorKind::Url, "{url}: {error}");
            assert!(error.message().contains(text), "{url}: {error}");
        }
    }

    #[test]
    fn no_error_shows_a_password() {
        for url in [
            "mysql://ann:secret@host/farm?password=secret",
            "ann:secret@host",
            "x://ann:se@secret@host",
            "postgres://ann:secret@host:x/f",
        ] {
            let error = error(url);
            assert!(!error.message().contains("secret"), "{error}");
        }
    }
}
