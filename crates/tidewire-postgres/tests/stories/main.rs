//! Campaigns on PostgreSQL: the conformance suite, and stories of servers.
//!
//! The server is that of `TIDEWIRE_TEST_POSTGRES`, or one that `tools/servers.py` starts; each test
//! has its own database.

use std::sync::atomic::{AtomicU32, Ordering};

use postgres::{Client, NoTls};
use tidewire_backend::{Missing, Result};
use tidewire_postgres::open;
use tidewire_testkit::{Connection, EmptyStore};

#[path = "../../../tidewire-nats/tests/stories/keeper.rs"]
mod keeper;
mod server;
mod servers;

/// A database that goes when it is dropped.
struct Database {
    server: String,
    name: String,
}

impl Database {
    fn new(server: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidewire_{}_{number}", std::process::id());
        Client::connect(server, NoTls).unwrap().batch_execute(&format!("CREATE DATABASE {name}")).unwrap();
        Self { server: server.to_owned(), name }
    }

    fn url(&self) -> String {
        let (start, _) = self.server.rsplit_once('/').unwrap();
        format!("{start}/{}", self.name)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let statement = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let _goes_with_the_server =
            Client::connect(&self.server, NoTls).map(|mut admin| admin.batch_execute(&statement));
    }
}

/// An empty store in a database of its own, if there is PostgreSQL.
fn place() -> Option<EmptyStore> {
    let database = Database::new(servers::shared()?);
    Some(EmptyStore { address: database.url(), open: connect, fresh: place, keep: Box::new(database) })
}

fn connect(url: &str) -> Result<Connection> {
    Ok(Box::new(open(url, Missing::Create)?))
}

tidewire_testkit::conformance!(crate::place, crate::connect);
