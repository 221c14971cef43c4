//! Campaigns on PostgreSQL: one database, shared by workers on any computer.
//!
//! Results go with `COPY` in the transaction that completes their range. Meanwhile the campaign's
//! row is locked; `NOTIFY` wakes the other workers. The tables are made, and brought up to date,
//! when a store is opened. The decision logic is in [`tidewire_backend::sql`].

#![forbid(unsafe_code)]

mod address;
mod connection;
mod error;
mod literal;
mod migrations;
mod results;
mod tls;
mod values;

use tidewire_backend::sql::Store;
use tidewire_backend::{Missing, Result};

pub use connection::Postgres;

/// Opens the store of a URL: `postgres://user:password@host:5432/database?sslmode=verify-full`.
///
/// Parts that the URL leaves out come from the sources of `psql`: `PGHOST`, `PGPORT`, `PGUSER`,
/// `PGPASSWORD`, `PGDATABASE`, `PGSSLMODE`, `PGSSLROOTCERT`, `PGSSLCERT`, `PGSSLKEY`, `PGAPPNAME`,
/// `PGCONNECT_TIMEOUT`, and the password file (`PGPASSFILE`, or `~/.pgpass`).
///
/// With `sslmode=verify-full` the server must have a certificate signed by `sslrootcert`, or by a
/// signer that the system trusts. `verify-ca` does the same, and checks the name as well. `require`
/// and `prefer` encrypt, and check nothing.
///
/// A lost connection makes its call fail with
/// [`Unreachable`](tidewire_backend::ErrorKind::Unreachable); the next call reconnects.
///
/// # Errors
///
/// [`Url`](tidewire_backend::ErrorKind::Url) if the URL cannot be read or names a database that
/// does not exist. [`Denied`](tidewire_backend::ErrorKind::Denied) for a wrong user, password,
/// certificate or privilege. Also [`Unreachable`](tidewire_backend::ErrorKind::Unreachable),
/// [`Newer`](tidewire_backend::ErrorKind::Newer), [`Foreign`](tidewire_backend::ErrorKind::Foreign)
/// and [`ReadOnly`](tidewire_backend::ErrorKind::ReadOnly). No error shows the password.
pub fn open(url: &str, missing: Missing) -> Result<Store<Postgres>> {
    let mut database = Postgres::connect(address::read(url)?)?;
    migrations::prepare(&mut database, missing)?;
    Ok(Store::new(database))
}
