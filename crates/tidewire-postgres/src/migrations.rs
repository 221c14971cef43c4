//! The tables: made, and brought up to date, by the first that opens a store.

use tidewire_backend::sql::{Access, Database as _, SCHEMA_VERSION};
use tidewire_backend::{ErrorKind, Missing, Result, StoreError};

use crate::connection::Postgres;

/// Each brings the tables to the next version.
const MIGRATIONS: [&str; SCHEMA_VERSION as usize] = [include_str!("migrations/0001.sql")];
/// Advisory lock of schema changes: `Tidw` in ASCII.
const LOCK: i64 = 0x5469_6477;

/// Makes sure that the tables are there, and ours, and up to date.
pub(crate) fn prepare(database: &mut Postgres, missing: Missing) -> Result<()> {
    let version = version(database)?;
    if version == SCHEMA_VERSION {
        return Ok(());
    }
    if version == 0 && missing == Missing::Fail {
        let message = format!("{}: has no campaigns yet: check the URL, or create one there", database.shown());
        return Err(StoreError::new(ErrorKind::Unreachable, message));
    }
    database.begin(Access::Write)?;
    let done = migrate(database).and_then(|()| database.commit(false));
    if done.is_err() {
        database.rollback();
    }
    done
}

fn migrate(database: &mut Postgres) -> Result<()> {
    database.batch(&format!("SELECT pg_advisory_xact_lock({LOCK})"))?;
    // Another process may have been quicker.
    for number in version(database)?..SCHEMA_VERSION {
        database.batch(MIGRATIONS[number as usize])?;
        database.batch(&format!(
            "INSERT INTO tidewire_meta (key, value) VALUES ('schema', '{}') ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            number + 1
        ))?;
    }
    Ok(())
}

/// The version of the tables; 0 without any.
fn version(database: &mut Postgres) -> Result<i64> {
    let shown = database.shown().to_owned();
    let foreign = || {
        let message = format!("{shown}: has tables of that name that are not Tidewire's: name another");
        StoreError::new(ErrorKind::Foreign, message)
    };
    // Not to_regclass, which may not see tables that were made while this transaction waited for
    // the lock. One statement, as another process may commit both tables between two.
    let tables = database.texts(
        "SELECT relname::text FROM pg_class \
         WHERE relname IN ('tidewire_meta', 'tidewire_campaigns') AND pg_table_is_visible(oid)",
    )?;
    match tables.len() {
        0 => return Ok(0),
        2 => {}
        _ => return Err(foreign()),
    }
    let found = database.texts("SELECT value FROM tidewire_meta WHERE key = 'schema'")?;
    let version: i64 = found.first().and_then(|text| text.parse().ok()).ok_or_else(foreign)?;
    if version > SCHEMA_VERSION {
        let message = format!(
            "{shown}: its tables have version {version}, and this Tidewire knows {SCHEMA_VERSION}: use a newer one"
        );
        return Err(StoreError::new(ErrorKind::Newer, message));
    }
    Ok(version)
}
