//! The suite that every storage backend passes, over the calls of a Python hub; one process has the
//! hubs of all cases. Also Python clients at a hub of Rust.

use std::sync::{Mutex, OnceLock, PoisonError};

use tidewire_node::streams::DurableHandler;
use tidewire_node::{Node, NodeOptions, Service};
use tidewire_testkit::homes::HomePlace;

use crate::hubs::{Folder, Place};
use crate::support::in_time;
use crate::support::python::Python;

tidewire_testkit::home_conformance!(crate::python::home);

pub fn home() -> Option<HomePlace> {
    static PROCESS: OnceLock<Option<Mutex<Python>>> = OnceLock::new();
    let process = PROCESS.get_or_init(|| Python::start_with("hubs.py", &[]).map(Mutex::new)).as_ref()?;
    let folder = Folder::new();
    let url = {
        let mut python = process.lock().unwrap_or_else(PoisonError::into_inner);
        python.say(&format!("{} tide://127.0.0.1:0", folder.0.display()));
        python.line()
    };
    let node = Node::join(&url, NodeOptions::named("node")).wait().expect("it joins");
    let home = node.home().wait().expect("the hub has a home");
    Some(HomePlace { home, keep: Box::new((node, folder)) })
}

#[test]
fn python_has_its_streams_at_a_hub_of_rust() {
    let place = Place::new();
    let Some(python) = Python::start_with("streams.py", &[&place.hub.urls()[0]]) else { return };
    python.expect("done");
    // A handler of Rust has the same consumer: the defaults of both languages are the same.
    let handler = DurableHandler::new("desk", "orders.*", |_, _: String| async { Ok(()) });
    in_time(place.node.serve(Service::new("desk").with_durable(handler)));
}
