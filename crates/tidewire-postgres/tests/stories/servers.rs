//! PostgreSQL for tests.

use std::env;
use std::sync::OnceLock;

pub use crate::keeper::Server;

impl Server {
    /// None without PostgreSQL; prints the reason.
    pub fn start() -> Option<Self> {
        Self::begin(&["postgres"], "TIDEWIRE_TEST_POSTGRES")
    }
}

/// The URL of the server that tests share.
pub fn shared() -> Option<&'static str> {
    static SHARED: OnceLock<Option<(String, Option<Server>)>> = OnceLock::new();
    let found = SHARED.get_or_init(|| match env::var("TIDEWIRE_TEST_POSTGRES") {
        Ok(url) => Some((url, None)),
        Err(_) => Server::start().map(|server| (server.url.clone(), Some(server))),
    });
    found.as_ref().map(|(url, _)| url.as_str())
}
