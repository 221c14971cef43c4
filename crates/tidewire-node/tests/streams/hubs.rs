//! Hubs with data folders: in this process, in one of Rust that can be killed, and in one of
//! Python.

use std::env;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tidewire_node::streams::{Stream, StreamOptions};
use tidewire_node::{Node, NodeOptions};

use crate::support::join;
use crate::support::python::Python;

/// A folder that is removed when it is dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        Self(env::temp_dir().join(format!("tidewire-node-home-{}-{number}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A hub of this process with a folder, and a node that has joined it.
pub struct Place {
    pub node: Node,
    pub hub: Node,
    _folder: Folder,
}

impl Place {
    pub fn new() -> Self {
        let folder = Folder::new();
        let options = NodeOptions::named("hub").data(&folder.0);
        let hub = Node::listen("tide://127.0.0.1:0", options).wait().expect("a hub with a folder");
        Self { node: join(&hub, "node"), hub, _folder: folder }
    }

    pub fn with_orders() -> (Self, Stream) {
        let place = Self::new();
        let orders = place.orders();
        (place, orders)
    }

    /// A stream `orders` that takes `orders.>`.
    pub fn orders(&self) -> Stream {
        self.node.stream_with("orders", StreamOptions::new(["orders.>"])).wait().expect("a stream")
    }
}

/// A hub in a process of its own, which can be killed, and begun again at the same place.
pub enum Away {
    Rust(Child),
    Python(Python),
}

/// Where the process of a hub has its folder, and listens.
const HUB: &str = "TIDEWIRE_STORY_HUB_WITH_DATA";

/// The hub of another process: this test is run by that alone.
#[test]
fn hub_of_another_process() {
    let Ok(place) = env::var(HUB) else { return };
    let (folder, url) = place.split_once(' ').expect("a folder and a URL");
    let hub = Node::listen(url, NodeOptions::named("hub").data(folder)).wait().expect("a hub with a folder");
    println!("listens at {}", hub.urls()[0]);
    // The process ends when its parent closes the pipe.
    let _ = std::io::stdin().read(&mut [0]);
}

impl Away {
    /// A hub of Rust, and where it listens.
    pub fn rust(folder: &Path, url: &str) -> (Self, String) {
        let mut command = Command::new(env::current_exe().expect("it is known"));
        command.args(["hubs::hub_of_another_process", "--exact", "--nocapture"]);
        command.env(HUB, format!("{} {url}", folder.display())).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let said =
            lines.map_while(Result::ok).find_map(|line| line.split_once("listens at ").map(|(_, url)| url.to_owned()));
        (Self::Rust(child), said.expect("it listens"))
    }

    /// A hub of Python, and where it listens. None where there is no Python with the extension.
    pub fn python(folder: &Path, url: &str) -> Option<(Self, String)> {
        let mut python = Python::start_with("hubs.py", &[])?;
        python.say(&format!("{} {url}", folder.display()));
        let url = python.line();
        Some((Self::Python(python), url))
    }

    /// Ends it with SIGKILL.
    pub fn kill(&mut self) {
        match self {
            Self::Rust(child) => {
                child.kill().expect("it runs");
                child.wait().expect("it has ended");
            }
            Self::Python(python) => python.kill(),
        }
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        if let Self::Rust(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
