//! PostgreSQL for tests, by `tools/servers.py`: it ends with the process that started it.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

/// A separate server, and the pipe for commands to it.
pub struct Server {
    pub url: String,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    keeper: Child,
}

impl Server {
    /// None without PostgreSQL; prints the reason.
    pub fn start() -> Option<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/servers.py");
        let python = env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let mut keeper = Command::new(python)
            .args([script, "postgres"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("tools/servers.py needs Python");
        let orders = keeper.stdin.take().unwrap();
        let mut answers = BufReader::new(keeper.stdout.take().unwrap());
        let mut said = String::new();
        answers.read_line(&mut said).unwrap();
        let said: serde_json::Value = serde_json::from_str(&said).expect("the keeper says where it is");
        let Some(url) = said["TIDEWIRE_TEST_POSTGRES"].as_str() else {
            println!("skipped: no PostgreSQL: {}", said["error"]);
            drop(orders);
            keeper.wait().unwrap();
            return None;
        };
        Some(Self { url: url.to_owned(), orders, answers, keeper })
    }

    /// `stop`, `start` or `restart`; returns when it is done.
    pub fn order(&mut self, what: &str) {
        writeln!(self.orders, "{what}").unwrap();
        let mut said = String::new();
        self.answers.read_line(&mut said).unwrap();
        assert!(said.contains("done"), "{said}");
    }

    /// Stops it, and waits for that.
    pub fn end(self) {
        let Self { orders, mut keeper, .. } = self;
        drop(orders);
        keeper.wait().unwrap();
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
