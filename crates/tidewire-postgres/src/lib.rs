//! Campaigns on PostgreSQL: one database, shared by workers on any machine.
//!
//! Results go with `COPY` in the transaction that completes their range; the campaign's row is
//! locked meanwhile, and others are woken by `NOTIFY`. The tables are made, and brought up to date,
//! when a store is opened. What decides is in [`tidewire_backend::sql`].

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
/// What the URL leaves out comes from where `psql` takes it: `PGHOST`, `PGPORT`, `PGUSER`,
/// `PGPASSWORD`, `PGDATABASE`, `PGSSLMODE`, `PGSSLROOTCERT`, `PGSSLCERT`, `PGSSLKEY`, `PGAPPNAME`,
/// `PGCONNECT_TIMEOUT`, and the password file (`PGPASSFILE`, or `~/.pgpass`). With
/// `sslmode=verify-full` (or `verify-ca`, which checks the name as well) the server must have a
/// certificate of `sslrootcert`, or of whom the system trusts; `require` and `prefer` encrypt, and
/// check nothing.
///
/// A connection that is lost makes its call fail with
/// [`Unreachable`](tidewire_backend::ErrorKind::Unreachable); the next call connects anew.
///
/// # Errors
///
/// [`Url`](tidewire_backend::ErrorKind::Url) if the URL can't be read or names a database that does
/// not exist, [`Denied`](tidewire_backend::ErrorKind::Denied) for a wrong user, password,
/// certificate or privilege, [`Unreachable`](tidewire_backend::ErrorKind::Unreachable),
/// [`Newer`](tidewire_backend::ErrorKind::Newer),
/// [`Foreign`](tidewire_backend::ErrorKind::Foreign),
/// [`ReadOnly`](tidewire_backend::ErrorKind::ReadOnly). No error shows the password.
pub fn open(url: &str, missing: Missing) -> Result<Store<Postgres>> {
    let mut database = Postgres::connect(address::read(url)?)?;
    migrations::prepare(&mut database, missing)?;
    Ok(Store::new(database))
}
