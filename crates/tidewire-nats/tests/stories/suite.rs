//! The suite that every storage backend passes, on a server that syncs before it acks; each case
//! has its own account.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tidewire_backend::home::{Capability, FOLDER_LACKS, NATS_LACKS, NATS_SINCE};
use tidewire_testkit::homes::HomePlace;

use crate::servers::Server;

tidewire_testkit::home_conformance!(crate::suite::home);

/// More than there are cases.
const ACCOUNTS: u32 = 100;

pub fn home() -> Option<HomePlace> {
    static SHARED: OnceLock<Option<Server>> = OnceLock::new();
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let server = SHARED.get_or_init(|| Server::durable(&accounts())).as_ref()?;
    let number = TAKEN.fetch_add(1, Ordering::Relaxed);
    assert!(number < ACCOUNTS, "each case has an account of its own: make more of them");
    let url = format!("{}?synced=true", server.with(&format!("u{number}:p")));
    Some(HomePlace { home: tidewire_nats::open(&url).expect("the server runs"), keep: Box::new(()) })
}

fn accounts() -> String {
    let mut config = "accounts {\n".to_owned();
    for number in 0..ACCOUNTS {
        writeln!(config, "A{number} {{ jetstream: enabled, users: [{{ user: u{number}, password: p }}] }}").unwrap();
    }
    config + "}"
}

#[test]
fn a_home_declares_what_the_table_says() {
    let Some(place) = home() else { return };
    for capability in Capability::ALL {
        let lacks = NATS_LACKS.iter().find(|(lacking, _)| *lacking == capability).map(|(_, why)| *why);
        assert_eq!(place.home.capabilities().why_not(capability), lacks, "{}", capability.name());
    }
    place.home.close().wait().unwrap();
    let Some(old) = Server::old("2.11.9") else { return };
    let home = old.home();
    for (capability, major, minor, patch) in NATS_SINCE {
        let why = home.capabilities().why_not(*capability).expect("it came later");
        let newer = format!("nats-server 2.11.9 can't do it: install {major}.{minor}.{patch} or newer");
        assert!(why.starts_with(&newer), "{why}");
    }
    assert!(FOLDER_LACKS.iter().all(|(capability, _)| home.capabilities().has(*capability)), "servers can more");
    old.end();
}
