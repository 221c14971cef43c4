//! Servers for tests, by `tools/servers.py`: they end with the process that started them.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A server or a cluster, and the pipe for commands to it.
pub struct Server {
    pub url: String,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    keeper: Child,
}

impl Server {
    /// Starts what the arguments say; a variable names the URL. None without such a server; prints
    /// the reason.
    pub fn begin(arguments: &[&str], variable: &str) -> Option<Self> {
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
            println!("skipped: no {}: {}", arguments[0], said["error"]);
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

    /// Stops it, and waits for that.
    pub fn end(self) {
        let Self { orders, mut keeper, .. } = self;
        drop(orders);
        keeper.wait().unwrap();
    }
}
