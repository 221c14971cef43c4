//! A node of Python in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

use tidewire_node::Node;

use super::PATIENCE;

/// A process of Python, and its output.
pub struct Python {
    process: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The interpreter of the repository, or the one that is named in the environment.
fn interpreter() -> Option<PathBuf> {
    let named = std::env::var_os("PYO3_PYTHON").map(PathBuf::from);
    let python = named.unwrap_or_else(|| repository().join(".venv/bin/python"));
    let mut import = Command::new(&python);
    let import = import.args(["-c", "import tidewire.node"]).env("PYTHONPATH", repository().join("python")).output();
    match import {
        Ok(done) if done.status.success() => Some(python),
        Ok(done) => {
            println!("skipped: {} can't import tidewire: {}", python.display(), String::from_utf8_lossy(&done.stderr));
            None
        }
        Err(error) => {
            println!("skipped: there is no {}: {error}", python.display());
            None
        }
    }
}

impl Python {
    /// Runs a script of `tests/python` with a word and the URL of a hub. None, with a message,
    /// without a Python that has the extension.
    pub fn start(script: &str, what: &str, hub: &Node) -> Option<Self> {
        Self::start_with(script, &[what, &hub.urls()[0]])
    }

    /// The same with any arguments.
    pub fn start_with(script: &str, arguments: &[&str]) -> Option<Self> {
        let mut command = Command::new(interpreter()?);
        command.arg(repository().join("crates/tidewire-node/tests/python").join(script)).args(arguments);
        command.env("PYTHONPATH", repository().join("python")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let (input, output) = (process.stdin.take().expect("a pipe"), process.stdout.take().expect("a pipe"));
        let (send, lines) = sync_channel(10_000);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Some(Self { process, input, lines })
    }

    /// Waits for the next line.
    pub fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("it says something in time")
    }

    /// Waits for the next line, which must be this one.
    pub fn expect(&self, line: &str) {
        assert_eq!(self.lines.recv_timeout(PATIENCE).as_deref(), Ok(line));
    }

    /// Lets it go on, where it waits for a line.
    pub fn go_on(&mut self) {
        self.say("");
    }

    /// Gives it a line.
    pub fn say(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).expect("it runs");
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        self.kill();
        let _ = self.process.wait();
    }
}
