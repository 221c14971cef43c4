//! NATS for tests, and what stories make there.

use std::env;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use tidewire_backend::home::{Home, NewMessage, StreamSettings};
use tidewire_proto::subject::{Pattern, Subject};

pub use crate::keeper::Server;

impl Server {
    /// One server with extra lines of configuration. None without NATS; prints the reason.
    pub fn start(config: &str) -> Option<Self> {
        Self::configured(config, &[])
    }

    /// One that syncs each message before it acks.
    pub fn durable(config: &str) -> Option<Self> {
        Self::configured(config, &["--durable"])
    }

    fn configured(config: &str, options: &[&str]) -> Option<Self> {
        let file = env::temp_dir().join(format!("tidewire-nats-{}-{}.conf", std::process::id(), unique("")));
        std::fs::write(&file, config).unwrap();
        let arguments = [&["nats", "--nats-config", file.to_str().unwrap()], options].concat();
        let started = Self::begin(&arguments, "TIDEWIRE_TEST_NATS");
        std::fs::remove_file(file).unwrap();
        started
    }

    pub fn old(version: &str) -> Option<Self> {
        Self::begin(&["nats", "--nats-version", version], "TIDEWIRE_TEST_NATS")
    }

    pub fn cluster() -> Option<Self> {
        Self::begin(&["nats-cluster"], "TIDEWIRE_TEST_NATS_CLUSTER")
    }

    pub fn home(&self) -> Arc<dyn Home> {
        tidewire_nats::open(&self.url).unwrap()
    }

    /// The same server with something before the host, such as a password.
    pub fn with(&self, who: &str) -> String {
        self.url.replace("://", &format!("://{who}@"))
    }
}

/// A storage backend on the server that stories share.
pub fn home() -> Option<Arc<dyn Home>> {
    static SHARED: OnceLock<Option<Server>> = OnceLock::new();
    SHARED.get_or_init(|| Server::start("")).as_ref().map(Server::home)
}

/// A name that no other story has.
pub fn unique(start: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{start}{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

pub fn subject(text: &str) -> Subject {
    Subject::new(text).unwrap()
}

pub fn pattern(text: &str) -> Pattern {
    Pattern::new(text).unwrap()
}

/// Settings of a stream with a name that no other has, which takes `<name>.>`.
pub fn settings(start: &str) -> StreamSettings {
    let name = unique(start);
    let subjects = vec![pattern(&format!("{name}.>"))];
    StreamSettings::new(&name, subjects)
}

/// A stream of its own, and its name.
pub fn stream(home: &dyn Home, start: &str) -> String {
    home.create_stream(settings(start)).wait().unwrap().settings.name
}

pub fn message(stream: &str, rest: &str, payload: impl Into<Vec<u8>>) -> NewMessage {
    NewMessage::new(subject(&format!("{stream}.{rest}")), payload.into())
}

/// Publishes numbers from 0 on, each with an ack.
pub fn publish_numbers(home: &dyn Home, stream: &str, count: u32) {
    let messages = (0..count).map(|number| message(stream, "n", number.to_string())).collect();
    let acks = home.publish(stream, messages, false).wait().unwrap();
    acks.into_iter().for_each(|ack| assert!(ack.is_ok(), "{ack:?}"));
}
