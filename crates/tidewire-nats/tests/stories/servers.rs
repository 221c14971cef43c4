//! NATS for tests, by `tools/servers.py`: it ends with the process that started it.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use tidewire_backend::home::{Home, NewMessage, StreamSettings};
use tidewire_proto::subject::{Pattern, Subject};

/// A server or a cluster, and the pipe for commands to it.
pub struct Server {
    pub url: String,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    keeper: Child,
}

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

    fn begin(arguments: &[&str], variable: &str) -> Option<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/servers.py");
        let python = env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let mut keeper = Command::new(python)
            .arg(script)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("tools/servers.py needs Python");
        let orders = keeper.stdin.take().unwrap();
        let mut answers = BufReader::new(keeper.stdout.take().unwrap());
        let mut said = String::new();
        answers.read_line(&mut said).unwrap();
        let said: serde_json::Value = serde_json::from_str(&said).expect("the keeper says where it is");
        let Some(url) = said[variable].as_str() else {
            println!("skipped: no NATS: {}", said["error"]);
            drop(orders);
            keeper.wait().unwrap();
            return None;
        };
        Some(Self { url: url.to_owned(), orders, answers, keeper })
    }

    /// `stop`, `start`, `restart`, `kill`, `freeze` or `thaw`, of all or of one that is named;
    /// returns when it is done.
    pub fn order(&mut self, what: &str) {
        writeln!(self.orders, "{what}").unwrap();
        let mut said = String::new();
        self.answers.read_line(&mut said).unwrap();
        assert!(said.contains("done"), "{said}");
    }

    pub fn home(&self) -> Arc<dyn Home> {
        tidewire_nats::open(&self.url).unwrap()
    }

    /// The same server with something before the host, such as a password.
    pub fn with(&self, who: &str) -> String {
        self.url.replace("://", &format!("://{who}@"))
    }

    /// Stops it, and waits for that.
    pub fn end(self) {
        let Self { orders, mut keeper, .. } = self;
        drop(orders);
        keeper.wait().unwrap();
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
