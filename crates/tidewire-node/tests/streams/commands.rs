//! Commands at hubs of Rust and of Python: started, followed and found again by their ids.

use std::collections::BTreeMap;
use std::time::Duration;

use tidewire_node::streams::{CommandRun, Stage, StartOptions};
use tidewire_node::{ErrorCode, Node, NodeOptions, Priority};

use crate::hubs::Folder;
use crate::support::in_time;
use crate::support::python::Python;

/// A hub with a data folder, a worker of Python, and a node that has joined the hub. Commands
/// complete once the test lets them.
struct Site {
    python: Python,
    node: Node,
    _hub: Option<Node>,
    _folder: Folder,
}

impl Site {
    fn new(is_rust: bool) -> Option<Self> {
        let folder = Folder::new();
        let listen = || Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub").data(&folder.0)).wait();
        let hub = is_rust.then(|| listen().expect("a hub with a folder"));
        let place = hub.as_ref().map_or_else(|| folder.0.to_string_lossy().into_owned(), |hub| hub.urls()[0].clone());
        let python = Python::start_with("commands.py", &[&place])?;
        let node = Node::join(&python.line(), NodeOptions::named("shop")).wait().expect("it joins");
        Some(Self { python, node, _hub: hub, _folder: folder })
    }

    /// One with a hub of Rust, and one with a hub of Python.
    fn all() -> impl Iterator<Item = Self> {
        [true, false].into_iter().filter_map(Self::new)
    }
}

#[test]
fn a_command_is_started_before_somebody_does_it_followed_and_found_again() {
    Site::all().for_each(follow_a_command);
}

fn follow_a_command(Site { mut python, node, .. }: Site) {
    let commands = node.commands();
    let options = || StartOptions::default().key("shard-7").id("north-7").priority(Priority::High);
    let run = in_time(commands.start_with("books", "reindex", &(7,), options()));
    let info = in_time(run.info());
    assert_eq!(
        (info.stage, info.attempt, info.key.as_deref(), info.caller.as_str()),
        (Stage::Queued, 0, Some("shard-7"), "shop")
    );
    assert_eq!((info.priority.as_str(), info.worker, info.began, info.ended), ("high", None, None, None));
    assert!(info.created.elapsed().is_ok_and(|ago| ago < Duration::from_secs(600)));
    assert_eq!(in_time(run.result_within::<()>(Duration::from_millis(1))), None);
    let again = in_time(commands.start_with("books", "reindex", &(7,), options()));
    assert_eq!(again.id(), run.id());
    let other = commands.start_with("books", "reindex", &(8,), options()).wait().expect_err("it has other arguments");
    assert_eq!(other.code(), ErrorCode::SettingsDiffer);
    python.go_on();
    let mut reports = run.progress();
    for part in [1, 2] {
        let report = reports.next_blocking().expect("it goes on").expect("it is told");
        assert_eq!((report.fraction, report.note, report.attempt), (f64::from(part) / 2.0, format!("part {part}"), 1));
        python.go_on();
    }
    assert!(reports.next_blocking().is_none());
    let found: CommandRun = commands.find("north-7");
    let result: BTreeMap<String, tidewire_node::values::Value> = in_time(found.result());
    assert_eq!((result["shard"].as_i64(), result["name"].as_str()), (Some(7), Some("all")));
    let listed = in_time(commands.list(Some("books")));
    assert_eq!((listed.len(), listed[0].stage, listed[0].id.as_str()), (1, Stage::Succeeded, "north-7"));
    assert_eq!(in_time(commands.list(Some("others"))), []);
}

#[test]
fn arguments_go_by_position_and_by_name_and_what_fails_is_told() {
    Site::all().for_each(fail_commands);
}

fn fail_commands(Site { mut python, node, .. }: Site) {
    python.go_on();
    let commands = node.commands();
    let run = in_time(commands.start("books", "close_year", &2026));
    assert_eq!(in_time(run.result::<String>()), "2026 is closed");
    assert_eq!(in_time(run.info()).attempt, 2);
    let named = BTreeMap::from([("year", 2027)]);
    let failed = in_time(commands.start("books", "audit", &named));
    let error = failed.result::<()>().wait().expect_err("it has raised");
    assert_eq!(error.remote().map(|raised| raised.type_name.as_str()), Some("builtins:LookupError"));
    assert!(error.to_string().contains("no balance of 2026"), "{error}");
    assert!(in_time(failed.info()).error.contains("LookupError"));
    assert!(in_time(failed.retry()) && failed.result::<()>().wait().is_err());
    let unfit = in_time(commands.start("books", "audit", &("many", 2)));
    assert!(unfit.result::<()>().wait().is_err());
    let waits = in_time(commands.start("books", "waits", &()));
    assert!(in_time(waits.cancel()));
    assert_eq!(waits.result::<()>().wait().expect_err("it was cancelled").code(), ErrorCode::CallCancelled);
    assert_eq!(in_time(waits.info()).stage, Stage::Cancelled);
    let nothing = commands.find("nothing");
    assert_eq!(nothing.result::<()>().wait().expect_err("there is none").code(), ErrorCode::NotFound);
    assert_eq!(nothing.progress().next_blocking().expect("an error").expect_err("none").code(), ErrorCode::NotFound);
    for (service, id) in [("a b", "x"), ("books", "x y")] {
        let wrong = commands.start_with(service, "audit", &1, StartOptions::default().id(id)).wait();
        assert_eq!(wrong.expect_err("it is no name").code(), ErrorCode::InvalidArgument);
    }
}

#[test]
fn a_hub_without_a_place_for_commands_is_named() {
    let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait().expect("a hub");
    let told = hub.commands().start("books", "audit", &1).wait().expect_err("it has none");
    assert!(told.code() == ErrorCode::NoResponders && told.to_string().contains("tidewire up --data DIR"), "{told}");
}
